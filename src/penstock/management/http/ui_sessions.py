"""``UiSessions``: log-ins of the web UI, so that a browser need not keep a password.

    POST /api/penstock/session, with a name and a password ─► begin ─► a random token in a cookie
    a request with that cookie ─► find ─► the log-in; ``Context.resume`` compares it with the user
    log-out, too old, too long unused, the user changed, the broker restarted ─► the session is over

Scripts cannot read the cookie, and browsers do not send it for pages of other sites.  They do send
it for pages at another port of this host, so it counts only in a request that has the header
``X-Requested-With`` as well: such a page may not set it, since no answer of this API allows it to.
The token is nowhere but in memory, and known to one node.
"""

import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from aiohttp import web

from penstock.management.http.access import Visitor

IDLE_MAX_S: Final = 3600.0
AGE_MAX_S: Final = 8 * 3600.0
SESSIONS_MAX: Final = 1024
SESSIONS_OF_USER_MAX: Final = 32
"""For one more, the session of that user (or of all) that was unused longest ends."""
TOKEN_BYTES: Final = 32
PATH: Final = "/api/"
SCRIPT_HEADER: Final = "X-Requested-With"


class _Session(NamedTuple):
    visitor: Visitor
    """As of the last request."""
    begun_s: float
    used_s: float


class UiSessions:
    """Of one node; used on the loop of the management API."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._sessions: dict[str, _Session] = {}  # by token, the one unused longest first

    def begin(self, visitor: Visitor, before: str = "") -> str:
        """The session's token.

        ``before``: of the session that it takes over.  With a new token of OAuth 2 of the same
        user that one goes on, since other tabs and open streams have it.
        """
        old = self._sessions.pop(before, None)
        goes_on = (
            old is not None
            and visitor.external is not None
            and old.visitor.external is not None
            and old.visitor.name == visitor.name
        )
        own = [
            token
            for token, session in self._sessions.items()
            if session.visitor.name == visitor.name
        ]
        if len(own) >= SESSIONS_OF_USER_MAX:
            self.end(own[0])
        elif len(self._sessions) >= SESSIONS_MAX:
            self.end(next(iter(self._sessions)))
        token = before if goes_on else secrets.token_urlsafe(TOKEN_BYTES)
        now_s = self._now_s()
        self._sessions[token] = _Session(visitor, now_s, now_s)
        return token

    def find(self, token: str) -> Visitor | None:
        """As of the session's last request; None = there is no such session, or it is over."""
        session = self._sessions.get(token)
        if session is None:
            return None
        now_s = self._now_s()
        if now_s - session.used_s > IDLE_MAX_S or now_s - session.begun_s > AGE_MAX_S:
            self.end(token)
            return None
        return session.visitor

    def used(self, token: str, before: Visitor, visitor: Visitor) -> None:
        """A request of ``before`` came, and the user is as in ``visitor``."""
        session = self._sessions.get(token)
        if session is not None and session.visitor is before:  # neither ended nor renewed meanwhile
            del self._sessions[token]
            self._sessions[token] = _Session(visitor, session.begun_s, self._now_s())

    def end(self, token: str) -> None:
        self._sessions.pop(token, None)


def shown_token(request: web.Request) -> str:
    """The token that the request's cookie has; "" = none that counts."""
    if SCRIPT_HEADER not in request.headers:
        return ""
    return request.cookies.get(_cookie_name(request), "")


def set_cookie(request: web.Request, response: web.Response, token: str) -> None:
    """The cookie ends with the browser.  Behind a proxy with TLS only ``Origin`` tells of TLS."""
    by_tls = request.secure or request.headers.get("Origin", "").startswith("https:")
    response.set_cookie(
        _cookie_name(request), token, path=PATH, httponly=True, samesite="Strict", secure=by_tls
    )


def delete_cookie(request: web.Request, response: web.Response) -> None:
    response.del_cookie(_cookie_name(request), path=PATH, httponly=True, samesite="Strict")


def _cookie_name(request: web.Request) -> str:
    """With the port: cookies are of a host, which may have several brokers."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    return f"penstock_session_{name[1] if isinstance(name, tuple) else ''}"
