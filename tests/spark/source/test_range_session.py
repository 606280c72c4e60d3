"""Range sessions over a real queue: who may read, who may acknowledge, and when it ends."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.broker.transfers import deferred_trim as letting_go
from penstock.core.clock_types import WallMs
from penstock.core.errors import ResourceLocked
from penstock.protocols.ranges import reading as range_reading
from penstock.protocols.ranges import session as range_session
from penstock.protocols.ranges.leases import RangeLeases
from penstock.protocols.ranges.reading import ReadRequests
from penstock.protocols.ranges.reporting import ReportRequests
from penstock.protocols.ranges.session import RangeSession
from penstock.protocols.ranges.sources import QueueSource
from penstock.protocols.ranges.staging import StagingRequests
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock_ranges import frames as range_frames
from penstock_ranges import ranges, subscriptions
from tests.helpers.range_blocks import Rows
from tests.helpers.range_grace import LEASE_GRACE_MS
from tests.spark.range_host import QueueHall

NOW = 5_000_000


class Room:
    """A hall with queue ``q`` of ten messages, and sessions made as needed."""

    def __init__(self) -> None:
        self.hall = QueueHall()
        self.queue = self.hall.declare("q")
        self.hall.publish("q", [b"m%d" % n for n in range(10)])
        self.leases = RangeLeases(LEASE_GRACE_MS, self.hall.letting_go, self.hall.idleness)

    def tick(self, ms: int) -> None:
        """So long after the beginning."""
        self.hall.idleness.now_ms = ms
        self.leases.tick()

    def session(self) -> RangeSession:
        hall: Any = self.hall
        session = RangeSession(hall, self.leases, ("127.0.0.1", True), WallMs(NOW))
        session.receive(range_frames.MAGIC, NOW)
        return session

    def opened(self, mode: int, token: int = 0, *, force: bool = False) -> RangeSession:
        session = self.session()
        ask(session, open_frame(mode=mode, token=token, force=force), ranges.OPENED)
        return session

    def token(self) -> int:
        return int(self.queue.range_lease.token)

    def consumer(self) -> Consumer:
        return Consumer("c", None, OutputWindow(), SharedWindow(), False, 0, False, {})


def open_frame(
    *, password: str = "guest", vhost: str = "/", queue: str = "q", mode: int = ranges.BROWSE,
    token: int = 0, force: bool = False,
) -> bytes:  # fmt: skip
    request = ranges.OpenRequest("guest", password, vhost, queue, mode, token, force)
    return ranges.encode_open(request)


def replies(session: RangeSession) -> list[tuple[int, bytes]]:
    data = session.out.getvalue()
    session.out.truncate(0)
    return range_frames.FrameSplitter(range_frames.REPLY_MAX_BYTES).feed(data)


def ask(session: RangeSession, request: bytes, kind: int) -> bytes:
    session.receive(request, NOW)
    got = replies(session)
    assert [k for k, _ in got] == [kind], got
    return got[0][1]


def refusal(session: RangeSession, request: bytes) -> tuple[int, str]:
    error = range_frames.decode_error(ask(session, request, range_frames.ERROR))
    assert session.closed
    return error


@pytest.fixture
def room() -> Room:
    return Room()


def test_a_browser_sees_everything_and_changes_nothing(room: Room) -> None:
    session = room.session()
    opened = ask(session, open_frame(), ranges.OPENED)
    incarnation, head, token = ranges.decode_opened(opened)
    assert (incarnation, token) == ("life1", 0)
    assert (head.floor, head.acked, head.next_seq, head.ready) == (0, 0, 10, 10)
    payload = ask(session, ranges.encode_range(2, 8, 1 << 20, True), ranges.BLOCK)
    assert Rows(payload).seq_ids == [2, 3, 4, 5, 6, 7]
    room.queue.add_consumer(room.consumer())
    assert room.queue.backing.ready_count() == 10


def test_a_reader_acknowledges_below_a_position(room: Room) -> None:
    reader = room.opened(ranges.READ)
    assert ranges.decode_acked(ask(reader, ranges.encode_ack(4), ranges.ACKED)) == 4
    assert ranges.decode_acked(ask(reader, ranges.encode_ack(4), ranges.ACKED)) == 0
    head = ranges.decode_head(ask(reader, ranges.encode_wait(0, 0), ranges.HEAD))
    assert (head.floor, head.acked, head.ready) == (4, 4, 6)


def test_what_is_acknowledged_goes_while_the_reader_reads_on(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letting_go, "POSITIONS_AT_ONCE", 3)
    reader = room.opened(ranges.READ)
    asked = ranges.encode_ack(7, later=True)
    assert ranges.decode_acked(ask(reader, asked, ranges.ACKED)) == 0
    floors = []
    for more in (True, True, False):
        assert room.hall.letting_go.run(0, False) is more
        head = ranges.decode_head(ask(reader, ranges.encode_wait(0, 0), ranges.HEAD))
        floors.append(head.floor)
        assert head.acked == 7
    assert floors == [3, 6, 7]
    assert room.queue.backing.ready_count() == 3
    assert not room.hall.letting_go.run(0, False)
    room.queue.check()


def test_an_acknowledgement_that_waits_for_its_end_includes_those_before(room: Room) -> None:
    reader = room.opened(ranges.READ)
    ask(reader, ranges.encode_ack(7, later=True), ranges.ACKED)
    assert ranges.decode_acked(ask(reader, ranges.encode_ack(8), ranges.ACKED)) == 8
    assert not room.hall.letting_go.run(0, False)
    assert room.queue.backing.ready_count() == 2


def test_a_reader_that_closes_leaves_nothing_acknowledged_behind(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letting_go, "POSITIONS_AT_ONCE", 5)
    reader = room.opened(ranges.READ)
    ask(reader, ranges.encode_ack(9, later=True), ranges.ACKED)
    reader.receive(ranges.encode_close(), NOW)
    assert not reader.out
    assert reader.has_waiters
    assert room.queue.is_leased
    room.hall.letting_go.run(0, False)
    room.hall.letting_go.run(0, False)
    reader.tick(NOW)
    assert reader.closed
    assert not room.queue.is_leased
    assert room.queue.backing.ready_count() == 1


@pytest.mark.parametrize("how", ["taken over", "time is over"])
def test_nobody_finds_what_a_lost_reader_has_acknowledged(room: Room, how: str) -> None:
    reader = room.opened(ranges.READ)
    ask(reader, ranges.encode_ack(9, later=True), ranges.ACKED)
    reader.lost(NOW)
    if how == "taken over":
        room.opened(ranges.READ)
    else:
        room.tick(LEASE_GRACE_MS)
    assert room.queue.backing.ready_count() == 1
    assert not room.hall.letting_go.run(0, False)


def test_a_deleted_queue_needs_no_letting_go(room: Room) -> None:
    reader = room.opened(ranges.READ)
    ask(reader, ranges.encode_ack(9, later=True), ranges.ACKED)
    room.queue.deleted = True
    assert not room.hall.letting_go.run(0, False)
    assert room.queue.backing.ready_count() == 10


def test_a_reader_acknowledges_some_and_leaves_the_others(room: Room) -> None:
    reader = room.opened(ranges.READ)
    request = ranges.encode_ack_some([2, 3, 9])
    assert ranges.decode_acked_some(ask(reader, request, ranges.ACKED_SOME)) == 3
    assert ranges.decode_acked_some(ask(reader, request, ranges.ACKED_SOME)) == 0
    left = room.queue.backing.reads.read_range(0, 100, 100, 1 << 20)
    assert [message.seq_id for message in left] == [0, 1, 4, 5, 6, 7, 8]
    head = ranges.decode_head(ask(reader, ranges.encode_wait(0, 0), ranges.HEAD))
    assert (head.floor, head.acked, head.ready) == (0, 0, 7)
    room.queue.check()


def test_only_a_reader_acknowledges_some_and_only_what_exists(room: Room) -> None:
    for mode, seq_id in ((ranges.BROWSE, 1), (ranges.READ, 10)):
        code, _ = refusal(room.opened(mode), ranges.encode_ack_some([seq_id]))
        assert code == range_frames.MALFORMED
    first = room.opened(ranges.READ)
    room.opened(ranges.READ, force=True)
    code, _ = refusal(first, ranges.encode_ack_some([1]))
    assert code == range_frames.FENCED
    assert room.queue.backing.ready_count() == 10


def test_only_a_reader_acknowledges_and_only_what_exists(room: Room) -> None:
    assert refusal(room.opened(ranges.BROWSE), ranges.encode_ack(1))[0] == range_frames.MALFORMED
    assert refusal(room.opened(ranges.READ), ranges.encode_ack(11))[0] == range_frames.MALFORMED
    assert room.queue.backing.ready_count() == 10


@pytest.mark.parametrize(
    "frame,code",
    [
        (open_frame(password="wrong"), range_frames.ACCESS_REFUSED),
        (open_frame(vhost="/nowhere"), range_frames.NOT_FOUND),
        (open_frame(queue="nobody"), range_frames.NOT_FOUND),
        (open_frame(mode=ranges.JOIN, token=77), range_frames.LEASE_GONE),
        (ranges.encode_ack(1), range_frames.MALFORMED),
        (ranges.encode_range(0, 1, 1, True), range_frames.MALFORMED),
        (b"\0\0\0\1\x55", range_frames.MALFORMED),
        (b"\0\0\0\0", range_frames.MALFORMED),
        (b"\xff\xff\xff\xff", range_frames.MALFORMED),
    ],
)
def test_what_cannot_be_granted_is_said_and_ends_the_connection(
    room: Room, frame: bytes, code: int
) -> None:
    assert refusal(room.session(), frame)[0] == code


def test_another_version_of_the_protocol_is_refused(room: Room) -> None:
    hall: Any = room.hall
    session = RangeSession(hall, room.leases, ("127.0.0.1", True), WallMs(NOW))
    session.receive(b"PSTK\0\0\0\2", NOW)
    assert session.closed
    assert range_frames.decode_error(replies(session)[0][1])[0] == range_frames.MALFORMED


def test_a_login_is_welcomed_once_and_only_with_the_password(room: Room) -> None:
    session = room.session()
    welcome = ask(session, range_frames.encode_login("guest", "guest", "/"), range_frames.WELCOME)
    assert range_frames.decode_welcome(welcome) == penstock.__version__
    again = refusal(session, range_frames.encode_login("guest", "guest", "/"))
    assert again[0] == range_frames.MALFORMED
    refused = refusal(room.session(), range_frames.encode_login("guest", "wrong", "/"))
    assert refused[0] == range_frames.ACCESS_REFUSED


def test_who_has_not_said_who_he_is_gets_nothing(room: Room) -> None:
    code, text = refusal(room.session(), ranges.encode_ack(3))
    assert (code, text) == (range_frames.MALFORMED, "OPEN or LOGIN comes first")


def test_a_second_reader_is_refused_unless_it_takes_over(room: Room) -> None:
    first = room.opened(ranges.READ)
    executor = room.opened(ranges.JOIN, room.token())
    assert refusal(room.session(), open_frame(mode=ranges.READ))[0] == range_frames.LOCKED
    second = room.opened(ranges.READ, force=True)
    assert refusal(first, ranges.encode_ack(5))[0] == range_frames.FENCED
    assert refusal(executor, ranges.encode_range(0, 5, 100, True))[0] == range_frames.FENCED
    assert ranges.decode_acked(ask(second, ranges.encode_ack(5), ranges.ACKED)) == 5


def test_the_fenced_reader_does_not_come_back_by_its_old_token(room: Room) -> None:
    first = room.opened(ranges.READ)
    old = room.token()
    second = room.opened(ranges.READ, force=True)
    first.lost(NOW)
    assert (
        refusal(room.session(), open_frame(mode=ranges.READ, token=old))[0] == range_frames.FENCED
    )
    ask(second, ranges.encode_ack(1), ranges.ACKED)


def test_a_lease_outlives_its_connection_for_a_while(room: Room) -> None:
    reader = room.opened(ranges.READ)
    token = room.token()
    executor = room.opened(ranges.JOIN, token)
    reader.lost(NOW)
    room.tick(LEASE_GRACE_MS - 1)
    ask(executor, ranges.encode_range(0, 5, 100, True), ranges.BLOCK)
    with pytest.raises(ResourceLocked):
        room.queue.add_consumer(room.consumer())
    back = room.opened(ranges.READ, token)
    assert room.token() == token
    room.tick(10 * LEASE_GRACE_MS)
    ask(back, ranges.encode_ack(1), ranges.ACKED)


def test_a_lease_nobody_comes_back_for_ends(room: Room) -> None:
    reader = room.opened(ranges.READ)
    executor = room.opened(ranges.JOIN, room.token())
    reader.lost(NOW)
    room.tick(LEASE_GRACE_MS)
    room.queue.add_consumer(room.consumer())
    assert refusal(executor, ranges.encode_range(0, 5, 9, True))[0] == range_frames.LEASE_GONE


def test_a_restarted_pipeline_gets_the_lease_its_dead_self_left(room: Room) -> None:
    room.opened(ranges.READ).lost(NOW)
    old = room.token()
    room.opened(ranges.READ)
    assert room.token() > old


def test_close_gives_the_queue_back_at_once(room: Room) -> None:
    ask(room.opened(ranges.READ), ranges.encode_close(), ranges.CLOSED)
    room.queue.add_consumer(room.consumer())


def test_an_executor_that_leaves_does_not_end_the_lease(room: Room) -> None:
    reader = room.opened(ranges.READ)
    ask(room.opened(ranges.JOIN, room.token()), ranges.encode_close(), ranges.CLOSED)
    room.opened(ranges.JOIN, room.token()).lost(NOW)
    ask(reader, ranges.encode_ack(1), ranges.ACKED)


def test_consumers_and_a_reader_exclude_each_other(room: Room) -> None:
    room.opened(ranges.READ)
    with pytest.raises(ResourceLocked):
        room.queue.add_consumer(room.consumer())
    with pytest.raises(ResourceLocked):
        room.queue.get(room.consumer())
    other = Room()
    other.queue.add_consumer(other.consumer())
    assert refusal(other.session(), open_frame(mode=ranges.READ))[0] == range_frames.LOCKED


def test_unacknowledged_deliveries_keep_readers_out(room: Room) -> None:
    """Returned behind the reader's back, they would be acknowledged without being read."""
    account = room.consumer()
    taken = room.queue.get(account)
    assert taken is not None
    assert refusal(room.session(), open_frame(mode=ranges.READ))[0] == range_frames.LOCKED
    room.queue.requeue({account: [taken]}, True, WallMs(NOW))
    room.opened(ranges.READ)


