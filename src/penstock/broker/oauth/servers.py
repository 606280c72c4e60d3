"""The setting ``auth_oauth2``: resource servers, and the providers whose tokens they take.

In: JSON with RabbitMQ's keys, a level for each dot (``auth_oauth2.https.verify`` is
``{"https": {"verify": …}}``); a list may be a JSON list as well.  What stands at the top holds for
the resource server and the provider without a name, and for each named one that does not say it
itself.  Out: ``OauthOptions``, or SettingInvalid, which names what is wrong.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

from penstock.broker.oauth.tokens import TokenRefused
from penstock.core.errors import SettingInvalid
from penstock.core.json_reading import json_of

KEY: Final = "auth_oauth2"
ROOT: Final = ""
"""The provider that is configured at the top."""
USERNAME_CLAIMS: Final = ("sub", "client_id")
DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
ASYMMETRIC: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
SYMMETRIC: Final = ("HS256", "HS384", "HS512")
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")

SERVER_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "id": str,
    "resource_server_type": str,
    "scope_prefix": str,
    "additional_scopes_key": str,
    "preferred_username_claims": (dict, list),
    "scope_aliases": dict,
    "verify_aud": bool,
    "require_exp": bool,
    "oauth_provider_id": str,
}
PROVIDER_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "issuer": str,
    "jwks_uri": str,
    "token_endpoint": str,
    "authorization_endpoint": str,
    "end_session_endpoint": str,
    "discovery_endpoint_path": str,
    "discovery_endpoint_params": dict,
    "default_key": str,
    "signing_keys": dict,
    "algorithms": (dict, list),
    "https": dict,
    "verify_iss": bool,
    "username_prefix": str,
}
TOP_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    **{key: kind for key, kind in SERVER_KEYS.items() if key not in ("id", "oauth_provider_id")},
    **PROVIDER_KEYS,
    "resource_server_id": str,
    "default_oauth_provider": str,
    "jwks_url": str,
    "resource_servers": dict,
    "oauth_providers": dict,
}
HTTPS_KEYS: Final[Mapping[str, type | tuple[type, ...]]] = {
    "cacertfile": str,
    "verify": str,
    "peer_verification": str,
}
VERIFY: Final = ("verify_peer", "verify_none")
ADDRESSES: Final = (
    *("issuer", "jwks_uri", "token_endpoint", "authorization_endpoint", "end_session_endpoint"),
)

Json = dict[str, Any]


@dataclass(frozen=True)
class ResourceServer:
    """A name by which tokens mean this broker, and how their scopes are read."""

    id: str
    type: str = ""
    verify_aud: bool = True
    require_exp: bool = True
    scope_prefix: str = ""
    additional_scopes: tuple[tuple[str, ...], ...] = ()
    username_claims: tuple[str, ...] = USERNAME_CLAIMS
    scope_aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    provider: str = ROOT


@dataclass(frozen=True)
class Provider:
    """Where tokens come from.  ``signing_keys``: by ID, a file name, or a key as JSON.

    ``jwks_uri``: "" = the document at ``discovery_uri`` names it, if there is one.
    ``username_prefix``: before the names of its users, so that no other provider has them.
    """

    name: str
    issuer: str = ""
    jwks_uri: str = ""
    discovery_uri: str = ""
    default_key: str | None = None
    signing_keys: Mapping[str, str | Json] = field(default_factory=dict)
    algorithms: tuple[str, ...] = ASYMMETRIC
    ca_file: str = ""
    verify_peer: bool = True
    verify_iss: bool = True
    username_prefix: str = ""
    token_endpoint: str = ""
    end_session_endpoint: str = ""


@dataclass(frozen=True)
class OauthOptions:
    """Both by ID."""

    servers: Mapping[str, ResourceServer]
    providers: Mapping[str, Provider]

    def prefixes(self) -> list[str]:
        """``username_prefix`` of each provider whose tokens are taken."""
        names = {server.provider for server in self.servers.values()}
        return sorted(self.providers[name].username_prefix for name in names)

    def server_for(self, audience: object) -> ResourceServer:
        """The one that the claim ``aud`` names, a text of words or a list.  Raises TokenRefused."""
        words = audience.split(" ") if isinstance(audience, str) else audience
        named = {one for one in words if isinstance(one, str)} if isinstance(words, list) else ()
        found = [server for server in self.servers.values() if server.id in named]
        if len(found) > 1:
            raise TokenRefused("the token is for several resource servers (aud)")
        if not found:
            found = [server for server in self.servers.values() if not server.verify_aud]
        if len(found) > 1:
            raise TokenRefused("the token names none of several resource servers (aud)")
        if not found:
            raise TokenRefused("the token is for another resource server, or for none (aud)")
        return found[0]


def oauth_options(text: str) -> OauthOptions:
    """Raises SettingInvalid."""
    top = read_json(KEY, text, TOP_KEYS)
    providers = _providers(top)
    servers = _servers(top)
    if not servers:
        raise SettingInvalid(f"{KEY}: neither resource_server_id nor resource_servers is there")
    for server in servers.values():
        if server.provider not in providers:
            raise SettingInvalid(f"{KEY}: there is no provider {server.provider!r}")
        provider = providers[server.provider]
        if not (provider.signing_keys or provider.jwks_uri or provider.discovery_uri):
            raise SettingInvalid(
                f"{KEY}: resource server {server.id!r}: its provider has neither signing_keys,"
                " jwks_uri nor issuer"
            )
    return OauthOptions(servers, providers)


def read_json(key: str, text: str, kinds: Mapping[str, type | tuple[type, ...]]) -> Json:
    """The object that is the value of a setting.  Raises SettingInvalid."""
    try:
        values = json_of(text)
    except ValueError as error:
        raise SettingInvalid(f"{key} is no JSON: {error}") from error
    check_kinds(key, values, kinds)
    return cast(Json, values)


def check_kinds(where: str, values: object, kinds: Mapping[str, type | tuple[type, ...]]) -> None:
    """Raises SettingInvalid, which names the key."""
    if not isinstance(values, dict):
        raise SettingInvalid(f"{where} is no JSON object")
    for key, value in values.items():
        if key not in kinds:
            raise SettingInvalid(f"{where}: {key} is not one of {', '.join(kinds)}")
        if not isinstance(value, kinds[key]):
            raise SettingInvalid(f"{where}: {key} has the wrong type")


# -- resource servers ------------------------------------------------------------------------


def _servers(top: Json) -> dict[str, ResourceServer]:
    servers: dict[str, ResourceServer] = {}
    if top.get("resource_server_id"):
        root = _server(KEY, top["resource_server_id"], top)
        servers[root.id] = root
    for name, values in top.get("resource_servers", {}).items():
        where = f"{KEY}.resource_servers.{name}"
        check_kinds(where, values, SERVER_KEYS)
        inherited = {key: top[key] for key in SERVER_KEYS if key in top}
        server = _server(where, values.get("id", name), {**top, **inherited, **values})
        servers[server.id] = server
    return servers


def _server(where: str, server_id: str, values: Json) -> ResourceServer:
    paths = values.get("additional_scopes_key", "").split()
    return ResourceServer(
        server_id,
        values.get("resource_server_type", ""),
        values.get("verify_aud", True),
        values.get("require_exp", True),
        values.get("scope_prefix", f"{server_id}."),
        tuple(tuple(part for part in path.split(".") if part) for path in paths),
        (*_listed(where, values, "preferred_username_claims"), *USERNAME_CLAIMS),
        _aliases(where, values.get("scope_aliases", {})),
        values.get("oauth_provider_id") or values.get("default_oauth_provider") or ROOT,
    )


def _aliases(where: str, written: Json) -> dict[str, tuple[str, ...]]:
    """Each as ``ALIAS: "SCOPE SCOPE"``, or by number as ``N: {"alias": …, "scope": …}``."""
    aliases: dict[str, tuple[str, ...]] = {}
    for name, value in written.items():
        is_numbered = isinstance(value, dict)
        alias = value.get("alias") if is_numbered else name
        scopes = value.get("scope") if is_numbered else value
        if not isinstance(alias, str) or not isinstance(scopes, str):
            raise SettingInvalid(f"{where}.scope_aliases.{name} needs an alias and a scope")
        aliases[alias] = tuple(scopes.split())
    return aliases


def _listed(where: str, values: Json, key: str) -> list[str]:
    """A list, or its entries by number."""
    found = values.get(key, [])
    if isinstance(found, dict):
        found = [found[number] for number in sorted(found, key=_natural)]
    if not all(isinstance(one, str) for one in found):
        raise SettingInvalid(f"{where}.{key} is no list of texts")
    return list(found)


def _natural(text: str) -> list[tuple[int, str]]:
    """As a key for sorting: 2 is before 10."""
    return [(int(one or 0), other) for one, other in re.findall(r"([0-9]{1,9})|([^0-9]+)", text)]


# -- providers -------------------------------------------------------------------------------


def _providers(top: Json) -> dict[str, Provider]:
    root = {key: top[key] for key in PROVIDER_KEYS if key in top}
    if "jwks_url" in top:
        root.setdefault("jwks_uri", top["jwks_url"])
    providers = {ROOT: _provider(KEY, ROOT, root)}
    for name, values in top.get("oauth_providers", {}).items():
        where = f"{KEY}.oauth_providers.{name}"
        check_kinds(where, values, PROVIDER_KEYS)
        providers[name] = _provider(where, name, values)
    return providers


def _provider(where: str, name: str, values: Json) -> Provider:
    for key in ADDRESSES:
        if key in values and not is_safe_address(values[key]):
            raise SettingInvalid(f"{where}.{key} is no https:// address")
    https = values.get("https", {})
    check_kinds(f"{where}.https", https, HTTPS_KEYS)
    verify = https.get("verify", https.get("peer_verification", VERIFY[0]))
    if verify not in VERIFY:
        raise SettingInvalid(f"{where}.https.verify is not one of {', '.join(VERIFY)}")
    return Provider(
        name,
        values.get("issuer", ""),
        values.get("jwks_uri", ""),
        _discovery_uri(where, values),
        values.get("default_key"),
        _signing_keys(where, values.get("signing_keys", {})),
        _algorithms(where, values),
        https.get("cacertfile", ""),
        verify == VERIFY[0],
        values.get("verify_iss", True),
        values.get("username_prefix", ""),
        values.get("token_endpoint", ""),
        values.get("end_session_endpoint", ""),
    )


def is_safe_address(address: str) -> bool:
    """Of https, or of this machine: keys that come over a network in plain prove nothing."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and host in LOCAL_HOSTS)
    )


