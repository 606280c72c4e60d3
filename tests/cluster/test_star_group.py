"""A queue whose confirms need a majority: stories of three copies.

tests/simulation/majority_lives.py has the nodes, and random lives of them.
"""

from __future__ import annotations

from copy import deepcopy

import pytest

from penstock.broker.rules.ha_policy import read_ha_policy
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.queue_views import first_ruled_view
from penstock.cluster.agreement.reigns import BEGINNING, NOWHERE, gave_up_for
from penstock.cluster.mirrors.facts import mirror_facts
from penstock.cluster.mirrors.group_codec import PARCEL
from penstock.cluster.mirrors.telling import BEHIND_BYTES, HAND_OVER_AGAIN_MS
from penstock.cluster.ring.views import NO_VIEW
from tests.backing.engine_tools import message
from tests.cluster.mirror_tools import set_of
from tests.simulation.majority_lives import MajorityLife, Node

LARGE = 300_000


class Story(MajorityLife):
    def __init__(self) -> None:
        super().__init__(1)
        self.a, self.b, self.c = self.nodes
        self.run(*self.nodes)

    def run(self, *nodes: Node, rounds: int = 30) -> None:
        """These are awake."""
        for _ in range(rounds):
            self.now_ms += 100
            for node in nodes:
                node.hear_reign()
                self.carry(node, 1000)
                node.take()
                node.opened.settle(self.now_ms)
                node.confirmed()

    def publish(self, node: Node, size: int = 10) -> int:
        name = len(self.contents) + 1
        self.contents[name] = b"%d:" % name + b"x" * size
        self.new_message = lambda: message(self.contents[name])  # type: ignore[method-assign]
        self.rng.seed(1)  # one message
        node.publish()
        del self.new_message
        return name

    def contents_of(self, node: Node) -> set[int]:
        return {self.names[seq_id] for seq_id in set_of(node.queue, self.now_ms)}

    def elect(self, *nodes: Node) -> None:
        for node in nodes:
            node.hear_reign()
            node.vote()
        self.run(*nodes)

    def unanswered(self, node: Node) -> int:
        waiting = [parcels for ends, parcels in self.links.items() if ends[1] == node.member]
        return sum(len(parcel) for parcels in waiting for parcel in parcels)


def test_a_copy_that_stands_still_delays_no_confirm() -> None:
    story = Story()
    names = {story.publish(story.a) for _ in range(5)}
    story.run(story.a, story.b)
    assert set(story.confirmed) == names


def test_nothing_is_confirmed_without_a_majority() -> None:
    story = Story()
    name = story.publish(story.a)
    story.run(story.a)
    assert not story.confirmed
    story.run(story.a, story.c)
    assert set(story.confirmed) == {name}


def test_a_late_copy_is_named_and_holds_publishers_only_if_no_majority_is_prompt() -> None:
    story = Story()
    safe = story.a.group.safe
    story.publish(story.a)
    story.run(story.a, story.b, rounds=7)
    assert safe.late() == [("c/1", "it has taken nothing for 0.6 s")]
    assert safe.latest() == ("", "")
    members = {node: f"{node}/1" for node in "abc"}
    there = LivingNodes("a/1", members, {})
    view, policy = first_ruled_view("a/1", tuple(members), tuple(members)), read_ha_policy({})
    asked = view, NO_VIEW, story.a.group, policy, story.now_ms
    assert mirror_facts(*asked, sync_wanted=False, nodes=there).why == (
        "c: it has taken nothing for 0.6 s"
    )
    story.publish(story.a)
    story.run(story.a, rounds=9)
    late = [("c/1", "it has taken nothing for 1.5 s"), ("b/1", "it has taken nothing for 0.8 s")]
    assert safe.late() == late
    assert safe.latest() == late[0]
    story.run(*story.nodes)
    assert (safe.late(), safe.latest()) == ([], ("", ""))


def test_a_copy_left_behind_costs_a_bounded_memory_and_fetches_what_it_missed() -> None:
    story = Story()
    for _ in range(30):
        story.publish(story.a, LARGE)
        story.run(story.a, story.b, rounds=4)
    assert len(story.confirmed) == 30
    assert BEHIND_BYTES < story.unanswered(story.c) < BEHIND_BYTES + 3 * LARGE
    assert story.a.group.telling.lines["c/1"].is_behind
    story.run(*story.nodes)
    assert len(story.contents_of(story.c)) == 30
    assert story.c.group.positions.holding() == story.a.group.positions.holding()
    joiner = story.c.group.joiner
    assert joiner is not None
    assert 0 < joiner.received_count < 20


def test_under_a_new_master_a_copy_with_the_same_goes_on_and_fetches_nothing() -> None:
    story = Story()
    for _ in range(3):
        story.publish(story.a)
    story.run(*story.nodes)
    story.elect(*story.nodes)
    [master] = story.masters()
    assert master.term == 2
    for node in story.nodes:
        joiner = node.group.joiner
        assert (joiner is None) is (node is master)
        assert joiner is None or (joiner.is_done() and joiner.received_bytes == 0)
        assert story.contents_of(node) == {1, 2, 3}


