"""A copy that the disk has damaged: it is found when it is read, given up, and fetched anew.

What rests is read now and then (``cluster/mirrors/scrubbing.py``), also where no client needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.backing.tiers import TAIL_BYTES
from penstock.cluster.mirrors.scrubbing import ROUND_MS, CopyScrub
from penstock.core.clock_types import MonoMs
from tests.cluster.sim_cluster import SimCluster, started
from tests.cluster.test_copies_of_nodes import changes_at
from tests.simulation.cluster_nodes import Machine

NAMES = ("a@h", "b@h", "c@h")
BODY_BYTES = 1000
COUNT = 2 * int(TAIL_BYTES) // BODY_BYTES
LAZY: dict[str, object] = {"ha-mode": "all", "ha-sync-mode": "automatic", "queue-mode": "lazy"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SimCluster]:
    """The messages of queue ``q`` rest on the disks; its master is on the first node."""
    with started(tmp_path, NAMES) as cluster:
        a = cluster.machines[0]
        cluster.put_policy(a, "^q", LAZY)
        cluster.declare(a, "q")
        cluster.until(lambda: cluster.synced("q") == list(NAMES))
        publish(cluster, a)
        cluster.until(lambda: all(segments(one) for one in cluster.machines))
        yield cluster


def publish(
    cluster: SimCluster, machine: Machine, size: int = BODY_BYTES, **properties: object
) -> None:
    client = machine.client()
    client.call("confirm.select")
    for number in range(COUNT):
        body = b"%d:" % number + b"x" * size
        client.publish("", "q", body, delivery_mode=2, run=False, **properties)
    said: list[int] = []

    def are_confirmed() -> bool:
        said.extend(fields["delivery_tag"] for _, fields in client.methods())
        return said[-1:] == [COUNT]

    cluster.until(are_confirmed)
    client.drop()


def segments(machine: Machine) -> list[str]:
    return [name for name in machine.files.names if name.endswith(".idx")]


def flip(machine: Machine) -> None:
    (segment,) = segments(machine)
    machine.files.flip(segment, 8 * 1000)


def truncate(machine: Machine) -> None:
    (segment,) = segments(machine)
    machine.files.truncate(segment, machine.files.size(segment) // 2)


def take_all(cluster: SimCluster, machine: Machine) -> None:
    """All messages, by one consumer that is never cancelled."""
    client = machine.client()
    client.consume("q")
    got: set[int] = set()

    def has_all() -> bool:
        for name, fields in client.methods():
            assert name == "basic.deliver"
            got.add(int(bytes(fields["body"]).partition(b":")[0]))
            client.method(1, "basic.ack", delivery_tag=fields["delivery_tag"])
        return len(got) == COUNT

    cluster.until(has_all)
    assert got == set(range(COUNT))


def master(cluster: SimCluster) -> str:
    (found,) = [one.name for one in cluster.world.ready() if is_master(one)]
    return found


def is_master(machine: Machine) -> bool:
    queue = machine.queue("q")
    return queue is not None and not queue.remote


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_master_that_cannot_read_its_copy_gives_it_up_and_fetches_another(
    cluster: SimCluster, damage: Callable[[Machine], None]
) -> None:
    a, b, c = cluster.machines
    damage(a)
    take_all(cluster, c)
    assert master(cluster) == "b@h"
    cluster.until(lambda: cluster.synced("q") == list(NAMES))
    publish(cluster, b)
    cluster.until(lambda: count(a) == COUNT)


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_mirror_that_is_promoted_passes_the_queue_on(
    cluster: SimCluster, damage: Callable[[Machine], None]
) -> None:
    a, b, c = cluster.machines
    damage(b)
    a.kill()
    cluster.until(lambda: cluster.synced("q") == ["b@h", "c@h"])
    take_all(cluster, c)
    assert master(cluster) == "c@h"
    cluster.until(lambda: cluster.synced("q") == ["b@h", "c@h"])


def test_the_only_copy_stays_though_it_cannot_be_read(cluster: SimCluster) -> None:
    """Another one that has all may come back; what can be read of it is not given up."""
    a, b, c = cluster.machines
    b.kill()
    c.kill()
    cluster.until(lambda: cluster.synced("q") == ["a@h"])
    flip(a)
    client = a.client()
    client.consume("q")
    cluster.pass_ms(3000)
    assert master(cluster) == "a@h"
    queue = a.queue("q")
    assert queue is not None
    assert "damaged" in queue.backing.why_stopped()


def begin_round(machine: Machine) -> None:
    """An hour has passed since the last one."""
    scrub = scrub_of(machine)
    scrub._began_ms -= ROUND_MS


def scrub_of(machine: Machine) -> CopyScrub:
    return machine.cluster.mirrors._scrub


@pytest.mark.parametrize("bit", [0, 3, 8 * 30, 8 * 2000])
def test_a_bit_of_a_stream_that_flips_is_found_and_another_copy_fetched(
    tmp_path: Path, bit: int
) -> None:
    """In the head of a block, or in its messages; no reader was there."""
    with started(tmp_path, NAMES) as cluster:
        a, b, _ = cluster.machines
        cluster.put_policy(a, "^q", {"ha-mode": "all", "ha-sync-mode": "automatic"})
        cluster.declare(a, "q", **{"x-queue-type": "stream"})
        cluster.until(lambda: cluster.synced("q") == list(NAMES))
        publish(cluster, a)
        cluster.until(lambda: offset_of_copy(b) == COUNT)
        before = incarnation_of_copy(b)
        (segment,) = [name for name in b.files.names if name.endswith(".stm")]
        begin_round(b)
        cluster.pass_ms(3000)
        assert incarnation_of_copy(b) == before, "a sound copy stays"
        b.files.flip(segment, 8 * (b.files.size(segment) // 2) + bit)
        begin_round(b)
        cluster.until(lambda: incarnation_of_copy(b) not in (0, before))
        cluster.until(lambda: cluster.synced("q") == list(NAMES) and offset_of_copy(b) == COUNT)
        assert master(cluster) == "a@h"


def offset_of_copy(machine: Machine) -> int:
    copy = machine.quiet.broker.vhosts["/"].copies.copies.get("q")
    return 0 if copy is None else copy.backing.ready_count()


def incarnation_of_copy(machine: Machine) -> int:
    """A copy that is fetched anew has another id."""
    copy = machine.quiet.broker.vhosts["/"].copies.copies.get("q")
    return 0 if copy is None else copy.queue_id


@pytest.mark.parametrize("damage", [flip, truncate])
def test_damage_of_a_copy_at_rest_is_found_and_another_one_fetched(
    cluster: SimCluster, damage: Callable[[Machine], None]
) -> None:
    a, b, _ = cluster.machines
    before = incarnation_of_copy(b)
    damage(b)
    begin_round(b)
    cluster.until(lambda: incarnation_of_copy(b) not in (0, before))
    cluster.until(lambda: cluster.synced("q") == list(NAMES) and count(b) == COUNT)
    assert master(cluster) == "a@h"
    take_all(cluster, a)


@contextmanager
def resting(
    path: Path, size: int = BODY_BYTES, priority: int = 0, **arguments: object
) -> Iterator[SimCluster]:
    """As ``cluster``: of messages of that size and priority."""
    with started(path, NAMES) as cluster:
        a = cluster.machines[0]
        cluster.put_policy(a, "^q", LAZY)
        cluster.declare(a, "q", **arguments)
        b = cluster.machines[1]
        cluster.until(lambda: is_complete(b))
        publish(cluster, a, size, priority=priority)
        cluster.until(lambda: count(b) == COUNT)
        for part in b.quiet.broker.vhosts["/"].copies.copies["q"].backing.parts():
            part.flush_safe(COUNT)  # as when the journal retires a file
        cluster.until(lambda: len(segments(b)) > 0)
        yield cluster


def test_a_damaged_content_of_the_message_store_is_found(tmp_path: Path) -> None:
    with resting(tmp_path, size=5000) as cluster:
        b = cluster.machines[1]
        before = incarnation_of_copy(b)
        (store,) = [name for name in b.files.names if "/store/" in name and b.files.size(name)]
        b.files.flip(store, 8 * 3000)
        begin_round(b)
        cluster.until(lambda: incarnation_of_copy(b) not in (0, before))


def test_damage_of_one_priority_is_found_and_the_copy_is_fetched_with_its_priorities(
    tmp_path: Path,
) -> None:
    with resting(tmp_path, priority=2, **{"x-max-priority": 3}) as cluster:
        a, b, _ = cluster.machines
        before = incarnation_of_copy(b)
        flip(b)
        begin_round(b)
        cluster.until(lambda: incarnation_of_copy(b) not in (0, before))
        cluster.until(lambda: cluster.synced("q") == list(NAMES) and count(b) == COUNT)
        a.kill()
        cluster.until(lambda: cluster.synced("q") == ["b@h", "c@h"])
        queue = next(
            one
            for one in [m.queue("q") for m in cluster.machines[1:]]
            if one is not None and not one.remote
        )
        assert queue.backing.priorities() == [0, 1, 2, 3]
        assert [part.ready_count() for part in queue.backing.parts()] == [0, 0, COUNT, 0]


@pytest.mark.parametrize("damage", [flip, truncate])
def test_a_damaged_copy_of_a_quorum_queue_is_given_up_and_fetched_anew(
    tmp_path: Path, damage: Callable[[Machine], None]
) -> None:
    """The leader's death loses nothing afterwards."""
    with resting(tmp_path, **{"x-queue-type": "quorum"}) as cluster:
        a, b, _ = cluster.machines
        before = incarnation_of_copy(b)
        (segment,) = segments(b)
        b.quiet.broker.events.open()
        damage(b)
        begin_round(b)
        cluster.until(lambda: incarnation_of_copy(b) not in (0, before))
        cluster.publish(a, "q", 5)
        cluster.until(lambda: count(b) == COUNT + 5 and holds_all(b))
        left, synchronised = changes_at(b)
        assert left[:4] == ("/", "q", "b@h", "left")
        assert str(left[4]).startswith("b@h cannot read its copy: ")
        assert segment in str(left[4])
        assert synchronised[3:] == ("synchronised", "it has everything again")
        assert copies(a) == list(NAMES)
        a.kill()
        client = b.client()
        client.consume("q", no_ack=True)
        got: list[bytes] = []

        def has_all() -> bool:
            got.extend(client.bodies())
            return len(got) == COUNT + 5

        cluster.until(has_all)


