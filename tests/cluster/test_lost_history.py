"""A coordinator that comes back empty or old: nothing is deleted because it is missing there."""

from __future__ import annotations

import copy
from pathlib import Path
from random import Random

import pytest

from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement.applying import make_here
from penstock.cluster.agreement.metadata import QueueMeta
from penstock.core.errors import HistoryLost
from penstock.queues.queue import Queue
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.followed import BRINGS, YIELDS, follow, load_followed
from tests.broker.copy_tools import remote_queue
from tests.cluster.sim_cluster import started
from tests.helpers.quiet_cluster import QuietCluster
from tests.simulation.sim_coordinator import SimStore

MESSAGES = 5


class Homes(QuietCluster):
    """Two nodes; a queue has its messages on its home only."""

    def start(self, name: str) -> None:
        def make(vhost: Vhost, meta: QueueMeta, owner: object) -> Queue:
            if meta.home == name:
                return make_here(vhost, meta, owner)
            broker = self.quiet[name].broker
            remote = remote_queue(broker, meta.name, meta.incarnation, meta.arguments)
            vhost.enter_queue(remote)
            return remote

        self.makers[name] = make
        super().start(name)

    def declare(self, home: str, queue: str) -> None:
        client = self.quiet[home].client()
        client.method(1, "queue.declare", queue=queue, durable=True)
        self.run()
        for _ in range(MESSAGES):
            client.publish("", queue, delivery_mode=2)
        client.drop()
        self.run()

    def stop(self) -> None:
        for name in "ab":
            self.kill(name)

    def lose_data(self) -> None:
        self.store = SimStore(Random(2), delay_ms=(1, 9))
        self.store.advance(self.now_ms)

    def refound(self, name: str, how: int = BRINGS) -> None:
        """What ``penstock cluster refound`` does."""
        definitions = Definitions(str(self.directory / f"{name}.db"))
        follow(definitions.change, "", how)
        definitions.commit()
        definitions.close()

    def refused(self, name: str, match: str) -> None:
        """It does not start, and has what it had."""
        with pytest.raises(HistoryLost, match=match):
            self.start(name)
        self.quiet.pop(name).definitions.close()
        self.files[name].kill()
        self.store.members.remove(self.common.pop(name).changes.coordinator)  # type: ignore[arg-type]

    def counts(self) -> dict[str, int]:
        """Of all queues, on their homes."""
        found = {}
        for name in self.quiet:
            for queue in self.vhost(name).queues.values():
                if not queue.remote:
                    found[queue.name] = int(queue.backing.ready_count())
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Homes:
    cluster = Homes(tmp_path)
    cluster.declare("a", "at a")
    cluster.declare("b", "at b")
    return cluster


def test_an_empty_coordinator_deletes_nothing(cluster: Homes) -> None:
    cluster.stop()
    cluster.lose_data()
    for name in "ba":
        cluster.refused(name, "knows no cluster.*penstock cluster refound")
    assert not cluster.store.model.keys


def test_another_cluster_in_its_place_deletes_nothing(cluster: Homes, tmp_path: Path) -> None:
    cluster.stop()
    (tmp_path / "others").mkdir()
    cluster.store = Homes(tmp_path / "others").store
    # Both founded by a node of this name, but not in this life of it.
    founded = cluster.store.model.keys["cluster/founded"]
    founded.value = founded.value.replace("a/1", "a/7")
    cluster.refused("b", "another cluster than the one that this node was in")


def test_an_older_copy_of_its_data_deletes_nothing(cluster: Homes) -> None:
    older = copy.deepcopy(cluster.store.model)
    cluster.declare("b", "since then")
    cluster.stop()
    cluster.lose_data()
    cluster.store.model = older
    cluster.refused("b", r"is of revision \d+, and this node has seen \d+")


def test_a_node_that_runs_ends_before_it_believes_it(cluster: Homes) -> None:
    coordinator = cluster.common["a"].changes.coordinator
    coordinator.lost = "its data is gone"  # type: ignore[attr-defined]
    with pytest.raises(HistoryLost, match="its data is gone"):
        cluster.run()
    assert "at a" in cluster.vhost("a").queues


def test_what_was_deleted_while_a_node_was_away_is_deleted_there(cluster: Homes) -> None:
    cluster.kill("b")
    client = cluster.quiet["a"].client()
    client.method(1, "queue.delete", queue="at a")
    cluster.run()
    cluster.start("b")
    assert cluster.counts() == {"at b": MESSAGES}
    cluster.check()


@pytest.mark.parametrize("first", "ab")
def test_a_cluster_is_founded_anew_with_what_all_nodes_have(cluster: Homes, first: str) -> None:
    cluster.stop()
    cluster.lose_data()
    for name in (first, "ab".replace(first, "")):
        cluster.refound(name)
        cluster.start(name)
    cluster.run()
    assert cluster.counts() == {"at a": MESSAGES, "at b": MESSAGES}
    cluster.check()
    cluster.stop()
    for name in "ab":
        cluster.start(name)
    assert cluster.counts() == {"at a": MESSAGES, "at b": MESSAGES}
    for name in "ab":
        followed = load_followed(cluster.quiet[name].definitions.rows)
        assert followed is not None
        assert followed.founding.startswith(f"{first}/")
        assert followed.revision > 0


def test_a_queue_that_two_nodes_bring_is_the_operators_to_judge(cluster: Homes) -> None:
    cluster.stop()
    cluster.lose_data()
    cluster.refound("a")
    cluster.start("a")
    cluster.declare("a", "at b")  # before the other node came back
    cluster.refound("b")
    cluster.refused("b", "'at b' in vhost '/' is on this node and was brought by a, too")
    cluster.refound("b", YIELDS)
    cluster.start("b")
    cluster.run()
    assert cluster.counts() == {"at a": MESSAGES, "at b": MESSAGES}
    assert cluster.vhost("b").queues["at b"].remote
    cluster.check()


def test_copies_are_kept_until_their_queue_is_brought(cluster: Homes) -> None:
    mirrored = cluster.vhost("b").queues["at b"]
    cluster.vhost("a").copies.open("at b", mirrored.incarnation, False, {})
    cluster.run()
    cluster.stop()
    cluster.lose_data()
    cluster.refound("a")
    for _ in range(2):
        cluster.start("a")
        cluster.run()
        assert "at b" in cluster.vhost("a").copies.copies
        cluster.kill("a")
    cluster.refound("b")
    cluster.start("b")
    cluster.start("a")
    assert "at b" in cluster.vhost("a").copies.copies
    cluster.kill("a")
    cluster.start("a")
    assert cluster.counts() == {"at a": MESSAGES, "at b": MESSAGES}


def test_starts_make_no_older_copy_newer(tmp_path: Path) -> None:
    """Each start and each end of a lease moves the store's revision past what a node has seen."""
    with started(tmp_path, ("a@h", "b@h")) as cluster:
        a, b = cluster.machines
        older = copy.deepcopy(cluster.world.store.model)
        cluster.declare(b, "q")
        cluster.publish(b, "q", MESSAGES)
        a.stop()
        b.stop()
        seen = cluster.world.store.model.revision
        cluster.world.store.model = older
        for lease in list(older.leases):
            older.end(lease)
        while older.revision <= seen + 1:
            assert not b.start()
            cluster.pass_ms(8000)  # until its lease has ended
        assert not b.start()
        assert not a.start()
        assert [one.name for one in b.quiet.broker.vhosts["/"].queues.values()] == ["q"]
