"""How much virtual hosts and users may have, over HTTP, in the form of RabbitMQ's API.

    GET         /api/vhost-limits    /api/vhost-limits/{vhost}
    PUT DELETE  /api/vhost-limits/{vhost}/{limit}    max-connections, max-queues, and the budgets
    GET         /api/user-limits     /api/user-limits/{user}
    PUT DELETE  /api/user-limits/{user}/{limit}      max-connections, max-channels

``PUT`` takes ``{"value": N}``; a negative number lifts the limit.  A limit holds for what comes
from now on: who is in stays.  Only administrators change limits; others see those of the virtual
hosts they may enter, and their own.
"""

import json

from aiohttp import web

from penstock.broker.access import NO_LIMIT
from penstock.broker.administration import USER_LIMITS, Administration, limits_of
from penstock.broker.broker import Broker
from penstock.core.errors import AccessRefused, NotFound
from penstock.management.access import Visitor
from penstock.management.api import OnLoop, json_response
from penstock.management.listing import BadQuery
from penstock.management.view import Row


class LimitsApi:
    """See the head of this file."""

    def __init__(self, broker: Broker, on_loop: OnLoop, segment_entries: int) -> None:
        self._broker = broker
        self._on_loop = on_loop
        self._segment_entries = segment_entries

    # -- looking -------------------------------------------------------------------------

    async def of_vhosts(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = request.match_info.get("vhost")
        rows = await self._on_loop(self._vhost_rows, asked)
        return json_response([row for row in rows if visitor.may_enter(str(row["vhost"]))])

    async def of_users(self, request: web.Request, visitor: Visitor) -> web.Response:
        asked = request.match_info.get("user")
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
        return _set_ones(USER_LIMITS, (int(user.max_connections), int(user.max_channels)))

    # -- changing ------------------------------------------------------------------------

    async def put(self, request: web.Request, visitor: Visitor) -> web.Response:
        _must_administrate(visitor)
        try:
            asked = json.loads(await request.read())
        except (ValueError, RecursionError) as error:
            raise BadQuery("bad_request", "not_json") from error
        if not isinstance(asked, dict):
            raise BadQuery("bad_request", "not_json")
        if "value" not in asked:
            raise BadQuery("bad_request", "[{key_missing,value}]")
        return await self._change(request, asked["value"])

    async def delete(self, request: web.Request, visitor: Visitor) -> web.Response:
        _must_administrate(visitor)
        return await self._change(request, None)

    async def _change(self, request: web.Request, value: object) -> web.Response:
        await self._on_loop(self._set, dict(request.match_info), value)
        # Once more around: what was changed is on disk when the loop comes here.
        await self._on_loop(len, "")
        return web.Response(status=204)

    def _set(self, place: dict[str, str], value: object) -> None:
        """None takes the limit away, whether it was there or not."""
        administration = Administration(self._broker, self._segment_entries)
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


def _set_ones(names: tuple[str, ...], values: tuple[int, ...]) -> dict[str, int]:
    return {name: value for name, value in zip(names, values, strict=True) if value > int(NO_LIMIT)}


def _must_administrate(visitor: Visitor) -> None:
    if not visitor.is_administrator:
        raise AccessRefused("Not administrator user")
