"""``penstock queue pause``, ``resume``, ``peek``, ``search``, ``move``, ``copy`` and so on.

A search looks through a queue without taking anything.  The last four work on messages that were
chosen by their position, which ``peek`` and ``search`` print, or on all that a search finds; the
rest of the queue stays as it is.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import click

from penstock.cli.admin.entities import VHOST as ANY_VHOST
from penstock.cli.admin.entities import absent
from penstock.cli.data.storage import VHOST, many, queue
from penstock.cli.failure import Failure
from penstock.cli.management import NAME, Management, command
from penstock.cli.options import option
from penstock.cli.tables import shown
from penstock.client.management import path_of
from penstock.client.progress import Progress

PAGE: Final = 200
CHOSEN_AT_ONCE: Final = 1000
PRIORITY: Final = option("--priority", "Of a queue with priorities.", click.IntRange(0, 255))
SEQ_ID: Final = click.argument("seq_ids", nargs=-1, type=click.IntRange(0), metavar="[POSITION]…")
TO: Final = option("--to target", "The queue that gets them.", required=True)
MATCHING: Final = option("--matching", "All in which a search finds it.", metavar="TEXT")


def act(action: str, name: str, vhost: str, management: Management, **more: str) -> None:
    asked = {"action": action, **more}
    management.do("queue_action", queue=name, vhost=vhost, **asked)
    management.say({"queue": name, "vhost": vhost, **asked})


@command(
    "queue pause orders", NAME, VHOST, of=queue, short="Let a queue take messages and give none."
)
def pause(name: str, vhost: str, management: Management) -> None:
    """Let a queue take messages and give none, until it is resumed; over restarts too."""
    act("pause", name, vhost, management)


@command("queue resume orders", NAME, VHOST, of=queue)
def resume(name: str, vhost: str, management: Management) -> None:
    """Let a paused queue give messages again."""
    act("resume", name, vhost, management)


@command(
    "queue peek orders --from 120000 --count 3",
    NAME,
    VHOST,
    option("--from", "Position (seq_id) of the first one.", click.IntRange(0)),
    click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True),
    PRIORITY,
    of=queue,
    short="Look at messages without taking them.",
)
def peek(name: str, vhost: str, management: Management, **where: int | None) -> None:
    """Look at messages where they lie: nothing is taken, and nothing marked as redelivered."""
    asked = urlencode({option: value for option, value in where.items() if value is not None})
    found = management.get(f"{path_of('queues', vhost, name, 'messages')}?{asked}")
    if management.as_json:
        management.say(found)
        return
    for message in found["messages"]:
        click.echo(lines_of(message))
    rest = f"; go on with --from {found['next']}" if found["next"] is not None else ""
    shown = many(len(found["messages"]), "message")
    click.echo(f"{shown} of positions {found['first']} to {found['end'] - 1}{rest}")


def lines_of(message: Mapping[str, Any]) -> str:
    where = f"{message['exchange'] or '(default)'} {message['routing_key']!r}"
    again = " redelivered" if message["redelivered"] else ""
    properties = json.dumps(message["properties"]) if message["properties"] else ""
    at_s = message["enqueued_at_ms"] / 1000
    when = f"since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(at_s))}"
    size = many(message["payload_bytes"], "byte")
    lines = [f"{message['seq_id']}  {where}  {size}  {when}{again}"]
    if properties:
        lines.append("    " + properties)
    lines += ["    " + shown(line) for line in message["payload"].split("\n")]
    return "\n".join(lines)


def found_in(
    management: Management, vhost: str, name: str, text: str, priority: int | None, at_most: int
) -> Iterator[Mapping[str, Any]]:
    progress = Progress(f"searching {name}")
    start: int | None = None
    left = at_most
    try:
        while left > 0:
            asked: dict[str, object] = {"text": text, "count": min(left, PAGE)}
            if start is not None:
                asked["from"] = start
            if priority is not None:
                asked["priority"] = priority
            path = path_of("queues", vhost, name, "messages", "search")
            page = management.must_find(f"{path}?{urlencode(asked)}", *absent("queue", name, vhost))
            yield from page["messages"]
            left -= len(page["messages"])
            start = page["next"]
            if start is None:
                return
            progress.show(start - page["first"], page["end"] - page["first"])
    finally:
        progress.end()


@command(
    "queue search orders 'customer 4711' --count 5",
    NAME,
    click.argument("text"),
    ANY_VHOST,
    option("--count", "At most.", click.IntRange(1), 20),
    PRIORITY,
    of=queue,
    short="Look for a text in a queue's messages.",
)
def search(
    name: str, text: str, vhost: str, count: int, priority: int | None, management: Management
) -> None:
    """Look for a text in bodies, routing keys, properties and headers; nothing is taken."""
    found = list(found_in(management, vhost, name, text, priority, count))
    shown = "\n".join([*map(lines_of, found), f"{many(len(found), 'message')} found"])
    management.say(found, shown)


def _work(
    action: str,
    name: str,
    vhost: str,
    seq_ids: tuple[int, ...],
    matching: str | None,
    priority: int | None,
    management: Management,
    **where: str,
) -> None:
    if bool(seq_ids) == (matching is not None):
        raise click.UsageError("say which: positions, or --matching TEXT")
    chosen = list(seq_ids)
    if matching is not None:
        found = found_in(management, vhost, name, matching, priority, 1 << 62)
        chosen = [int(message["seq_id"]) for message in found]
    progress = Progress(f"{action} {name}")
    totals: dict[str, int] = {}
    trouble = ""
    for begin in range(0, len(chosen), CHOSEN_AT_ONCE):
        part = chosen[begin : begin + CHOSEN_AT_ONCE]
        asked: dict[str, object] = {"action": action, "seq_ids": part, **where}
        if priority is not None:
            asked["priority"] = priority
        answer = management.post(path_of("queues", vhost, name, "messages", "actions"), asked)
        trouble = answer.pop("trouble") or trouble
        for kind, number in answer.items():
            totals[kind] = totals.get(kind, 0) + number
        progress.show(begin + len(part), len(chosen))
    progress.end()
    stayed = {kind: number for kind, number in totals.items() if number and kind != "done"}
    done = totals.get("done", 0)
    text = ", ".join([f"{many(done, 'message')} done", *(f"{n} {k}" for k, n in stayed.items())])
    management.say({"action": action, **totals, "trouble": trouble}, text)
    if stayed:
        raise Failure(
            f"{sum(stayed.values())} of {len(chosen)} stayed where they are",
            trouble or "`penstock queue peek` shows what is there",
        )


def _worker(
    word: str, epilog: str, short: str, text: str, *more: Callable[[Any], Any], action: str = ""
) -> click.Command:
    """``penstock queue WORD``: ``action`` of the management API, else the word itself."""

    def run(name: str, management: Management, target: str | None = None, **chosen: Any) -> None:
        where: dict[str, Any] = {} if target is None else {"queue": target}
        _work(action or word, name, management=management, **where, **chosen)

    taken = (NAME, SEQ_ID, MATCHING, *more, ANY_VHOST, PRIORITY)
    return command(epilog, *taken, of=queue, name=word, short=short, text=text)(run)


move: Final = _worker(
    "move",
    "\b\nExamples:\n  penstock queue move orders 17 18 --to parked\n"
    "  penstock queue move orders --matching 'customer 4711' --to parked",
    "Move chosen messages elsewhere.",
    "Move chosen messages to another queue; the others stay.",
    TO,
)
copy: Final = _worker(
    "copy",
    "queue copy orders 17 --to examples",
    "Copy chosen messages elsewhere.",
    "Copy chosen messages to another queue.",
    TO,
)
retry: Final = _worker(
    "retry",
    "queue retry dead --matching 'timed out'",
    "Send dead letters back to where they died.",
    "Publish chosen dead letters again as they first were, by their newest x-death.",
)
drop: Final = _worker(
    "drop",
    "queue drop orders 17 18",
    "Delete chosen messages.",
    "Delete chosen messages; the others stay.",
    action="delete",
)
