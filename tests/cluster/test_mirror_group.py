"""``MirrorGroup``: one queue at several members, each with a disk of its own, over perfect links.

Stories, and short random lives in which masters die, step down and come to be: what was confirmed
is at every synced copy, and survivors have the same set.  ``PENSTOCK_GROUP_SEEDS`` says how many
lives, ``PENSTOCK_GROUP_SEED`` where to begin.
"""

from __future__ import annotations

import os
import random

import pytest

from penstock.cluster.mirrors.joinings import member_of
from penstock.cluster.mirrors.safety import NOTHING_KNOWN, REST_MS, STUCK_MS
from penstock.core.byte_reader import Malformed
from tests.cluster.group_world import Member, World

FIRST = int(os.environ.get("PENSTOCK_GROUP_SEED") or random.SystemRandom().randrange(10**9))
FAILED_ONCE = (
    42,  # a successor began when the last master was dead, and the last but one not heard out
    24,  # a mirror heard the new master before the last words of the former one
    290,
    293,
)
LIVES = int(os.environ.get("PENSTOCK_GROUP_SEEDS", "12"))


def filled(count: int) -> tuple[World, Member]:
    """A master alone, with so many messages."""
    world = World("a")
    a = world.members["a"]
    for number in range(count):
        a.publish(b"%d" % number)
    world.run()
    return world, a


def test_a_mirror_is_given_everything_and_becomes_synced() -> None:
    world, a = filled(30)
    b = world.add("b")
    world.run()
    assert world.synced == ["a", "b"]
    assert b.contents() == a.contents()


def test_a_chunk_is_waited_for_on_the_disk_where_nothing_else_is_done() -> None:
    """Behind it the next one is asked for: an idle mirror would ask once in a quarter second."""
    world, _ = filled(30)
    b = world.add("b")
    b.opened.commit()
    for _ in range(100):
        for member in world.members.values():
            member.group.ring.view_changed(world.view)
            member.take()
        for link in list(world.links):
            world.carry(*link)
        if b.group.joiner is not None and b.group.joiner.received_count:
            break
        b.opened.commit()
    assert b.group.awaits_disk()
    b.opened.commit()
    assert not b.group.awaits_disk()


def test_a_chunk_of_a_former_queue_of_that_name_is_none() -> None:
    """It was on its way when the queue was deleted and declared again."""
    world, a = filled(3)
    b = world.add("b")
    chunks: list[bytes] = []
    while not chunks:
        for member in world.members.values():
            member.group.ring.view_changed(world.view)
            member.take()
        chunks = [data for _, data in world.links.get(("a", "b"), ()) if data[:1] == b"C"]
        if not chunks:
            for link in list(world.links):
                world.carry(*link)
        b.opened.commit()
    assert b.group.joiner is not None
    b.group.receive("a", "a#0", chunks[0])
    assert b.group.joiner.received_count == 0
    world.run()
    assert world.synced == ["a", "b"]
    assert b.contents() == a.contents()


def test_a_persistent_one_is_safe_when_it_is_on_the_mirrors_disk() -> None:
    world = World("abc")
    a, b, c = world.members.values()
    assert world.synced == ["a", "b", "c"]
    a.publish(b"x")
    a.publish(b"y", persistent=False)
    assert a.confirmed() == []
    for _ in range(4):  # round the ring, and the mirrors' answers
        for member in world.members.values():
            member.take()
        for link in list(world.links):
            world.carry(*link)
    assert a.confirmed() == [b"y"]
    b.opened.commit()
    c.opened.commit()
    world.run()
    assert a.confirmed() == [b"x", b"y"]


def test_what_happens_while_a_parcel_goes_round_is_told_in_one() -> None:
    world = World("abc")
    a, b, _ = world.members.values()
    mirrored = a.group.mirrored
    assert mirrored is not None
    before = mirrored.number
    for content in (b"1", b"2", b"3"):
        a.publish(content)
        a.take()
    assert (mirrored.number, mirrored.last_number()) == (before + 1, before + 2)
    world.run()
    assert (mirrored.number, mirrored.last_number()) == (before + 2, before + 2)
    assert a.confirmed() == b.contents() == [b"1", b"2", b"3"]
    for content in (b"4", b"5" * 1_100_000):
        a.publish(content)
        a.take()
    assert mirrored.number == before + 4, "what is large is not held"


def test_without_a_mirror_nobody_waits() -> None:
    a = World("a").members["a"]
    a.publish(b"x")
    assert a.confirmed() == [b"x"]


def test_a_dead_mirror_is_waited_for_until_the_view_is_without_it() -> None:
    world = World("abc")
    a = world.members["a"]
    del world.members["c"]
    a.publish(b"x")
    world.run()
    assert a.confirmed() == []
    world.members["c"] = Member("c", world)
    world.crash("c")
    world.run()
    assert a.confirmed() == [b"x"]


