"""Streams: what one has, the positions it keeps, and its consumers; super streams.

RabbitMQ asks its stream coordinator and the connections of its stream protocol; here a stream is on
its node, and its consumers are those of AMQP 0-9-1.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from penstock.client.management import path_of
from penstock.client.requests import REQUESTS
from penstock.ctl.call import Call, columns_of
from penstock.ctl.faults import DATA, UNAVAILABLE, Fault, Invalid, Refused
from penstock.ctl.output import Table, boxes, shown

CONSUMER_COLUMNS: Final = (
    "connection_pid node subscription_id stream messages_consumed offset offset_lag credits active"
    " activity_status properties"
)
TOLD: Final = (
    "subscription_id stream messages_consumed offset offset_lag credits active activity_status"
    " properties"
)
KINDS: Final = ("all", "offset", "writer")
SIZE: Final = re.compile(r"([0-9]{1,18})(?:([kmgtp])(i?)b?)?", re.IGNORECASE)
"""As RabbitMQ 4 has it: k is 1000, ki is 1024."""
AGE: Final = re.compile(
    r"\+?P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.ASCII
)
UNITS_S: Final = (365 * 86_400, 30 * 86_400, 86_400, 3600, 60, 1)
LOCATORS: Final = ("client-local", "balanced", "random", "least-leaders")
SIZES: Final = ("max-length-bytes", "stream-max-segment-size-bytes")
BAD_SIZE: Final = "Invalid value for --{name}, valid example values: 100gb, 50mb"
BAD_AGE: Final = (
    "Invalid value for --max-age, the value must a ISO 8601 duration, e.g. e.g. PT10M30S for 10"
    " minutes 30 seconds, P5DT8H for 5 days 8 hours."
)
BAD_LOCATOR: Final = "Invalid value for --leader-locator, valid values are client-local, balanced."
BAD_SIZE_OF_CLUSTER: Final = "Invalid value for --initial-cluster-size, the value must be positive."
EITHER: Final = "Specify --partitions or --binding-keys, not both."


def framed(call: Call, columns: list[str], rows: list[list[object]]) -> object:
    if call.formatter:
        return Table(columns, rows)
    return boxes(columns, [[shown(cell) for cell in row] for row in rows])


def stream_status(call: Call) -> object:
    (name,) = call.take(1)
    call.say(f"Status of stream {name} on node {call.node.name} ...")
    row = call.node.found(path_of("queues", call.vhost, name))
    if row is None:
        raise Fault(DATA, f"queue '{name}' was not found in virtual host '{call.vhost}'")
    if row["type"] != "stream":
        raise Refused(f"Cannot get stream status of a {row['type']} queue", UNAVAILABLE)
    facts = row["penstock"]
    if call.is_set("tracking"):
        return framed(call, ["type", "reference", "value"], _marks(facts))
    cells = {
        "role": "writer",
        "node": row["node"],
        "epoch": 1,
        "offset": facts["next_offset"] - 1,
        "committed_offset": facts["durable_offset"] - 1,
        "first_offset": facts["first_offset"],
        "readers": row["consumers"],
        "segments": facts["segments"],
    }
    return framed(call, list(cells), [list(cells.values())])


def _marks(facts: Mapping[str, Any], kind: str = "all") -> list[list[object]]:
    offsets = [["offset", one["name"], one["offset"]] for one in facts["positions"]]
    writers = [["writer", one["name"], one["number"]] for one in facts["publishers"]]
    return [row for row in [*offsets, *writers] if kind in ("all", row[0])]


def list_stream_tracking(call: Call) -> object:
    (name,) = call.take(1)
    asked = [kind for kind in KINDS if call.is_set(kind)]
    if len(asked) > 1:
        raise Invalid("Specify only one of --all, --offset, --writer.")
    call.say(f"Listing tracking information for stream {name} ...")
    row = call.node.found(path_of("queues", call.vhost, name))
    if row is None or row["type"] != "stream":
        raise Refused("The stream does not exist.", UNAVAILABLE)
    rows = _marks(row["penstock"], *asked)
    return framed(call, ["type", "name", "tracking_value"], rows) if rows else None


def reset_offset(call: Call) -> str:
    """The position goes: the consumer begins where its ``x-stream-offset`` says."""
    stream, reference = call.text("stream"), call.text("reference")
    if not stream or not reference:
        raise Invalid("not enough arguments.")
    call.say("Resetting stored offset ...")
    row = call.node.found(path_of("queues", call.vhost, stream))
    if row is None or row["type"] != "stream":
        raise Refused("The stream does not exist", UNAVAILABLE)
    action = {"action": "forget_position", "name": reference}
    answer = call.node.ask("POST", path_of("queues", call.vhost, stream, "actions"), action)
    if answer.status == 404:
        text = "There is no stored offset for this reference, no need to reset"
        raise Refused(text, UNAVAILABLE)
    call.node.must(answer)
    return "Done"


def list_stream_consumers(call: Call) -> object:
    default = CONSUMER_COLUMNS if call.is_set("verbose") else TOLD
    columns = columns_of(call, CONSUMER_COLUMNS.split(), default.split())
    call.say("Listing stream consumers ...")
    found = call.node.found(path_of("consumers", call.vhost)) or []
    rows = [_consumer(row) for row in found if "penstock" in row]
    return framed(call, columns, [[row[column] for column in columns] for row in rows])


def _consumer(row: Mapping[str, Any]) -> dict[str, object]:
    facts, channel = row["penstock"], row["channel_details"]
    return {
        "connection_pid": channel.get("connection_name"),
        "node": channel.get("node"),
        "subscription_id": row["consumer_tag"],
        "stream": row["queue"]["name"],
        "messages_consumed": facts["delivered"],
        "offset": facts["offset"],
        "offset_lag": facts["lag_messages"],
        "credits": facts["credit"],
        "active": row["active"],
        "activity_status": row["activity_status"],
        "properties": row["arguments"],
    }


# -- super streams -------------------------------------------------------------------------------


def add_super_stream(call: Call) -> str:
    (name,) = call.take(1)
    given = _partitions(call) | {"arguments": _arguments(call)}
    call.say("Adding a super stream...")
    path = REQUESTS["add_super_stream"].path_of({"vhost": call.vhost, "name": name})
    answer = call.node.ask("PUT", path, given)
    if not answer.ok:
        raise Refused(answer.reason() or f"HTTP status {answer.status}")
    return f"Super stream {name} has been created"


def delete_super_stream(call: Call) -> str:
    (name,) = call.take(1)
    call.say("Deleting a super stream...")
    if call.do("delete_super_stream", name=name).status == 404:
        raise Refused("stream_not_found")
    return f"Super stream {name} has been deleted"


def _partitions(call: Call) -> dict[str, object]:
    """``routing-keys`` is the older name of binding keys."""
    names = [name for name in ("binding-keys", "routing-keys") if name in call.options]
    if len(names) == 2:
        raise Invalid("Specify --binding-keys only.")
    if names and "partitions" in call.options:
        raise Invalid(EITHER)
    if names:
        return {"binding-keys": call.text(names[0])}
    partitions = call.number("partitions", 3)
    if partitions < 1:
        raise Invalid("The partition number must be greater than 0")
    return {"partitions": partitions}


def _arguments(call: Call) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in filter(call.options.__contains__, SIZES):
        size = SIZE.fullmatch(call.text(name))
        if size is None:
            raise Invalid(BAD_SIZE.format(name=name))
        power = "kmgtp".index(size[2].lower()) + 1 if size[2] else 0
        found[name] = int(size[1]) * int((1024 if size[3] else 1000) ** power)
    if "max-age" in call.options:
        age = AGE.fullmatch(call.text("max-age"))
        if age is None:
            raise Invalid(BAD_AGE)
        parts = [int(part or 0) for part in age.groups()]
        found["max-age"] = f"{sum(map(int.__mul__, parts, UNITS_S))}s"
    if "leader-locator" in call.options:
        if call.text("leader-locator") not in LOCATORS:
            raise Invalid(BAD_LOCATOR)
        found["queue-leader-locator"] = call.text("leader-locator")
    if "initial-cluster-size" in call.options:
        if call.number("initial-cluster-size", 0) < 1:
            raise Invalid(BAD_SIZE_OF_CLUSTER)
        found["initial-cluster-size"] = call.number("initial-cluster-size", 0)
    return found
