"""The log of a node, from its memory; what happens on it, as it happens."""

import os
import time
from typing import Final

from penstock.ctl.call import Call
from penstock.ctl.output import as_json

LOG_PATH: Final = "/api/penstock/log"
LINES: Final = 50
LINES_MAX: Final = 2000
LOOK_EVERY_S: Final = 0.5


def tail(call: Call, count: int) -> list[str]:
    return list(call.node.get(f"{LOG_PATH}?lines={min(count, LINES_MAX)}")["lines"])


def log_location(call: Call) -> str:
    call.say(f"Log file location(s) on node {call.node.name} ...")
    files = call.node.get("/api/nodes?columns=log_files")[0].get("log_files") or ["<stderr>"]
    return "\n".join(files)


def log_tail(call: Call) -> str:
    count = call.number("number", LINES)
    call.say(f"Last {count} log lines on node {call.node.name} ...")
    return "\n".join(tail(call, count))


def log_tail_stream(call: Call) -> None:
    """New lines as they come, for ``--duration`` seconds, or until it is interrupted."""
    call.say(f"Streaming logs from node {call.node.name} ...")
    until = _end_of(call)
    seen = tail(call, LINES_MAX)
    while time.monotonic() < until:
        time.sleep(LOOK_EVERY_S)
        now = tail(call, LINES_MAX)
        for line in _new(seen, now):
            call.out.write(line + "\n")
        call.out.flush()
        seen = now


def _end_of(call: Call) -> float:
    duration_s = call.number("duration", 0)
    return time.monotonic() + duration_s if duration_s else float("inf")


def _new(seen: list[str], now: list[str]) -> list[str]:
    """What follows the last line that was seen; all, if that has gone."""
    if not seen:
        return now
    for place in range(len(now) - 1, -1, -1):
        if now[place] == seen[-1]:
            return now[place + 1 :]
    return now


def consume_event_stream(call: Call) -> None:
    """The node's totals each time they change: a line of JSON, for jq."""
    call.say(f"Streaming events from node {call.node.name} ...")
    until = _end_of(call)
    seen: dict[str, object] = {}
    while time.monotonic() < until:
        found = call.node.get("/api/overview?columns=object_totals,queue_totals")
        if found != seen:
            event = {"event": "node.stats", "node": call.node.name, **found}
            call.out.write(as_json(event) + "\n")
            call.out.flush()
            seen = found
        time.sleep(LOOK_EVERY_S)


def os_env(call: Call) -> str:
    """Of this command's environment: a node does not tell its own, which may hold passwords."""
    call.say("Listing Penstock's variables in this environment...")
    hidden = ("PASS",)
    return "\n".join(
        f"{name}={'(hidden)' if any(word in name for word in hidden) else value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(("PENSTOCK_", "RABBITMQ_"))
    )
