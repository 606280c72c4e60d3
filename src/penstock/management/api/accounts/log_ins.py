"""Log-ins over HTTP: attempts, locked-out users, how to log in, the web UI's session.

GET      /api/auth/attempts/{node}    log-ins since the start, by protocol that had some; no
sources: RabbitMQ does not track them by default
POST     /api/login                   a form with username and password, or with the
access_token of a provider: begins a session
POST     /api/penstock/session        with basic authentication or a bearer's token: begins a
session, sets its cookie; a new token of the same user
renews it (``management/http/ui_sessions``)
"""

import asyncio
import secrets
from typing import Final

from aiohttp import web

from penstock.broker.rules.access import SALT_BYTES, hash_password
from penstock.broker.rules.judges import NAMELESS
from penstock.core.errors import AccessRefused, EntryRefused, NotFound
from penstock.management.facts.rows import Row
from penstock.management.http.access import Operator, Visitor, login_failed
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery
from penstock.management.http.ui_sessions import delete_cookie, set_cookie, shown_token

FORM_TIMEOUT_S: Final = 10.0
FORM_MAX_BYTES: Final = 64 * 1024
"""Of a client that has not logged in; a token has half of that at most."""
BEGUN: Final = "/?session"
"""The page of the web UI that takes up the session in the cookie."""


class LogInsApi(Endpoints):
    heading = "log-ins"
    table = """
        user  penstock/session  POST=log_in DELETE=log_out  The session of a browser
        monitoring     auth/attempts/{node}  GET=attempts DELETE=forget_attempts  \
            Log-ins by protocol
        monitoring     auth/attempts/{node}/source  GET=sources DELETE=forget_attempts  Not tracked
        administrator  penstock/lockouts  GET=lockouts  Locked-out users
        administrator  penstock/auth-cache  DELETE=forget_answers  Ask servers of users anew
        administrator  penstock/lockouts/{user}  DELETE=unlock  Let the user log in again
        user           auth/hash_password/{password}  GET=hash  A hash
        open           auth  GET=auth  How to log in
        open           login  POST=login  Try a password
    """

    async def attempts(self, request: web.Request, visitor: Visitor) -> web.Response:
        self._context.must_be_us(request.match_info["node"])
        counts = await self._on_loop(self._broker.users.counts)
        return json_response([_attempts(name, *of) for name, of in counts.items() if of[0]])

    async def forget_answers(self, _request: web.Request, _visitor: Visitor) -> None:
        for backend in await self._on_loop(self._broker.users.backends):
            backend.forget()

    async def lockouts(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        found = await self._on_loop(self._broker.users.lockouts)
        return json_response([dict(one._asdict()) for one in found])

    async def unlock(self, request: web.Request, _visitor: Visitor) -> None:
        name = request.match_info["user"]
        if not await self.change(self._broker.users.end_lockouts, name):
            raise NotFound(f"user '{name}' is not locked out")

    async def sources(self, request: web.Request, visitor: Visitor) -> web.Response:
        self._context.must_be_us(request.match_info["node"])
        return json_response([])

    async def forget_attempts(self, request: web.Request, visitor: Visitor) -> None:
        self._context.must_be_us(request.match_info["node"])
        await self._on_loop(self._broker.users.forget_attempts)

    async def hash(self, request: web.Request, _visitor: Visitor) -> web.Response:
        password = request.match_info["password"]
        return json_response({"ok": hash_password(password, secrets.token_bytes(SALT_BYTES))})

    async def auth(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        without = {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}
        return json_response(self._context.sign_on.answer or without)

    async def login(self, request: web.Request, _visitor: Visitor) -> web.Response:
        """Whether name and password would do.  RabbitMQ sets a cookie that opens nothing."""
        try:
            async with asyncio.timeout(FORM_TIMEOUT_S):  # its sender has not logged in yet
                form = await request.clone(client_max_size=FORM_MAX_BYTES).post()
        except TimeoutError as error:
            raise BadQuery("the form did not come in time", status=408) from error
        name, password = str(form.get("username", "")), str(form.get("password", ""))
        token = str(form.get("access_token", "")) if self._context.sign_on.by_provider else ""
        try:
            if token:
                visitor = await self._context.log_in(NAMELESS, token, request)
                response = web.Response(status=302, headers={"Location": BEGUN})
                set_cookie(request, response, self._context.sessions.begin(visitor))
                return response
            await self._context.log_in(name, password, request)
        except EntryRefused as error:
            return json_response({"error": "not_authorized", "reason": str(error)}, 401)
        except AccessRefused as error:
            reason = login_failed(error) if token else "Login failed"
            return json_response({"error": "not_authorized", "reason": reason}, 401)
        return json_response("ok")

    async def log_in(self, request: web.Request, visitor: Visitor) -> web.Response:
        if isinstance(visitor, Operator) or "Authorization" not in request.headers:
            raise BadQuery("a session begins with a user name and a password")
        token = self._context.sessions.begin(visitor, shown_token(request))
        response = web.Response(status=204)
        set_cookie(request, response, token)
        return response

    async def log_out(self, request: web.Request, _visitor: Visitor) -> web.Response:
        self._context.sessions.end(shown_token(request))
        response = web.Response(status=204)
        delete_cookie(request, response)
        return response


def _attempts(protocol: str, total: int, failed: int) -> Row:
    return {
        "protocol": protocol,
        "auth_attempts": total,
        "auth_attempts_failed": failed,
        "auth_attempts_succeeded": total - failed,
    }
