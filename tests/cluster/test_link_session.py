"""``LinkSession``: stories over a perfect way, and random lives over a bad one.

``PENSTOCK_LINK_SEED`` says where the random ones begin.
"""

from __future__ import annotations

import os
import random

import pytest

from penstock.cluster.remote.link_session import (
    ACK_AFTER_MS,
    PARCEL_BYTES,
    Delivery,
    LinkFault,
    LinkSession,
    Parcel,
)

ALL = 1 << 30
FIRST = int(os.environ.get("PENSTOCK_LINK_SEED") or random.SystemRandom().randrange(10**9))
FAILED_ONCE: tuple[int, ...] = ()


def pair(limit_bytes: int = 1 << 20, resend_after_ms: int = 0) -> tuple[LinkSession, LinkSession]:
    ends = (
        LinkSession(0, limit_bytes, resend_after_ms),
        LinkSession(0, limit_bytes, resend_after_ms),
    )
    for end in ends:
        end.connected(0)
    return ends


def test_what_is_sent_arrives_in_order_with_its_stream() -> None:
    a, b = pair()
    a.send(1, b"one")
    a.send(2, b"two")
    assert b.receive(a.take_outgoing(ALL)) == [(1, b"one"), (2, b"two")]
    assert not a.has_outgoing()


def test_a_batch_is_about_as_large_as_asked_and_never_empty() -> None:
    a, _ = pair()
    for _ in range(3):
        a.send(1, bytes(1000))
    assert len(a.take_outgoing(1)) == 1
    assert len(a.take_outgoing(1000 + PARCEL_BYTES + 1)) == 2


def test_parcels_take_acknowledgements_along() -> None:
    a, b = pair()
    a.send(1, b"one")
    b.receive(a.take_outgoing(ALL))
    b.send(1, b"answer")
    a.receive(b.take_outgoing(ALL))
    assert (a.acked, a.waiting_count, a.waiting_bytes) == (1, 0, 0)


def test_an_acknowledgement_without_company_goes_after_a_while() -> None:
    a, b = pair()
    a.send(1, b"one")
    b.receive(a.take_outgoing(ALL))
    b.tick(ACK_AFTER_MS - 1)
    assert not b.has_outgoing()
    b.tick(ACK_AFTER_MS)
    assert b.take_outgoing(ALL) == [(0, 1, 0, b"")]
    assert not b.has_outgoing()


def test_much_is_acknowledged_at_once() -> None:
    """A sender that is full would otherwise wait for the other side's next tick."""
    a, b = pair(limit_bytes=4000)
    a.send(1, bytes(1000))
    b.receive(a.take_outgoing(ALL))
    assert b.has_outgoing()


def test_after_a_reconnection_only_what_is_missing_goes_again() -> None:
    a, b = pair()
    for number in range(3):
        a.send(1, b"%d" % number)
    b.receive(a.take_outgoing(2 * PARCEL_BYTES))  # the third is lost with the connection
    a.take_outgoing(ALL)
    for end in (a, b):
        end.disconnected()
    a.send(1, b"3")
    assert a.take_outgoing(ALL) == []
    a.connected(b.last_received)
    b.connected(a.last_received)
    assert b.receive(a.take_outgoing(ALL)) == [(1, b"2"), (1, b"3")]
    assert a.resent_count == 1


def test_since_when_it_is_disconnected() -> None:
    a, _ = pair()
    a.tick(70)
    a.disconnected()
    a.tick(90)
    a.disconnected()
    assert a.disconnected_since_ms == 70


def test_full_until_half_is_acknowledged() -> None:
    a, b = pair(limit_bytes=4 * PARCEL_BYTES)
    assert a.has_room()
    for _ in range(4):
        a.send(1, b"")
    assert a.is_full()
    b.receive(a.take_outgoing(PARCEL_BYTES))
    b.tick(ACK_AFTER_MS)
    a.receive(b.take_outgoing(ALL))
    assert not a.is_full()
    assert not a.has_room()
    b.receive(a.take_outgoing(PARCEL_BYTES))
    b.tick(2 * ACK_AFTER_MS)
    a.receive(b.take_outgoing(ALL))
    assert a.has_room()