def test_the_successor_begins_behind_the_dead_masters_last_words() -> None:
    world = World("abc")
    a, b, c = world.members.values()
    a.publish(b"x")
    a.take()
    world.carry("a", "b")  # c has not heard of it
    world.crash("a")
    world.elect("c")
    world.run()
    assert c.group.mirrored is not None
    assert c.contents() == b.contents() == [b"x"]
    c.publish(b"y")
    world.run()
    assert c.confirmed() == [b"y"]
    assert sorted(b.contents()) == [b"x", b"y"]


def test_who_joins_a_quiet_queue_hears_that_its_masters_time_has_begun() -> None:
    """It knew of an earlier master, and nothing is published."""
    world = World("ab")
    world.members["a"].publish(b"x")
    c = world.add("c")
    del world.members["c"]
    world.elect("b")
    world.run()
    world.members["c"] = c
    world.tell(c)
    world.run()
    assert world.synced == ["a", "b", "c"]
    assert c.contents() == [b"x"]


def test_a_mirror_that_heard_all_needs_no_synchronisation() -> None:
    world = World("abc")
    a, b, c = world.members.values()
    a.publish(b"x")
    world.run()
    world.crash("a")
    world.elect("b")
    world.run()
    assert c.group.replica is not None
    assert c.group.replica.is_complete()
    assert c.group.joiner is not None
    assert c.group.joiner.received_bytes == 0 or not b.group.syncing.syncers


def test_a_master_that_hands_over_is_a_whole_copy() -> None:
    world = World("ab")
    a, b = world.members.values()
    a.publish(b"x")
    a.publish(b"y")
    world.elect("b")
    world.run()
    assert a.group.mirrored is None
    assert b.group.mirrored is not None
    assert b.contents() == a.contents() == [b"x", b"y"]
    assert a.group.replica is not None
    assert a.group.replica.is_complete()
    b.publish(b"z")
    world.run()
    assert b.confirmed() == [b"z"]
    assert sorted(a.contents()) == [b"x", b"y", b"z"]


def test_a_successor_that_hears_of_itself_last_of_all_begins() -> None:
    world = World(["a", "b", "c"])
    world.members["a"].publish(b"one")
    world.run()
    world.term, world.former, world.master, world.synced = 2, "a", "b", ["b", "c"]
    world.tell(world.members["a"])
    world.tell(world.members["c"])
    world.run()
    world.tell(world.members["b"])
    world.run()
    assert world.members["b"].group.mirrored is not None


def test_one_that_came_later_need_not_wait_for_a_former_master() -> None:
    """a said that it is through before c came, and lives."""
    world = World("ab")
    world.elect("b")
    world.run()
    c = world.add("c")
    world.run()
    assert set(world.synced) == {"a", "b", "c"}
    world.crash("b")
    world.elect("c")
    world.run()
    assert c.group.mirrored is not None


def test_the_last_but_one_is_waited_for_too() -> None:
    """a's words are under way to c when a dies, and b, who should follow, without a word."""
    world = World("abc")
    a, _, c = world.members.values()
    a.publish(b"x")
    a.take()
    world.crash("a")
    world.elect("b")
    world.crash("b")
    world.elect("c")
    c.group.ring.view_changed(world.view)
    c.take()
    assert c.group.mirrored is None
    world.run()
    assert c.group.mirrored is not None


def test_a_replaced_master_confirms_nothing_of_the_old_term() -> None:
    """It does not know yet; the mirrors do, and answer it no more (K2)."""
    world = World("abc")
    a = world.members["a"]
    world.term, world.master, world.former = 2, "b", "a"
    for name in "bc":
        world.tell(world.members[name])
    a.publish(b"late")
    a.publish(b"too", persistent=False)
    world.run()
    assert a.confirmed() == []
    world.tell(a)
    world.run()
    assert a.confirmed() == []
    assert world.members["b"].group.mirrored is not None


def answer(term: int, applied: int, durable: int, *, complete: bool = True) -> bytes:
    numbers = (term, applied, durable)
    return b"A" + b"".join(one.to_bytes(8, "big") for one in numbers) + bytes([complete])


def rejoined() -> World:
    """``b`` was synchronised, is no member any more, and joins again before its death is heard."""
    world = World(["a", "b"])
    world.members["a"].publish(b"one")
    world.run()
    assert world.synced == ["a", "b"]
    world.synced = ["a"]
    world.members["a"].group.bar("b")
    world.members["b"] = Member("b", world, joining=2)
    world.tell_all()
    return world


def test_what_a_former_copy_had_does_not_make_its_successor_synced() -> None:
    world = rejoined()
    master = world.members["a"]
    master.take()
    assert master.mirrors.complete == []


