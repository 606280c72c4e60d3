"""Files that only the broker's account should read: which they are, and which are open to others.

OpenSSH and Erlang's cookie refuse a file that is open to others; here it is a warning, for what
mounts secrets into a container (Kubernetes, Compose) makes them readable to all its accounts, of
which there is one.  ``cluster_secret_file`` is refused (``protocols.peers.access``).
"""

import os
import re
import stat
from collections.abc import Iterator
from typing import Final

from penstock.settings.kinds import is_plain
from penstock.settings.settings import SECRETS, Settings
from penstock.settings.tls import tls_view

LISTS: Final = ("https_tls", "prometheus_tls", "nsq_tls", "nsqlookupd_tls", "cluster_tls")
KEYS: Final = ("cluster_etcd_keyfile", "cluster_tls_keyfile", "auth_http_ssl_keyfile")
JSON: Final = ("static_shovels", "vhost_defaults", "auth_oauth2", "management_oauth")
PASSWORD_IN_JSON: Final = re.compile(r'://[^/@"]*:[^/@"]+@|"password"\s*:|client_secret')
WITH_HASHES: Final = "load_definitions"


def secret_files(settings: Settings) -> Iterator[tuple[str, str]]:
    """Each file with a secret, after the setting that names it."""
    for key in sorted(SECRETS - {"ssl_password"}):
        yield from _file_of(key, str(settings.value_of(key)))
    for entry in settings.link_passwords:
        yield from _file_of("link_passwords", entry.partition("=")[2])
    for key in (*KEYS, WITH_HASHES):
        yield key, str(settings.value_of(key))
    common = {path: key for key, path in _of_tls(settings, "ssl")}
    yield from ((key, path) for path, key in common.items())
    for key in LISTS:
        found = _of_tls(tls_view(settings, key), key)
        yield from ((name, path) for name, path in found if path not in common)
    if plain_secrets(settings, "file"):
        yield "the configuration, which has secrets,", settings.file_name


def _of_tls(view: Settings, key: str) -> Iterator[tuple[str, str]]:
    yield f"{key}_keyfile" if key == "ssl" else key, view.ssl_keyfile
    yield from _file_of(f"{key}_password" if key == "ssl" else key, view.ssl_password)
    for entry in view.ssl_sni:
        certificate, _, keyfile = entry.partition("=")[2].partition(":")
        yield "ssl_sni", keyfile or certificate


def _file_of(key: str, text: str) -> Iterator[tuple[str, str]]:
    if text.startswith("file:"):
        yield key, text.removeprefix("file:")


def plain_secrets(settings: Settings, source: str = "") -> list[str]:
    """Settings whose secret stands in the configuration itself, or in one kind of source."""
    return [
        key
        for key in sorted(SECRETS)
        if is_plain(text := str(settings.value_of(key)))
        and (key not in JSON or PASSWORD_IN_JSON.search(text))
        and settings.source_of(key) != "default"
        and settings.source_of(key).startswith(source)
    ]


def open_to_others(settings: Settings) -> list[str]:
    """A sentence for each that other accounts of this machine may read or change."""
    found = dict.fromkeys(
        _sentence(key, path) for key, path in secret_files(settings) if path and _is_open(path)
    )
    return list(found)


def _is_open(path: str) -> bool:
    """A group that root gave a file to may read it; what is missing is named where it is read."""
    try:
        found = os.stat(path)
    except OSError:
        return False
    mode = stat.S_IMODE(found.st_mode)
    by_group = 0o020 if found.st_uid == 0 and os.geteuid() else 0o070
    return bool(mode & (0o007 | by_group))


def _sentence(key: str, path: str) -> str:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    return f"{key} = {path!r} is open to other accounts (mode {mode:04o}): chmod 600 it"
