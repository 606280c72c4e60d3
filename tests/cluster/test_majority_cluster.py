"""Quorum queues on a simulated cluster of whole nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from penstock.broker.administration import Administration
from penstock.cluster.agreement.queue_views import QueueView
from penstock.cluster.mirrors.star_group import StarGroup
from penstock.core.errors import PreconditionFailed
from penstock.node.data_dir import FROM_BACKUP
from penstock.storage.definitions.records import VhostMetadata
from tests.cluster.sim_cluster import SimCluster, started
from tests.helpers.requests import Request
from tests.simulation.cluster_nodes import Machine

NAMES = ("a@h", "b@h", "c@h")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    with started(tmp_path, NAMES) as cluster:
        cluster.pass_ms(3000)
        cluster.declare(cluster.machines[0], "q", **{"x-queue-type": "quorum"})
        yield cluster


def view(cluster: SimCluster) -> QueueView:
    views = []
    for machine in cluster.world.ready():
        known = machine.cluster.mirrors.mirroring.queues.get(("/", "q"))
        if known is not None and known.view is not None:
            views.append(known.view)
    return max(views, key=lambda view: view.version)


def test_three_copies_confirm(cluster: SimCluster) -> None:
    reign = view(cluster).reign
    assert reign is not None
    assert sorted(reign.copies) == list(NAMES)
    cluster.publish(cluster.machines[0], "q", 20)
    cluster.publish(cluster.machines[1], "q", 20)


def test_a_virtual_host_has_quorum_queues_by_default_on_every_node(cluster: SimCluster) -> None:
    broker = cluster.machines[1].quiet.broker
    named = VhostMetadata(default_queue_type="quorum")
    puts = Request(broker.changes.ask(), lambda: Administration(broker, 64).put_vhost("/", named))
    cluster.until(puts.is_decided)
    cluster.declare(cluster.machines[2], "plain")
    for machine in cluster.machines:
        queue = machine.queue("plain")
        assert queue is not None
        assert queue.is_quorum
        facts = machine.quiet.broker.mirrors.facts(queue)
        assert facts is not None
        assert sorted(facts.members) == list(NAMES)
        assert facts.online() == list(facts.members)


def master(cluster: SimCluster) -> str:
    return view(cluster).master.partition("/")[0]


class Publisher:
    """Of messages that are published again until they are confirmed."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.count = 0

    def publish(self, at: int, count: int) -> int:
        """Returns how long it took, in ms."""
        started_ms = self.cluster.world.now_ms
        client = self.cluster.machines[at].client()
        client.call("confirm.select")
        open_ones: dict[int, bytes] = {}
        tag = 0
        waiting = [b"%d" % number for number in range(self.count, self.count + count)]
        self.count += count

        def are_confirmed() -> bool:
            nonlocal tag
            while waiting:
                tag += 1
                open_ones[tag] = waiting.pop(0)
                client.publish("", "q", open_ones[tag], delivery_mode=2, run=False)
            for name, fields in client.methods():
                upto = fields["delivery_tag"]
                first = 1 if fields["multiple"] else upto
                for one in [one for one in open_ones if first <= one <= upto]:
                    body = open_ones.pop(one)
                    if name == "basic.nack":
                        waiting.append(body)
            return not open_ones and not waiting

        self.cluster.until(are_confirmed)
        client.drop()
        return self.cluster.world.now_ms - started_ms

    def check(self, at: int) -> None:
        """All of it is there."""
        client = self.cluster.machines[at].client()
        client.consume("q", no_ack=True)
        found: set[bytes] = set()

        def have_all() -> bool:
            found.update(client.bodies())
            return len(found) == self.count

        self.cluster.until(have_all)
        client.drop()


@pytest.fixture
def publisher(cluster: SimCluster) -> Publisher:
    publisher = Publisher(cluster)
    publisher.publish(0, 20)
    return publisher


@pytest.mark.parametrize("which", [0, 1, 2])
def test_any_node_dies(cluster: SimCluster, publisher: Publisher, which: int) -> None:
    cluster.machines[which].kill(power_cut=True)
    publisher.publish((which + 1) % 3, 20)
    assert master(cluster) != cluster.machines[which].name
    cluster.machines[which].start()
    publisher.publish(which, 20)
    publisher.check(which)