def test_a_leader_of_a_quorum_queue_that_cannot_read_its_copy_has_a_successor(
    tmp_path: Path,
) -> None:
    """Of two copies that are left it is one: none is elected before the third is back."""
    with resting(tmp_path, **{"x-queue-type": "quorum"}) as cluster:
        a, b, c = cluster.machines
        before = incarnation_of_copy(b)
        a.kill()
        cluster.until(lambda: leader(cluster) is b)
        queue = b.queue("q")
        assert queue is not None
        queue.backing.parts()[0].records.fault = "as when a consumer reads what is damaged"
        cluster.pass_ms(3000)
        assert leader(cluster) is None
        assert incarnation_of_copy(b) == before
        a.start()
        cluster.until(lambda: leader(cluster) in (a, c))
        cluster.until(lambda: incarnation_of_copy(b) not in (0, before) and holds_all(b))
        take_all(cluster, c)


def test_a_damaged_copy_is_kept_and_confirms_nothing_while_the_others_are_no_majority(
    tmp_path: Path,
) -> None:
    with resting(tmp_path, **{"x-queue-type": "quorum"}) as cluster:
        a, b, c = cluster.machines
        before = incarnation_of_copy(b)
        c.kill()
        cluster.pass_ms(5000)  # its lease ends
        flip(b)
        begin_round(b)
        known = b.cluster.mirrors.mirroring.queues[("/", "q")]
        cluster.until(lambda: known.damage() != "")
        cluster.pass_ms(200)
        client = a.client()
        client.call("confirm.select")
        client.publish("", "q", b"more", delivery_mode=2, run=False)
        cluster.pass_ms(3000)
        assert client.methods() == []
        assert incarnation_of_copy(b) == before
        assert known.holding() is None
        c.start()
        cluster.until(lambda: client.methods() != [])
        cluster.until(lambda: incarnation_of_copy(b) not in (0, before) and holds_all(b))