@pytest.mark.parametrize("is_known", [False, True])
def test_a_disk_that_is_put_back_from_a_backup_elects_none_before_it_has_caught_up(
    is_known: bool,
) -> None:
    """Message 2 was confirmed by a and by b, whose disk is put back to what it was before."""
    story = Story()
    a, b, c = story.nodes
    story.publish(a)
    story.run(a, b, c)
    backup = deepcopy(b.files)
    name = story.publish(a)
    story.run(a, b)
    assert name in story.confirmed
    for node in (a, b):
        story.crash(node)
    b.files, b.is_old = backup, is_known
    b.start()
    if not is_known:
        with pytest.raises(AssertionError, match=r"confirmed and lost: \[2\]"):
            story.elect(b, c)
        return
    story.elect(b, c)
    assert not story.masters()
    assert b.group.holding() is None
    a.start()
    story.elect(a)
    story.run(a, b, c)
    assert story.contents_of(b) == {1, 2}
    assert b.group.holding() == a.group.holding()


def test_a_master_that_voted_confirms_nothing_more() -> None:
    story = Story()
    name = story.publish(story.a)
    story.a.take()
    story.a.vote()
    story.run(*story.nodes)
    assert name not in story.confirmed
    assert story.a.group.mirrored is None
    assert story.a.group.why_stopped() == ""


def test_a_former_master_gives_up_what_nobody_else_heard() -> None:
    story = Story()
    kept = story.publish(story.a)
    story.run(*story.nodes)
    story.publish(story.a)
    story.a.take()
    story.a.opened.settle(story.now_ms)
    story.a.stop(power_cut=False)
    story.elect(story.b, story.c)
    story.a.start()
    assert len(story.contents_of(story.a)) == 2
    story.run(*story.nodes)
    assert story.counts["given up"] == 1
    assert story.contents_of(story.a) == {kept}


def test_a_copy_that_comes_back_fetches_what_differs_and_had_a_vote_all_the_time() -> None:
    story = Story()
    for _ in range(5):
        story.publish(story.a)
    story.run(*story.nodes)
    story.c.stop(power_cut=True)
    story.publish(story.a)
    story.a.queue.ack(story.a.queue.fetch(1, 1 << 30))
    story.run(story.a, story.b)
    story.c.start()
    holding = story.c.group.holding()
    assert holding is not None
    assert holding.complete.number > 0
    story.run(*story.nodes)
    joiner = story.c.group.joiner
    assert joiner is not None
    assert joiner.received_count == 1
    assert story.contents_of(story.c) == story.contents_of(story.a)


def test_a_master_hands_over_to_no_copy_that_still_fetches() -> None:
    """Its disk said before that it is complete in this term; another copy would be elected."""
    story = Story()
    story.publish(story.a)
    story.run(*story.nodes)
    story.c.stop(power_cut=False)
    for _ in range(40):
        story.publish(story.a)
    story.run(story.a, story.b)
    story.c.start()
    story.reigns.append(story.reigns[-1].favouring("c"))
    story.now_ms += -story.now_ms % HAND_OVER_AGAIN_MS - 100
    story.run(*story.nodes, rounds=3)
    assert story.c.group.has_role()
    assert story.c.group.holding() != story.b.group.holding()
    assert not story.a.is_level
    while not story.a.is_level:
        story.run(*story.nodes, rounds=1)
    assert story.c.group.holding() == story.b.group.holding()


def test_an_empty_disk_has_no_vote_before_it_has_fetched_all() -> None:
    story = Story()
    story.publish(story.a)
    story.run(*story.nodes)
    story.c.stop(power_cut=True)
    story.c.files = type(story.c.files)()
    story.c.start()
    assert story.c.group.holding() is None
    assert story.c.group.positions.holding() == (NOWHERE, BEGINNING)
    story.run(*story.nodes)
    assert story.c.group.holding() is not None


def test_a_new_copy_asks_for_a_sync_of_what_it_begins_with() -> None:
    story = Story()
    story.c.stop(power_cut=True)
    story.c.files = type(story.c.files)()
    story.c.start()
    assert not story.c.group.awaits_disk()
    story.c.group.positions.begin_new()
    assert story.c.group.awaits_disk()
    story.c.opened.commit()
    assert not story.c.group.awaits_disk()


def test_a_copy_that_gave_up_elects_the_master_for_which_it_did() -> None:
    """The others are complete nowhere when that falls, and it alone comes back."""
    story = Story()
    kept = story.publish(story.a)
    story.run(*story.nodes)
    story.publish(story.a)
    story.a.take()
    story.a.opened.settle(story.now_ms)
    story.a.stop(power_cut=False)
    story.elect(story.b, story.c)
    [master] = story.masters()
    other = story.c if master is story.b else story.b
    other.stop(power_cut=True)
    story.a.start()
    while not story.counts["given up"]:
        story.run(master, story.a, rounds=1)
    story.a.opened.commit()
    story.a.stop(power_cut=True)
    master.stop(power_cut=True)
    story.a.start()
    assert story.a.group.holding() == (gave_up_for(2), BEGINNING)
    master.start()
    story.elect(story.a, master)
    assert story.masters() == [master]
    assert story.contents_of(master) == story.contents_of(story.a) == {kept}


def test_what_is_said_of_an_earlier_queue_of_that_name_is_not_heard() -> None:
    story = Story()
    name = story.publish(story.a)
    story.a.take()
    [parcel] = [data for data in story.links["a/1", "b/1"] if data[0] == PARCEL]
    story.b.group.receive("a/1", "life0", parcel)
    assert story.contents_of(story.b) == set()
    story.b.group.receive("a/1", story.b.group.name, parcel)
    assert story.contents_of(story.b) == {name}