def test_nodes_die_one_after_the_other_and_all_at_once(
    cluster: SimCluster, publisher: Publisher
) -> None:
    for which in (0, 1, 2, 0, 1, 2):
        cluster.machines[which].kill(power_cut=True)
        publisher.publish((which + 1) % 3, 5)
        cluster.machines[which].start()
        cluster.pass_ms(3000)
    for machine in cluster.machines:
        machine.kill(power_cut=True)
    for machine in cluster.machines:
        machine.start()
    publisher.publish(2, 10)
    publisher.check(1)


@pytest.mark.parametrize("late", [1, 2])
def test_all_nodes_fall_right_after_a_declaration(
    cluster: SimCluster, late: int, publisher: Publisher
) -> None:
    """Before some of them heard of it: it has a leader when they are back."""
    for machine in cluster.machines[-late:]:
        machine.paused_until_ms = cluster.world.now_ms + 100_000
    client = cluster.machines[0].client()
    declared = {"durable": True, "arguments": {"x-queue-type": "quorum"}}
    client.method(1, "queue.declare", queue="young", **declared)
    mirrored = cluster.machines[0].cluster.mirrors.mirroring.queues
    cluster.until(lambda: ("/", "young") in mirrored)
    cluster.pass_ms(100)
    for machine in cluster.machines:
        machine.kill(power_cut=True)
    for machine in cluster.machines:
        machine.start()
    cluster.pass_ms(3000)
    cluster.publish(cluster.machines[1], "young", 5)
    publisher.publish(0, 5)
    publisher.check(1)


def test_a_node_from_a_backup_votes_when_it_has_caught_up(
    cluster: SimCluster, publisher: Publisher
) -> None:
    marker = Path(cluster.world.settings.data_dir) / FROM_BACKUP
    leader = next(one for one in cluster.machines if one.name == master(cluster))
    restored, other = [one for one in cluster.machines if one is not leader]
    for machine in (restored, leader):
        machine.kill(power_cut=True)
    marker.parent.mkdir(exist_ok=True)
    marker.touch()
    restored.start()
    cluster.pass_ms(8000)
    assert marker.exists()
    for machine in (restored, other):
        queue = machine.queue("q")
        assert queue is not None
        assert queue.remote, "no leader can be elected"
    marker.rename(marker.with_suffix(".away"))
    leader.start()
    marker.with_suffix(".away").rename(marker)
    publisher.publish(0, 5)
    cluster.until(lambda: not marker.exists())
    leader.kill(power_cut=True)
    publisher.publish(cluster.machines.index(other), 5)
    leader.start()
    publisher.check(0)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_any_node_stands_still(cluster: SimCluster, publisher: Publisher, which: int) -> None:
    """A copy that does holds up no publisher; a master until the others do not hear it."""
    paused = cluster.machines[which]
    leads = master(cluster) == paused.name
    paused.paused_until_ms = cluster.world.now_ms + 20_000
    took_ms = publisher.publish((which + 1) % 3, 20)
    assert took_ms < 1500 if leads else took_ms < 500
    assert (master(cluster) != paused.name) or not leads
    cluster.pass_ms(22_000)
    publisher.publish(which, 20)
    publisher.check(which)


def test_a_copy_whose_link_takes_nothing_is_left_behind(
    cluster: SimCluster, publisher: Publisher
) -> None:
    """Its master's memory is bounded by the link, whatever is published."""
    leader = next(one for one in cluster.machines if one.name == master(cluster))
    left, other = [one for one in cluster.machines if one is not leader]
    session = leader.cluster.peers.links[left.name].session  # type: ignore[attr-defined]
    session.limit_bytes = 4000
    cluster.world.network.cut_one_way(leader.name, left.name)
    publisher.publish(cluster.machines.index(other), 1)
    while not session.is_full():
        publisher.publish(cluster.machines.index(other), 10)
    waiting_bytes = session.waiting_bytes
    publisher.publish(cluster.machines.index(other), 100)
    assert session.waiting_bytes < waiting_bytes + 1000
    [group] = leader.cluster.mirrors.mirroring.queues[("/", "q")].groups()
    assert isinstance(group, StarGroup)
    assert group.telling.lines[left.cluster.member].is_behind
    cluster.world.network.heal()
    cluster.until(lambda: not group.telling.lines[left.cluster.member].is_behind)
    publisher.publish(cluster.machines.index(left), 1)
    publisher.check(cluster.machines.index(left))


