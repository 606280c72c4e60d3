"""Clauses of docs/formats/history.md, and charts that go on after a restart."""

from __future__ import annotations

import asyncio
import itertools
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zlib import crc32

import pytest

from penstock.management.statistics.completing import Statistics
from penstock.management.statistics.history_file import HEAD, PLACES, HistoryFile
from penstock.management.statistics.kinds import CLUSTER, NODE
from penstock.management.statistics.rings import Tracks
from penstock.management.statistics.sampler import StatisticsSampler

NAMES = ("one", "two")
NOW = 29_000_000
"""A minute."""
RECORD_BYTES = 12 + 8 * len(NAMES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "history"


def test_clause_1_1_the_head_and_the_size(path: Path) -> None:
    assert HistoryFile(path, NAMES).read(NOW) == []
    assert path.stat().st_size == 64 + PLACES * RECORD_BYTES
    head = path.read_bytes()[:64]
    fields = struct.unpack(">3sBIIII", head[:20])
    assert fields == (b"PSH", 1, 60, 10_080, 2, crc32(b"one\ntwo"))
    assert head[20:] == bytes(44)


def test_clause_1_2_another_head_begins_anew(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    HistoryFile(path, NAMES).read(NOW)
    HistoryFile(path, NAMES).write(NOW - 1, (1, 2))
    assert HistoryFile(path, (*NAMES, "three")).read(NOW) == []
    assert "begun anew" in caplog.text
    path.write_bytes(b"PS")
    assert HistoryFile(path, NAMES).read(NOW) == []
    assert [one.name for one in path.parent.iterdir()] == ["history"]


def test_clause_2_1_the_bytes_of_a_record(path: Path) -> None:
    file = HistoryFile(path, NAMES)
    file.read(NOW)
    file.write(NOW - 1, (7, 1 << 70))
    start = HEAD.size + (NOW - 1) % PLACES * RECORD_BYTES
    record = path.read_bytes()[start : start + RECORD_BYTES]
    assert struct.unpack(">QQQ", record[:-4]) == (NOW - 1, 7, (1 << 64) - 1)
    assert int.from_bytes(record[-4:], "big") == crc32(record[:-4])


def test_clause_2_3_what_is_torn_or_too_old_does_not_count(path: Path) -> None:
    file = HistoryFile(path, NAMES)
    file.read(NOW)
    for minute in range(NOW - PLACES - 3, NOW):
        file.write(minute, (minute, 0))
    found = file.read(NOW)
    assert [minute for minute, _ in found] == list(range(NOW - PLACES, NOW))
    assert found[0] == (NOW - PLACES, (NOW - PLACES, 0))
    data = bytearray(path.read_bytes())
    data[HEAD.size + (NOW - 5) % PLACES * RECORD_BYTES + 9] ^= 1
    path.write_bytes(data)
    assert NOW - 5 not in dict(file.read(NOW))
    assert len(file.read(NOW)) == PLACES - 1
    assert file.read(NOW + PLACES) == []
    path.write_bytes(data[: HEAD.size + 100 * RECORD_BYTES])
    assert len(file.read(NOW)) in (99, 100)


def test_a_disk_that_fails_is_said_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = HistoryFile(path / "nowhere", NAMES)
    assert file.read(NOW) == []
    file.write(NOW, (1, 2))
    assert caplog.text.count("charts are not kept on disk") == 1


class Node:
    """What is sampled: a cluster that publishes, on an event loop of its own."""

    def __init__(self, directory: Path) -> None:
        self.published = 0
        self.ready = 0
        self.statistics = Statistics()
        reading = SimpleNamespace(
            sessions=list,
            vhost_names=lambda: ["/"],
            queue_names=lambda _: ["q"],
            queues=lambda _, names: [(names.pop(), (self.published, *[0] * 8, self.ready, 0))],
            exchange_names=lambda _: [],
            vhost=lambda _: (0,) * 13,
            cluster=lambda: (self.published, *[0] * 19),
        )
        facts = SimpleNamespace(row=lambda: {"mem_used": 1000 + self.published})

        async def on_loop(function: Any, *arguments: Any) -> Any:
            return function(*arguments)

        self.sampler = StatisticsSampler(
            self.statistics, cast(Any, reading), cast(Any, facts), on_loop, str(directory)
        )

    def restore(self, now_s: float) -> None:
        assert self.sampler._file is not None
        self.sampler._restore(self.sampler._file, now_s)

    def walk(self, now_s: float) -> None:
        asyncio.run(self.sampler.walk(now_s))

    def samples(self, kind: str, name: str, age_s: int, step_s: int) -> list[tuple[int, float]]:
        tracks = self.statistics.tracks[kind]
        place = tracks.kind.names.index(name)
        return tracks.of(()).samples(tracks.levels, place, age_s, step_s)


def test_charts_go_on_after_a_restart(tmp_path: Path) -> None:
    start_s = NOW * 60.0
    before = Node(tmp_path)
    before.restore(start_s)
    for minute in range(121):
        before.published += 10
        before.ready = minute
        before.walk(start_s + 60 * minute)
    known = {
        age_s: (
            before.samples("cluster", "publish", age_s, step_s),
            before.samples("cluster", "messages_ready", age_s, step_s),
            before.samples("node", "mem_used", age_s, step_s),
        )
        for age_s, step_s in ((3600, 60), (28_800, 600), (86_400, 1800), (604_800, 3600))
    }
    after = Node(tmp_path)
    after.restore(start_s + 121 * 60)
    after.ready = 5
    after.published = 3
    after.walk(start_s + 121 * 60)
    publish = after.samples("cluster", "publish", 3600, 60)
    # The minute in which the old process ended was not over.
    assert [a - b for (_, a), (_, b) in itertools.pairwise(publish)][:3] == [3, 0, 10]
    was = dict(known[3600][1])
    for at_ms, ready in after.samples("cluster", "messages_ready", 3600, 60)[2:]:
        if at_ms in was:
            assert ready == was[at_ms]
    week = after.samples("cluster", "publish", 604_800, 3600)
    assert week[0][1] - week[-1][1] == 1203
    assert min(value for _, value in week) == 0
    used = dict(after.samples("node", "mem_used", 86_400, 1800))
    assert used[int(start_s // 1800) * 1_800_000] > 1000


def test_a_broker_without_any_messages_has_numbers_too() -> None:
    """Nothing was ever recorded of it; the statistics of that minute ended in an error."""
    tracks = Tracks(CLUSTER, 5)
    tracks.begin(NOW * 60.0)
    track, levels = tracks.of(()), tracks.levels
    width = len(CLUSTER.names)
    assert track.of_slot(levels, levels.levels[1], levels.levels[1].slot) == [0] * width
    assert track.recent(levels, width - 1, 10) == [0, 0, 0]


def test_the_page_says_how_many_columns_there_are() -> None:
    page = Path(__file__).resolve().parents[2].joinpath("docs/formats/history.md").read_text()
    columns = len(CLUSTER.names) + len(NODE.names)
    assert f"with the {columns} columns" in page