@pytest.mark.parametrize("their_last", [0, 3])
def test_a_greeting_that_cannot_be_is_refused(their_last: int) -> None:
    a, b = pair()
    a.send(1, b"one")
    a.send(1, b"two")
    b.receive(a.take_outgoing(ALL))
    b.tick(ACK_AFTER_MS)
    a.receive(b.take_outgoing(ALL))
    with pytest.raises(LinkFault):
        a.connected(their_last)


def test_an_acknowledgement_of_what_was_not_sent_is_a_fault() -> None:
    a, _ = pair()
    a.send(1, b"kept")
    a.receive([(0, 1, 0, b"")])
    assert a.fault
    a.check()
    a.disconnected()
    a.connected(0)
    assert not a.fault


def test_a_gap_is_a_fault_and_costs_nothing_that_came_before() -> None:
    _, b = pair()
    assert b.receive([(1, 0, 7, b"one"), (3, 0, 7, b"three")]) == [(7, b"one")]
    assert b.fault
    assert b.last_received == 1


class BadWay:
    """Frames of parcels from one end to the other: lost, doubled, late, early."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.frames: list[list[Parcel]] = []

    def put(self, parcels: list[Parcel]) -> None:
        for _ in range(self.rng.choice((0, 1, 1, 1, 2))):
            self.frames.insert(self.rng.randint(0, len(self.frames)), parcels)

    def take(self) -> list[Parcel]:
        return self.frames.pop() if self.frames else []


class Pair:
    """Both ends, what each sent, and what each got."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.ends = [LinkSession(0, 10_000, 50) for _ in range(2)]
        self.ways = [BadWay(self.rng), BadWay(self.rng)]
        self.sent: list[list[Delivery]] = [[], []]
        self.got: list[list[Delivery]] = [[], []]

    def step(self) -> None:
        rng = self.rng
        self.now_ms += rng.randrange(10)
        at = rng.randrange(2)
        end = self.ends[at]
        chance = rng.random()
        if chance < 0.3 and not end.is_full():
            self.sent[at].append((rng.randrange(5), rng.randbytes(rng.randrange(900))))
            end.send(*self.sent[at][-1])
        elif chance < 0.32:
            end.disconnected()
        elif chance < 0.38:
            self.connect()
        else:
            self.carry(at)
        for one in self.ends:
            one.check()

    def connect(self) -> None:
        """What is still under way on the old connection never arrives on the new one."""
        a, b = self.ends
        for way in self.ways:
            way.frames.clear()
        a.disconnected()
        b.disconnected()
        a.connected(b.last_received)
        b.connected(a.last_received)

    def carry(self, at: int) -> None:
        end = self.ends[at]
        end.tick(self.now_ms)
        self.ways[at].put(end.take_outgoing(self.rng.randrange(1, 3000)))
        if end.is_connected:
            self.got[at] += end.receive(self.ways[1 - at].take())
        assert not end.fault

    def settle(self) -> None:
        self.connect()
        for _ in range(20_000):
            if not any(end.waiting_count for end in self.ends):
                return
            self.now_ms += 5
            self.carry(self.rng.randrange(2))
        pytest.fail("it never came to rest")


def test_random_lives() -> None:
    arrived = resent = 0
    for seed in (*FAILED_ONCE, *range(FIRST, FIRST + 20)):
        life = Pair(seed)
        try:
            for _ in range(400):
                life.step()
            life.settle()
            assert life.got == [life.sent[1], life.sent[0]]
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
        arrived += sum(map(len, life.got))
        resent += sum(end.resent_count for end in life.ends)
        assert not any(end.waiting_bytes for end in life.ends)
    print(f"20 lives from seed {FIRST}: {arrived} parcels arrived once, {resent} sent again")
    assert arrived > 1000
    assert resent > 100