def test_copies_are_taken_out_and_put_in_again(cluster: SimCluster, publisher: Publisher) -> None:
    leader = next(one for one in cluster.machines if one.name == master(cluster))
    queue = leader.queue("q")
    assert queue is not None
    mirrors = leader.quiet.broker.mirrors
    for wanted in ([leader.name], list(NAMES)):
        ask = leader.quiet.broker.changes.ask()
        wants = Request(ask, lambda wanted=wanted: mirrors.want_copies(queue, wanted))  # type: ignore[misc]
        cluster.until(wants.is_decided)

        def are_so(wanted: list[str] = wanted) -> bool:
            reign = view(cluster).reign
            return reign is not None and sorted(reign.copies) == sorted(wanted)

        cluster.until(are_so)
        publisher.publish(1, 5)
        facts = mirrors.facts(queue)
        assert facts is not None
        assert sorted(one.node for one in facts.copies if one.synced) == sorted(wanted)
        assert facts.master() == leader.name
    with pytest.raises(PreconditionFailed, match="drain its node first"):
        mirrors.want_copies(queue, [one for one in NAMES if one != leader.name])
    publisher.check(0)


def test_a_queue_without_a_leader_keeps_no_client_waiting(
    cluster: SimCluster, publisher: Publisher
) -> None:
    """Its leader and another node fall: gets end with 404, publishes are refused; not when both
    are back."""
    leader = next(one for one in cluster.machines if one.name == master(cluster))
    left, other = [one for one in cluster.machines if one is not leader]
    client = left.client()
    client.call("confirm.select")
    for machine in (leader, other):
        machine.kill(power_cut=True)
    cluster.pass_ms(1000)
    client.publish("", "q", b"lost", delivery_mode=2, run=False)
    client.method(1, "basic.get", queue="q")
    said: list[tuple[str, object]] = []

    def is_told() -> bool:
        said.extend((name, fields.get("code")) for name, fields in client.methods())
        return ("channel.close", 404) in said

    cluster.until(is_told)
    assert said[0][0] == "basic.nack"
    for machine in (leader, other):
        machine.start()
    cluster.pass_ms(3000)
    publisher.publish(cluster.machines.index(left), 5)
    client.drop()


def test_a_copy_that_comes_back_is_synchronised_when_it_has_said_so(
    cluster: SimCluster, publisher: Publisher
) -> None:
    """It votes all the time; but what it has may be given up for an empty copy."""
    publisher.publish(0, 5)
    leader = next(one for one in cluster.machines if one.name == master(cluster))
    other = next(one for one in cluster.machines if one is not leader)
    other.kill()
    cluster.pass_ms(3000)
    publisher.publish(cluster.machines.index(leader), 20)
    other.start()
    for machine in (leader, other):
        cluster.until(lambda machine=machine: other.name in nodes_known(machine))
        assert not is_synced(machine, other)
    cluster.until(lambda: is_synced(leader, other) and is_synced(other, other))
    publisher.check(cluster.machines.index(leader))


def nodes_known(machine: Machine) -> Collection[str]:
    return machine.cluster.mirrors.mirroring.nodes.members


def is_synced(machine: Machine, other: Machine) -> bool:
    """The copy at that other one, as a machine says."""
    queue = machine.queue("q")
    assert queue is not None
    facts = machine.quiet.broker.mirrors.facts(queue)
    assert facts is not None
    return any(copy.synced for copy in facts.copies if copy.node == other.name)


@pytest.mark.parametrize("is_busy", [False, True])
def test_a_leader_is_handed_over_to_a_node_of_ones_choice(
    cluster: SimCluster, publisher: Publisher, is_busy: bool
) -> None:
    leader = next(one for one in cluster.machines if one.name == master(cluster))
    heir = max(one.name for one in cluster.machines if one is not leader)
    queue = leader.queue("q")
    assert queue is not None
    mirrors = leader.quiet.broker.mirrors
    client = leader.client()
    hands = Request(leader.quiet.broker.changes.ask(), lambda: mirrors.hand_over(queue, heir))
    cluster.until(hands.is_decided)

    def is_there() -> bool:
        if is_busy:
            client.publish("", "q", b"more", delivery_mode=2, run=False)
        return master(cluster) == heir

    cluster.until(is_there)
    reign = view(cluster).reign
    assert reign is not None
    assert (reign.term, reign.favoured) == (2, "")
    client.drop()
    if not is_busy:
        publisher.publish(0, 5)
        publisher.check(1)
