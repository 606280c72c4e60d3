"""The requests of the range protocol to a stream: any number of readers, groups, retention."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.core.clock_types import WallMs
from penstock.management.facts.storage_view import shown_fields
from penstock.protocols.ranges import groups as range_groups
from penstock.protocols.ranges.leases import RangeLeases
from penstock.protocols.ranges.session import RangeSession
from penstock.protocols.ranges.sources import BlockBounds, source_of
from penstock.queues.range_groups import GROUPS_MAX, IDLE_MS
from penstock.queues.stream import StreamQueue
from penstock_ranges import frames as rf
from penstock_ranges import ranges, subscriptions
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.range_blocks import Rows
from tests.helpers.range_grace import LEASE_GRACE_MS
from tests.helpers.range_pair import Answered, body_of

SEGMENT = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 2000}


RECORD = 99
"""Bytes of a message of ``Room.fill`` in its block."""


class RangeEnd(ClientEnd):
    """One reader's connection."""

    def __init__(self, node: QuietBroker, leases: RangeLeases) -> None:
        session = RangeSession(node.broker, leases, ("127.0.0.1", True), WallMs(node.now_ms))
        session.channels = {}  # type: ignore[attr-defined]
        super().__init__(node, session)  # type: ignore[arg-type]
        node.clients.append(self)
        self._splitter = rf.FrameSplitter(rf.REPLY_MAX_BYTES)
        self._replies: list[tuple[int, bytes]] = []
        self.ticks = 0
        self.send(rf.MAGIC)

    def ask(self, request: bytes) -> bytes:
        """The reply; turns go by as long as the disk is asked."""
        self.send(request)
        for _ in range(50):
            data, self.received = self.received, b""
            self._replies += self._splitter.feed(data)
            if self._replies:
                break
            self.ticks += 1
            self.node.tick(1)
        kind, payload = self._replies.pop(0)
        if kind == rf.ERROR:
            self.node.clients.remove(self)
            raise Answered(*rf.decode_error(payload))
        assert kind == request[4] + rf.REPLY
        return payload

    def open(self, queue: str = "s", mode: int = ranges.BROWSE) -> ranges.Opened:
        request = ranges.OpenRequest("guest", "guest", "/", queue, mode)
        return ranges.decode_opened(self.ask(ranges.encode_open(request)))

    def follow(self, group: str) -> int:
        return ranges.decode_grouped(self.ask(ranges.encode_group(group)))

    def start(self, request: str, offset: int) -> int:
        return subscriptions.decode_started(self.ask(subscriptions.encode_start(request, offset)))

    def ack(self, upto: int) -> int:
        return ranges.decode_acked(self.ask(ranges.encode_ack(upto)))

    def head(self) -> ranges.Head:
        return ranges.decode_head(self.ask(ranges.encode_wait(0, 0)))

    def rows(self, start: int, end: int, most: int = 1 << 20, body: bool = True) -> Rows:
        return Rows(self.ask(ranges.encode_range(start, end, most, body)))

    def bodies(self, start: int, end: int, most: int = 1 << 20) -> list[bytes]:  # type: ignore[override]
        found: list[bytes] = []
        while start < end:
            rows = self.rows(start, end, most)
            assert rows.seq_ids == list(range(start, rows.next_start))
            found += map(body_of, rows.contents)
            start = rows.next_start
        return found

    def at(self, time_ms: int, low: int, high: int) -> int:
        while low < high:
            request = subscriptions.encode_offset_at(time_ms, low, high)
            low, high = subscriptions.decode_offset(self.ask(request))
        return low


