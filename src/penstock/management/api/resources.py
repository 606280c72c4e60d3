"""Memory and disk over HTTP: health checks as RabbitMQ answers them, and limits at run time.

    PUT  /api/penstock/vm-memory-high-watermark    {"fraction": 0.4}  {"absolute": "2GB"}
    PUT  /api/penstock/disk-free-limit             {"absolute": "2GB"}  {"mem_relative": 1.0}

RabbitMQ changes these limits only from its own machine, with ``rabbitmqctl``; here that takes an
administrator.  Either way they are gone after a restart, which reads the settings.  The words of
a refusal are those of ``rabbitmqctl``.
"""

from typing import Final

from aiohttp import web

from penstock.broker.rules.admission import DISK, MEMORY, Admission
from penstock.broker.rules.alarms import Alarms
from penstock.core.capacity import MEM_RELATIVE, DiskLimit, MemoryLimit, parse_number, parse_size
from penstock.management.facts.rows import Row
from penstock.management.http.access import Visitor
from penstock.management.http.bodies import json_response, json_value
from penstock.management.http.endpoints import Endpoints
from penstock.management.http.listing import BadQuery
from penstock.settings.kinds import written_size

FRACTION: Final = "fraction"
ABSOLUTE: Final = "absolute"
NAMED: Final = {DISK: "disk space", MEMORY: "memory"}
BAD_ARGUMENT: Final = "Bad argument."
NO_FRACTION: Final = "Bad argument: The threshold should be a fraction between 0.0 and 1.0"


class ResourcesApi(Endpoints):
    table = """
        user                      health/checks/alarms               GET=check_alarms
        user                      health/checks/local-alarms         GET=check_local_alarms
        monitoring/administrator  penstock/vm-memory-high-watermark  GET=memory PUT=put_memory
        administrator             penstock/disk-free-limit           PUT=put_disk
    """

    @property
    def _alarms(self) -> Alarms:
        return self._broker.admission.alarms

    async def check_alarms(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        return await self._checked("There are alarms in effect in the cluster", is_local=False)

    async def check_local_alarms(self, _request: web.Request, _visitor: Visitor) -> web.Response:
        return await self._checked("There are alarms in effect on the node", is_local=True)

    async def _checked(self, reason: str, *, is_local: bool) -> web.Response:
        nodes = await self._on_loop(_short_of, self._broker.admission, self._view.node_name)
        alarms = [
            {"node": node, "resource": NAMED[resource]}
            for node, resources in nodes.items()
            if node == self._view.node_name or not is_local
            for resource in resources
        ]
        if not alarms:
            return json_response({"status": "ok"})
        row: Row = {"alarms": alarms, "reason": reason, "status": "failed"}
        return json_response(row, 503)

    async def memory(self, _request: web.Request, visitor: Visitor) -> web.Response:
        """The limit as it was set, a fraction or bytes, and what it comes to."""
        limit = await self._on_loop(self._alarms.memory_limit)
        is_absolute = limit.absolute_bytes >= 0
        row: Row = {"node": self._view.node_name, "limit_bytes": self._alarms.memory_limit_bytes}
        row[ABSOLUTE if is_absolute else FRACTION] = (
            limit.absolute_bytes if is_absolute else limit.fraction
        )
        return json_response(row)

    async def put_memory(self, request: web.Request, visitor: Visitor) -> web.Response:
        limit = _memory_limit(*await _asked(request))
        await self._on_loop(self._alarms.set_memory_limit, limit)
        return self._now(int(self._alarms.memory_limit_bytes))

    async def put_disk(self, request: web.Request, visitor: Visitor) -> web.Response:
        limit = _disk_limit(*await _asked(request))
        await self._on_loop(self._alarms.set_disk_limit, limit)
        return self._now(int(self._alarms.disk_limit_bytes))

    def _now(self, limit_bytes: int) -> web.Response:
        return json_response({"node": self._view.node_name, "limit_bytes": limit_bytes})


def _short_of(admission: Admission, here: str) -> dict[str, list[str]]:
    """This node first."""
    return {here: admission.short_of(), **admission.elsewhere}


async def _asked(request: web.Request) -> tuple[str, str]:
    """The one pair of the body, the value as it would be written on a command line."""
    asked = await json_value(request)
    if not isinstance(asked, dict) or len(asked) != 1:
        raise BadQuery(BAD_ARGUMENT)
    (kind, value), *_ = asked.items()
    text = written_size(value)
    if text is None:
        raise BadQuery(BAD_ARGUMENT)
    return kind, text


def _memory_limit(kind: str, text: str) -> MemoryLimit:
    if kind == FRACTION:
        share = parse_number(text)
        if share is None or share > 1:
            raise BadQuery(NO_FRACTION)
        return MemoryLimit(share)
    return MemoryLimit(0.0, _size(kind, text))


def _disk_limit(kind: str, text: str) -> DiskLimit:
    if kind == MEM_RELATIVE:
        share = parse_number(text)
        if share is None:
            raise BadQuery(BAD_ARGUMENT)
        return DiskLimit(-1, share)
    return DiskLimit(_size(kind, text))


def _size(kind: str, text: str) -> int:
    size = parse_size(text) if kind == ABSOLUTE else None
    if size is None:
        raise BadQuery(BAD_ARGUMENT)
    return size
