"""Deleting queues, and looking at one: its members, a message of it."""

import re
from collections import Counter
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
OK: Final = "ok"
LAST: Final = "error: the last node cannot be removed"
LEADS: Final = "error: the leader's node cannot be removed: drain it first"


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
    members = call.node.must(answer).json()
    return framed(call, list(members[0]), [list(member.values()) for member in members])


def shrink(call: Call) -> Table:
    (node,) = call.take(1)
    call.say(f"Shrinking queues on {node}...")
    if node not in nodes_of(call):
        raise Refused(f"{{:node_not_running, :{node}}}", UNAVAILABLE)
    found = call.node.get("/api/queues?columns=vhost,name,leader,members")
    rows = [_shrunk(one, node) for one in found if node in one.get("members", ())]
    call.do("shrink", node=node)
    if call.is_set("errors-only"):
        rows = [row for row in rows if row[-1] != OK]
    return Table(("vhost", "name", "size", "result"), rows)


def grow_to_count(call: Call) -> Table:
    count, strategy = call.take(2)
    nodes = nodes_of(call)
    if not count.isdecimal() or not 0 < int(count) <= len(nodes):
        raise Invalid(f'"node count must be a number from 1 to {len(nodes)}"')
    if strategy not in ("all", "even"):
        raise Invalid(f"\"strategy '{strategy}' is not recognised.\"")
    call.say(f"Growing queues to {count} members...")
    members = {
        (one["vhost"], one["name"]): list(one["members"])
        for one in call.node.get("/api/queues?columns=vhost,name,members")
        if "members" in one
    }
    held = Counter(node for its in members.values() for node in its)
    rows = []
    for (vhost, queue), its in members.items():
        if not _is_meant(call, vhost, queue) or (strategy == "even" and len(its) % 2):
            continue
        while len(its) < int(count):
            node = min((one for one in nodes if one not in its), key=held.__getitem__)
            call.node.do("add_member", {"vhost": vhost, "queue": queue, "node": node})
            its.append(node)
            held[node] += 1
            rows.append((vhost, queue, len(its), OK))
    return Table(("vhost", "name", "size", "result"), rows)


def _is_meant(call: Call, vhost: str, queue: str) -> bool:
    named = {"vhost-pattern": vhost, "queue-pattern": queue}
    try:
        return all(re.search(call.text(one, ".*"), name) for one, name in named.items())
    except re.error as error:
        raise Invalid(f'"a pattern is no regular expression: {error}"') from error


def _shrunk(queue: Mapping[str, Any], node: str) -> tuple[str, str, int, str]:
    """A row: how many members it is to have, and why that node's stays."""
    count = len(queue["members"])
    result = OK if queue["leader"] != node else LEADS if count > 1 else LAST
    return queue["vhost"], queue["name"], count - (result == OK), result


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
