"""Passwords of shovels and federation links, which ``link_passwords`` keeps out of URIs.

A policymaker writes the URI, so it decides nothing: a password goes where its entry says.
"""

import os
from pathlib import Path

from penstock.core.amqp_uri import PORTS, AmqpUri
from penstock.core.errors import SettingInvalid
from penstock.secrets.sources import revealed
from penstock.settings.listener_table import host_and_port, stays_here
from penstock.settings.secrets import link_place
from penstock.settings.settings import Settings


def link_password(settings: Settings, uri: AmqpUri) -> str | None:
    """Of a URI with a user and no password, None = no entry is for this user and host.

    Raises SettingInvalid where there are entries, and the URI leads elsewhere.
    """
    is_known = False
    for entry in settings.link_passwords:
        place, _, source = entry.partition("=")
        for there in _places(place):
            if (there.user, there.host) == (uri.user, uri.host):
                is_known = True
                if (there.tls, there.port) == (uri.tls, uri.port):
                    _check_proof(uri, settings.data_dir)
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


def _check_proof(uri: AmqpUri, data_dir: str) -> None:
    """In the files of the data directory a client may have written a certificate of its own."""
    name = uri.options.get("server_name_indication", uri.host)
    if uri.tls and (uri.options.get("verify") == "verify_none" or name != uri.host):
        raise SettingInvalid(
            "a password of link_passwords goes only to a server whose certificate is verified for"
            " the URI's host: no verify_none and no other server_name_indication"
        )
    authority = os.path.realpath(uri.options.get("cacertfile", "/"))
    if uri.tls and data_dir and Path(authority).is_relative_to(os.path.realpath(data_dir)):
        raise SettingInvalid("a cacertfile for link_passwords is outside of data_dir")
