"""What a node that stands alone says of mirrors, and what can be read off the facts of a queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.broker.mirrors import MASTER, MIRROR, CopyFacts, MirrorFacts, NotMirrored
from penstock.queues.queue import Queue
from tests.helpers.connection_pair import QuietBroker

HERE, THERE, THIRD = "penstock@a", "penstock@b", "penstock@c"


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


@pytest.fixture
def queue(node: QuietBroker) -> Queue:
    node.client().call("queue.declare", queue="orders", durable=True)
    return node.broker.vhosts["/"].queue("orders")


def copies(*synced: bool) -> list[CopyFacts]:
    """The master on ``HERE``, then a mirror for each of these."""
    nodes = (THERE, THIRD)[: len(synced)]
    mirrors = [
        CopyFacts(name, f"{name}/1", MIRROR, synced=is_synced)
        for name, is_synced in zip(nodes, synced, strict=True)
    ]
    return [CopyFacts(HERE, f"{HERE}/1", MASTER, synced=True), *mirrors]


def test_alone_no_queue_is_mirrored(node: QuietBroker, queue: Queue) -> None:
    mirrors = node.broker.mirrors
    assert mirrors.mirrored() == []
    assert mirrors.facts(queue) is None
    assert mirrors.drained() == []


def test_alone_what_needs_mirrors_is_refused(node: QuietBroker, queue: Queue) -> None:
    mirrors = node.broker.mirrors
    with pytest.raises(NotMirrored, match="queue 'orders' in vhost '/' is not mirrored"):
        mirrors.sync(queue)
    with pytest.raises(NotMirrored, match="is not mirrored"):
        mirrors.hand_over(queue, THERE)


def test_alone_nothing_is_fetched_and_nothing_moves(node: QuietBroker, queue: Queue) -> None:
    mirrors = node.broker.mirrors
    assert not mirrors.cancel_sync(queue)
    assert mirrors.rebalance(".*", ".*") == []


def test_whoever_has_a_copy_and_is_no_master_can_be_recovered() -> None:
    facts = MirrorFacts(7, 2, copies(True, False), {"penstock@d": "partial"})
    assert facts.master() == HERE
    assert facts.slave_nodes() == [THERE, THIRD]
    assert facts.synchronised_slave_nodes() == [THERE]
    assert facts.recoverable_slaves() == [THERE, THIRD, "penstock@d"]


def test_a_queue_that_is_down_has_no_master() -> None:
    facts = MirrorFacts(7, 2, [], {HERE: "synced"})
    assert facts.master() == ""
    assert facts.slave_nodes() == []
    assert facts.recoverable_slaves() == [HERE]


@pytest.mark.parametrize(
    "synced, critical", [((), True), ((False,), True), ((True,), False), ((False, True), False)]
)
def test_a_master_without_a_synchronised_mirror_is_critical(
    synced: tuple[bool, ...], critical: bool
) -> None:
    facts = MirrorFacts(1, 1, copies(*synced), {})
    assert facts.is_sync_critical(HERE) is critical
    assert not facts.is_sync_critical(THERE)


@pytest.mark.parametrize(
    "synced, critical", [((True, True), False), ((True, False), True), ((False, False), True)]
)
def test_without_a_node_a_quorum_queue_lacks_a_majority_of_copies_that_have_everything(
    synced: tuple[bool, ...], critical: bool
) -> None:
    found = [replace(copy, votes=True) for copy in copies(*synced)]
    facts = MirrorFacts(1, 1, found, {}, members=(HERE, THERE, THIRD))
    assert facts.is_quorum_critical(HERE) is critical
    assert facts.is_quorum_critical(THIRD) is (critical and synced[1])
