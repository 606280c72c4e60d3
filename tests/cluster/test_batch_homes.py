"""Batches from Spark in a cluster: each is published by one node, whichever is asked.

Two nodes with staging and a common coordinator; a program stages and commits at either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock.cluster.agreement.batch_homes import BatchHomes, claim_from_json, claim_to_json
from penstock.cluster.agreement.coordinator import Change, Event
from penstock.core.errors import Corrupt
from penstock_ranges import frames as rf
from penstock_ranges import staging
from tests.helpers.quiet_cluster import QuietMembers
from tests.helpers.range_pair import Answered, StagingEnd, add_user, bodies_in, publishes

PRODUCER = "p"
KEY = ("/", "guest", PRODUCER)


class Homes(QuietMembers):
    def __init__(self, directory: Path) -> None:
        self.homes: dict[str, BatchHomes] = {}
        super().__init__(directory)

    def start(self, name: str) -> None:
        super().start(name)
        common = self.common[name]
        self.homes[name] = homes = BatchHomes(
            self.quiet[name].broker,
            common.changes.coordinator,
            self.memberships[name],
            lambda: self.now_ms,
        )
        self.quiet[name].broker.staging.claims = homes
        self.run()

    def kill(self, name: str) -> None:
        del self.homes[name]
        super().kill(name)

    def heard(self, name: str, events: Sequence[Event]) -> None:
        super().heard(name, events)
        if name in self.homes:
            self.homes[name].told(events)
            self.homes[name].turn(self.now_ms)
            self.homes[name].check()

    def end(self, name: str, user: str = "guest") -> StagingEnd:
        return StagingEnd(self.quiet[name], user)

    def commit(self, at: StagingEnd, batch: int, sets: list[str], run: str = "r1") -> int:
        at.ask_commit(batch, sets, PRODUCER, run)
        for _ in range(20):
            self.run(5)
            at.session.tick(self.now_ms)
            self.run(5)
        return staging.decode_committed(at.expect(staging.COMMITTED)).outcome

    def put(self, key: str, value: str | None) -> None:
        coordinator = self.common["a"].changes.coordinator
        coordinator.propose([], [Change(key, value)])
        self.run()

    def claim(self, name: str) -> tuple[int, str, bool]:
        claim = self.homes[name].claims[KEY]
        return claim.batch, claim.node, claim.done


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Homes]:
    cluster = Homes(tmp_path)
    cluster.quiet["a"].client().method(1, "queue.declare", queue="q", durable=True, arguments={})
    cluster.run()
    yield cluster
    for quiet in cluster.quiet.values():
        quiet.definitions.close()


def test_a_batch_that_one_node_published_is_a_duplicate_at_the_other(cluster: Homes) -> None:
    first = cluster.end("a")
    assert cluster.commit(first, 0, [first.stage(0, "q", [b"x"])]) == staging.DONE
    assert cluster.claim("b") == (0, "a", True)
    other = cluster.end("b")
    assert other.begin(0) == ""
    assert cluster.commit(other, 0, []) == staging.DUPLICATE
    assert cluster.commit(other, 1, [other.stage(1, "q", [b"y"])]) == staging.DONE
    assert cluster.claim("a") == (1, "b", True)
    assert first.begin(1) == ""
    assert bodies_in(cluster.quiet["a"], "q") == [b"x"]
    assert bodies_in(cluster.quiet["b"], "q") == [b"y"]


def test_what_is_staged_and_not_committed_binds_nobody(cluster: Homes) -> None:
    lost = cluster.end("a")
    lost.stage(0, "q", [b"x"])
    other = cluster.end("b")
    assert cluster.commit(other, 0, [other.stage(0, "q", [b"x"])]) == staging.DONE
    assert cluster.claim("a") == (0, "b", True)


def test_sets_that_were_overtaken_are_dropped_when_somebody_commits_them(cluster: Homes) -> None:
    late, other = cluster.end("a"), cluster.end("b")
    name = late.stage(0, "q", [b"x"])
    assert cluster.commit(other, 0, [other.stage(0, "q", [b"x"])]) == staging.DONE
    assert cluster.commit(late, 0, [name]) == staging.DUPLICATE
    assert cluster.quiet["a"].broker.staging.totals()["sets"] == 0
    assert bodies_in(cluster.quiet["a"], "q") == []


def test_of_two_that_commit_the_same_batch_at_once_one_publishes(cluster: Homes) -> None:
    ends = [cluster.end("a"), cluster.end("b")]
    for end in ends:
        end.ask_commit(0, [end.stage(0, "q", [b"x"])], turn=False)
    for _ in range(20):
        cluster.run(5)
        for end in ends:
            end.session.tick(cluster.now_ms)
    outcomes = []
    for end in ends:
        try:
            outcomes.append(staging.decode_committed(end.expect(staging.COMMITTED)).outcome)
        except Answered as refused:
            outcomes.append(-refused.code)
    assert staging.DONE in outcomes
    assert outcomes.count(staging.DONE) == 1, outcomes
    assert set(outcomes) <= {staging.DONE, staging.DUPLICATE, -rf.ELSEWHERE}


def claimed(cluster: Homes, node: str) -> None:
    """Batch 0, by a node that dies before it decides, or publishes."""
    homes = cluster.homes[node]
    homes.claim(KEY, 0, cluster.end(node).session)
    cluster.run()
    assert cluster.claim("b") == (0, node, False)


def test_a_batch_another_node_is_publishing_is_asked_for_there(cluster: Homes) -> None:
    claimed(cluster, "a")
    with pytest.raises(Answered, match="committed at 'a': ask there") as refused:
        cluster.end("b").begin(0)
    assert refused.value.code == rf.ELSEWHERE
    home = cluster.end("a")
    assert cluster.commit(home, 0, [home.stage(0, "q", [b"x"])]) == staging.DONE
    assert cluster.end("b").begin(0) == ""


def test_a_batch_waits_for_the_node_that_has_claimed_it(cluster: Homes) -> None:
    """Whether it was decided, and how much of it was published, is on that disk."""
    homes = cluster.homes["b"]
    homes.claim(KEY, 0, cluster.end("b").session)
    cluster.run()
    cluster.lose("b")
    with pytest.raises(Answered, match="which is down") as refused:
        cluster.end("a").begin(0)
    assert refused.value.code == rf.NO_MASTER
    with pytest.raises(Answered, match="which is down"):
        cluster.commit(cluster.end("a"), 0, [])
    cluster.start("b")
    back = cluster.end("b")
    assert cluster.commit(back, 0, [back.stage(0, "q", [b"x"])]) == staging.DONE
    assert cluster.end("a").begin(0) == ""


def test_who_goes_on_with_the_next_batch_has_heard_that_the_last_one_is_done(
    cluster: Homes,
) -> None:
    claimed(cluster, "a")
    other = cluster.end("b")
    assert other.begin(1) != ""
    assert other.block(publishes("", "q", [b"y"])) == ""


def test_a_commit_of_unknown_sets_claims_nothing(cluster: Homes) -> None:
    with pytest.raises(Answered, match="no finished staged set 'none'") as refused:
        cluster.commit(cluster.end("a"), 0, ["none"])
    assert refused.value.code == rf.NOT_FOUND
    assert KEY not in cluster.homes["a"].claims


def test_an_older_run_is_fenced_before_it_claims(cluster: Homes) -> None:
    end = cluster.end("a")
    name = end.stage(0, "q", [b"x"])
    assert end.begin(0, run="r2") != ""
    with pytest.raises(Answered, match="has taken over"):
        cluster.commit(cluster.end("a"), 0, [name])
    assert KEY not in cluster.homes["a"].claims


def test_a_claim_of_a_node_that_was_forgotten_is_void(cluster: Homes) -> None:
    homes = cluster.homes["b"]
    homes.claim(KEY, 0, cluster.end("b").session)
    cluster.run()
    cluster.lose("b")
    conditions, changes = cluster.memberships["a"].forgetting("b")
    cluster.common["a"].changes.coordinator.propose(conditions, changes)
    cluster.run()
    end = cluster.end("a")
    assert cluster.commit(end, 0, [end.stage(0, "q", [b"x"])]) == staging.DONE
    assert cluster.claim("a") == (0, "a", True)


def test_what_was_decided_before_there_were_claims_is_told(cluster: Homes) -> None:
    staging_there = cluster.quiet["a"].broker.staging
    del cluster.homes["a"]
    staging_there.claims = type(staging_there.claims).__mro__[1]()  # as on a node that is alone
    end = cluster.end("a")
    done = end.commit(7, [end.stage(7, "q", [b"x"])])
    assert done.outcome == staging.DONE
    common = cluster.common["a"]
    cluster.homes["a"] = BatchHomes(
        cluster.quiet["a"].broker,
        common.changes.coordinator,
        cluster.memberships["a"],
        lambda: cluster.now_ms,
    )
    cluster.run(300)
    assert cluster.claim("b") == (7, "a", True)


def test_claims_go_with_their_producers(cluster: Homes) -> None:
    end = cluster.end("a")
    assert cluster.commit(end, 0, [end.stage(0, "q", [b"x"])]) == staging.DONE
    for name in ("a", "b"):
        cluster.quiet[name].broker.staging.producer_ttl_ms = 5000
    cluster.run(1000)
    assert all(KEY not in one.claims for one in cluster.homes.values())


def test_of_too_many_claims_those_go_whose_producers_are_forgotten(
    cluster: Homes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever forgets a producer publishes its batch again, on a single node, too."""
    end = cluster.end("a")
    for batch in range(3):
        assert cluster.commit(end, batch, [end.stage(batch, "q", [b"x"])]) == staging.DONE
    cluster.quiet["a"].broker.staging.producers.forget(KEY)
    cluster.run(300)
    assert cluster.claim("b") == (2, "a", True), "one is not too many"
    monkeypatch.setattr("penstock.cluster.agreement.batch_homes.CLAIMS_MAX", 0)
    cluster.run(300)
    assert all(one.claims == {} for one in cluster.homes.values())


