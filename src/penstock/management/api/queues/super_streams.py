"""Super streams over HTTP: an exchange and the streams behind it, made or deleted at once.

    PUT   partitions, a number; or binding-keys, a text with commas between them;
          arguments of each stream, without the ``x-`` in front

RabbitMQ deletes by its command line only.
"""

from typing import Any, Final

from aiohttp import web

from penstock.broker.topology.super_streams import (
    PARTITIONS_MAX,
    declare_super_stream,
    delete_super_stream,
)
from penstock.core.pending import Pending
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import arguments_in, json_body, name_of, text
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery

NUMBERS: Final = {
    "max-length-bytes",
    "stream-max-segment-size-bytes",
    "initial-cluster-size",
    "stream-filter-size-bytes",
}
TEXTS: Final = {"max-age", "queue-leader-locator"}
"""Arguments that a partition takes; others are passed over, as in RabbitMQ."""


class SuperStreamsApi(Endpoints):
    table = """
        user  stream/super-streams/{vhost}/{name}  PUT=put DELETE=delete  A super stream
    """

    async def put(self, request: web.Request, visitor: Visitor) -> None:
        vhost = await self.changed_vhost(request, visitor)
        asked = await json_body(request)
        name = name_of("exchange", request.match_info["name"])
        await self.change(self._declare, vhost, name, keys_in(asked), streams_in(asked), visitor)

    def _declare(
        self, vhost: str, name: str, keys: list[str], arguments: dict[str, object], visitor: Visitor
    ) -> Pending | None:
        found, rights = self._broker.vhost(vhost), self.rights(visitor, vhost)
        return declare_super_stream(found, rights, name, keys, arguments)

    async def delete(self, request: web.Request, visitor: Visitor) -> None:
        (vhost,) = await self.asked_vhosts(request, visitor)
        await self.change(self._delete, vhost, request.match_info["name"], visitor)

    def _delete(self, vhost: str, name: str, visitor: Visitor) -> Pending | None:
        found, rights = self._broker.vhost(vhost), self.rights(visitor, vhost)
        return delete_super_stream(found, rights, name, self._view.watch.cancelled)


def keys_in(asked: dict[str, Any]) -> list[str]:
    """Of the bindings; raises BadQuery with RabbitMQ's words."""
    partitions, bindings = asked.get("partitions"), asked.get("binding-keys")
    if partitions is None and bindings is None:
        raise BadQuery("Must specify partitions or binding keys")
    if partitions is not None and bindings is not None:
        raise BadQuery("Specify partitions or binding keys, not both")
    if bindings is not None:
        keys = [key.strip() for key in text("binding-keys", bindings).split(",") if key.strip()]
        _must_be_few("number of binding keys", len(keys))
        if len(set(keys)) < len(keys):
            raise BadQuery("Duplicate partition names found")
        return keys
    told = str(partitions)
    if not told.removeprefix("-").isdecimal():
        raise BadQuery("The partitions must be a number")
    _must_be_few("partition number", int(told))
    return [str(number) for number in range(int(told))]


def _must_be_few(what: str, count: int) -> None:
    if count < 1:
        raise BadQuery(f"The {what} must be greater than 0")
    if count > PARTITIONS_MAX:
        raise BadQuery(f"The {what} must not exceed {PARTITIONS_MAX}")


def streams_in(asked: dict[str, Any]) -> dict[str, object]:
    """Arguments of a partition; some clients send numbers as text."""
    arguments: dict[str, object] = {}
    for name, value in arguments_in(asked).items():
        if name in NUMBERS and isinstance(value, str) and value.isdecimal():
            arguments[f"x-{name}"] = int(value)
        elif name in NUMBERS | TEXTS:
            arguments[f"x-{name}"] = value
    return arguments
