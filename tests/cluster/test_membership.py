"""Nodes come, go, return, are cut off and forgotten; what each of them knows of the others."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from itertools import count
from random import Random, SystemRandom

import pytest

from penstock.cluster.agreement.coordinator import ACCEPTED, REFUSED, Entry, Event
from penstock.cluster.agreement.membership import (
    DOWN,
    FORGOTTEN,
    JOINED,
    JOINING,
    OVER,
    REFUSED_HERE,
    UP,
    MemberRecord,
    Membership,
    member_from_json,
    member_to_json,
    node_to_json,
)
from penstock.core.errors import BrokerError, Corrupt, NotFound, PreconditionFailed
from tests.simulation.sim_coordinator import TTL_MS, SimCoordinator, SimStore

LIVES = int(os.environ.get("PENSTOCK_MEMBERSHIP_SEEDS", "25"))
FIRST = int(os.environ.get("PENSTOCK_MEMBERSHIP_SEED") or SystemRandom().randrange(10**9))
FAILED_ONCE: tuple[int, ...] = ()
STEP_MS = 50
WALL_MS = 1_700_000_000_000


class Node:
    """A process: a coordinator's handle and a membership on it."""

    def __init__(self, hall: Hall, name: str) -> None:
        self.hall = hall
        self.handle: SimCoordinator = hall.store.join(name)
        here = hall.record(name)
        self.membership = Membership(self.handle, here, hall.wall_ms(), 2 * TTL_MS)
        self.heard: list[tuple[int, str]] = []

    def tick(self) -> None:
        self.handle.tick(self.hall.now_ms)
        happenings = self.membership.hear(self.handle.take_events())
        self.membership.check()
        self.heard += [(one.kind, one.member) for one in happenings]
        self.membership.tick(self.hall.now_ms, self.hall.wall_ms())