def test_a_wait_ends_with_new_messages_or_in_time(room: Room) -> None:
    session = room.opened(ranges.BROWSE)
    session.receive(ranges.encode_wait(10, 500), NOW)
    assert session.has_waiters
    for hours in (1, -1):  # the wall clock may be set meanwhile
        room.tick(499)
        session.tick(NOW + hours * 3_600_000)
        assert replies(session) == []
    room.hall.publish("q", [b"new"])
    session.tick(NOW + 499)
    [(kind, payload)] = replies(session)
    assert (kind, ranges.decode_head(payload).next_seq) == (ranges.HEAD, 11)
    session.receive(ranges.encode_wait(11, 500), NOW)
    room.tick(999)
    session.tick(NOW)
    assert [kind for kind, _ in replies(session)] == [ranges.HEAD]
    assert not session.has_waiters


def test_the_next_request_ends_a_wait(room: Room) -> None:
    session = room.opened(ranges.READ)
    session.receive(ranges.encode_wait(10, 60_000) + ranges.encode_close(), NOW)
    assert [kind for kind, _ in replies(session)] == [ranges.HEAD, ranges.CLOSED]


def test_plan_counts_messages_and_bytes_over_holes(room: Room) -> None:
    session = room.opened(ranges.READ)
    size = len(room.queue.backing.reads.read_range(0, 1, 1, 1)[0].content)

    def plan(*bounds: int) -> tuple[int, int, int, bool]:
        request = ranges.encode_plan(*bounds)
        return ranges.decode_planned(ask(session, request, ranges.PLANNED))

    assert plan(0, 10, 4, 10_000) == (4, 4, 4 * size, False)
    assert plan(0, 10, 100, 10_000) == (10, 10, 10 * size, False)
    assert plan(0, 10, 100, 3 * size)[:2] == (3, 3)
    assert plan(0, 10, 100, 1)[:2] == (1, 1)
    room.queue.backing.fetch(6, 10_000)
    assert plan(0, 10, 2, 10_000)[:2] == (8, 2)
    assert plan(0, 3, 2, 10_000) == (0, 0, 0, False)


