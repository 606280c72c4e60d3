"""Helpers of the rows of the API (management/rows)."""

import base64
import platform
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Final
from urllib.parse import quote_plus

from penstock.broker.broker import Broker
from penstock.broker.topology.vhost import Vhost
from penstock.core.checksum import crc32
from penstock.core.clock_types import WallMs
from penstock.management.facts.sessions import SessionInspector

Row = dict[str, object]

DEFAULT_EXCHANGE_IN_PATHS: Final = "amq.default"
"""How a path names the exchange whose name is empty."""


class Rows:
    def __init__(self, broker: Broker, watch: SessionInspector, node_name: str = "") -> None:
        self.broker = broker
        self.watch = watch
        self.node_name = node_name or f"penstock@{platform.node()}"

    def vhost(self, name: str) -> Vhost:
        """Raises NotFound."""
        return self.broker.vhost(name)


def properties_key(routing_key: str, arguments: dict[str, object]) -> str:
    """The name of a binding among those of its two ends, as paths of the API spell it.

    Without arguments it is the routing key as a form spells it (``~`` for the empty one);
    with arguments a short digest of them follows.  RabbitMQ's digest is Erlang's own, so
    ours differs from it; clients treat it as opaque.
    """
    spelt = quote_plus(routing_key, safe="", errors="replace").replace("~", "%7E")
    if not arguments:
        return spelt or "~"
    canonical = repr(sorted(arguments.items())).encode("utf-8", "replace")
    digest = base64.urlsafe_b64encode(crc32(canonical).to_bytes(4, "big"))
    return f"{spelt}~{digest.decode().rstrip('=')}"


def activity(state: str, active_at_ms: WallMs) -> Row:
    """In RabbitMQ's form: what is idle runs, and says since when it has been idle."""
    if state != "idle":
        return {"state": state}
    if active_at_ms <= 0:
        return {"state": "running"}
    return {"state": "running", "idle_since": time_text(active_at_ms)}


def time_text(at_ms: WallMs) -> str:
    """As RabbitMQ spells times."""
    at = datetime.fromtimestamp(int(at_ms) / 1000, UTC)
    return at.isoformat(timespec="milliseconds")


def jsonable(value: object) -> object:
    """A field value as JSON can hold it; what JSON lacks becomes text."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {str(key): jsonable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [jsonable(inner) for inner in value]
    assert isinstance(value, Decimal), type(value)
    return str(value)
