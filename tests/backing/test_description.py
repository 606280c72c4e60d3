"""What a queue says of itself, against its messages counted one by one."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.backing import description
from penstock.backing.description import describe_index, describe_queue
from penstock.backing.variable_queue import VariableQueue
from penstock.core.message import INDEXED, Message
from penstock.storage.engine.resting_queue import FLUSHED
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.sim_files import SimFileSystem

ENTRIES = 64
PLENTY = 1 << 30


class Kind(NamedTuple):
    """Of a message, beside its number."""

    size: int
    persistent: bool


class Counted:
    """A queue, and what became of each of its messages."""

    def __init__(self, *, durable: bool, lazy: bool) -> None:
        self.open = OpenEngine(SimFileSystem(), {1: ENTRIES}, limits(embed=200))
        self.queue = (
            self.open.queues[1] if durable else VariableQueue(self.open.engine, 2, False, ENTRIES)
        )
        self.queue.set_mode(lazy)
        self.durable = durable
        self.alive: dict[int, Kind] = {}
        self.out: list[Message] = []
        self.later: list[Message] = []

    def publish(self, sizes: list[int], *, persistent: bool) -> None:
        messages = [message(b"x" * size, persistent=persistent) for size in sizes]
        self.queue.publish(messages, 0)
        for one in messages:
            self.alive[int(one.seq_id)] = Kind(int(one.size), persistent and self.durable)

    def fetch(self, count: int) -> None:
        self.out += self.queue.fetch(count, PLENTY)
        self.open.run_jobs()

    def ack(self, count: int) -> None:
        done, self.out = self.out[:count], self.out[count:]
        for one in done:
            del self.alive[int(one.seq_id)]
        self.queue.ack(done)

    def requeue(self, count: int) -> None:
        back, self.out = self.out[:count], self.out[count:]
        self.queue.requeue(back)

    def delay(self, count: int) -> None:
        later, self.out = self.out[:count], self.out[count:]
        if later:
            self.queue.delay(later, 1000)
            self.later += later

    def page(self, target_bytes: int) -> None:
        self.open.commit()
        self.open.run_jobs()
        more = True
        while more:
            more = self.queue.page(target_bytes, 50)
            self.open.commit()
            self.open.run_jobs()

    def expected(self) -> dict[str, Any]:
        """As ``describe_queue`` should say it, from the messages themselves."""
        queue = self.queue
        runs = {
            "q1": queue.tiers.q1,
            "q2": queue.tiers.q2,
            "q3": queue.tiers.q3,
            "q4": queue.tiers.q4,
        }
        said: dict[str, Any] = {
            name: {
                "messages": len(run.live()),
                "bytes": sum(int(one.size) for one in run.live()),
                "ram_messages": sum(1 for one in run.live() if one.content),
            }
            for name, run in runs.items()
        }
        here = {int(one.seq_id) for run in runs.values() for one in run.live()}
        out = {int(one.seq_id) for one in self.out + self.later}
        resting = [kind for number, kind in self.alive.items() if number not in here | out]
        passing = [kind for kind in resting if not kind.persistent]
        in_ram = [one for run in runs.values() for one in run.live() if one.content]
        in_ram += queue.tiers.tail.live()
        said["delta"] = {
            "messages": len(resting),
            "bytes": sum(kind.size for kind in resting),
            "transient_messages": len(passing),
            "transient_bytes": sum(kind.size for kind in passing),
        }
        said["pending"] = {
            "messages": len(self.out),
            "bytes": sum(int(one.size) for one in self.out),
            "ram_messages": sum(1 for one in self.out if one.content),
            "ram_bytes": sum(int(one.size) for one in self.out if one.content),
        }
        said["ram_messages"] = len(in_ram)
        said["ram_bytes"] = sum(int(one.size) for one in in_ram)
        said["ram_bytes"] += sum(len(one.content) for one in self.later)
        said["delayed"] = len(self.later)
        kept = [kind for kind in self.alive.values() if kind.persistent]
        said["persistent_messages"] = len(kept)
        said["persistent_bytes"] = sum(kind.size for kind in kept)
        return said


def assert_agrees(said: dict[str, Any], expected: dict[str, Any]) -> list[str]:
    """What is said is so; returns what was not said."""
    unknown: list[str] = []
    for key, value in expected.items():
        if isinstance(value, dict):
            unknown += [f"{key}.{name}" for name in assert_agrees(said[key], value)]
        elif said[key] is None:
            unknown.append(key)
        else:
            assert said[key] == value, key
    return unknown


STEPS = st.one_of(
    st.tuples(
        st.just("publish"),
        st.lists(st.sampled_from([1, 50, 300]), min_size=1, max_size=40),
        st.booleans(),
    ),
    st.tuples(st.sampled_from(["fetch", "ack", "requeue", "delay"]), st.integers(1, 30)),
    st.tuples(st.just("page"), st.sampled_from([0, 2000, 20_000])),
)


@given(st.lists(STEPS, min_size=4, max_size=25), st.booleans(), st.booleans(), st.integers(0, 120))
@settings(max_examples=60)
def test_a_queue_says_what_is_so(
    steps: list[tuple[Any, ...]], durable: bool, lazy: bool, budget: int
) -> None:
    counted = Counted(durable=durable, lazy=lazy)
    for verb, *arguments in steps:
        if verb == "publish":
            counted.publish(arguments[0], persistent=arguments[1])
        else:
            getattr(counted, verb)(*arguments)
        expected = counted.expected()
        unknown = assert_agrees(describe_queue(counted.queue, PLENTY), expected)
        # Segments have no counter for the bytes of transient messages in a durable queue.
        assert set(unknown) <= {"delta.transient_bytes", "persistent_bytes"}
        assert_agrees(describe_queue(counted.queue, budget), expected)
        assert_agrees(describe_queue(counted.queue, 0), expected)
    counted.queue.check()


def test_nothing_is_unknown_where_all_is_persistent() -> None:
    counted = Counted(durable=True, lazy=False)
    counted.publish([50] * 100 + [300] * 100, persistent=True)
    counted.fetch(20)
    counted.page(10_000)
    counted.publish([50] * 10, persistent=True)
    assert counted.queue.tiers.delta_count > 0
    assert counted.queue.tiers.q1.count() > 0
    assert assert_agrees(describe_queue(counted.queue, PLENTY), counted.expected()) == []


def test_transient_messages_that_came_back_from_the_disk_are_not_in_delta() -> None:
    counted = Counted(durable=True, lazy=False)
    counted.publish([50] * 300, persistent=False)
    counted.publish([50] * 100, persistent=True)
    counted.page(0)
    for _ in range(6):
        counted.fetch(20)
    expected = counted.expected()
    assert any(one.flags & INDEXED for one in counted.out)
    assert 0 < expected["delta"]["transient_messages"] < 300 - 120
    unknown = assert_agrees(describe_queue(counted.queue, PLENTY), expected)
    assert set(unknown) == {"delta.transient_bytes", "persistent_bytes"}


def test_the_only_run_over_the_budget_is_what_is_left() -> None:
    counted = Counted(durable=False, lazy=False)
    counted.publish([50] * 100, persistent=False)
    said = describe_queue(counted.queue, 0)
    assert said["q4"] == {"messages": 100, "bytes": 5000, "ram_messages": 100}


def test_two_runs_over_the_budget_stay_unknown() -> None:
    counted = Counted(durable=False, lazy=False)
    counted.publish([50] * 200, persistent=False)
    counted.page(20_000)
    counted.publish([50] * 60, persistent=False)
    lengths = [
        counted.queue.tiers.q3.count(),
        counted.queue.tiers.q4.count(),
        counted.queue.tiers.q1.count(),
    ]
    assert sum(1 for length in lengths if length > 10) >= 2, lengths
    said: dict[str, Any] = describe_queue(counted.queue, 10)
    assert_agrees(said, counted.expected())
    assert None in [said[name]["bytes"] for name in ("q1", "q3", "q4")]
    assert said["bytes"] == 260 * 50, "the total has a counter"
    assert None not in [said[name]["ram_messages"] for name in ("q1", "q4")], "all of them are"


@pytest.mark.parametrize("budget", [99, 100])
def test_a_budget_is_kept_to_the_message(budget: int) -> None:
    counted = Counted(durable=True, lazy=False)
    counted.publish([50], persistent=False)
    counted.publish([50] * 99, persistent=True)
    said = describe_queue(counted.queue, budget)
    assert said["persistent_messages"] == 99
    assert said["persistent_bytes"] == (4950 if budget == 100 else None)


@pytest.mark.parametrize("persistent", [True, False])
def test_of_one_kind_all_are_known_however_long_the_queue_is(persistent: bool) -> None:
    counted = Counted(durable=True, lazy=False)
    counted.publish([50] * 300, persistent=not persistent)
    counted.fetch(300)
    counted.ack(300)
    assert describe_queue(counted.queue, 0)["messages"] == 0
    counted.publish([50] * 300, persistent=persistent)
    counted.page(10_000)
    counted.fetch(20)
    said = describe_queue(counted.queue, 0)
    assert said["persistent_messages"] == (300 if persistent else 0)
    assert said["persistent_bytes"] == (15_000 if persistent else 0)


def test_targets() -> None:
    counted = Counted(durable=True, lazy=False)
    said = describe_queue(counted.queue, 0)
    assert (said["target_ram_count"], said["target_ram_bytes"]) == (None, None)
    assert (said["bytes_per_second"], said["duration_s"]) == (0, None)
    counted.page(4096)
    said = describe_queue(counted.queue, 0)
    assert (said["target_ram_count"], said["target_ram_bytes"]) == (0, 4096)
    counted.publish([50] * 20, persistent=True)
    counted.queue.tiers.rates.left_rate = 2000.0
    said = describe_queue(counted.queue, 0)
    assert said["target_ram_count"] == 4096 // 250
    assert (said["bytes_per_second"], said["duration_s"]) == (1000, 5.0)


def test_the_index_lists_its_files() -> None:
    counted = Counted(durable=True, lazy=True)
    assert describe_index(counted.queue)["files"] == []
    counted.publish([50] * 200, persistent=True)
    counted.page(0)
    said: dict[str, Any] = describe_index(counted.queue)
    assert [file["name"] for file in said["files"]] == sorted(
        (name for name in _files(counted) if name.endswith(".idx")),
        key=lambda name: int(name.partition(".")[0]),
    )
    assert said["messages"] == sum(file["messages"] for file in said["files"]) == 200
    assert said["bytes"] == sum(file["bytes"] for file in said["files"]) > 200 * 50
    assert said["message_bytes"] == 200 * 50


def _files(counted: Counted) -> list[str]:
    return counted.open.files.listdir(f"{counted.open.engine.directory}/queues/1")


@pytest.mark.parametrize("segments", [1, 200])
def test_a_line_of_a_list_is_made_of_counters(
    segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is counted message by message, and thousands of segments are not added up."""
    counted = Counted(durable=True, lazy=True)
    for number in range(segments):
        counted.publish([1] * ENTRIES, persistent=number > 0)
    counted.page(0)
    looked_at: list[int] = []

    class Looking(description._Counted):
        def __init__(self, messages: list[Message]) -> None:
            looked_at.append(len(messages))
            super().__init__(messages)

    monkeypatch.setattr(description, "_Counted", Looking)
    begun = time.thread_time()
    said: dict[str, Any] = describe_queue(counted.queue, 0)
    assert time.thread_time() - begun < 0.01
    assert sum(looked_at) == 0
    assert said["messages"] == segments * ENTRIES
    assert said["delta"]["transient_messages"] == ENTRIES
    assert said["persistent_messages"] == (segments - 1) * ENTRIES


def test_journal_entries_are_the_messages_that_only_the_journal_has() -> None:
    counted = Counted(durable=True, lazy=False)
    counted.publish([50] * 20, persistent=False)
    counted.publish([50] * 3 * ENTRIES, persistent=True)
    counted.fetch(50)
    counted.ack(50)
    living = 3 * ENTRIES - 30
    assert describe_index(counted.queue)["journal_entries"] == living
    counted.page(10_000)
    said = describe_index(counted.queue)
    resting = sum(1 for one in counted.queue.tiers.q3.live() if one.flags & INDEXED)
    assert counted.queue.tiers.delta_count > 0
    assert said["journal_entries"] == living - counted.queue.tiers.delta_count - resting
    while counted.queue.flush_file(1 << 30, 64) != FLUSHED:
        pass
    assert describe_index(counted.queue)["journal_entries"] == 0
