"""``OauthBackend``: log-ins with a token as password; the name that a client gives is not used.

    token ─► Verifier ─► TokenUser ─► Account with a TokenJudge
               └► its key is not there ─► the provider's keys are fetched, and it is asked again

A token whose key is known is answered at once.  Of those that wait for a fetch there are at most
``WAITING_MAX``.
"""

import logging
from collections.abc import Callable, Coroutine
from threading import BoundedSemaphore
from typing import Any, Final

from penstock.auth.oauth2.fetching import KeySource
from penstock.broker.oauth.keys import check_signature
from penstock.broker.oauth.scopes import VhostGrants
from penstock.broker.oauth.servers import oauth_options
from penstock.broker.oauth.tokens import TokenRefused
from penstock.broker.oauth.verifying import KeyUnknown, TokenUser, Verifier
from penstock.broker.rules.judges import (
    TOPIC,
    VHOST,
    Account,
    Backend,
    Credentials,
    Inquiry,
    Judge,
    Question,
)
from penstock.clocks import wall_ms
from penstock.core.clock_types import WallMs
from penstock.core.errors import AccessRefused

WAITING_MAX: Final = 256
VHOSTS_MAX: Final = 64
"""Of a session, whose grants are remembered."""
MISSING: Final = "there is no token"
SHARED_NAMES: Final = (
    "OAuth 2: users of several providers are the same user if they have the same name: give all"
    " but one provider a username_prefix"
)

logger = logging.getLogger("penstock.auth")


class TokenJudge(Judge):
    """What the scopes of one token allow."""

    def __init__(self, user: TokenUser, backend: "OauthBackend") -> None:
        self._scopes: Final = user.scopes
        self._backend: Final = backend
        self._grants: dict[str, VhostGrants | None] = {}

    def check(self, question: Question) -> None:
        if question.kind == VHOST:
            allowed = self._scopes.may_enter(question.vhost)
        else:
            grants = self._in_vhost(question.vhost)
            allowed = grants is not None and _allows(grants, question)
        if not allowed:
            raise AccessRefused("")

    def renew(self, secret: str) -> Inquiry:
        return self._backend.inquire(secret)

    def _in_vhost(self, vhost: str) -> VhostGrants | None:
        if vhost not in self._grants:
            if len(self._grants) >= VHOSTS_MAX:
                self._grants.clear()
            self._grants[vhost] = self._scopes.in_vhost(vhost)
        return self._grants[vhost]


def _allows(grants: VhostGrants, question: Question) -> bool:
    if question.kind == TOPIC:
        return grants.allows_topic(question.permission, question.name, question.routing_key)
    return grants.allows(question.permission, question.name)


class OauthBackend(Backend):
    """``start`` runs a coroutine on the thread of backends; ``wake`` wakes the data loop."""

    def __init__(
        self,
        setting: str,
        start: Callable[[Coroutine[Any, Any, None]], None],
        wake: Callable[[], None],
    ) -> None:
        """``setting``: ``auth_oauth2``.  Raises SettingInvalid."""
        options = oauth_options(setting)
        used = {server.provider for server in options.servers.values()}
        prefixes = options.prefixes()
        if len(set(prefixes)) < len(prefixes):
            logger.warning(SHARED_NAMES)
        self.name = "oauth2"
        self._sources: Final = {name: KeySource(options.providers[name]) for name in used}
        self._verifier: Final = Verifier(
            options, lambda provider: self._sources[provider].known, check_signature
        )
        self._start: Final = start
        self._wake: Final = wake
        self._free: Final = BoundedSemaphore(WAITING_MAX)
        for source in self._sources.values():
            start(source.refresh())

    def requests(self) -> tuple[int, int]:
        """For keys."""
        sources = self._sources.values()
        return sum(one.answered for one in sources), sum(one.failed for one in sources)

    def authenticate(self, asked: Credentials) -> Inquiry:
        if asked.password is None:
            inquiry = Inquiry()
            inquiry.deny(MISSING)
            return inquiry
        return self.inquire(asked.password)

    def inquire(self, token: str) -> Inquiry:
        """Whose token is that?"""
        inquiry = Inquiry()
        try:
            self._allow(inquiry, token)
        except KeyUnknown as unknown:
            self._ask_later(inquiry, token, unknown)
        except TokenRefused as refused:
            inquiry.deny(str(refused), True)
        for source in self._sources.values():
            if source.is_old() and not source.is_fetching():
                self._start(source.refresh())
        return inquiry

    def _allow(self, inquiry: Inquiry, token: str) -> None:
        """Raises TokenRefused."""
        user = self._verifier.user_of(token, wall_ms())
        expires_at_ms = WallMs(0) if user.expires_ms is None else user.expires_ms
        judge = TokenJudge(user, self)
        inquiry.allow(Account(user.name, user.tags, judge, expires_at_ms, issuer=user.issuer))

    def _ask_later(self, inquiry: Inquiry, token: str, unknown: KeyUnknown) -> None:
        source = self._sources[unknown.provider]
        if not (source.may_fetch() or source.is_fetching()):
            inquiry.deny(str(unknown), True)
        elif not self._free.acquire(blocking=False):
            inquiry.give_up("too many tokens wait for keys")
        else:
            self._start(self._answer(inquiry, token, source))

    async def _answer(self, inquiry: Inquiry, token: str, source: KeySource) -> None:
        try:
            await source.refresh()
            self._allow(inquiry, token)
        except TokenRefused as refused:
            inquiry.deny(str(refused), True)
        except Exception:
            logger.exception("OAuth 2: a token could not be judged")
            inquiry.give_up("a fault of the broker, see its log")
        finally:
            self._free.release()
            self._wake()