class Room:
    def __init__(self, definitions: str, hold_bytes: int = 1 << 20) -> None:
        self._definitions = definitions
        self.live(QuietBroker(definitions=definitions), hold_bytes)
        self.client = self.node.client()
        self.client.call("confirm.select")
        self.count = 0
        self.declare()

    def live(self, node: QuietBroker, hold_bytes: int) -> None:
        self.node = node
        broker = node.broker
        self.leases = RangeLeases(LEASE_GRACE_MS, broker.letting_go, broker.idleness, hold_bytes)
        self.leases.adopt(broker)

    def restart(self, hold_bytes: int = 1 << 20) -> None:
        """After a power cut."""
        self.node.definitions.close()
        self.node.files.power_cut(random.Random(5))
        again = QuietBroker(self.node.files, self._definitions)
        again.now_ms = self.node.now_ms
        self.live(again, hold_bytes)
        self.client = again.client()
        self.client.call("confirm.select")

    def declare(self, name: str = "s", **more: object) -> None:
        arguments = SEGMENT | {f"x-{key.replace('_', '-')}": one for key, one in more.items()}
        self.client.call("queue.declare", queue=name, durable=True, arguments=arguments)

    def fill(self, count: int, name: str = "s", size: int = 60) -> None:
        """A second between them, each in a block of its own."""
        for _ in range(count):
            self.node.now_ms += 1000
            self.client.publish("", name, self.body(self.count, size))
            self.count += 1
            self.node.run()
        self.client.received = b""

    @staticmethod
    def body(number: int, size: int = 60) -> bytes:
        return b"%0*d" % (size, number)

    def end(self) -> RangeEnd:
        return RangeEnd(self.node, self.leases)

    def opened(self, group: str = "", name: str = "s") -> RangeEnd:
        end = self.end()
        end.open(name)
        if group:
            end.follow(group)
        return end

    def stream(self, name: str = "s") -> StreamQueue:
        queue = self.node.broker.vhosts["/"].queues[name]
        assert isinstance(queue, StreamQueue)
        return queue

    def tick(self, ms: int) -> None:
        self.node.tick(ms)
        self.leases.tick()
        self.node.run()


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Room]:
    room = Room(str(tmp_path / "definitions.db"))
    yield room
    room.node.clients = []
    room.node.check()


# -- reading ---------------------------------------------------------------------------------


def test_several_readers_get_all_of_it_and_take_nothing(room: Room) -> None:
    room.fill(60)
    for _ in range(3):
        end = room.end()
        opened = end.open()
        assert opened.token == 0
        assert opened.head == ranges.Head(0, 0, 60, 60)
        assert end.bodies(0, 60) == [room.body(n) for n in range(60)]
        assert end.bodies(13, 37) == [room.body(n) for n in range(13, 37)]
    assert room.stream().counts()[0] == 60
    assert end.ticks > 0, "nothing was read in the loop"


def test_a_row_is_what_was_published(room: Room) -> None:
    began_ms = room.node.now_ms
    room.client.publish("", "s", b"hello", message_id="m", headers={"a": 1})
    room.node.run()
    rows = room.opened().rows(0, 1)
    assert rows.enqueued_at_ms == [began_ms]
    assert rows.addresses == [b"\0\1s"]
    assert rows.flags == [1]
    assert b"x-stream-offset" not in rows.contents[0]
    assert body_of(rows.contents[0]) == b"hello"
    head = room.opened().rows(0, 1, body=False).contents[0]
    assert rows.contents[0].startswith(head)
    assert b"hello" not in head


