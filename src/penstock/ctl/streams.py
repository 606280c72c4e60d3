"""Looking at streams: what one has, the positions it keeps, and its consumers.

RabbitMQ asks its stream coordinator and the connections of its stream protocol; here a stream is on
its node, and its consumers are those of AMQP 0-9-1.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, UNAVAILABLE, Fault, Invalid, Refused
from penstock.ctl.output import Table, boxes, shown
from penstock.ctl.words import columns_of

CONSUMER_COLUMNS: Final = (
    "connection_pid node subscription_id stream messages_consumed offset offset_lag credits active"
    " activity_status properties"
)
TOLD: Final = (
    "subscription_id stream messages_consumed offset offset_lag credits active activity_status"
    " properties"
)
KINDS: Final = ("all", "offset", "writer")


def framed(call: Call, columns: list[str], rows: list[list[object]]) -> object:
    """A table in a frame, unless another form is asked for."""
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
    """Positions of consumers and numbers of publishers."""
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
