"""``penstock top``: a page of the terminal with queues, connections or channels, flow and alarms.

    node, totals and rates
    the findings of ``penstock attention``, or that nothing needs a person
    where the bottleneck is, as ``penstock flow`` says
    a table that the broker sorts and filters
    the keys

``View`` is what the operator has chosen, ``press`` what a key makes of it, ``page`` the lines: they
know no terminal.  ``curses`` of the standard library reads keys and draws.
"""

import curses
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import click

from penstock.cli.lists import CHANNELS, CONNECTIONS, QUEUES
from penstock.cli.management import Management, asking, command
from penstock.cli.options import option
from penstock.cli.tables import Fields, cells_of, table
from penstock.core.printable import printable

LISTS: Final[Mapping[str, Fields]] = {
    "queues": QUEUES,
    "connections": CONNECTIONS,
    "channels": CHANNELS,
}
NAMES: Final = tuple(LISTS)
FINDINGS_SHOWN: Final = 4
KEYS: Final = (
    "q quit   Tab next list   ← → sort by   r reverse   / filter   ↑ ↓ scroll   space pause"
)
ROWS_ASKED: Final = 100
HEAD: Final = curses.A_REVERSE
STRONG: Final = curses.A_BOLD
PLAIN: Final = curses.A_NORMAL
Line = tuple[str, int]
"""A text and its attribute."""


class View(NamedTuple):
    """``sort``: a column, -1 = by name; ``typing``: the filter is being typed."""

    name: str = "queues"
    sort: int = -1
    is_reversed: bool = True
    part: str = ""
    offset: int = 0
    typing: bool = False
    paused: bool = False
    over: bool = False


class Answers(NamedTuple):
    """What the broker said last; ``fault``: why it says nothing now."""

    overview: Mapping[str, Any] | None = None
    attention: Mapping[str, Any] | None = None
    flow: Mapping[str, Any] | None = None
    rows: Sequence[Sequence[object]] = ()
    total: int = 0
    at: str = ""
    fault: str = ""


# -- keys ------------------------------------------------------------------------------------


def press(view: View, key: str, rows_shown: int) -> View:
    """``key``: a character, or a name as ``curses.keyname`` spells it."""
    if view.typing:
        return _typed(view, key)
    columns = len(LISTS[view.name])
    match key:
        case "q" | "\x1b":
            return view._replace(over=True)
        case "\t":
            name = NAMES[(NAMES.index(view.name) + 1) % len(NAMES)]
            return View(name=name, paused=view.paused)
        case "/":
            return view._replace(typing=True, offset=0)
        case "r":
            return view._replace(is_reversed=not view.is_reversed, offset=0)
        case " ":
            return view._replace(paused=not view.paused)
        case "KEY_RIGHT" | "KEY_LEFT":
            step = 1 if key == "KEY_RIGHT" else -1
            return view._replace(sort=(view.sort + step) % columns, offset=0)
        case "KEY_DOWN" | "KEY_UP" | "KEY_NPAGE" | "KEY_PPAGE":
            step = rows_shown if key.endswith("PAGE") else 1
            down = key in ("KEY_DOWN", "KEY_NPAGE")
            return view._replace(offset=max(0, view.offset + (step if down else -step)))
    return view


def _typed(view: View, key: str) -> View:
    if key in ("\n", "\r", "KEY_ENTER"):
        return view._replace(typing=False)
    if key == "\x1b":
        return view._replace(typing=False, part="")
    if key in ("KEY_BACKSPACE", "\x7f", "\b"):
        return view._replace(part=view.part[:-1])
    return view._replace(part=view.part + key) if len(key) == 1 and key.isprintable() else view


# -- questions -------------------------------------------------------------------------------


def ask(management: Management, view: View) -> Answers:
    """Raises click.ClickException.  A user without a monitoring tag gets no flow."""
    fields = LISTS[view.name]
    query = {
        "page": view.offset // ROWS_ASKED + 1,
        "page_size": ROWS_ASKED,
        "columns": ",".join(field for _, field in fields),
        "sort": fields[view.sort][1] if view.sort >= 0 else "name",
        "sort_reverse": str(view.sort >= 0 and view.is_reversed).lower(),
        "name": view.part,
    }
    found = management.get(f"/api/{view.name}?{urlencode(query)}", absent=(400,))
    if found is None:  # the page lies behind the last
        return ask(management, view._replace(offset=0))
    return Answers(
        management.get("/api/overview"),
        management.get("/api/penstock/attention", absent=(404,)),
        management.get("/api/penstock/flow", absent=(401, 404)),
        [cells_of(item, fields) for item in found["items"]],
        found["filtered_count"],
        time.strftime("%H:%M:%S"),
    )


# -- the page --------------------------------------------------------------------------------