def test_a_range_is_served_in_blocks_that_name_what_follows(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reading, "BLOCK_MESSAGES_MAX", 3)
    session = room.opened(ranges.BROWSE)
    seen, start = [], 1
    while start < 9:
        payload = ask(session, ranges.encode_range(start, 9, 1 << 20, True), ranges.BLOCK)
        block = Rows(payload)
        seen += block.seq_ids
        start = block.next_start
    assert seen == list(range(1, 9))


def test_a_deleted_queue_is_not_read_on(room: Room) -> None:
    session = room.opened(ranges.READ)
    room.hall.delete("q")
    room.hall.declare("q")
    assert refusal(session, ranges.encode_ack(3))[0] == range_frames.NOT_FOUND
    incarnation = ranges.decode_opened(ask(room.session(), open_frame(), ranges.OPENED))[0]
    assert incarnation == "life2"


@given(st.integers(0, 2**32))
def test_rubbish_ends_one_connection_and_touches_nothing_else(seed: int) -> None:
    """Damaged requests in any split: a reply or an error, never an exception of another kind."""
    room, chance = Room(), random.Random(seed)
    requests = [
        open_frame(mode=chance.randrange(3)),
        ranges.encode_wait(chance.randrange(12), 0),
        ranges.encode_plan(0, 10, chance.randrange(3), 1000),
        ranges.encode_range(chance.randrange(12), 12, 1000, True),
        ranges.encode_close(),
    ]
    stream = bytearray(b"".join(requests[:1] + chance.choices(requests, k=6)))
    for _ in range(chance.randrange(3)):
        stream[chance.randrange(len(stream))] = chance.randrange(256)
    session, at = room.session(), 0
    for kind in [*StagingRequests.kinds, *ReportRequests.kinds]:
        session._by_kind.pop(kind)  # a hall has no broker for them
    while at < len(stream):
        step = chance.randint(1, 40)
        session.receive(bytes(stream[at : at + step]), NOW)
        session.tick(NOW + 1)
        at += step
    for kind, payload in replies(session):
        assert kind >= ranges.OPENED
        assert kind != range_frames.ERROR or range_frames.decode_error(payload)[1]
    session.lost(NOW)
    room.tick(LEASE_GRACE_MS)
    assert room.queue.backing.ready_count() == 10
    room.queue.backing.check()
    room.queue.add_consumer(room.consumer())


