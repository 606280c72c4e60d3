"""What of a configuration falls short of a hardened one: ``penstock config check --hardened``.

``ROWS`` is the one table: the check, and the table of docs/guide/hardening.md (a test compares).
Only the configuration and the modes of files are looked at, nothing is asked of a node: limits of
users and virtual hosts are definitions, of which only those for new virtual hosts are settings.
"""

import os
import re
import ssl
import stat
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from penstock.core.errors import SettingInvalid
from penstock.core.json_reading import json_of
from penstock.secrets.modes import open_to_others, plain_secrets
from penstock.secrets.sources import secret_of
from penstock.settings.entry import ALLOW, PROXY
from penstock.settings.kinds import ENCRYPTED
from penstock.settings.listener_table import (
    METRICS,
    NOTHING,
    PAGES,
    PEER,
    PING,
    SUMS,
    ListenerKind,
    etcd_risks,
    open_listeners,
    stays_here,
)
from penstock.settings.secrets import link_place
from penstock.settings.settings import SECRETS, Settings
from penstock.settings.tls import tls_view

ITERATIONS_MIN: Final = 100_000
PASSWORD_MIN_BYTES: Final = 12


class Row(NamedTuple):
    """``shortcomings``: what is not as ``asked``, as the end of 'NAME: ...'."""

    name: str
    asked: str
    cure: str
    shortcomings: Callable[[Settings], Iterator[str] | list[str]]


class Shortcoming(NamedTuple):
    name: str
    what: str
    cure: str


def shortcomings(settings: Settings) -> list[Shortcoming]:
    """In the order of the table."""
    return [
        Shortcoming(row.name, what, row.cure) for row in ROWS for what in row.shortcomings(settings)
    ]


# -- listeners -------------------------------------------------------------------------------------


def _is_far(kind: ListenerKind, settings: Settings) -> bool:
    return not (kind.is_unix or stays_here(kind.address(settings)))


def _named(kind: ListenerKind, settings: Settings) -> str:
    return f"{kind.place_key} ({kind.place(settings)})"


def _plain_listeners(settings: Settings) -> Iterator[str]:
    for kind in open_listeners(settings):
        if not _is_far(kind, settings):
            continue
        if kind.protocol == PEER:
            is_encrypted = bool(settings.cluster_tls_certfile)
        elif kind.begins_plain:
            is_encrypted = kind.speaks_tls(settings) and settings.nsq_tls_required != "no"
        else:
            is_encrypted = kind.speaks_tls(settings)
        if not is_encrypted:
            yield _named(kind, settings)


def _weak_tls(settings: Settings) -> Iterator[str]:
    seen = set()
    for kind in open_listeners(settings):
        if kind.tls is None or kind.tls in seen or not kind.speaks_tls(settings):
            continue
        seen.add(kind.tls)
        view = tls_view(settings, kind.tls)
        if view.ssl_min_version == "1.2" and view.ssl_max_version != "1.1":
            weak = _weak_ciphers(view.ssl_ciphers)
            if weak:
                yield f"{kind.tls or 'ssl_ciphers'} offers {', '.join(weak)}"