class Hall:
    """All of them, and time."""

    def __init__(self, seed: int, loss: float = 0.0) -> None:
        self.rng = Random(seed)
        self.store = SimStore(self.rng, delay_ms=(0, 120), loss=loss)
        self.now_ms = 0
        self.nodes: list[Node] = []
        self.lives = count(1)

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    def record(self, name: str) -> MemberRecord:
        life = next(self.lives)
        return MemberRecord(name, f"{life:x}", {"amqp": f"{name}:{life}"}, "1.0", self.wall_ms())

    def start(self, name: str) -> Node:
        node = Node(self, name)
        self.nodes.append(node)
        return node

    def joined(self, name: str) -> Node:
        node = self.start(name)
        self.wait(lambda: node.membership.state == JOINED)
        return node

    def kill(self, node: Node) -> None:
        """As kill -9: nothing is given back."""
        self.nodes.remove(node)

    def step(self) -> None:
        self.now_ms += STEP_MS
        for node in self.nodes:
            node.tick()
        self.judge()

    def judge(self) -> None:
        """K4: at most one life of a name may act at a time."""
        acting = Counter(
            node.membership.here.name for node in self.nodes if node.membership.may_act(self.now_ms)
        )
        assert all(number == 1 for number in acting.values()), acting

    def wait(self, until: Callable[[], bool], within_ms: int = 20_000) -> None:
        end_ms = self.now_ms + within_ms
        while not until():
            assert self.now_ms < end_ms, "not in time"
            self.step()

    def spend(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        self.wait(lambda: self.now_ms >= end_ms, duration_ms + 1000)


@pytest.fixture
def hall() -> Hall:
    print(f"PENSTOCK_MEMBERSHIP_SEED={FIRST}")
    return Hall(FIRST)


def test_nodes_join_and_know_one_another(hall: Hall) -> None:
    nodes = [hall.joined(name) for name in ("penstock@a", "penstock@b/ü", "c")]
    hall.spend(500)
    for node in nodes:
        assert node.membership.running() == ["c", "penstock@a", "penstock@b/ü"]
        assert node.membership.known() == node.membership.running()
        assert node.membership.eldest() == "penstock@a"
        assert node.membership.may_act(hall.now_ms)
        assert node.membership.lives(nodes[1].membership.here.member)
    first = nodes[2].membership.nodes["penstock@a"]
    assert first.living is not None
    assert first.living.addresses == {"amqp": "penstock@a:1"}
    assert first.living.started_ms == WALL_MS
    assert nodes[0].heard[-2:] == [(UP, "penstock@b/ü/2"), (UP, "c/3")]


def test_what_was_killed_is_down_since_then_and_known(hall: Hall) -> None:
    a, b, c = (hall.joined(name) for name in "abc")
    hall.spend(200)
    killed_ms = hall.wall_ms()
    hall.kill(a)
    hall.wait(lambda: (DOWN, a.membership.here.member) in c.heard, 5000)
    hall.spend(500)
    late = hall.joined("d")
    hall.spend(500)
    for node in (b, c, late):
        assert node.membership.running() == ["b", "c", "d"]
        assert node.membership.known() == ["a", "b", "c", "d"]
        assert killed_ms < node.membership.nodes["a"].down_since_ms < killed_ms + 5000
        assert not node.membership.lives(a.membership.here.member)
    assert b.membership.eldest() == "b"


class Deaf(SimCoordinator):
    """Its stream is dead, and does not say so."""

    deaf = False

    def take_events(self) -> list[Event]:
        return [] if self.deaf else super().take_events()


def test_a_node_waits_for_news_of_its_own_former_life_as_long_as_it_takes(hall: Hall) -> None:
    """It ended, and said that another process had its name (CL10 of the review)."""
    node = hall.joined("a")
    node.handle.__class__ = Deaf
    assert isinstance(node.handle, Deaf)
    node.handle.cut_off = True
    hall.spend(2 * TTL_MS)
    node.handle.deaf = True
    node.handle.cut_off = False
    hall.wait(lambda: node.membership.state == OVER)
    node.membership.rejoin(f"{next(hall.lives):x}")
    hall.spend(10 * TTL_MS)
    assert node.membership.state == JOINING
    node.handle.deaf = False
    hall.wait(lambda: node.membership.state == JOINED, 3000)


def test_a_node_that_comes_back_at_once_waits_for_its_former_life(hall: Hall) -> None:
    a, b = hall.joined("a"), hall.joined("b")
    joined_ms = b.membership.nodes["a"].joined_ms
    hall.kill(a)
    again = hall.start("a")
    hall.spend(1000)
    assert again.membership.state == JOINING
    hall.wait(lambda: again.membership.state == JOINED, 2 * TTL_MS)
    hall.spend(500)
    former, new = a.membership.here.member, again.membership.here.member
    assert [one for one in b.heard if one[1][0] == "a"][-2:] == [(DOWN, former), (UP, new)]
    known = b.membership.nodes["a"]
    assert (known.joined_ms, known.down_since_ms) == (joined_ms, 0)


def test_who_is_cut_off_does_not_take_its_former_life_for_another_process(hall: Hall) -> None:
    a = hall.joined("a")
    hall.kill(a)
    again = hall.start("a")
    hall.spend(100)
    again.handle.cut_off = True
    hall.spend(5 * TTL_MS)
    assert again.membership.state == JOINING
    again.handle.cut_off = False
    hall.wait(lambda: again.membership.state == JOINED, 2 * TTL_MS)


def test_a_second_process_with_the_name_is_refused_with_a_sentence(hall: Hall) -> None:
    a = hall.joined("a")
    second = hall.start("a")
    hall.wait(lambda: second.membership.state == REFUSED_HERE)
    assert "another process is node a of this cluster, at a:1" in second.membership.why_refused
    assert "node_name" in second.membership.why_refused
    hall.spend(3000)
    assert a.membership.state == JOINED
    assert second.membership.state == REFUSED_HERE


def test_who_leaves_in_order_is_down_at_once(hall: Hall) -> None:
    a, b = hall.joined("a"), hall.joined("b")
    hall.spend(300)
    left_ms = hall.wall_ms()
    leaving = b.membership.leave()
    hall.wait(lambda: leaving.done)
    assert leaving.state == ACCEPTED
    b.handle.close()
    hall.spend(300)
    assert a.membership.running() == ["a"]
    assert a.membership.nodes["b"].down_since_ms == left_ms
    assert a.heard[-1] == (DOWN, b.membership.here.member)
    assert b.membership.state == OVER
    again = hall.joined("b")
    assert again.membership.nodes["b"].down_since_ms == 0


def test_forgetting(hall: Hall) -> None:
    a, b = hall.joined("a"), hall.joined("b")
    hall.spend(300)
    refusals: tuple[tuple[str, type[BrokerError], str], ...] = (
        ("b", PreconditionFailed, "b is running: stop it first"),
        ("a", PreconditionFailed, "a cannot forget itself"),
        ("x", NotFound, "x is not a node of this cluster"),
    )
    for name, error, words in refusals:
        with pytest.raises(error, match=words):
            a.membership.forgetting(name)
    hall.kill(b)
    hall.wait(lambda: bool(a.membership.nodes["b"].down_since_ms))
    asked = [a.handle.propose(*a.membership.forgetting("b")) for _ in range(2)]
    hall.wait(lambda: all(one.done for one in asked))
    assert sorted(one.state for one in asked) == [ACCEPTED, REFUSED]
    hall.spend(300)
    assert a.membership.known() == ["a"]
    assert a.heard[-1] == (FORGOTTEN, "b")
    assert hall.joined("b").membership.known() == ["a", "b"]


def test_a_node_that_was_cut_off_knows_first_and_joins_again(hall: Hall) -> None:
    a, b = hall.joined("a"), hall.joined("b")
    hall.spend(300)
    former = b.membership.here.member
    b.handle.cut_off = True
    hall.wait(lambda: (DOWN, former) in a.heard, 5000)
    assert not b.membership.may_act(hall.now_ms)
    b.handle.cut_off = False
    hall.wait(lambda: b.membership.state == OVER)
    b.membership.rejoin("anew")
    hall.wait(lambda: b.membership.state == JOINED)
    hall.spend(300)
    assert (UP, "b/anew") in a.heard
    assert a.membership.nodes["b"].down_since_ms == 0


@pytest.mark.parametrize(
    "key, value",
    [
        ("members/a", "{"),
        ("members/a", "[]"),
        ("members/a", "{}"),
        ("members/a", '{"v": 2}'),
        ("members/a", member_to_json(MemberRecord("a", "1", {}, "1", 1))[:-1] + ', "x": 1}'),
        ("members/a", member_to_json(MemberRecord("a", "1", {"amqp": 1}, "1", 1))),  # type: ignore[dict-item]
        ("members/", member_to_json(MemberRecord("", "1", {}, "1", 1))),
        ("members/a@b", member_to_json(MemberRecord("a@b", "1", {}, "1", 1))),
        ("nodes/a", '{"v": 1, "joined_ms": "1", "down_since_ms": 0}'),
        ("nodes/a/b", node_to_json(1, 0)),
    ],
)
def test_what_is_not_understood_is_not_guessed(key: str, value: str) -> None:
    hall = Hall(1)
    node = hall.joined("z")
    with pytest.raises(Corrupt, match=key.partition("/")[0]):
        node.membership.hear([Event(99, key, value, created=True)])


def test_values_come_back() -> None:
    record = MemberRecord("penstock@a", "1f", {"amqp": "[::1]:5672", "peer": "h:1"}, "1.0", 5)
    back = member_from_json("penstock@a", member_to_json(record))
    assert [getattr(back, field) for field in MemberRecord.__slots__] == [
        getattr(record, field) for field in MemberRecord.__slots__
    ]


def test_what_is_of_others_is_left_alone() -> None:
    hall = Hall(1)
    node = hall.joined("a")
    assert node.membership.hear([Event(99, "queues/%2F/q", "x", created=True)]) == []
    assert Entry("k", "v", 1, 1).made == 1


# -- by chance -----------------------------------------------------------------------------------


def wild(hall: Hall, counts: Counter[str]) -> None:
    rng = hall.rng
    names = ["a", "b", "c", "d"]
    for _ in range(150):
        choice = rng.random()
        node = rng.choice(hall.nodes) if hall.nodes else None
        if node is None or (choice < 0.15 and len(hall.nodes) < 6):
            hall.start(rng.choice(names))
            counts["starts"] += 1
        elif choice < 0.25:
            hall.kill(node)
            counts["kills"] += 1
        elif choice < 0.35:
            node.handle.cut_off = not node.handle.cut_off
            counts["cuts"] += 1
        elif choice < 0.45 and node.membership.state == OVER:
            node.membership.rejoin(f"{next(hall.lives):x}")
            counts["rejoins"] += 1
        elif choice < 0.55 and node.membership.state == REFUSED_HERE:
            counts["refusals"] += 1
            node.handle.close()
            hall.kill(node)
        elif choice < 0.65:
            for name in node.membership.known():
                if name not in node.membership.running() and name != node.membership.here.name:
                    node.handle.propose(*node.membership.forgetting(name))
                    counts["forgets"] += 1
        hall.spend(rng.choice((50, 200, 1000, 4000)))
    calm(hall)


def calm(hall: Hall) -> None:
    """Everything is well again: all agree, and know what is true."""
    hall.store.loss = 0.0
    for node in hall.nodes:
        node.handle.cut_off = False
    hall.spend(5 * TTL_MS)
    for node in [one for one in hall.nodes if one.membership.state == REFUSED_HERE]:
        hall.kill(node)  # by whoever reads the sentence; there may be nobody of its name
    for node in hall.nodes:
        if node.membership.state == OVER:
            node.membership.rejoin(f"{next(hall.lives):x}")
    hall.spend(5 * TTL_MS)
    living = sorted(n.membership.here.name for n in hall.nodes if n.membership.state == JOINED)
    assert living == sorted({n.membership.here.name for n in hall.nodes}), "one of each name"
    downs = set()
    for node in hall.nodes:
        assert node.membership.state in (JOINED, REFUSED_HERE)
        assert node.membership.running() == living
        known = node.membership.nodes
        downs.add(tuple(sorted((name, one.down_since_ms) for name, one in known.items())))
        assert all((one.living is None) == (one.down_since_ms > 0) for one in known.values())
    assert len(downs) <= 1


def test_random_lives() -> None:
    counts: Counter[str] = Counter()
    lives = 0
    for seed in (*FAILED_ONCE, *range(FIRST, FIRST + LIVES)):
        hall = Hall(seed, loss=0.05 * (seed % 3))
        try:
            wild(hall, counts)
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        counts["differences"] += sum(n.handle.counts["differences"] for n in hall.nodes)
        lives += 1
    said = ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))
    print(f"{lives} lives from seed {FIRST}, never two of one name: {said}")
    assert all(
        counts[name]
        for name in ("starts", "kills", "cuts", "rejoins", "refusals", "forgets", "differences")
    ), counts