def test_who_joined_anew_is_answered_though_its_former_joining_dies_later() -> None:
    world = rejoined()
    world.members["b"].take()
    world.carry("b", "a")  # its question
    for member in world.members.values():
        member.group.ring.member_died("b#1")
    world.run()
    assert world.synced == ["a", "b"]
    assert world.members["b"].contents() == [b"one"]


def test_an_answer_of_another_term_counts_for_nothing() -> None:
    world = World("ab")
    a = world.members["a"]
    a.publish(b"x")
    a.take()
    told = int(a.group.mirrored.number) if a.group.mirrored is not None else 0
    a.group.receive("b", "b#1", answer(2, told, told))
    assert a.confirmed() == []
    a.group.receive("b", "b#1", answer(1, told, told))
    assert a.confirmed() == [b"x"]


def test_who_is_complete_is_waited_for_and_synced_when_it_has_what_was_told_before() -> None:
    world = World("ab")
    world.synced = ["a"]
    world.tell_all()
    a = world.members["a"]
    a.group.safe.awaited.clear()
    a.publish(b"x")
    assert a.confirmed() == [b"x"]
    a.take()
    assert a.group.mirrored is not None
    told = int(a.group.mirrored.number)
    a.group.receive("b", "b#1", answer(1, told - 1, told - 1))
    a.publish(b"y")
    a.take()
    assert a.mirrors.complete == []
    assert a.confirmed() == [b"x"]
    a.group.receive("b", "b#1", answer(1, told, told))
    a.take()
    assert a.mirrors.complete == ["b"]


def turn(world: World, ms: int, *, but: str = "") -> None:
    """Time passes; the disk of ``but`` takes nothing."""
    world.now_ms += ms
    for _ in range(6):
        for member in world.members.values():
            member.take()
            if member.name != but:
                member.opened.commit()
        for link in list(world.links):
            world.carry(*link)


def with_a_slow_mirror() -> World:
    world = World("ab")
    world.now_ms = 1000
    a = world.members["a"]
    a.publish(b"x")
    turn(world, 1, but="b")
    assert a.mirrors == NOTHING_KNOWN
    assert a.confirmed() == []
    turn(world, 600, but="b")
    assert a.group.safe.latest() == ("b", "its disk has taken nothing for 0.6 s")
    turn(world, STUCK_MS, but="b")
    assert a.mirrors.slow == ["b"]
    assert a.mirrors.silent == []
    return world


def test_a_mirror_with_a_slow_disk_is_waited_for_until_the_view_counts_on_it_no_more() -> None:
    world = with_a_slow_mirror()
    a = world.members["a"]
    assert a.confirmed() == [], "it may be promoted"
    world.synced = ["a"]
    world.tell_all()
    assert a.confirmed() == [b"x"]
    a.publish(b"y")
    turn(world, 1)
    assert a.confirmed() == [b"x", b"y"]
    assert a.mirrors == NOTHING_KNOWN
    assert a.group.safe.latest() == ("", "")


def test_a_mirror_that_was_slow_is_waited_for_when_its_rest_is_over_and_has_all_by_then() -> None:
    world = with_a_slow_mirror()
    a, b = world.members.values()
    world.synced = ["a"]
    world.tell_all()
    a.publish(b"y")
    turn(world, 1)
    assert a.group.safe.rest_ms("b") == REST_MS - 1
    for _ in range(9):
        a.publish(b"z")
        turn(world, 1000)
        assert a.group.safe.awaited == {}
    assert len(a.confirmed()) == 11
    turn(world, 1000)
    assert a.mirrors.complete == ["b"]
    assert sorted(b.contents()) == sorted([b"x", b"y", *[b"z"] * 9])
    world.run()
    assert world.synced == ["a", "b"]


def test_a_mirror_that_is_slow_before_it_is_synced_is_dropped_with_the_next_view_only() -> None:
    """What was proposed of it may be accepted until then."""
    world = World("ab")
    world.now_ms = 1000
    world.synced = ["a"]
    world.tell_all()
    a = world.members["a"]
    a.group.safe.awaited["b"] = 1000  # it is complete, and has still to write all this
    a.publish(b"x")
    turn(world, 1, but="b")
    turn(world, STUCK_MS + 1, but="b")
    assert a.mirrors.slow == ["b"]
    assert a.confirmed() == []
    world.tell_all()
    assert a.group.safe.awaited == {}
    assert a.confirmed() == [b"x"]


def test_a_mirror_whose_node_is_short_of_room_fetches_nothing() -> None:
    world = World("a")
    world.members["a"].publish(b"x")
    world.run()
    b = world.add("b")
    for _ in range(20):
        for member in world.members.values():
            member.group.ring.view_changed(world.view)
            member.take(is_short=member is b)
            member.opened.commit()
        for link in list(world.links):
            world.carry(*link)
    assert b.contents() == []
    world.run()
    assert b.contents() == [b"x"]


