"""Limits of virtual hosts and users over HTTP, in the form of RabbitMQ's API.

``PUT`` takes ``{"value": N}``; a negative number lifts the limit.  A new limit applies to
what comes after it only.  Only administrators change limits; others see those of the virtual
hosts they may enter, and their own.
"""

from aiohttp import web

from penstock.broker.administration import limits_of, user_limits_of
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.management.api.policies import invalid
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_body, json_response, must_have
from penstock.management.http.endpoints import Endpoints


class LimitsApi(Endpoints):
    table = """
        user           vhost-limits                  GET=of_vhosts
        user           vhost-limits/{vhost}          GET=of_vhosts
        user           user-limits                   GET=of_users
        user           user-limits/{user}            GET=of_users
        administrator  vhost-limits/{vhost}/{limit}  PUT=put DELETE=delete
        administrator  user-limits/{user}/{limit}    PUT=put DELETE=delete
    """

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

    async def put(self, request: web.Request, visitor: Visitor) -> None:
        asked = await json_body(request)
        must_have(asked, "value")
        if "vhost" in request.match_info:
            await self.must_take(request.match_info["vhost"])
        await self.change(self._set, dict(request.match_info), asked["value"])

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        await self.change(self._take_away, dict(request.match_info))

    def _set(self, place: dict[str, str], value: object) -> None:
        limits = self._limits_at(place)
        limits[place["limit"]] = value  # type: ignore[assignment]  # judged where it is set
        self._put_limits(place, limits)

    def _take_away(self, place: dict[str, str]) -> None:
        """Whether it was there or not."""
        limits = self._limits_at(place)
        limits.pop(place["limit"], None)
        self._put_limits(place, limits)

    def _limits_at(self, place: dict[str, str]) -> dict[str, int]:
        if "vhost" in place:
            return self._vhost_limits(place["vhost"])
        return self._user_limits(place["user"])

    def _put_limits(self, place: dict[str, str], limits: dict[str, int]) -> None:
        if "user" in place:
            self.admin().set_user_limits(place["user"], limits)
            return
        try:
            self.admin().set_vhost_limits(place["vhost"], limits)
        except PreconditionFailed as error:
            raise invalid(str(error)) from error