def test_a_peer_that_reads_no_replies_is_not_given_memory(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_session, "OUTPUT_MAX_BYTES", 500)
    session = room.opened(ranges.BROWSE)
    session.receive(ranges.encode_range(0, 10, 1 << 20, True) * 20, NOW)
    first = len(session.out)
    assert 500 <= first < 1500
    session.out.truncate(0)
    session.sent(first, NOW)
    assert len(session.out) >= 500
    session.receive(ranges.encode_range(0, 10, 1 << 20, True) * 60, NOW)
    assert session.closed


def test_requests_that_wait_are_known_as_held(room: Room) -> None:
    reader = room.opened(ranges.READ)
    wait = ranges.encode_wait(10, 60_000)
    reader.outlet.open = False
    large = range_frames.frame(ranges.ACK_SOME, bytes(700_000))
    reader.receive(wait + large * 2, NOW)
    flow = room.hall.flow
    assert reader.held_bytes == flow.held_bytes > 1_400_000
    assert not flow.may_read_on(reader.held_bytes)
    reader.lost(NOW)
    assert reader.held_bytes == flow.held_bytes == 0


@pytest.mark.parametrize("last", [ranges.encode_close(), range_frames.frame(99, b"")])
def test_nothing_is_held_when_requests_are_done_or_refused(room: Room, last: bytes) -> None:
    reader = room.opened(ranges.BROWSE)
    reader.outlet.open = False
    reader.receive(ranges.encode_wait(0, 0) + last + ranges.encode_wait(0, 0), NOW)
    assert reader.held_bytes > 0
    reader.outlet.open = True
    reader.drained()
    assert reader.closed
    reader.lost(NOW)
    assert reader.held_bytes == room.hall.flow.held_bytes == 0


