"""Deleting queues, and looking at one: its members, a message of it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.cluster import nodes_of
from penstock.ctl.faults import DATA, UNAVAILABLE, USAGE, Fault, Invalid, Refused
from penstock.ctl.output import Table, shown
from penstock.ctl.streams import framed

PEEKED_BYTES: Final = 64
PAGE: Final = 1000
"""Messages of one answer."""
LAST: Final = "error: the last node cannot be removed"


def delete_queue(call: Call) -> str:
    (queue,) = call.take(1)
    asked = [one for one in ("empty", "unused") if call.is_set(f"if-{one}")]
    conditions = "and ".join(f"if queue is {one} " for one in asked)
    call.say(f"Deleting queue '{queue}' on vhost '{call.vhost}' {conditions}...")
    found = call.node.found(path_of("queues", call.vhost, queue))
    if found is None:
        raise Refused("Queue not found", USAGE)
    # Of one that is down there are no counts.
    if "unused" in asked and found.get("consumers", 0):
        raise Refused("Queue is in use", USAGE)
    if "empty" in asked and found.get("messages", 0):
        raise Refused("Queue is not empty", USAGE)
    # Asked again of the node, which alone can look and delete in one breath.
    query = {f"if-{one}": "true" for one in asked}
    if call.do("delete_queue", queue=queue, **query).status == 404:
        raise Refused("Queue not found", USAGE)
    return f"Queue was successfully deleted with {found.get('messages_ready', 0)} ready messages"


# -- members of quorum queues --------------------------------------------------------------------


def quorum_status(call: Call) -> object:
    (queue,) = call.take(1)
    call.say(f"Status of queue {queue} on node {call.node.name} ...")
    answer = call.node.ask("GET", path_of("queues", "quorum", call.vhost, queue, "status"))
    if answer.status == 404:
        raise Fault(DATA, f"queue '{queue}' was not found in virtual host '{call.vhost}'")
    if answer.status == 503:
        raise Refused("{:unsupported, :rabbit_classic_queue}", UNAVAILABLE)
    (member,) = call.node.must(answer).json()
    return framed(call, list(member), [list(member.values())])


def shrink(call: Call) -> Table:
    (node,) = call.take(1)
    call.say(f"Shrinking queues on {node}...")
    if node not in nodes_of(call):
        raise Refused(f"{{:node_not_running, :{node}}}", UNAVAILABLE)
    found = call.node.get("/api/queues?columns=vhost,name,type,node")
    here = [one for one in found if one["type"] == "quorum" and one["node"] == node]
    return Table(
        ("vhost", "name", "size", "result"),
        [(one["vhost"], one["name"], 1, LAST) for one in here],
    )


# -- messages ------------------------------------------------------------------------------------


def peek(call: Call) -> object:
    """Of any queue: RabbitMQ's shows messages of quorum queues only."""
    queue, place = call.take(2)
    if not place.isdecimal() or int(place) == 0:
        raise Invalid('"position value must be a positive integer"')
    call.say(f"Peeking at queue {queue} at position {place} on node {call.node.name} ...")
    message = _message_at(call, queue, int(place))
    if message is None:
        raise Refused("Target queue does not have a message at that position", UNAVAILABLE)
    return framed(call, ["keys", "values"], [list(one) for one in _facts(message)])


def _message_at(call: Call, queue: str, place: int) -> Mapping[str, Any] | None:
    """``place``: from 1 on."""
    start = ""
    while True:
        count = min(place, PAGE)
        asked = f"?count={count}&truncate={PEEKED_BYTES}{start}"
        page = call.node.found(path_of("queues", call.vhost, queue, "messages") + asked)
        if page is None:
            raise Refused(f"Target queue was not found in virtual host '{call.vhost}'", UNAVAILABLE)
        messages = page["messages"]
        if len(messages) >= place:
            return dict(messages[place - 1])
        if not messages or page["next"] is None:
            return None
        place -= len(messages)
        start = f"&from={page['next']}"


def _facts(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    properties = dict(message["properties"])
    headers = properties.pop("headers", {})
    for name, value in properties.items():
        yield name, shown(value)
    yield "routing_keys", message["routing_key"]
    yield "exchange", message["exchange"]
    yield f"payload (max {PEEKED_BYTES} bytes)", message["payload"]
    for name, value in headers.items():
        yield f"header.{name}", shown(value)
