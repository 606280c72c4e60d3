"""Closing connections: one by its name, those of a user, of a virtual host, or all."""

import time
from collections.abc import Mapping
from typing import Any, Final

from penstock.client.management import path_of
from penstock.ctl.call import Call
from penstock.ctl.faults import UNAVAILABLE, Refused

PAUSE_MS: Final = 1000


def _close(call: Call, name: str, reason: str) -> bool:
    headers = {"X-Reason": " ".join(reason.split())}
    return call.node.delete(path_of("connections", name), headers)


def close_connection(call: Call) -> None:
    name, reason = call.take(2)
    call.say(f"Closing connection {name}, reason: {reason}...")
    if not _close(call, name, reason):
        raise Refused(f'Error:\n{{:invalid_pid_syntax, "{name}"}}', UNAVAILABLE)


def _connections(call: Call) -> list[Mapping[str, Any]]:
    return list(call.node.get("/api/connections?columns=name,user,vhost"))


def close_all_user_connections(call: Call) -> None:
    user, reason = call.take(2)
    call.say(f"Closing connections of user {user}, reason: {reason}...")
    for connection in _connections(call):
        if connection["user"] == user:
            _close(call, connection["name"], reason)


def close_all_connections(call: Call) -> str:
    """Between two groups of ``--limit`` it waits ``--per-connection-delay``, in milliseconds."""
    (reason,) = call.take(1)
    if call.is_set("global"):
        where = f"to node {call.node.name} (across all vhosts)"
    else:
        where = f"in vhost {call.vhost}"
    call.say(f"Closing all connections {where}, reason: {reason}...")
    found = [
        one for one in _connections(call) if call.is_set("global") or one["vhost"] == call.vhost
    ]
    limit = call.number("limit", 0)
    closed = 0
    for connection in found[:limit] if limit else found:
        if closed:
            time.sleep(call.number("per-connection-delay", 0) / PAUSE_MS)
        closed += _close(call, connection["name"], reason)
    return f"Closed {closed} connections"


def close_everything(call: Call, reason: str) -> None:
    for connection in _connections(call):
        _close(call, connection["name"], reason)