def test_many_readers_share_what_one_turn_has_for_them(room: Room) -> None:
    room.hall.publish("q", [b"x" * 900_000] * 4)
    readers = [room.opened(ranges.BROWSE) for _ in range(4)]
    for number, reader in enumerate(readers):
        reader.receive(ranges.encode_range(10 + number, 11 + number, 1 << 20, True), NOW)
    assert [len(replies(reader)) for reader in readers] == [1, 1, 1, 0]
    assert readers[3].has_waiters
    readers[3].receive(ranges.encode_wait(0, 0), NOW)
    assert replies(readers[3]) == [], "in order"
    readers[3].tick(NOW)
    assert replies(readers[3]) == [], "still the same turn"
    readers[3].tick(NOW + 1)
    assert [kind for kind, _ in replies(readers[3])] == [ranges.BLOCK, ranges.HEAD]
    assert not readers[3].has_waiters


class Sparse:
    """Stands before a backing: each look reads much, and chosen messages lie far apart."""

    def __init__(self, within: Any) -> None:
        self._within = within

    def __getattr__(self, name: str) -> Any:
        return getattr(self._within, name)

    def positions(self) -> Sparse:
        return self

    @property
    def records(self) -> Sparse:
        return Sparse(self._within.records)

    def rare(self) -> Sparse:
        return Sparse(self._within.rare())

    @property
    def settlement(self) -> Sparse:
        return Sparse(self._within.settlement)

    def take_looked_bytes(self) -> int:
        return 1 << 30

    def few_reads(self, seq_ids: list[int], reads_max: int) -> int:
        return min(2, len(seq_ids))


