"""When memory and disk are short, and when they are not any more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.rules.admission import Admission
from penstock.broker.rules.alarms import FAR_PART, NO_PAGING, UNKNOWN, Alarms
from penstock.broker.rules.forecast import FAR_S, NEVER, Forecast
from penstock.core.capacity import DiskLimit, MemoryLimit
from penstock.storage.engine.ram import RamAccount
from penstock.storage.index.segment_jobs import WriteAccount

TOTAL = 10_000


class Machine:
    """A memory of ``TOTAL`` bytes and a disk; half of it is the limit, 100 bytes the base."""

    def __init__(self) -> None:
        self.ram = RamAccount(TOTAL, TOTAL // 2, WriteAccount())
        self.alarms = Alarms(self.ram)
        self.alarms.set_machine(TOTAL, 0.5)
        self.alarms.set_memory_limit(MemoryLimit(0.5))
        self.alarms.set_base(100)

    def hold(self, messages_bytes: int) -> bool:
        self.ram.queued_bytes = messages_bytes
        self.alarms.look()
        self.alarms.check()
        return self.alarms.memory

    def resident(self, size: int) -> bool:
        self.alarms.look_at_resident(size)
        self.alarms.check()
        return self.alarms.memory

    def free(self, size: int) -> bool:
        self.alarms.look_at_disk(size, 1 << 40)
        self.alarms.check()
        return self.alarms.disk


def test_what_is_kept_for_other_nodes_counts() -> None:
    machine = Machine()
    machine.ram.link_bytes = 901
    assert not machine.hold(4000 - 1)
    assert machine.hold(4000)
    machine.ram.link_bytes = 0
    assert not machine.hold(4000)


def test_memory_is_the_whole_process_and_clears_with_some_to_spare() -> None:
    machine = Machine()
    assert (machine.ram.limit_bytes, machine.ram.paging_bytes) == (4900, 2450)
    assert not machine.hold(4900)
    assert machine.hold(4901)
    assert machine.hold(4651)  # over 95 % of 5000
    assert not machine.hold(4650)
    assert not machine.hold(4900)


def test_a_limit_of_nothing_blocks_everybody_and_a_new_one_is_judged_afresh() -> None:
    machine = Machine()
    machine.alarms.set_memory_limit(MemoryLimit(0.0))
    machine.alarms.check()
    assert machine.alarms.memory
    assert machine.ram.limit_bytes == 0
    machine.hold(4900)
    machine.alarms.set_memory_limit(MemoryLimit(0.0, 5000))
    machine.alarms.check()
    assert not machine.alarms.memory


def test_a_base_above_the_limit_leaves_nothing() -> None:
    machine = Machine()
    machine.alarms.set_memory_limit(MemoryLimit(0.0, 99))
    machine.alarms.check()
    assert machine.alarms.memory
    assert machine.ram.limit_bytes == 0
    assert machine.ram.paging_bytes == 0


def test_paging_that_is_switched_off() -> None:
    machine = Machine()
    machine.alarms.set_machine(TOTAL, 1.01)
    assert machine.ram.paging_bytes == NO_PAGING
    machine.alarms.set_machine(TOTAL, 1.0)
    assert machine.ram.paging_bytes == 4900


def test_the_resident_size_counts_while_messages_are_many() -> None:
    machine = Machine()
    machine.hold(2449)
    assert not machine.resident(9000)  # what nobody can consume holds nobody
    assert machine.hold(2450)
    assert not machine.hold(2449)
    machine.hold(2450)
    assert machine.resident(4751)
    assert not machine.resident(4750)


def test_the_base_is_measured_again_when_there_are_next_to_no_messages() -> None:
    """After a start that read much, the heap is larger than what the broker needs."""
    machine = Machine()
    machine.alarms.set_base(3000)
    machine.hold(500)
    machine.resident(1000)
    assert machine.alarms.base_bytes == 3000
    machine.hold(10)
    machine.resident(1000)
    assert machine.alarms.base_bytes == 990
    machine.resident(2000)
    assert machine.alarms.base_bytes == 990
    machine.alarms.check()


def test_disk() -> None:
    machine = Machine()
    machine.alarms.set_disk_limit(DiskLimit(1000))
    assert not machine.alarms.disk  # nobody knows yet
    assert not machine.free(1000)
    assert machine.free(999)
    assert machine.free(1049)
    assert not machine.free(1050)
    machine.free(999)
    machine.alarms.set_disk_limit(DiskLimit(990))
    machine.alarms.check()
    assert not machine.alarms.disk
    machine.alarms.set_disk_limit(DiskLimit(2000))
    assert machine.alarms.disk
    assert not machine.free(int(UNKNOWN))


def test_the_limit_follows_the_disk() -> None:
    machine = Machine()
    machine.alarms.set_disk_limit(DiskLimit())
    machine.alarms.look_at_disk(60_000_000_000, 80_000_000_000)
    assert machine.alarms.disk_limit_bytes == 1_600_000_000
    machine.alarms.look_at_disk(1_600_000_001, 100_000_000_000)
    assert machine.alarms.disk_limit_bytes == 2_000_000_000
    assert machine.alarms.disk


looks = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, TOTAL)),
        st.tuples(st.just("resident"), st.integers(0, TOTAL)),
        st.tuples(st.just("free"), st.integers(-1, 3000)),
        st.tuples(st.just("limit"), st.integers(0, TOTAL)),
        st.tuples(st.just("disk limit"), st.integers(0, 2000)),
        st.tuples(st.just("base"), st.integers(-100, TOTAL)),
    ),
    max_size=40,
)


@given(looks)
def test_whatever_is_seen_the_invariants_hold(steps: list[tuple[str, int]]) -> None:
    machine = Machine()
    for what, number in steps:
        if what == "hold":
            machine.hold(number)
        elif what == "resident":
            machine.resident(number)
        elif what == "free":
            machine.free(number)
        elif what == "limit":
            machine.alarms.set_memory_limit(MemoryLimit(0.0, number))
        elif what == "disk limit":
            machine.alarms.set_disk_limit(DiskLimit(number))
        else:
            machine.alarms.set_base(number)
            machine.alarms.look()
        machine.alarms.check()


@given(st.integers(1, TOTAL), st.lists(st.integers(0, TOTAL), max_size=40))
def test_within_a_twentieth_nothing_changes(limit: int, holds: list[int]) -> None:
    """An alarm changes its mind only over the whole width between its two levels."""
    machine = Machine()
    machine.alarms.set_base(0)
    machine.alarms.set_memory_limit(MemoryLimit(0.0, limit))
    was = False
    for size in holds:
        now = machine.hold(size)
        if now != was:
            assert size > limit if now else size <= limit - limit // 20
        was = now


# -- the gate ---------------------------------------------------------------------------------


def test_the_reasons_are_those_of_rabbitmq() -> None:
    """Recorded from 3.10.8, which says "low on disk & memory" whichever came first."""
    machine = Machine()
    gate = Admission(machine.alarms)
    assert (gate.reason("/"), gate.node_reason()) == ("", "")
    machine.hold(TOTAL)
    assert gate.reason("/") == gate.node_reason() == "low on memory"
    gate.stalled = True
    assert gate.reason("/") == "low on disk & memory"
    machine.hold(0)
    assert gate.reason("/") == gate.node_reason() == "low on disk"
    gate.stalled = False
    machine.alarms.set_disk_limit(DiskLimit(1000))
    machine.free(1)
    assert gate.reason("/") == gate.node_reason() == "low on disk"


def test_a_virtual_host_over_its_budget_is_alone() -> None:
    machine = Machine()
    gate = Admission(machine.alarms)
    gate.vhost_reasons["tenant"] = "virtual host is over its budget of memory"
    assert gate.reason("tenant") == "virtual host is over its budget of memory"
    assert gate.reason("/") == ""
    assert not gate.node_reason()
    machine.hold(TOTAL)
    assert gate.reason("tenant") == "low on memory"


# -- the forecast ------------------------------------------------------------------------------


def test_a_disk_that_fills_is_foreseen() -> None:
    forecast = Forecast()
    assert forecast.seconds_to(0) == NEVER
    free = 10_000_000
    for second in range(11):
        forecast.note(1000 * second, free - 100_000 * second)
    assert forecast.seconds_to(0) == 90
    assert forecast.seconds_to(4_500_000) == 45
    assert forecast.seconds_to(9_000_000) == 0
    assert round(forecast.shrinks_by) == 100_000


def test_a_trend_is_believed_forty_times_as_far_as_it_has_lasted() -> None:
    """Twenty seconds of another program's writing foretell no full disk in hours."""
    forecast = Forecast()
    for second in range(21):
        forecast.note(1000 * second, 100_000_000_000 - 10_000_000 * second)
    assert round(forecast.shrinks_by) == 10_000_000
    assert forecast.seconds_to(0) == NEVER
    for second in range(21, 300):
        forecast.note(1000 * second, 100_000_000_000 - 10_000_000 * second)
    assert forecast.seconds_to(0) == 9701
    for second in range(300, 900):
        forecast.note(1000 * second, 97_010_000_000)
    forecast.note(901_000, 97_000_000_000)
    assert forecast.seconds_to(0) == NEVER, "another trend begins anew"


