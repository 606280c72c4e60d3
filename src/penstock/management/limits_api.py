"""How much virtual hosts and users may have, over HTTP, in the form of RabbitMQ's API.

    GET         /api/vhost-limits    /api/vhost-limits/{vhost}
    PUT DELETE  /api/vhost-limits/{vhost}/{limit}    max-connections, max-queues, and the budgets
    GET         /api/user-limits     /api/user-limits/{user}
    PUT DELETE  /api/user-limits/{user}/{limit}      max-connections, max-channels

``PUT`` takes ``{"value": N}``; a negative number lifts the limit.  A limit holds for what comes
from now on: who is in stays.  Only administrators change limits; others see those of the virtual
hosts they may enter, and their own.
"""

from aiohttp import web

from penstock.broker.administration import limits_of, user_limits_of
from penstock.core.errors import NotFound
from penstock.management.access import Visitor
from penstock.management.desk import (
    Desk,
    Endpoint,
    Route,
    json_body,
    json_response,
    must_administrate,
    must_have,
)
from penstock.management.rows import Row


class LimitsApi(Desk):
    """See the head of this file."""

    def routes(self) -> list[Route]:
        limits = [Route("/api/vhost-limits", {"GET": self.of_vhosts})]
        limits.append(Route("/api/vhost-limits/{vhost}", {"GET": self.of_vhosts}))
        limits.append(Route("/api/user-limits", {"GET": self.of_users}))
        limits.append(Route("/api/user-limits/{user}", {"GET": self.of_users}))
        changes: dict[str, Endpoint] = {"PUT": self.put, "DELETE": self.delete}
        limits.append(Route("/api/vhost-limits/{vhost}/{limit}", changes))
        limits.append(Route("/api/user-limits/{user}/{limit}", changes))
        return limits

    # -- looking -------------------------------------------------------------------------

    async def of_vhosts(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = request.match_info.get("vhost")
        rows = await self._on_loop(self._vhost_rows, asked)
        return json_response([row for row in rows if visitor.may_enter(str(row["vhost"]))])

    async def of_users(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = request.match_info.get("user")
        if asked not in (None, visitor.name) and not visitor.may_monitor:
            return json_response([])  # whether there is such a user is not theirs to know
        rows = await self._on_loop(self._user_rows, asked)
        shown = [row for row in rows if visitor.may_monitor or row["user"] == visitor.name]
        return json_response(shown)

    def _vhost_rows(self, asked: str | None) -> list[Row]:
        names = list(self._broker.vhosts) if asked is None else [self._broker.vhost(asked).name]
        limits = {name: self._vhost_limits(name) for name in names}
        return [{"vhost": name, "value": value} for name, value in limits.items() if value]

    def _user_rows(self, asked: str | None) -> list[Row]:
        names = list(self._broker.users.users) if asked is None else [asked]
        limits = {name: self._user_limits(name) for name in names}
        return [{"user": name, "value": value} for name, value in limits.items() if value]

    def _vhost_limits(self, name: str) -> dict[str, int]:
        return limits_of(self._broker.vhost(name))

    def _user_limits(self, name: str) -> dict[str, int]:
        user = self._broker.users.users.get(name)
        if user is None:
            raise NotFound(f"no user '{name}'")
        return user_limits_of(user)

    # -- changing ------------------------------------------------------------------------

    async def put(self, request: web.Request, visitor: Visitor) -> web.Response:
        must_administrate(visitor)
        asked = await json_body(request)
        must_have(asked, "value")
        return await self._change(request, asked["value"])

    async def delete(self, request: web.Request, visitor: Visitor) -> web.Response:
        must_administrate(visitor)
        return await self._change(request, None)

    async def _change(self, request: web.Request, value: object) -> web.Response:
        await self.change(self._set, dict(request.match_info), value)
        return web.Response(status=204)

    def _set(self, place: dict[str, str], value: object) -> None:
        """None takes the limit away, whether it was there or not."""
        administration = self.admin()
        name = place.get("vhost", place.get("user", ""))
        limits: dict[str, int] = (
            self._vhost_limits(name) if "vhost" in place else self._user_limits(name)
        )
        if value is None:
            limits.pop(place["limit"], None)
        else:
            limits[place["limit"]] = value  # type: ignore[assignment]  # judged where it is set
        if "vhost" in place:
            administration.set_vhost_limits(name, limits)
        else:
            administration.set_user_limits(name, limits)