def page(view: View, answers: Answers, width: int, height: int) -> list[Line]:
    """As many lines as there are, none longer than the terminal is wide."""
    lines = _head(view, answers)
    lines += _attention(answers)
    if answers.flow is not None:
        lines.append((str(answers.flow["sentence"]), PLAIN))
    lines.append(("", PLAIN))
    lines += _table(view, answers, width)
    del lines[height - 1 :]
    lines += [("", PLAIN)] * (height - 1 - len(lines))
    prompt = f"filter: {view.part}▏  Enter keeps it, Esc drops it" if view.typing else KEYS
    lines.append((prompt, HEAD))
    return [(printable(text)[:width], how) for text, how in lines]


def _head(view: View, answers: Answers) -> list[Line]:
    overview = answers.overview
    lines: list[Line] = []
    if overview is not None:
        totals, stats = overview["queue_totals"], overview.get("message_stats", {})
        objects = overview["object_totals"]
        paused = "   paused" if view.paused else ""
        lines.append((f"{overview['node']}   {answers.at}{paused}", STRONG))
        text = f"{totals['messages_ready']:,} ready, {totals['messages_unacknowledged']:,}"
        text += f" unacknowledged in {objects['queues']:,} queues; {objects['connections']:,}"
        text += f" connections, {objects['consumers']:,} consumers"
        lines.append((text, PLAIN))
        rates = ("publish", "confirm", "deliver_get", "ack")
        per_second = (stats.get(f"{name}_details", {}).get("rate", 0) for name in rates)
        names = ("published", "confirmed", "delivered", "acknowledged")
        pairs = zip(per_second, names, strict=True)
        lines.append(("per second: " + ", ".join(f"{n:,.0f} {what}" for n, what in pairs), PLAIN))
    if answers.fault:
        since = f"; what is shown is of {answers.at}" if answers.at else ""
        lines.append((f"{answers.fault}{since}", STRONG))
    return lines


def _attention(answers: Answers) -> list[Line]:
    if answers.attention is None:
        return []
    found = answers.attention["findings"]
    lines: list[Line] = [
        (f"{'!!' if one['is_alarm'] else ' !'} {one['sentence']}", STRONG)
        for one in found[:FINDINGS_SHOWN]
    ]
    more = len(found) - len(lines) + answers.attention["left_out"]
    if more:
        lines.append((f"   {more:,} more: penstock attention", PLAIN))
    if not found and not answers.attention["not_judged"]:
        lines.append(("nothing needs a person", PLAIN))
    return lines


def _table(view: View, answers: Answers, width: int) -> list[Line]:
    titles = [title for title, _ in LISTS[view.name]]
    if view.sort >= 0:
        titles[view.sort] += "▼" if view.is_reversed else "▲"
    of = f" with {view.part!r} in their names" if view.part else ""
    lines: list[Line] = [(f"{answers.total:,} {view.name}{of}", STRONG)]
    if answers.rows:
        head, *rows = table(titles, answers.rows, grouped=True, width=width).splitlines()
        lines.append((head, HEAD))
        lines += [(row, PLAIN) for row in rows[view.offset % ROWS_ASKED :]]
    return lines


# -- the terminal ----------------------------------------------------------------------------


@command(
    "top --every 5",
    option("--every", "Seconds from one look to the next.", click.FloatRange(min=0.2), default=2.0),
    form=asking,
)
def top(every: float, management: Management) -> None:
    """Show queues, connections, channels, flow and alarms, live: a page of the terminal."""
    if not sys.stdout.isatty():
        raise click.UsageError("`top` needs a terminal; `penstock queues --watch` does without")
    curses.wrapper(_run, management, every)


def _run(screen: "curses.window", management: Management, every_s: float) -> None:
    curses.curs_set(0)
    curses.set_escdelay(50)
    view, answers, due_s = View(), Answers(), 0.0
    while not view.over:
        height, width = screen.getmaxyx()
        now_s = time.monotonic()
        if now_s >= due_s and not view.paused:
            try:
                answers = ask(management, view)
            except click.ClickException as error:
                answers = answers._replace(fault=error.format_message())
            due_s = time.monotonic() + every_s
        _draw(screen, page(view, answers, width, height))
        wait_ms = 1000 if view.paused else max(0, int((due_s - time.monotonic()) * 1000))
        screen.timeout(min(wait_ms, 1000))
        key = _key(screen)
        before, view = view, press(view, key, max(1, height - 10)) if key else view
        if view._replace(paused=before.paused, typing=before.typing) != before:
            due_s = 0.0


def _key(screen: "curses.window") -> str:
    """Empty: none came in time."""
    try:
        key = screen.get_wch()
    except (curses.error, KeyboardInterrupt) as error:
        return "q" if isinstance(error, KeyboardInterrupt) else ""
    return key if isinstance(key, str) else curses.keyname(key).decode("ascii", "replace")


def _draw(screen: "curses.window", lines: Sequence[Line]) -> None:
    screen.erase()
    for at, (text, how) in enumerate(lines):
        try:
            screen.addstr(at, 0, text, how)
        except curses.error:
            break  # the terminal has become smaller, or this is its last cell
    screen.refresh()