def test_behind_an_incomplete_master_all_begin_with_what_it_has() -> None:
    """The policy said always: what only the others have is gone for all."""
    world = World("ac")
    a, c = world.members.values()
    for number in range(5):
        a.publish(b"%d" % number)
    world.run()
    b = world.add("b")
    a.group.syncing.is_wanted = False
    world.run()
    a.publish(b"new")
    world.run()
    assert b.contents() == [b"new"]
    world.crash("a")
    world.elect("b")
    world.run()
    assert b.contents() == c.contents() == [b"new"]


@pytest.mark.parametrize("data", [b"", b"?", b"A", b"A" + bytes(24)])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    group = World("a").members["a"].group
    with pytest.raises(Malformed):
        group.receive("b", "b#1", data)


def test_an_answer_that_cannot_be_is_refused() -> None:
    group = World("a").members["a"].group
    with pytest.raises(Malformed, match="9 durable"):
        group.receive("b", "b#1", answer(1, 9, 9))


def test_the_name_of_a_joining() -> None:
    assert member_of("penstock@host/17#3") == "penstock@host/17"


class Life(World):
    """Random steps; what was confirmed may never be missing at a synced copy."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        super().__init__("abcd"[: self.rng.randint(2, 4)])
        self.gone: set[bytes] = set()
        self.count = 0
        self.confirmed: set[bytes] = set()
        self.elections = 0
        self.added = 0

    def step(self) -> None:
        rng = self.rng
        self.now_ms += 1
        member = rng.choice(list(self.members.values()))
        master = self.members.get(self.master)
        chance = rng.random()
        if chance < 0.3 and master is not None and master.group.mirrored is not None:
            for _ in range(rng.randint(1, 3)):
                self.count += 1
                master.publish(b"%d" % self.count, persistent=rng.random() < 0.7)
        elif chance < 0.35 and master is not None and master.group.mirrored is not None:
            before = set(master.contents())
            master.ack_oldest()
            self.gone |= before - set(master.contents())
        elif chance < 0.5:
            member.opened.commit()
        elif chance < 0.8:
            member.group.ring.view_changed(self.view)
            member.take()
        else:
            for link in rng.sample(list(self.links), min(len(self.links), 2)):
                self.carry(*link, rng.randint(1, 4))
            self.add_synced()
        self.note_confirmed()

    def note_confirmed(self) -> None:
        for member in self.members.values():
            self.confirmed.update(member.confirmed())

    def change(self) -> None:
        """Of master, by death or in peace, only a synced one follows; or of a mirror."""
        others = [name for name in self.synced if name != self.master and name in self.members]
        mirrors = [name for name in self.members if name != self.master]
        chance = self.rng.random()
        if chance < 0.25:
            self.add("efgh"[self.added])
            self.added += 1
        elif chance < 0.4 and mirrors:
            self.crash(self.rng.choice(mirrors))
        elif others:
            self.elections += 1
            master = self.master
            if self.rng.random() < 0.5:
                self.crash(master)
            self.elect(self.rng.choice(others))

    def live(self) -> None:
        for _ in range(4):
            for _ in range(self.rng.randint(5, 80)):
                self.step()
            self.change()
        self.run()
        self.note_confirmed()
        master = self.members[self.master]
        for name in self.synced:
            copy = self.members[name]
            assert sorted(copy.contents()) == sorted(master.contents()), f"{name} differs"
        missing = self.confirmed - self.gone - set(master.contents())
        assert not missing, f"confirmed, and missing: {missing}"


def test_random_lives() -> None:
    confirmed = elections = 0
    for seed in (*FAILED_ONCE, *range(FIRST, FIRST + LIVES)):
        try:
            life = Life(seed)
            life.live()
        except Exception as error:
            pytest.fail(f"seed {seed}: {type(error).__name__}: {error}")
        confirmed += len(life.confirmed)
        elections += life.elections
    print(f"{LIVES} lives from seed {FIRST}: {confirmed} confirmed, {elections} changes of master")
    assert confirmed > 10
    assert elections > 5


def test_who_shall_not_fetch_has_everything_when_all_before_its_time_is_gone() -> None:
    world = World("a")
    a = world.members["a"]
    for number in range(3):
        a.publish(b"%d" % number)
    world.run()
    a.group.syncing.is_wanted = False
    world.add("b")
    world.run()
    a.publish(b"new")
    world.run()
    assert world.synced == ["a"]
    for _ in range(3):
        a.ack_oldest()
    world.run()
    assert world.synced == ["a", "b"]
