"""The setting ``management_oauth``: single sign-on of the web UI.

In: JSON with RabbitMQ's keys behind ``management.``, and the resource servers of ``auth_oauth2``.
Out: ``SignOn``, or SettingInvalid.  The browser does the rest: authorisation code with PKCE
(RFC 7636), or, ``idp_initiated``, a form that the provider has it send.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from penstock.broker.oauth.servers import (
    OauthOptions,
    Provider,
    check_kinds,
    is_safe_address,
    oauth_options,
    read_json,
)
from penstock.core.errors import SettingInvalid
from penstock.settings.settings import Settings

KEY: Final = "management_oauth"
BY_PROVIDER: Final = "idp_initiated"
LOGON_TYPES: Final = ("sp_initiated", BY_PROVIDER)
RESPONSE_TYPE: Final = "code"
ADDRESSES: Final = ("oauth_provider_url", "oauth_metadata_url")
PARAMS: Final = ("oauth_authorization_endpoint_params", "oauth_token_endpoint_params")
SHOWN: Final = (
    *("oauth_client_id", "oauth_client_secret", "oauth_scopes", "oauth_disable_basic_auth"),
    *("oauth_initiated_logon_type", *PARAMS),
)
"""What ``/api/auth`` says at its top, if it is configured."""
OF_SERVERS: Final = (*ADDRESSES, *PARAMS)
"""What ``/api/auth`` says of each resource server, also where it stands at the top."""
CLIENT_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **dict.fromkeys(ADDRESSES, str),
    **dict.fromkeys(("oauth_client_id", "oauth_client_secret", "oauth_scopes"), str),
    **dict.fromkeys(("oauth_response_type", "oauth_initiated_logon_type"), str),
    **dict.fromkeys(PARAMS, dict),
}
TOP_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **CLIENT_KEYS,
    "oauth_enabled": bool,
    "oauth_disable_basic_auth": bool,
    "oauth_resource_servers": dict,
}
SERVER_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **CLIENT_KEYS,
    "id": str,
    "label": str,
    "disabled": bool,
}
HOST: Final = re.compile(r"[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]")

Json = dict[str, Any]


class SignOn(NamedTuple):
    """``answer``: of ``/api/auth``, as RabbitMQ's; empty = there is no single sign-on.

    ``origins``: of providers, to which the scripts of the web UI connect; ``by_provider``: whether
    pages of providers may begin a session with a token.
    """

    answer: Json
    origins: tuple[str, ...] = ()
    by_provider: bool = False


OFF: Final = SignOn({})


def sign_on(settings: Settings) -> SignOn:
    """Raises SettingInvalid."""
    if not settings.management_oauth:
        return OFF
    top = read_json(KEY, settings.management_oauth, TOP_KEYS)
    _check(KEY, top)
    if not top.get("oauth_enabled", False):
        return OFF
    backends = "/".join((*settings.auth_backends, settings.auth_cache_backend)).split("/")
    if "oauth2" not in backends:
        raise SettingInvalid(f"{KEY}: oauth_enabled needs oauth2 in auth_backends")
    options = oauth_options(settings.auth_oauth2)
    servers = dict(_servers(top, options))
    if not servers:
        raise SettingInvalid(
            f"{KEY}: no resource server has a provider (auth_oauth2.issuer, or oauth_provider_url)"
            " and an oauth_client_id"
        )
    shown = {key: top[key] for key in SHOWN if top.get(key, LOGON_TYPES[0]) != LOGON_TYPES[0]}
    answer = {"oauth_enabled": True, "oauth_disable_basic_auth": True, **shown}
    used = [options.providers[options.servers[name].provider] for name in servers]
    return SignOn(
        {**answer, "oauth_resource_servers": servers},
        tuple(sorted({_origin(one) for one in _addresses([*servers.values()], used)})),
        any(_logon_type(top, server) == BY_PROVIDER for server in servers.values()),
    )


def _servers(top: Json, options: OauthOptions) -> Iterator[tuple[str, Json]]:
    """Those with which a user can log in."""
    written: dict[str, Json] = {}
    for name, values in top.get("oauth_resource_servers", {}).items():
        where = f"{KEY}.oauth_resource_servers.{name}"
        check_kinds(where, values, SERVER_KEYS)
        _check(where, values)
        server_id = values.get("id", name)
        if server_id not in options.servers:
            raise SettingInvalid(f"{where}: auth_oauth2 has no resource server {server_id!r}")
        written[server_id] = values
    for server in options.servers.values():
        own = written.get(server.id, {})
        found: Json = {
            "id": server.id,
            **_of_provider(options.providers[server.provider]),
            **{key: top[key] for key in OF_SERVERS if key in top},
            **own,
        }
        is_client = bool(found.get("oauth_client_id") or top.get("oauth_client_id"))
        if own.get("disabled", False) or not found.get("oauth_provider_url"):
            continue
        if is_client or _logon_type(top, own) == BY_PROVIDER:
            yield server.id, found


def _of_provider(provider: Provider) -> Json:
    found = {
        "oauth_provider_url": provider.issuer,
        "oauth_metadata_url": provider.discovery_uri,
        "end_session_endpoint": provider.end_session_endpoint,
    }
    return {key: value for key, value in found.items() if value}


def _logon_type(top: Json, server: Json) -> str:
    key = "oauth_initiated_logon_type"
    return str(server.get(key, top.get(key, LOGON_TYPES[0])))


def _check(where: str, values: Json) -> None:
    for key in ADDRESSES:
        if key in values and not is_safe_address(values[key]):
            raise SettingInvalid(f"{where}.{key} is no https:// address")
    if values.get("oauth_response_type", RESPONSE_TYPE) != RESPONSE_TYPE:
        raise SettingInvalid(f"{where}.oauth_response_type is not {RESPONSE_TYPE}")
    if _logon_type({}, values) not in LOGON_TYPES:
        raise SettingInvalid(
            f"{where}.oauth_initiated_logon_type is not one of {', '.join(LOGON_TYPES)}"
        )
    for key in PARAMS:
        if not all(isinstance(one, str) for one in values.get(key, {}).values()):
            raise SettingInvalid(f"{where}.{key} has values that are no texts")


def _addresses(servers: list[Json], providers: list[Provider]) -> Iterator[str]:
    """To which a script of the UI connects: documents, and endpoints of tokens."""
    for server in servers:
        yield from (server[key] for key in ADDRESSES if key in server)
    yield from (one.token_endpoint for one in providers if one.token_endpoint)


def _origin(address: str) -> str:
    """As a content security policy has it.  Raises SettingInvalid."""
    parts = urlsplit(address)
    name = parts.hostname or ""
    host = f"[{name}]" if ":" in name else name
    if not HOST.fullmatch(host):
        raise SettingInvalid(f"{KEY}: {address!r} has no host that a browser's policy can name")
    return f"{parts.scheme}://{host}" + ("" if parts.port is None else f":{parts.port}")
