"""Progress of long work: a bar on a terminal, lines elsewhere, nothing where it is soon over."""

from __future__ import annotations

import io
import time

import pytest

from penstock.client import progress
from penstock.client.progress import ERASE, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PATIENCE_S", "LINE_EVERY_S", "DRAW_EVERY_S"):
        monkeypatch.setattr(progress, name, 0.0)


@pytest.mark.usefixtures("at_once")
def test_a_bar_is_drawn_over_itself_and_taken_away() -> None:
    stream = Terminal()
    bar = Progress("import", stream)
    bar.show(1, 4)
    bar.show(8, 4, "late")
    bar.end()
    bar.show(1, 4)
    first, second, last = stream.getvalue().split(ERASE)[1:]
    assert first == f"import [{'#' * 8}{'-' * 22}]  25% (0 s)"
    assert second == f"import [{'#' * 30}] 100% late (0 s)"
    assert last == "", "after the end nothing is drawn"


@pytest.mark.usefixtures("at_once")
def test_a_log_gets_lines() -> None:
    stream = io.StringIO()
    work = Progress("search", stream)
    work.show(1, 2)
    work.show(0, 0, "no end in sight")
    work.end()
    assert stream.getvalue() == "search  50% (0 s)\nsearch no end in sight (0 s)\n"


def test_what_is_soon_over_says_nothing() -> None:
    for stream in (Terminal(), io.StringIO()):
        work = Progress("import", stream)
        work.show(1, 2)
        work.end()
        assert stream.getvalue() == ""


@pytest.mark.usefixtures("at_once")
def test_where_others_write_lines_there_are_none() -> None:
    stream = io.StringIO()
    Progress("recovery", stream, lines=False).show(1, 2)
    assert stream.getvalue() == ""


def test_the_time_goes_by_while_somebody_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    monkeypatch.setattr(progress, "DRAW_EVERY_S", 0.001)
    stream = Terminal()
    until = time.monotonic() + 10
    with Progress("import", stream).waiting("12 definitions"):
        while "12 definitions (0 s)" not in stream.getvalue():
            assert time.monotonic() < until
            time.sleep(0.001)
    assert stream.getvalue().endswith(ERASE)