@pytest.fixture
def eves(cluster: Homes) -> Homes:
    for quiet in cluster.quiet.values():
        if "eve" not in quiet.broker.users.users:
            add_user(quiet, "eve")
    cluster.run()
    return cluster


def test_another_nodes_batches_are_told_to_their_user_only(eves: Homes) -> None:
    """Nor does another user's claim keep a producer of its name from committing."""
    first = eves.end("a")
    assert eves.commit(first, 7, [first.stage(7, "q", [b"x"])]) == staging.DONE
    assert eves.end("b").begin(7) == ""
    for node in ("a", "b"):
        eve = eves.end(node, "eve")
        assert eve.last() == -1
        assert eve.begin(7) != ""
    eve = eves.end("b", "eve")
    assert eves.commit(eve, 7, [eve.stage(7, "q", [b"e"])]) == staging.DONE
    assert eves.commit(first, 8, [first.stage(8, "q", [b"y"])]) == staging.DONE
    assert eves.end("b").begin(8) == ""


@pytest.mark.parametrize("done", [True, False])
def test_a_claim_without_its_user_counts_until_its_node_has_told_it(
    cluster: Homes, done: bool
) -> None:
    """As releases before wrote it: not published again, nor lost."""
    end = cluster.end("a")
    assert cluster.commit(end, 3, [end.stage(3, "q", [b"x"])]) == staging.DONE
    other = cluster.end("b")
    assert cluster.commit(other, 2, []) == staging.DUPLICATE  # b knows the producer, and less
    cluster.put("batches/%2F/p", claim_to_json(3, "a", done, cluster.now_ms))
    cluster.put("batches/%2F/guest/p", None)
    for homes in cluster.homes.values():
        assert list(homes.claims) == [("/", "", PRODUCER)]
    if done:
        assert cluster.end("b").begin(3) == ""
    else:
        with pytest.raises(Answered, match="committed at 'a': ask there"):
            cluster.end("b").begin(3)
    assert cluster.end("b").begin(2) == ""
    for name in ("b", "a"):
        cluster.kill(name)
        cluster.start(name)
        cluster.run(300)
        assert (KEY in cluster.homes[name].claims) is (name == "a")
    assert cluster.claim("b") == (3, "a", True)


def test_a_claim_is_read_as_it_was_written() -> None:
    claim = claim_from_json("batches/%2F/p", claim_to_json(3, "a", True, 17), 5)
    assert (claim.batch, claim.node, claim.done, claim.at_ms, claim.revision) == (
        3,
        "a",
        True,
        17,
        5,
    )


@pytest.mark.parametrize("value", ['{"v":2}', '{"v":1}', "[]", '{"v":1,"batch":0,"odd":1}'])
def test_a_claim_that_is_not_understood_is_not_guessed(value: str) -> None:
    with pytest.raises(Corrupt, match="batches/%2F/p"):
        claim_from_json("batches/%2F/p", value, 5)
