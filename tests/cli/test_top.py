"""``penstock top``: keys and lines without a terminal, and the program on one."""

from __future__ import annotations

import curses
import os
import pty
import select
import subprocess
import sys
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.cli.management import Management
from penstock.cli.tables import table
from penstock.cli.top import NAMES, Answers, View, ask, page, press
from tests.helpers.live_broker import LiveBroker

OVERVIEW: dict[str, Any] = {
    "node": "penstock@test",
    "queue_totals": {"messages_ready": 12_345, "messages_unacknowledged": 67},
    "object_totals": {"queues": 3, "connections": 2, "consumers": 1},
    "message_stats": {"publish_details": {"rate": 1234.4}},
}
FINDING = {"is_alarm": True, "sentence": "The disk alarm of n1 is set: publishers wait."}
CALM: dict[str, Any] = {"findings": [], "left_out": 0, "not_judged": []}
ROW = ["/", "orders\x1b[2J", True, 12_345, 0, 1, 5.0, 4.0, 1_000_000, 12]


def pressed(view: View, *keys: str) -> View:
    for key in keys:
        view = press(view, key, rows_shown=20)
    return view


def test_keys_choose_list_column_and_filter() -> None:
    view = pressed(View(), "KEY_RIGHT", "KEY_RIGHT", "KEY_RIGHT", "KEY_RIGHT", "r")
    assert (view.sort, view.is_reversed) == (3, False)
    view = pressed(view, "KEY_NPAGE", "KEY_DOWN", "KEY_UP")
    assert view.offset == 20
    view = pressed(view, "/", "q", "x", "KEY_BACKSPACE", "é", "KEY_F(1)", "\n")
    assert (view.part, view.typing, view.over, view.offset) == ("qé", False, False, 0)
    assert pressed(view, "/", "\x1b").part == ""
    assert [pressed(View(), *["\t"] * count).name for count in range(4)] == [*NAMES, "queues"]
    assert pressed(View(), " ").paused
    assert pressed(View(), "KEY_UP").offset == 0
    assert pressed(View(), "q").over
    assert pressed(View(), "KEY_LEFT").sort >= 0


def test_the_page_fits_the_terminal() -> None:
    answers = Answers(
        OVERVIEW, CALM | {"findings": [FINDING] * 6}, None, [ROW] * 30, 30, "12:00:00"
    )
    lines = page(pressed(View(), "KEY_RIGHT"), answers, 60, 24)
    assert len(lines) == 24
    assert all(len(text) <= 60 for text, _ in lines)
    assert lines[1][0].startswith("12,345 ready, 67 unacknowledged in 3 queues;")
    assert lines[2][0].startswith("per second: 1,234 published")
    assert [text[:2] for text, _ in lines[3:7]] == ["!!"] * 4
    assert lines[7][0] == "   2 more: penstock attention"
    (head,) = [text for text, how in lines[:-1] if how == curses.A_REVERSE]
    assert "vhost▼" in head
    assert not [text for text, _ in lines if "\x1b" in text]


def test_nothing_needs_a_person_and_a_broker_that_is_away() -> None:
    texts = [text for text, _ in page(View(), Answers(OVERVIEW, CALM), 100, 24)]
    assert "nothing needs a person" in texts
    gone = Answers(OVERVIEW, CALM, at="12:00:00", fault="no management API answers")
    texts = [text for text, _ in page(View(), gone, 100, 24)]
    assert "no management API answers; what is shown is of 12:00:00" in texts
    early = [text for text, _ in page(View(), Answers(fault="no answer"), 100, 24)]
    assert early[0] == "no answer"


class Recorder(Management):
    """Answers by path, and notes what was asked."""

    def __init__(self, lists: dict[int, Any]) -> None:
        self.asked: list[str] = []
        self._lists = lists

    def get(self, path: str, absent: Any = ()) -> Any:
        self.asked.append(path)
        query = parse_qs(urlsplit(path).query)
        if not query:
            return {}
        return self._lists.get(int(query["page"][0]))


def test_the_broker_sorts_filters_and_pages() -> None:
    recorder = Recorder({1: {"items": [{"name": "a"}], "filtered_count": 1}})
    view = View(sort=3, part="order", offset=130)
    answers = ask(recorder, view)
    first, again = (parse_qs(urlsplit(path).query) for path in recorder.asked[:2])
    assert (first["sort"], first["sort_reverse"]) == (["messages_ready"], ["true"])
    assert (first["name"], first["page"], again["page"]) == (["order"], ["2"], ["1"])
    assert (answers.total, answers.rows[0][1]) == (1, "a")


def test_a_table_gives_way_where_it_is_widest() -> None:
    rows = [["q" * 60, "x" * 10, 5]]
    lines = table(("name", "user", "n"), rows, width=40).splitlines()
    assert [len(line) for line in lines] == [40, 40]
    assert (lines[1][:5], lines[1][-4:]) == ("qqqqq", "x  5")
    assert "…" in lines[1]
    assert len(table(("name", "user", "n"), rows).splitlines()[1]) == 75
    # A cell above the usual widths is cut to the others', not the others widened.
    assert len(table(("name",), [["q" * 90], ["q" * 20]], width=40).splitlines()[1]) <= 40


def test_the_program_on_a_terminal() -> None:
    with LiveBroker() as live:
        ours, theirs = pty.openpty()
        program = subprocess.Popen(
            [sys.executable, "-m", "penstock", "top", "--every", "0.2"],
            stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
            env=live.environment() | {"PENSTOCK_HTTP_URL": live.http_url, "TERM": "xterm"},
        )  # fmt: skip
        os.close(theirs)
        try:
            assert b"0 queues" in read_until(ours, b"q quit")
            os.write(ours, b"\t")
            read_until(ours, b"connections")
            os.write(ours, b"q")
            read_until(ours, None)
            assert program.wait(30) == 0
        finally:
            program.kill()
            os.close(ours)
    result = subprocess.run(
        [sys.executable, "-m", "penstock", "top"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, "needs a terminal" in result.stderr) == (2, True)


def read_until(terminal: int, text: bytes | None) -> bytes:
    """None = the end."""
    found = b""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if not select.select([terminal], [], [], 0.5)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other side has closed it
            piece = b""
        found += piece
        if (text is None and not piece) or (text is not None and text in found):
            return found
    raise AssertionError(f"{text!r} is not in {found[-2000:]!r}")
