"""``Verifier``: a token and the time ─► the user that it stands for.

    parse ─► audience: the resource server, and so the provider ─► key by its ID ─► signature
          ─► issuer ─► times ─► name, scopes

A key that is not there is ``KeyUnknown``: ``node/oauth`` fetches the provider's keys then, and asks
again.  Nothing of a token is believed before its signature.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, final

from penstock.broker.oauth.claims import scopes_in, user_name
from penstock.broker.oauth.scopes import Scopes
from penstock.broker.oauth.servers import OauthOptions, Provider
from penstock.broker.oauth.tokens import Token, TokenRefused, check_issuer, check_times, parse_token
from penstock.core.clock_types import WallMs

if TYPE_CHECKING:
    from penstock.broker.oauth.keys import KeyMap


class KeyUnknown(TokenRefused):
    """A provider's keys have none with the token's key ID."""

    def __init__(self, provider: str) -> None:
        super().__init__("the token's key is not known")
        self.provider: Final = provider


class TokenUser(NamedTuple):
    """``expires_ms``: wall time; None: never.  ``issuer``: as the configuration names it."""

    name: str
    tags: list[str]
    scopes: Scopes
    expires_ms: WallMs | None
    issuer: str


class ProviderKeys(NamedTuple):
    """What is known of a provider now; ``issuers``: its names, none = any."""

    keys: "KeyMap"
    issuers: frozenset[str]


CheckSignature = Callable[[Token, "KeyMap", "str | None", tuple[str, ...]], None]


@final
class Verifier:
    """``keys_of``: by the provider's name; ``check_signature``: that of ``keys``."""

    def __init__(
        self,
        options: OauthOptions,
        keys_of: Callable[[str], ProviderKeys],
        check_signature: CheckSignature,
    ) -> None:
        self._options: Final = options
        self._keys_of: Final = keys_of
        self._check_signature: Final = check_signature
        self._prefixes: Final = options.prefixes()

    def user_of(self, text: str, now_ms: WallMs) -> TokenUser:
        """Raises TokenRefused, and KeyUnknown."""
        token = parse_token(text)
        claims = token.claims
        server = self._options.server_for(claims.get("aud"))
        provider = self._options.providers[server.provider]
        known = self._keys_of(provider.name)
        self._check(token, provider, known)
        check_issuer(claims, known.issuers)
        expires_ms = check_times(claims, server.require_exp, now_ms)
        scopes = Scopes(scopes_in(claims, server), claims)
        name = user_name(claims, server, provider.username_prefix)
        self._check_name(name, provider.username_prefix)
        return TokenUser(name, scopes.tags, scopes, expires_ms, provider.issuer or provider.name)

    def _check_name(self, name: str, prefix: str) -> None:
        """By its name a user of one provider is none of another one's."""
        if any(len(prefix) < len(one) and name.startswith(one) for one in self._prefixes):
            raise TokenRefused("the user's name begins with the username_prefix of another issuer")

    def _check(self, token: Token, provider: Provider, known: ProviderKeys) -> None:
        key_id = token.key_id if token.key_id is not None else provider.default_key
        if token.algorithm not in provider.algorithms:
            raise TokenRefused("the token's algorithm is not allowed")
        if key_id not in known.keys:
            raise KeyUnknown(provider.name)
        self._check_signature(token, known.keys, key_id, provider.algorithms)