@pytest.mark.parametrize("most", [1, 300, 1000, 5000])
def test_small_answers_are_dealt_from_one_read(room: Room, most: int) -> None:
    room.declare("t", stream_max_segment_size_bytes=1 << 20)
    for _ in range(5):
        for _ in range(20):
            room.client.publish("", "t", room.body(room.count), run=False)
            room.count += 1
        room.node.run()
    end = room.opened(name="t")
    first = end.rows(0, 100, most)
    assert len(first.seq_ids) == max(most // RECORD, 1)
    ticks, start = end.ticks, first.next_start
    assert end.bodies(start, start + 20, most) == [room.body(n) for n in range(start, start + 20)]
    assert end.ticks == ticks, "the blocks were at hand"
    assert end.bodies(0, 100, most) == [room.body(n) for n in range(100)]


def test_a_plan_goes_by_mean_sizes(room: Room) -> None:
    room.fill(100)
    end = room.opened()

    def plan(start: int, upto: int, messages: int, size: int) -> tuple[int, int, int, bool]:
        return ranges.decode_planned(end.ask(ranges.encode_plan(start, upto, messages, size)))

    assert plan(0, 100, 30, 1 << 30)[:2] == (30, 30)
    assert plan(90, 200, 30, 1 << 30)[:2] == (100, 10)
    assert plan(100, 200, 30, 1 << 30)[:2] == (100, 0)
    assert plan(5, 100, 1000, 1)[:2] == (6, 1)
    upto, count, size, _ = plan(0, 100, 1000, 5000)
    assert upto == count
    assert 15 < count < 40
    assert 4000 < size <= 5000


def test_a_time_is_found(room: Room) -> None:
    began_ms = room.node.now_ms
    room.fill(50)
    end = room.opened()
    for number in (0, 1, 17, 33, 49):
        came_ms = began_ms + 1000 * (number + 1)
        assert end.at(came_ms, 0, 50) == number
        assert end.at(came_ms - 999, 0, 50) == number
    assert end.at(began_ms + 60_000, 0, 50) == 50
    assert end.at(0, 0, 50) == 0
    assert end.at(0, 7, 50) == 7
    assert end.at(began_ms + 40_000, 0, 20) == 20


def test_a_wait_ends_when_something_is_on_disk(room: Room) -> None:
    room.fill(1)
    end = room.opened()
    end.send(ranges.encode_wait(1, 60_000))
    room.node.tick(10)
    assert end.received == b""
    room.fill(1)
    room.node.tick(10)
    [(kind, payload)] = rf.FrameSplitter(rf.REPLY_MAX_BYTES).feed(end.received)
    end.received = b""
    assert (kind, ranges.decode_head(payload).next_seq) == (ranges.HEAD, 2)


def test_what_is_not_on_disk_is_not_read(room: Room) -> None:
    room.fill(3)
    room.node.committer.hold = True
    room.client.publish("", "s", b"later")
    assert room.opened().head().next_seq == 3
    room.node.committer.hold = False
    room.node.committer.finish()
    room.node.tick(10)
    assert room.opened().head().next_seq == 4


# -- retention -------------------------------------------------------------------------------


def test_what_mirrors_have_not_is_waited_for(room: Room) -> None:
    """A batch that was planned with the last master goes on with the next one."""
    room.fill(20)
    end = room.opened()
    log = room.stream().log
    log.show_below(0)
    end.send(ranges.encode_range(0, 20, 1 << 20, True))
    room.node.tick(1)
    assert end.received == b""
    log.show_below(20)
    for _ in range(5):
        room.node.tick(1)
    assert end.received != b""


def test_what_retention_took_is_an_error(room: Room) -> None:
    room.declare("short", max_length_bytes=3000)
    room.fill(60, "short")
    floor = room.opened(name="short").head().floor
    assert floor > 10
    for request in (
        ranges.encode_range(5, 60, 1 << 20, True),
        ranges.encode_plan(5, 60, 10, 1 << 20),
    ):
        with pytest.raises(
            Answered, match=f"retention has taken messages 5 to {floor - 1} of"
        ) as told:
            room.opened(name="short").ask(request)
        assert told.value.code == rf.GONE
    assert len(room.opened(name="short").bodies(floor, 60)) == 60 - floor


def test_retention_during_a_read_is_an_error_and_no_gap(room: Room) -> None:
    room.declare("short", max_length_bytes=3000)
    room.fill(30, "short")
    end = room.opened(name="short")
    floor = end.head().floor
    room.node.worker.hold = True
    end.send(ranges.encode_range(floor, 30, 1 << 20, True))
    room.fill(60, "short")
    room.node.worker.hold = False
    room.node.worker.finish_all()
    room.node.run()
    with pytest.raises(Answered) as told:
        end.ask(ranges.encode_wait(0, 0))
    assert told.value.code == rf.GONE


def test_a_group_holds_what_it_has_not_read(room: Room) -> None:
    room.declare("short", max_length_bytes=3000)
    slow = room.opened("slow", "short")
    assert slow.start("earliest", 0) == 0
    room.fill(60, "short")
    assert slow.head().floor == 0
    assert slow.ack(30) == 0
    room.fill(1, "short")
    assert 0 < slow.head().floor <= 30
    assert len(slow.bodies(30, 61)) == 31
    held = room.stream("short").log.held_bytes()
    assert held > 0
    slow.ack(61)
    room.tick(10)
    assert slow.head().floor > 30
    assert room.stream("short").log.held_bytes() == 0


def test_beyond_the_bound_retention_goes_on(tmp_path: Path) -> None:
    room = Room(str(tmp_path / "definitions.db"), hold_bytes=6000)
    room.declare("short", max_length_bytes=3000)
    slow = room.opened("slow", "short")
    slow.start("earliest", 0)
    room.fill(200, "short")
    log = room.stream("short").log
    floor = slow.head().floor
    assert floor > 0
    assert 3000 < log.held_bytes() <= 6000
    facts: Any = shown_fields(room.stream("short").backing)["penstock"]
    assert facts["groups"] == [{"name": "slow", "position": 0, "behind": 200, "lost": floor}]
    assert (facts["held_bytes"], facts["hold_max_bytes"]) == (log.held_bytes(), 6000)
    with pytest.raises(Answered, match="retention has taken messages 0 to"):
        slow.rows(0, 200)


# -- groups ----------------------------------------------------------------------------------


def test_a_start_means_the_same_until_something_beyond_it_is_committed(room: Room) -> None:
    room.fill(10)
    first = room.opened("lake")
    assert first.start("latest", 10) == 10
    room.fill(5)
    assert room.opened("lake").start("latest", 15) == 10
    assert room.opened("other").start("latest", 15) == 15
    room.restart()
    assert room.opened("lake").start("latest", 15) == 10
    end = room.opened("lake")
    end.ack(10)
    assert end.start("latest", 15) == 10, "nothing beyond it"
    end.ack(12)
    assert end.follow("lake") == 12
    assert end.start("latest", 15) == 15
    assert end.start("seq:3", 3) == 3
    end.start("", 0)
    assert end.follow("lake") == -1


def test_positions_of_groups_outlive_the_node(room: Room) -> None:
    room.fill(20)
    for name, upto in (("a", 5), ("b", 9)):
        end = room.opened(name)
        end.start("earliest", 0)
        end.ack(upto)
        end.ack(upto + 1)
    room.restart()
    assert room.opened("a").follow("a") == 5, "the last commit is on disk a little later"
    assert room.opened("a").follow("b") == 9
    end = room.opened("a")
    end.ack(7)
    room.tick(range_groups.STORE_EVERY_MS)
    room.restart()
    assert room.opened("a").follow("a") == 7
    assert room.stream().log.durable_offset == 20


def test_groups_go_with_their_stream_and_when_nothing_is_heard(room: Room) -> None:
    room.fill(3)
    room.opened("a").start("earliest", 0)
    room.tick(IDLE_MS - 1000)
    room.opened("b").start("earliest", 0)
    room.tick(2000)
    assert list(room.stream().groups.by_name) == ["b"]
    room.client.call("queue.delete", queue="s")
    room.declare()
    assert room.opened().follow("b") == -1
    room.restart()
    assert room.opened().follow("b") == -1
    rows = room.node.definitions.rows("SELECT count(*) FROM range_starts")
    assert rows == [(0,)]


def test_no_more_groups_than_are_allowed(room: Room) -> None:
    names = [f"g{number}" for number in range(GROUPS_MAX)]
    for name in names:
        room.opened(name).start("earliest", 0)
    room.opened("g0").ack(0)  # so g1 was idle longest
    room.opened("more").start("earliest", 0)
    names = sorted([*names, "more"])
    names.remove("g1")
    assert sorted(room.stream().groups.by_name) == names
    room.restart()
    assert sorted(room.stream().groups.by_name) == names


# -- refusals --------------------------------------------------------------------------------


def test_what_is_refused(room: Room) -> None:
    room.client.call("queue.declare", queue="q", durable=True)
    for mode in (ranges.READ, ranges.JOIN):
        with pytest.raises(Answered, match="queue 's' in vhost '/' is a stream"):
            room.end().open(mode=mode)
    queue = room.end()
    queue.open("q")
    with pytest.raises(Answered, match="'q' in vhost '/' is no stream"):
        queue.follow("g")
    for name in ("", "two\nlines", "x" * 256):
        with pytest.raises(Answered, match="a group of a stream has a name of 1 to 255 bytes"):
            room.opened().follow(name)
    for request in (
        ranges.encode_ack(0),
        subscriptions.encode_start("latest", 0),
        ranges.encode_ack_some([0]),
    ):
        with pytest.raises(Answered) as told:
            room.opened().ask(request)
        assert told.value.code == rf.MALFORMED
    for request in (ranges.encode_ack(1), subscriptions.encode_start("latest", 1)):
        with pytest.raises(Answered, match="does not exist yet"):
            room.opened("g").ask(request)
    with pytest.raises(Answered) as told:
        room.end().ask(ranges.encode_group("g"))
    assert told.value.code == rf.MALFORMED


def test_a_deleted_stream_is_said_to_be_so(room: Room) -> None:
    room.fill(3)
    end = room.opened("g")
    room.client.call("queue.delete", queue="s")
    with pytest.raises(Answered, match="was deleted"):
        end.rows(0, 3)


def test_a_damaged_block_is_an_error_that_names_the_file(room: Room) -> None:
    room.fill(30)
    room.node.files.flip(f"{room.stream().log.directory}/0.stm", 8 * 300)
    with pytest.raises(Answered, match=r"stream 's' .* is stopped: .*0\.stm: damaged at offset"):
        room.opened().bodies(0, 30)


def test_what_a_reader_asks_for_next_is_read_while_it_uses_what_it_got(room: Room) -> None:
    room.declare("t", stream_max_segment_size_bytes=100_000_000)
    room.fill(20, "t", size=100_000)
    source = source_of(room.stream("t"))
    most = BlockBounds(100, 1 << 20)
    room.node.worker.hold = True

    def read() -> None:
        room.node.run()
        room.node.worker.finish_all()

    assert source.block(0, 20, most, with_body=True) is None
    read()
    first = source.block(0, 20, most, with_body=True)
    assert first is not None
    start = Rows(first[5:]).next_start
    assert 0 < start < 20
    read()
    assert source.block(start, 20, most, with_body=True) is not None
