"""Passwords of shovels and federation links, and the files that their URIs name.

A policymaker writes the URI, so it decides neither: a password goes where its entry of
``link_passwords`` says, and files of certificates and keys are where ``link_tls_dirs`` says.
"""

import os
from pathlib import Path

from penstock.core.amqp_uri import FILES, PORTS, AmqpUri
from penstock.core.errors import SettingInvalid
from penstock.secrets.sources import revealed
from penstock.settings.listener_table import host_and_port, stays_here
from penstock.settings.secrets import link_place
from penstock.settings.settings import Settings


def link_uri(settings: Settings, uri: AmqpUri) -> AmqpUri:
    """With the password that an entry has for it.  Raises SettingInvalid."""
    _check_files(settings, uri)
    if uri.user is None or uri.password is not None:
        return uri
    return uri._replace(password=_password(settings, uri))


def _check_files(settings: Settings, uri: AmqpUri) -> None:
    """In the files of the data directory a client may have written a certificate of its own."""
    for option in FILES:
        file = uri.options.get(option)
        if file is None:
            continue
        if settings.data_dir and _is_below(settings.data_dir, file):
            raise SettingInvalid(f"the {option} of a link must not be in data_dir")
        if not any(_is_below(one, file) for one in settings.link_tls_dirs):
            raise SettingInvalid(f"link_tls_dirs names no directory in which {option} {file!r} is")


def _is_below(directory: str, file: str) -> bool:
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(directory))


def _password(settings: Settings, uri: AmqpUri) -> str | None:
    """None = no entry is for this user and host.

    Raises SettingInvalid where there are entries, and the URI leads elsewhere.
    """
    is_known = False
    for entry in settings.link_passwords:
        place, _, source = entry.partition("=")
        for there in _places(place):
            if (there.user, there.host) == (uri.user, uri.host):
                is_known = True
                if (there.tls, there.port) == (uri.tls, uri.port):
                    _check_proof(uri)
                    return revealed(source, f"link_passwords: {place}", settings)
    if not is_known:
        return None
    scheme = "amqps" if uri.tls else "amqp"
    wanted = f"{scheme}://{uri.user}@{host_and_port(uri.host, uri.port)}"
    raise SettingInvalid(
        f"link_passwords has no password of {uri.user} for this scheme and port: an entry"
        f" {wanted}=… would send it there{'' if uri.tls else ' in the clear'}"
    )


def _places(text: str) -> list[AmqpUri]:
    """Of an entry without a scheme TLS, and on this machine plain AMQP."""
    if "://" in text:
        return [one for one in (link_place(text),) if one]
    found = (link_place(f"{scheme}://{text}") for scheme in PORTS)
    return [one for one in found if one and (one.tls or stays_here(one.host))]


def _check_proof(uri: AmqpUri) -> None:
    name = uri.options.get("server_name_indication", uri.host)
    if uri.tls and (uri.options.get("verify") == "verify_none" or name != uri.host):
        raise SettingInvalid(
            "a password of link_passwords goes only to a server whose certificate is verified for"
            " the URI's host: no verify_none and no other server_name_indication"
        )
