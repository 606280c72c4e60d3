"""What every coordinator promises (O1-O5), asked of each of them in the same words."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random, SystemRandom

import pytest

from penstock.cluster.agreement.coordinator import (
    ABSENT,
    ACCEPTED,
    CHANGES_MAX,
    FAILED,
    PENDING,
    PROPOSAL_MAX_BYTES,
    REFUSED,
    UNCERTAIN,
    Change,
    Condition,
    Coordinator,
    Proposal,
)
from tests.cluster.coordinator_worlds import (
    Copy,
    EmbeddedWorld,
    EtcdWorld,
    ServedWorld,
    SimWorld,
    World,
)
from tests.helpers.etcd import EtcdServer, missing_reason

SEED = int(os.environ.get("PENSTOCK_COORDINATOR_SEED") or SystemRandom().randrange(10**9))


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One for the whole file; each test has a cluster name of its own."""
    reason = missing_reason()
    if reason:
        pytest.skip(reason)
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.fixture(params=["simulated", "embedded", "served", "etcd"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    print(f"PENSTOCK_COORDINATOR_SEED={SEED}")
    made: World = SimWorld(SEED)
    if request.param == "embedded":
        made = EmbeddedWorld(str(tmp_path / "coordination.db"))
    elif request.param == "served":
        made = ServedWorld(tmp_path)
    elif request.param == "etcd":
        server = request.getfixturevalue("etcd")
        made = EtcdWorld((server.endpoint,), cluster_name=tmp_path.name, lease_ttl_s=2)
    yield made
    made.close()


def put(key: str, value: str = "1", *, leased: bool = False) -> Change:
    return Change(key, value, leased=leased)


def shapes(member: Coordinator) -> list[tuple[str, str | None, bool]]:
    return [(event.key, event.value, event.created) for event in member.take_events()]


# -- O1 ---------------------------------------------------------------------------------------


def test_o1_a_condition_that_does_not_hold_refuses_all(world: World) -> None:
    one = world.join("a/1")
    first = world.done(one, [Condition("k", ABSENT)], [put("k")])
    assert first.state == ACCEPTED
    again = world.done(one, [Condition("k", ABSENT)], [put("k", "2"), put("other")])
    assert (again.state, again.revision) == (REFUSED, 0)
    assert shapes(one) == [("k", "1", True)]
    known = [Condition("k", first.revision), Condition("other", ABSENT)]
    second = world.done(one, known, [put("k", "2"), put("other")])
    assert second.state == ACCEPTED
    assert second.revision > first.revision
    events = one.take_events()
    assert [(event.key, event.value) for event in events] == [("k", "2"), ("other", "1")]
    assert {event.revision for event in events} == {second.revision}
    assert world.done(one, known, [put("third")]).state == REFUSED


def test_o1_of_all_who_compare_and_set_at_once_one_wins(world: World) -> None:
    members = [world.join(f"{name}/1") for name in "abc"]
    copies = [Copy(member) for member in members]
    rng = Random(SEED)
    wins = 0
    for _ in range(8):
        for copy in copies:
            world.barrier(copy.member)
            copy.take()
        asked = [
            member.propose(
                [Condition("count", copy.revisions.get("count", ABSENT))],
                [put("count", str(int(copy.keys.get("count", "0")) + 1))],
            )
            for member, copy in rng.sample(list(zip(members, copies, strict=True)), 3)
        ]
        world.wait(lambda asked=asked: all(one.done for one in asked))  # type: ignore[misc]
        assert sorted(one.state for one in asked) == [ACCEPTED, REFUSED, REFUSED]
        wins += 1
    for copy in copies:
        world.barrier(copy.member)
        copy.take()
        assert copy.keys == {"count": str(wins)}


def test_news_of_others_and_of_what_was_asked_is_announced_until_it_is_taken(world: World) -> None:
    """A busy node does not look without it."""
    one, other = world.join("a/1"), world.join("b/1")
    asked = one.propose([], [put("k")])
    for member in (one, other):
        events: list[tuple[str, str | None, bool]] = []
        while not events:
            world.pass_time()
            if member.has_news():
                events = shapes(member)
            if isinstance(world, SimWorld | EmbeddedWorld):
                member.tick(world.now_ms)
        assert events == [("k", "1", True)]
    world.wait(lambda: asked.done)  # the answer and the news come each by a way of its own
    assert asked.state == ACCEPTED


# -- O2 ---------------------------------------------------------------------------------------


def test_o2_everybody_hears_the_same_changes_in_the_same_order(world: World) -> None:
    rng = Random(SEED)
    copies = [Copy(world.join(f"{name}/1")) for name in "ab"]
    names = [f"{part}/{number}" for part in "xy" for number in range(3)]
    asked: list[Proposal] = []
    for number in range(60):
        copy = rng.choice(copies)
        copy.take()
        key = rng.choice(names)
        conditions = []
        if rng.random() < 0.5:
            conditions.append(Condition(key, copy.revisions.get(key, ABSENT)))
        changes = [
            put(key, str(number)),
            Change(key, None),
            Change(key[:2], None, below=True),
        ]
        asked.append(copy.member.propose(conditions, [rng.choice(changes), put("last", key)]))
        if rng.random() < 0.3:
            world.step()
    world.wait(lambda: all(one.done for one in asked))
    late = Copy(world.join("c/1"))
    for copy in copies:
        world.barrier(copy.member)
        copy.take()
    assert copies[0].log == copies[1].log
    assert copies[0].keys == copies[1].keys == late.keys
    accepted = [one for one in asked if one.state == ACCEPTED]
    assert {one.revision for one in accepted} == {revision for revision, _, _ in copies[0].log}
    assert len({one.revision for one in accepted}) == len(accepted)


def test_o2_the_events_begin_behind_the_snapshot(world: World) -> None:
    one = world.join("a/1")
    assert one.snapshot() == []
    first = world.done(one, [], [put("z")])
    before = world.done(one, [], [put("b", "é\n"), put("a", "")])
    again = world.done(one, [], [put("z", "3")])
    two = world.join("b/1")
    snapshot = [(one.key, one.value, one.revision, one.made) for one in two.snapshot()]
    revision = before.revision
    assert snapshot == [
        ("z", "3", again.revision, first.revision),
        ("a", "", revision, revision),
        ("b", "é\n", revision, revision),
    ]
    world.barrier(two)
    assert two.take_events() == []
    world.done(one, [], [Change("a", None)])
    world.barrier(two)
    assert shapes(two) == [("a", None, False)]


def test_o2_below_is_what_begins_with_it_and_nothing_beside(world: World) -> None:
    one = world.join("a/1")
    keys = ["q", "q/", "q/%2F/a", "q/%2F/z", "q/ü", "q/\U0010ffff", "q0", "p/x"]
    assert world.done(one, [], [put(key) for key in keys]).state == ACCEPTED
    one.take_events()
    done = world.done(one, [], [Change("q/", None, below=True), put("r"), Change("no", None)])
    gone = sorted(key for key in keys if key.startswith("q/"))
    assert shapes(one) == [*((key, None, False) for key in gone), ("r", "1", True)]
    two = world.join("b/1")
    assert sorted(entry.key for entry in two.snapshot()) == ["p/x", "q", "q0", "r"]
    assert done.state == ACCEPTED


def test_o2_what_was_made_anew_is_created(world: World) -> None:
    one = world.join("a/1")
    for changes in ([put("k")], [put("k", "2")], [Change("k", None)], [put("k", "3")]):
        world.done(one, [], changes)
    assert shapes(one) == [
        ("k", "1", True),
        ("k", "2", False),
        ("k", None, False),
        ("k", "3", True),
    ]


# -- O3 ---------------------------------------------------------------------------------------


def test_o3_who_is_told_accepted_has_the_events_and_all_before_them(world: World) -> None:
    one, two = world.join("a/1"), world.join("b/1")
    for number in range(10):
        done = world.done(one, [], [put("k", str(number))])
        assert done.state == ACCEPTED
        assert shapes(one)[-1][1] == str(number)
        barrier = world.done(two, [], [])
        assert barrier.revision > done.revision
        assert shapes(two)[-1][1] == str(number)


# -- O4 ---------------------------------------------------------------------------------------


def test_o4_what_is_leased_goes_at_once_when_a_member_leaves(world: World) -> None:
    one, two = world.join("a/1"), world.join("b/1")
    world.done(one, [], [put("mine", leased=True), put("everybody's")])
    world.barrier(two)
    two.take_events()
    one.close()
    heard: list[tuple[str, str | None, bool]] = []
    world.wait(lambda: bool(heard.extend(shapes(two)) or heard), 1000)
    assert heard == [("mine", None, False)]
    assert one.propose([], [put("k")]).state == FAILED
    assert one.why_not()


def test_o4_and_not_before_a_silent_member_could_rely_on_it(world: World) -> None:
    one, two = world.join("a/1"), world.join("b/1")
    world.done(one, [], [put("a", leased=True), put("kept")])
    world.done(one, [], [put("b", leased=True)])
    world.barrier(two)
    two.take_events()
    world.asleep.append(one)
    heard: list[tuple[str, str | None, bool]] = []
    world.wait(lambda: bool(heard.extend(shapes(two)) or heard), world.ttl_ms * 2)
    assert world.now_ms >= one.lease_valid_until_ms() > 0
    assert heard == [("a", None, False), ("b", None, False)]
    world.asleep.remove(one)
    world.wait(one.lease_has_ended)
    world.barrier(two)
    late = one.propose([], [put("late")])
    assert late.state == FAILED
    assert "lease" in late.error
    one.new_lease()
    world.wait(lambda: not one.lease_has_ended())
    assert one.lease_valid_until_ms() > world.now_ms
    world.done(one, [Condition("a", ABSENT)], [put("a", "2", leased=True)])
    assert shapes(one)[-1] == ("a", "2", True)
    world.spend(world.ttl_ms + 500)
    assert not one.lease_has_ended()
    world.wait(lambda: one.lease_valid_until_ms() > world.now_ms)


def test_o4_a_key_belongs_to_who_put_it_last(world: World) -> None:
    one, two = world.join("a/1"), world.join("b/1")
    world.done(one, [], [put("taken over", leased=True), put("freed", leased=True)])
    world.done(two, [], [put("taken over", "2", leased=True), put("freed", "2")])
    one.close()
    world.spend(200)
    world.barrier(two)
    assert [key for key, value, _ in shapes(two) if value is None] == []
    two.close()
    three = world.join("c/1")
    world.wait(
        lambda: (
            "taken over" not in [entry.key for entry in three.snapshot()]
            or ("taken over", None, False) in shapes(three)
        ),
        1000,
    )


# -- what does not fit ------------------------------------------------------------------------


def test_what_is_too_large_fails_and_says_so(world: World) -> None:
    one = world.join("a/1")
    large = world.done(one, [], [put("queues/big", "x" * PROPOSAL_MAX_BYTES)])
    assert large.state == FAILED
    assert "queues/big" in large.error
    assert "too large" in large.error
    many = world.done(one, [], [put(f"k{number}") for number in range(CHANGES_MAX + 1)])
    assert many.state == FAILED
    assert "too many" in many.error
    half = "y" * (PROPOSAL_MAX_BYTES // 2)
    assert world.done(one, [], [put("fits", half)]).state == ACCEPTED
    most = [put(f"k{number}") for number in range(CHANGES_MAX)]
    assert world.done(one, [Condition(one.key, ABSENT) for one in most], most).state == ACCEPTED


@pytest.mark.parametrize(
    "first, second",
    [
        (Change("k/1", "1"), Change("k/1", "2")),
        (Change("k/1", None), Change("k/1", "2")),
        (Change("k/", None, below=True), Change("k/1", "2")),
        (Change("k/1", "2"), Change("k/", None, below=True)),
        (Change("", None, below=True), Change("k/1", "2")),
    ],
)
def test_no_proposal_touches_a_key_twice(world: World, first: Change, second: Change) -> None:
    one = world.join("a/1")
    done = world.done(one, [], [first, Change("between", "1"), second])
    assert done.state == FAILED
    assert "twice" in done.error


def test_a_hundred_at_once(world: World) -> None:
    one = world.join("a/1")
    asked = [one.propose([Condition(f"k{n}", ABSENT)], [put(f"k{n}")]) for n in range(100)]
    world.wait(lambda: all(each.done for each in asked))
    assert {each.state for each in asked} == {ACCEPTED}
    assert len(one.take_events()) == 100


# -- O5, and the simulated one's own tricks ---------------------------------------------------


def test_o5_a_lost_answer_is_uncertain_and_may_have_happened() -> None:
    fates = set()
    for seed in range(SEED, SEED + 40):
        world = SimWorld(seed)
        world.store.loss = 0.4
        one = world.store.join("a/1")
        world.members.append(one)
        asked = one.propose([Condition("k", ABSENT)], [put("k")])
        world.wait(lambda asked=asked: asked.done)  # type: ignore[misc]
        there = "k" in world.store.model.keys
        assert asked.state in (ACCEPTED, UNCERTAIN)
        assert there or asked.state == UNCERTAIN
        fates.add((asked.state, there))
    assert fates == {(ACCEPTED, True), (UNCERTAIN, True), (UNCERTAIN, False)}


def test_who_was_cut_off_gets_the_history_or_the_difference() -> None:
    differences = 0
    for seed in range(SEED, SEED + 30):
        world = SimWorld(seed)
        one = world.join("a/1")
        sim = world.store.join("b/1")
        two = Copy(sim, may_differ=True)
        world.members.append(sim)
        world.done(one, [], [put(key) for key in ("kept", "gone", "anew", "changed")])
        world.barrier(sim)
        two.take()
        sim.cut_off = True
        cut = sim.propose([], [put("k")])
        assert cut.state == FAILED
        assert "cut off" in cut.error
        world.done(one, [], [Change("gone", None), Change("anew", None)])
        world.done(one, [], [put("anew", "2"), put("changed", "2"), put("short")])
        world.done(one, [], [put("changed", "3"), Change("short", None)])
        sim.cut_off = False
        world.barrier(sim)
        two.take()
        assert two.keys == {"kept": "1", "anew": "2", "changed": "3"}
        assert ("anew", None) in [(key, value) for _, key, value in two.log]
        differences += sim.counts["differences"]
    assert 0 < differences < 30


def test_embedded_who_is_behind_the_history_gets_the_difference(tmp_path: Path) -> None:
    world = EmbeddedWorld(str(tmp_path / "coordination.db"), history_kept=3)
    one, two = world.join("a/1"), world.join("b/1")
    copy = Copy(two, may_differ=True)
    world.done(one, [], [put("a"), put("b"), put("c"), put("d")])
    copy.take()
    world.done(one, [], [Change("a", None), Change("b", None)])
    for number in range(5):
        world.done(one, [], [put("c", str(number)), put("b", str(number))])
    copy.take()
    assert copy.keys == {"b": "4", "c": "4", "d": "1"}
    world.done(one, [], [put("d", "2")])
    assert shapes(two) == [("d", "2", False)]
    world.close()


def test_embedded_a_failing_disk_is_said_and_nothing_is_called_refused(tmp_path: Path) -> None:
    world = EmbeddedWorld(str(tmp_path / "coordination.db"))
    one, two = world.join("a/1"), world.join("b/1")
    world.store._db.execute("PRAGMA query_only = ON")
    lost = one.propose([], [put("k")])
    assert lost.state == UNCERTAIN
    assert "Read-only" in lost.error
    assert one.propose([], [put("k")]).state == FAILED
    assert "Read-only" in one.why_not()
    assert two.take_events() == []
    world.step()
    assert two.lease_has_ended()
    assert two.lease_valid_until_ms() == 0
    world.store.close()


def test_a_member_that_is_cut_off_knows_before_the_others_do() -> None:
    world = SimWorld(SEED)
    sim = world.store.join("a/1")
    world.members.append(sim)
    other = world.join("b/1")
    world.done(sim, [], [put("mine", leased=True)])
    sim.cut_off = True
    asked = sim.propose([], [])
    world.wait(lambda: ("mine", None, False) in shapes(other))
    assert world.now_ms >= sim.lease_valid_until_ms()
    assert not sim.lease_has_ended()  # it cannot know yet
    assert asked.state != PENDING
    sim.cut_off = False
    world.wait(sim.lease_has_ended)
    sim.new_lease()
    world.wait(lambda: not sim.why_not())
    world.barrier(sim)


def test_a_simulation_is_its_seed() -> None:
    def run() -> list[tuple[int, str, str | None]]:
        world = SimWorld(SEED)
        copies = [Copy(world.join(name)) for name in ("a/1", "b/1")]
        for number in range(30):
            for copy in copies:
                copy.member.propose([], [put(f"k{number % 7}", str(number))])
                copy.take()
            world.step()
        world.spend(1000)
        copies[0].take()
        return copies[0].log

    assert run() == run()