def _discovery_uri(where: str, values: Json) -> str:
    if "issuer" not in values:
        return ""
    path = values.get("discovery_endpoint_path", DISCOVERY_PATH).lstrip("/")
    params = values.get("discovery_endpoint_params", {})
    if not all(isinstance(one, str) for one in params.values()):
        raise SettingInvalid(f"{where}.discovery_endpoint_params has values that are no texts")
    query = "&".join(f"{quote(key, '')}={quote(value, '')}" for key, value in params.items())
    return f"{values['issuer'].rstrip('/')}/{path}" + (f"?{query}" if query else "")


def _signing_keys(where: str, written: Json) -> dict[str, str | Json]:
    for key_id, value in written.items():
        if not isinstance(value, str | dict):
            raise SettingInvalid(f"{where}.signing_keys.{key_id} is no file name and no JSON key")
    return written


def _algorithms(where: str, values: Json) -> tuple[str, ...]:
    """Those of public keys, unless others are listed; HMAC is used with keys of this file only."""
    algorithms = tuple(_listed(where, values, "algorithms"))
    known = (*ASYMMETRIC, *SYMMETRIC)
    for one in algorithms:
        if one not in known:
            raise SettingInvalid(f"{where}.algorithms: {one} is not one of {', '.join(known)}")
    symmetric = any(isinstance(one, dict) for one in values.get("signing_keys", {}).values())
    return algorithms or (known if symmetric else ASYMMETRIC)