def test_a_disk_that_is_left_alone_lasts() -> None:
    forecast = Forecast()
    for second in range(300):
        forecast.note(10_000 * second, 1_000_000 + 10 * (second % 2))
    assert forecast.seconds_to(0) == NEVER


def test_a_spurt_is_forgotten() -> None:
    forecast = Forecast()
    for second in range(60):
        forecast.note(1000 * second, 1_000_000_000 - 1_000_000 * second)
    assert forecast.seconds_to(0) == 941
    for second in range(60, 660):
        forecast.note(1000 * second, 941_000_000)
    assert forecast.seconds_to(0) == NEVER


@given(st.lists(st.tuples(st.integers(-1000, 100_000), st.integers(0, 1 << 60)), max_size=30))
def test_a_forecast_is_a_time_or_none(looks: list[tuple[int, int]]) -> None:
    forecast = Forecast()
    now_ms = 1_000_000
    for elapsed_ms, free in looks:
        now_ms += elapsed_ms
        forecast.note(now_ms, free)
        half, whole = forecast.seconds_to(free // 2), forecast.seconds_to(0)
        assert NEVER <= half <= FAR_S
        assert NEVER <= whole <= FAR_S
        assert whole == NEVER or half <= whole
        assert forecast.seconds_to(free) == 0


def test_paging_begins_sooner_while_the_process_is_near_its_limit() -> None:
    """What the heap keeps beside the messages counts, long before it is an alarm."""
    alarms = Alarms(RamAccount(1000, 500, WriteAccount()))
    alarms.set_memory_limit(MemoryLimit(0.0, 1000))
    ram = alarms._ram
    alarms.look_at_resident(850)
    assert ram.paging_bytes == 500
    alarms.look_at_resident(950)
    assert ram.paging_bytes == 400
    assert ram.limit_bytes == 1000
    alarms.look_at_resident(5000)
    assert ram.paging_bytes == 500 // 8
    for _ in range(60):
        alarms.look_at_resident(500)
    assert ram.paging_bytes > 490
    alarms.check()


def test_far_over_the_limit_the_resident_size_is_an_alarm_without_messages() -> None:
    """What clients send and declare is in no other count."""
    alarms = Alarms(RamAccount(1 << 30, 1 << 29, WriteAccount()))
    alarms.set_memory_limit(MemoryLimit(0.0, 1 << 30))
    far = (1 << 30) + (1 << 30) // FAR_PART
    alarms.look_at_resident(far)
    assert not alarms.memory
    alarms.look_at_resident(far + 1)
    assert alarms.memory
    alarms.check()
    alarms.look_at_resident(1 << 30)
    assert not alarms.memory


@pytest.mark.parametrize("declares_first", [True, False])
def test_what_is_declared_and_messages_of_one_second_share_the_limit(declares_first: bool) -> None:
    """The resident size is looked at once a second; each had the whole limit till then."""
    limit, step = 1 << 30, 1 << 20
    ram = RamAccount(limit, limit // 2, WriteAccount())
    alarms = Alarms(ram)
    alarms.set_memory_limit(MemoryLimit(0.0, limit))
    declared = 0
    alarms.measure_with(lambda: declared + int(ram.queued_bytes))
    alarms.look_at_resident(0)

    def declare(most: int) -> None:
        nonlocal declared
        while declared < most and alarms.take_declared(step):
            declared += step

    def publish() -> None:
        alarms.look()
        while not alarms.memory:
            ram.queued_bytes += step
            alarms.look()

    if declares_first:
        declare(limit * 3 // 4)
        publish()
        declare(2 * limit)
    else:
        ram.queued_bytes = limit * 3 // 4
        declare(2 * limit)
        publish()
    assert limit <= alarms._measure() <= limit * 11 // 10 + step
    assert alarms.memory
    alarms.check()


def test_the_process_is_not_asked_at_every_turn() -> None:
    ram = RamAccount(1000 << 20, 500 << 20, WriteAccount())
    alarms = Alarms(ram)
    alarms.set_memory_limit(MemoryLimit(0.0, 1000 << 20))
    looks: list[int] = []

    def measure() -> int:
        looks.append(1)
        return 990 << 20

    alarms.measure_with(measure)
    alarms.look_at_resident(990 << 20)
    ram.queued_bytes = 600 << 20
    for _ in range(1000):
        ram.queued_bytes += 10_000
        alarms.look()
    assert 1 <= len(looks) <= 10


def test_an_alarm_of_another_node_holds_publishers_and_names_it() -> None:
    machine = Machine()
    gate = Admission(machine.alarms)
    gate.vhost_reasons["over"] = "budget"
    gate.note_elsewhere({"b": ["memory"]})
    assert gate.reason("/") == gate.cluster_reason() == "low on memory (node b)"
    assert gate.reason("over") == "low on memory (node b)"
    assert (gate.node_reason(), gate.reason_here("/"), gate.reason_here("over")) == (
        "",
        "",
        "budget",
    )
    gate.note_elsewhere({"b": ["memory"], "c": ["disk"]})
    assert gate.reason("/") == "low on disk & memory (nodes b, c)"
    assert machine.hold(4901)
    assert gate.reason("/") == gate.reason_here("/") == "low on memory"
    assert (gate.short_of(), gate.is_short_of("disk")) == (["memory"], True)
    gate.note_elsewhere({f"penstock@{n:0100}": ["disk"] for n in range(9)})
    machine.hold(0)
    assert gate.reason("/").endswith("00 and 8 more)")
    assert len(gate.reason("/").encode()) < 256
    gate.note_elsewhere({"é" * 200: ["disk"], "b": ["disk"]})
    assert gate.reason("/") == "low on disk (2 of the cluster's nodes)"
    gate.note_elsewhere({})
    assert (gate.reason("/"), gate.reason("over"), gate.is_short_of("disk")) == (
        "",
        "budget",
        False,
    )