def _weak_ciphers(ciphers: str) -> list[str]:
    """Those of TLS 1.2 without forward secrecy, or without authenticated encryption."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        if ciphers:
            context.set_ciphers(ciphers)
    except ssl.SSLError:
        return []  # the start refuses it
    return [
        str(one["name"])
        for one in context.get_ciphers()
        if one["protocol"] != "TLSv1.3"
        and not (one.get("aead") and one.get("kea") in ("kx-ecdhe", "kx-dhe"))
    ]


def _open_without_log_in(settings: Settings) -> Iterator[str]:
    for kind in open_listeners(settings):
        allowed = kind.without_log_in(settings)
        if allowed in (NOTHING, PING, PAGES, SUMS):
            continue
        if kind.protocol.endswith(METRICS.partition("/")[2]) and not _is_far(kind, settings):
            continue
        if kind.title == "nsqlookupd" and not _is_far(kind, settings):
            continue
        yield f"{_named(kind, settings)}: {allowed}"


def _proxies(settings: Settings) -> list[str]:
    named = any(rule.startswith(f"{PROXY} {ALLOW} ") for rule in settings.address_rules)
    return ["address_rules name no proxy"] if settings.proxy_protocol and not named else []


# -- users -----------------------------------------------------------------------------------------


def _default_user(settings: Settings) -> Iterator[str]:
    if settings.load_definitions:
        return
    if settings.default_user == "guest":
        yield "default_user is guest"
    try:
        if secret_of(settings, "default_pass") in ("guest", settings.default_user):
            yield "default_pass is guest, or the user's name"
    except SettingInvalid as error:
        yield str(error)


def _hashing(settings: Settings) -> list[str]:
    found = settings.password_hashing
    return [] if found == "scrypt" else [f"password_hashing is {found}"]


def _password_rule(settings: Settings) -> list[str]:
    rule, least = settings.password_rule, settings.password_min_length
    if rule == "accept_everything":
        return ["password_rule is accept_everything"]
    short = rule == "min_password_length" and least < PASSWORD_MIN_BYTES
    return [f"password_min_length is {least}"] if short else []


def _loopback(settings: Settings) -> list[str]:
    return [] if "guest" in settings.loopback_users else ["loopback_users lacks guest"]


def _backends(settings: Settings) -> Iterator[str]:
    if not any(
        "http" in one.split("/") for one in (*settings.auth_backends, settings.auth_cache_backend)
    ):
        return
    for kind in ("user", "vhost", "resource", "topic"):
        key = f"auth_http_{kind}_path"
        url = str(settings.value_of(key))
        host = re.sub(r"^http://(\[[^\]]*\]|[^:/]*).*", r"\1", url).strip("[]")
        if url.startswith("http://") and not stays_here(host):
            yield f"{key} is asked without TLS"
    if settings.auth_http_ssl_verify == "verify_none":
        yield "auth_http_ssl_verify is verify_none"


def _plain_links(settings: Settings) -> Iterator[str]:
    for entry in settings.link_passwords:
        place = entry.partition("=")[0]
        there = link_place(place)
        if there and not there.tls and not stays_here(there.host):
            yield f"link_passwords sends that of {place} in the clear"


# -- the rest --------------------------------------------------------------------------------------


def _limits(settings: Settings) -> Iterator[str]:
    for key in ("connection_max_per_address", "connection_rate_per_address_per_s"):
        if not settings.value_of(key):
            yield f"{key} is 0"
    try:
        limits = json_of(secret_of(settings, "vhost_defaults") or "{}").get("limits")
    except (SettingInvalid, ValueError, AttributeError) as error:
        yield f"vhost_defaults: {error}"
    else:
        if not limits:
            yield "vhost_defaults has no limits"


def _secrets(settings: Settings) -> Iterator[str]:
    for key in plain_secrets(settings):
        yield f"{key} stands in plain text ({settings.source_of(key)})"
    encrypted = any(ENCRYPTED in str(settings.value_of(key)) for key in SECRETS)
    if encrypted and settings.config_iterations < ITERATIONS_MIN:
        yield f"config_iterations is {settings.config_iterations}"


def _modes(settings: Settings) -> Iterator[str]:
    yield from open_to_others(settings)
    try:
        mode = stat.S_IMODE(os.stat(settings.data_dir).st_mode) if settings.data_dir else 0
    except OSError:
        return  # a start makes it, for its account only
    if mode & 0o077:
        yield f"data_dir = {settings.data_dir!r} is open to other accounts (mode {mode:04o})"


def _is_set(key: str) -> Callable[[Settings], list[str]]:
    return lambda settings: [f"{key} is true"] if settings.value_of(key) else []


def _is_off(key: str) -> Callable[[Settings], list[str]]:
    return lambda settings: [] if settings.value_of(key) else [f"{key} is false"]


ROWS: Final = (
    Row("plain listeners", "what other machines reach speaks TLS",
        "use the port with TLS and close this one, or bind it to 127.0.0.1", _plain_listeners),
    Row("plain passwords", "no password of another machine is taken without TLS",
        "plain_text_passwords = false", _is_set("plain_text_passwords")),
    Row("cipher suites", "TLS 1.3, or 1.2 with forward secrecy and authenticated encryption",
        'ssl_ciphers = "ECDHE+AESGCM:ECDHE+CHACHA20", or ssl_min_version = "1.3"', _weak_tls),
    Row("anonymous clients", "every client logs in, but for nsqlookupd and metrics of this machine",
        "nsq_auth_required = true or nsq = false; nsqlookupd_bind = 127.0.0.1",
        _open_without_log_in),
    Row("names in metrics", "names of queues and connections are for clients of this machine",
        "prometheus_objects_open = false", _is_set("prometheus_objects_open")),
    Row("proxies", "only those that a rule names say for whom they connect",
        'address_rules = ["proxy allow 10.0.0.5"]', _proxies),
    Row("default user", "neither guest nor its password",
        "default_user and default_pass, or load_definitions", _default_user),
    Row("guest", "guest logs in from this machine only", 'loopback_users = ["guest"]', _loopback),
    Row("password hashes", "scrypt", 'password_hashing = "scrypt"', _hashing),
    Row("new passwords", f"{PASSWORD_MIN_BYTES} bytes at least, or a pattern",
        'password_rule = "min_password_length", password_min_length = 12', _password_rule),
    Row("servers of users", "they are asked by TLS, and shown to be the right ones",
        "https:// in auth_http_..._path", _backends),
    Row("links", "passwords of links are sent by TLS", "amqps:// in link_passwords", _plain_links),
    Row("etcd", "a log-in and TLS, where it is on another machine",
        "cluster_etcd_user, cluster_etcd_tls", etcd_risks),
    Row("limits", "of connections of an address, their rate, and of new virtual hosts",
        "connection_max_per_address, connection_rate_per_address_per_s; limits in vhost_defaults",
        _limits),
    Row("audit trail", "it is written", "audit_trail = true", _is_off("audit_trail")),
    Row("secrets", "they are in files, printed by commands, or encrypted with many iterations",
        "file:, command: or encrypted:; config_iterations = 100000", _secrets),
    Row("modes", "files with secrets and the data directory are open to the broker's account only",
        "chmod 600, or 700 for a directory", _modes),
    Row("missing security", "no line that asks for security is passed over",
        "accept_missing_security = false", _is_set("accept_missing_security")),
)  # fmt: skip
