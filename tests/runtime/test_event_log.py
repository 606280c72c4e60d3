"""Files of the event log: bounded, never in the broker's way, whole up to their last line."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from penstock.core.events.book import Event
from penstock.core.events.kinds import read_line
from penstock.runtime.disk import event_log
from penstock.runtime.disk.event_log import WAITING_MAX, EventLog, event_files


def events(count: int, name: str = "q") -> list[Event]:
    return [(1, "queue_deleted", ("/", f"{name}{number}")) for number in range(count)]


def lines(directory: Path) -> list[dict[str, object] | None]:
    return [
        read_line(line)
        for file in event_files(directory)
        for line in file.read_bytes().splitlines(keepends=True)
    ]


def names(directory: Path) -> list[object]:
    return [line.get("queue") for line in lines(directory) if line is not None]


def test_what_was_put_is_in_the_file_when_the_log_stops(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events", 65_536, 1 << 20)
    log.start()
    log.put(events(500))
    log.put(events(3, "r"))
    log.stop()
    assert names(tmp_path / "events") == [f"q{n}" for n in range(500)] + ["r0", "r1", "r2"]
    assert (tmp_path / "events").stat().st_mode & 0o077 == 0


def test_files_are_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    log = EventLog(tmp_path, 10_000, 40_000)
    for _ in range(40):
        log.put(events(50))
        log.write_waiting()
    files = event_files(tmp_path)
    sizes = [file.stat().st_size for file in files]
    assert files[0].name != "events-00000001.jsonl"
    assert 2 <= len(files) <= 4
    assert sum(sizes) <= 40_000 + 5000  # a batch may be written over the edge of its file
    assert None not in lines(tmp_path)


def test_a_new_start_begins_a_new_file_and_counts_the_old_ones(tmp_path: Path) -> None:
    for _ in range(6):
        log = EventLog(tmp_path, 10_000, 40_000)
        log.put(events(100))
        log.write_waiting()
    files = event_files(tmp_path)
    assert files[-1].name == "events-00000006.jsonl"
    assert sum(file.stat().st_size for file in files) <= 40_000


def test_after_a_tear_it_goes_on_in_a_new_file_and_says_what_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = EventLog(tmp_path, 1 << 20, 1 << 22)
    log.put(events(2))
    log.write_waiting()
    monkeypatch.setattr(event_log.os, "write", lambda fd, data: real(fd, data[:40]))
    log.put(events(3, "lost"))
    log.write_waiting()
    monkeypatch.undo()
    log.put(events(1, "after"))
    log.write_waiting()
    files = event_files(tmp_path)
    assert len(files) == 2
    old = [read_line(line) for line in files[0].read_bytes().splitlines(keepends=True)]
    assert [line is None for line in old] == [False, False, True]
    (told, after) = [read_line(line) for line in files[1].read_bytes().splitlines(keepends=True)]
    assert told is not None
    assert (told["event"], told["count"]) == ("events_dropped", 3)
    assert told["because"] == "No space left on device"
    assert after is not None
    assert after["queue"] == "after0"


real = os.write


def test_a_disk_that_is_full_drops_counts_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = EventLog(tmp_path, 1 << 20, 1 << 22)

    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(event_log.os, "write", full)
    for _ in range(4):
        log.put(events(10))
        log.write_waiting()
    monkeypatch.undo()
    log.put(events(1, "after"))
    log.write_waiting()
    told = [line for line in lines(tmp_path) if line and line["event"] == "events_dropped"]
    assert [line["count"] for line in told] == [40]
    assert names(tmp_path)[-1] == "after0"
    assert caplog.text.count("events are dropped") == 1
    assert caplog.text.count("written again") == 1


def test_a_disk_that_hangs_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(tmp_path, 1 << 24, 1 << 26)
    going_on = threading.Event()

    def hanging(fd: int, data: bytes) -> int:
        going_on.wait(20)
        return real(fd, data)

    monkeypatch.setattr(event_log.os, "write", hanging)
    log.start()
    for _ in range(WAITING_MAX // 1000 + 20):
        log.put(events(1000))  # returns although nothing is ever written
    going_on.set()
    log.stop()
    told = [line for line in lines(tmp_path) if line and line["event"] == "events_dropped"]
    assert sum(int(str(line["count"])) for line in told) == 20_000
    assert {line["because"] for line in told} == {"the disk was too slow"}
    written = [name for name in names(tmp_path) if name is not None]
    assert len(written) == WAITING_MAX


def test_other_files_in_the_directory_are_left_alone(tmp_path: Path) -> None:
    stranger = tmp_path / "notes.txt"
    stranger.write_text("mine")
    log = EventLog(tmp_path, 1000, 2000)
    for _ in range(20):
        log.put(events(20))
        log.write_waiting()
    assert stranger.read_text() == "mine"
