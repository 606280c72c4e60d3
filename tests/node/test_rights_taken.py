"""A user loses rights: what rested on them ends on every node, and nothing else does."""

from __future__ import annotations

from pathlib import Path

from penstock.broker.administration import Administration
from penstock_ranges import ranges
from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.quiet_cluster import QuietCluster
from tests.helpers.range_pair import StagingEnd

SOON_MS = 300


def permit_reading(node: NsqBroker, pattern: str) -> None:
    Administration(node.broker, 64).put_permission("guest", "/", ".*", ".*", pattern)


def test_amqp_consumers_are_cancelled(tmp_path: Path) -> None:
    node = NsqBroker()
    client = node.client()
    for name in ("mine", "yours"):
        client.call("queue.declare", queue=name)
        client.call("basic.consume", queue=name, consumer_tag=name)
    permit_reading(node, "^mine$")
    client.publish("", "yours", b"late")
    node.tick(SOON_MS)
    cancels = [fields["consumer_tag"] for name, fields in client.methods() if "cancel" in name]
    assert cancels == ["yours"]
    assert not node.broker.vhosts["/"].queues["yours"].consumers
    client.publish("", "mine", b"m")
    assert client.bodies() == [b"m"]
    node.check()


def test_nsq_consumers_hear_that_they_may_not() -> None:
    node = NsqBroker()
    client, other = node.nsq_client(), node.nsq_client()
    client.subscribe("t", "c")
    other.subscribe("t", "d")
    permit_reading(node, "^nsq.t:d$")
    node.tick(SOON_MS)
    assert client.heard() == [b'E_UNAUTHORIZED AUTH failed for SUB on "t" "c"']
    assert client.session.closed
    assert not other.session.closed


def test_readers_of_ranges_hear_that_they_may_not() -> None:
    node = NsqBroker()
    node.client().call("queue.declare", queue="q")
    for mode in (ranges.READ, ranges.BROWSE):
        permit_reading(node, ".*")
        end = StagingEnd(node, login=False)
        end.send(ranges.encode_open(ranges.OpenRequest("guest", "guest", "/", "q", mode)))
        assert not end.session.closed
        permit_reading(node, "^other$")
        node.tick(SOON_MS)
        assert end.session.closed


def test_a_user_without_the_virtual_host_stages_nothing_more() -> None:
    node = NsqBroker()
    end = StagingEnd(node)
    permit_reading(node, "^other$")
    node.tick(SOON_MS)
    assert not end.session.closed
    Administration(node.broker, 64).delete_permission("guest", "/")
    node.tick(SOON_MS)
    assert end.session.closed


def test_on_every_node(tmp_path: Path) -> None:
    cluster = QuietCluster(tmp_path)
    here, there = cluster.quiet["a"], cluster.quiet["b"]
    client = there.client()
    client.method(1, "queue.declare", queue="q")
    cluster.run()
    client.method(1, "basic.consume", queue="q", consumer_tag="q")
    cluster.run()
    asking = here.broker.changes.ask()
    asking.run(lambda: permit_reading(here, "^other$"))  # type: ignore[arg-type]
    cluster.run()
    there.tick(SOON_MS)
    assert "basic.cancel" in [name for name, _ in client.methods()]
