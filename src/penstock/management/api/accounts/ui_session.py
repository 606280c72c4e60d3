"""The web UI logs in and out (``management/http/ui_sessions``).

POST    /api/penstock/session    with basic authentication or a bearer's token: begins a session,
                                 sets its cookie; a new token of the same user renews it
DELETE  /api/penstock/session    ends it
"""

from aiohttp import web

from penstock.management.http.access import Operator, Visitor
from penstock.management.http.endpoints import Endpoints, Route
from penstock.management.http.listing import BadQuery
from penstock.management.http.ui_sessions import delete_cookie, set_cookie, shown_token


class UiSessionApi(Endpoints):
    heading = "log-ins"

    def routes(self) -> list[Route]:
        endpoints = {"POST": self.log_in, "DELETE": self.log_out}
        return [Route("/api/penstock/session", endpoints, "The session of a browser")]

    async def log_in(self, request: web.Request, visitor: Visitor) -> web.Response:
        if isinstance(visitor, Operator) or "Authorization" not in request.headers:
            raise BadQuery("bad_request", "a session begins with a user name and a password")
        token = self._context.sessions.begin(visitor, shown_token(request))
        response = web.Response(status=204)
        set_cookie(request, response, token)
        return response

    async def log_out(self, request: web.Request, _visitor: Visitor) -> web.Response:
        self._context.sessions.end(shown_token(request))
        response = web.Response(status=204)
        delete_cookie(request, response)
        return response
