"""Connections, channels and consumers over HTTP.

A client whose connection the API closes gets the text of the header ``X-Reason``.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from aiohttp import web

from penstock.core.errors import AccessRefused, NotFound
from penstock.management.facts.on_loop import portions
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import ListQuery
from penstock.management.http.lists import runs, slices

CLOSED_HERE: Final = "Closed via management plugin"
"""What RabbitMQ tells a client whose connection was closed without a reason."""


class ClientsApi(Endpoints):
    has_lists = True
    table = """
        user  connections  GET=connections  All connections
        user  connections/username/{user}  GET=connections DELETE=close_all_of  Of one user
        user  connections/{name}  GET=connection DELETE=close_connection  \
            One connection; DELETE closes it
        user  connections/{name}/channels  GET=channels_of  Channels of one connection
        user  vhosts/{vhost}/connections  GET=connections  Its connections
        user  vhosts/{vhost}/channels  GET=channels  Its channels
        user  channels  GET=channels  All channels
        user  channels/{name}  GET=channel  One channel
        user  consumers  GET=consumers  All consumers
        user  consumers/{vhost}  GET=consumers  In one virtual host
    """

    async def consumers(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        vhosts = await self.asked_vhosts(request, visitor)
        pairs = await self._lists.pairs_of(vhosts, self._view.queues.names)
        rows: list[Row] = []
        for vhost, names in runs(pairs):
            consumers = await self._on_loop(self._view.queues.consumers_of, vhost, names)
            rows += await self._lists.gathered(consumers, self._view.queues.consumer_rows)
        return await self._lists.answer_rows(query, rows, pageable=False)

    # -- connections -----------------------------------------------------------------------

    async def connections(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        await self._check_path(request, visitor)
        rows = await self._lists.session_rows(self._view.clients.connection_rows, visitor)
        return await self._lists.answer_rows(query, _of_path(request, rows), pageable=True)

    async def _check_path(self, request: web.Request, visitor: Visitor) -> None:
        vhost = request.match_info.get("vhost")
        if vhost is not None:
            await self.must_be_there(vhost, visitor)

    async def connection(self, request: web.Request, visitor: Visitor) -> web.Response:
        row = await self._known_connection(request, visitor, visitor.may_monitor)
        return json_response(ListQuery(request.query).project(row))

    async def close_connection(self, request: web.Request, visitor: Visitor) -> None:
        row = await self._known_connection(request, visitor, visitor.is_administrator)
        await self._close(row, request)

    async def close_all_of(self, request: web.Request, visitor: Visitor) -> None:
        if not visitor.is_administrator and request.match_info["user"] != visitor.name:
            raise AccessRefused("User not authorised to access object")
        await self._check_path(request, visitor)
        rows = await self._lists.session_rows(self._view.clients.connection_rows, visitor)
        for row in _of_path(request, rows):
            with suppress(NotFound):  # it has gone meanwhile
                await self._close(row, request)

    async def _close(self, row: Row, request: web.Request) -> None:
        given = request.headers.get("X-Reason", CLOSED_HERE)
        reason = given.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        await self._on_loop(self._view.clients.close_connection, str(row["name"]), reason)

    async def _known_connection(
        self, request: web.Request, visitor: Visitor, others_too: bool
    ) -> Row:
        """That of the path; raises AccessRefused when it belongs to another user."""
        row = await self._on_loop(self._view.clients.connection_row, request.match_info["name"])
        if not others_too and row["user"] != visitor.name:
            raise AccessRefused("User not authorised to access object")
        return row

    # -- channels --------------------------------------------------------------------------

    async def channels(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        await self._check_path(request, visitor)
        sessions = await self._on_loop(self._view.watch.sessions)
        rows = await self._channel_rows(sessions)
        if not visitor.may_monitor:
            rows = [row for row in rows if row["user"] == visitor.name]
        return await self._lists.answer_rows(query, _of_path(request, rows), pageable=True)

    async def channels_of(self, request: web.Request, visitor: Visitor) -> web.Response:
        query = ListQuery(request.query)
        row = await self._known_connection(request, visitor, visitor.may_monitor)
        session = await self._on_loop(self._view.clients.session, str(row["name"]))
        rows = await self._channel_rows([session])
        return await self._lists.answer_rows(query, rows, pageable=True)

    async def _channel_rows(self, sessions: Sequence[object]) -> list[Row]:
        rows: list[Row] = []
        for some in slices(sessions):
            for portion in portions(await self._on_loop(self._view.clients.channel_numbers, some)):
                rows += await self._on_loop(self._view.clients.channel_rows, portion)
        return rows

    async def channel(self, request: web.Request, visitor: Visitor) -> web.Response:
        row = await self._on_loop(self._view.clients.channel_row, request.match_info["name"])
        if not visitor.may_monitor and row["user"] != visitor.name:
            raise AccessRefused("User not authorised to access object")
        consumers = await self._on_loop(self._view.clients.consumers_on, str(row["name"]))
        row["consumer_details"] = await self._lists.gathered(
            consumers, self._view.queues.consumer_rows
        )
        return json_response(ListQuery(request.query).project(row))


def _of_path(request: web.Request, rows: list[Row]) -> list[Row]:
    for key in ("vhost", "user"):
        wanted = request.match_info.get(key)
        if wanted is not None:
            rows = [row for row in rows if row[key] == wanted]
    return rows