def holds_all(machine: Machine) -> bool:
    """Its copy of a quorum queue, on its disk: it has a vote again."""
    machine.cluster.mirrors.mirroring.check()
    return machine.cluster.mirrors.mirroring.queues[("/", "q")].is_current()


def copies(machine: Machine) -> list[str]:
    """That vote, as that node knows."""
    view = machine.cluster.mirrors.mirroring.queues[("/", "q")].view
    assert view is not None
    assert view.reign is not None
    return sorted(view.reign.copies)


def leader(cluster: SimCluster) -> Machine | None:
    return next((one for one in cluster.world.ready() if is_master(one)), None)


def is_complete(machine: Machine) -> bool:
    known = machine.cluster.mirrors.mirroring.queues.get(("/", "q"))
    group = None if known is None else known.group
    replica = None if group is None else group.replica
    return replica is not None and replica.is_complete()


def test_sound_copies_are_read_and_stay(cluster: SimCluster) -> None:
    b = cluster.machines[1]
    before = incarnation_of_copy(b)
    rounds = scrub_of(b).rounds
    begin_round(b)
    cluster.until(lambda: scrub_of(b).rounds > rounds and scrub_of(b)._part is not None)
    cluster.until(lambda: scrub_of(b)._part is None)
    assert scrub_of(b).rounds == rounds + 1, "the next one begins in an hour"
    assert incarnation_of_copy(b) == before


def test_a_copy_that_is_complete_only_later_has_its_turn_in_the_same_round(
    cluster: SimCluster,
) -> None:
    """As all are at a start: else a node would read none in its first hour."""
    b = cluster.machines[1]
    b.kill()
    b.start()
    cluster.until(lambda: scrub_of(b).rounds == 1 and cluster.synced("q") == list(NAMES))
    before = incarnation_of_copy(b)
    flip(b)
    cluster.until(lambda: incarnation_of_copy(b) not in (0, before))
    assert scrub_of(b).rounds == 1


def count(machine: Machine) -> int:
    copy = machine.quiet.broker.vhosts["/"].copies.copies.get("q")
    return 0 if copy is None else sum(part.ready_count() for part in copy.backing.parts())


def test_a_round_begins_with_the_first_queue_that_is_known() -> None:
    """At its start a node knows none, and the next round would begin an hour later."""
    scrub = CopyScrub({}, 1 << 20)
    scrub.tick(MonoMs(1))
    assert scrub.rounds == 0