class SparseQueue(Sparse):
    def __init__(self, within: Any) -> None:
        super().__init__(within)
        self.backing = Sparse(within.backing)


def test_whatever_reads_the_disk_waits_for_its_turn(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    backing = room.queue.backing
    reader = room.opened(ranges.READ)
    sparse: Any = SparseQueue(room.queue)
    monkeypatch.setattr(ReadRequests, "owned_queue", lambda _: sparse)
    monkeypatch.setattr(ReadRequests, "source", lambda _: QueueSource(sparse))
    asked = ranges.encode_plan(0, 10, 5, 1 << 20) + subscriptions.encode_offset_at(0, 0, 10)
    reader.receive(asked + ranges.encode_ack_some([1, 3, 5]), NOW)
    kinds = []
    for turn in range(4):
        assert reader.has_waiters == (turn < 3)
        kinds.append([kind for kind, _ in replies(reader)])
        reader.tick(NOW + turn)
        assert replies(reader) == [], "still the same turn"
        reader.tick(NOW + turn + 1)
    assert kinds == [[ranges.PLANNED], [subscriptions.OFFSET], [], [ranges.ACKED_SOME]]
    assert backing.ready_count() == 7


def test_a_long_acknowledgement_is_done_in_slices(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reading, "ACK_POSITIONS_AT_ONCE", 4)
    reader = room.opened(ranges.READ)
    reader.receive(ranges.encode_ack(9), NOW)
    assert replies(reader) == []
    assert room.queue.backing.ready_count() == 6
    assert reader.has_waiters
    assert room.queue.awake, "the loop comes back at once"
    reader.receive(ranges.encode_wait(0, 0), NOW)
    reader.tick(NOW)
    reader.tick(NOW)
    (kind, payload), (then, head) = replies(reader)
    assert (kind, ranges.decode_acked(payload)) == (ranges.ACKED, 9)
    assert (then, ranges.decode_head(head).floor) == (ranges.HEAD, 9)
    assert not reader.has_waiters


def test_a_reader_that_is_fenced_while_it_acknowledges_is_told(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(range_reading, "ACK_POSITIONS_AT_ONCE", 4)
    old = room.opened(ranges.READ)
    old.receive(ranges.encode_ack(9), NOW)
    room.opened(ranges.READ, force=True)
    old.tick(NOW)
    [(kind, payload)] = replies(old)
    assert kind == range_frames.ERROR
    assert range_frames.decode_error(payload)[0] == range_frames.FENCED
    assert room.queue.backing.ready_count() == 6


def test_nothing_is_remembered_of_a_queue_that_is_deleted(room: Room) -> None:
    hall: Any = room.hall
    reader = room.opened(ranges.READ)
    ask(reader, ranges.encode_ack(3), ranges.ACKED)
    room.leases.store_start(hall, room.queue, "latest", 5)
    ask(reader, ranges.encode_close(), ranges.CLOSED)
    room.tick(0)
    assert room.leases.acked_below(room.queue) == 3
    room.hall.delete("q")
    room.tick(0)
    assert room.leases.acked_below(room.queue) == 0
    assert room.leases.start(hall, room.queue) is None
