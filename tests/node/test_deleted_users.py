"""A user is deleted: sessions of all protocols end, on every node."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.administration import Administration
from penstock.storage.definitions.records import PermissionRecord, UserRecord
from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.quiet_cluster import QuietCluster
from tests.helpers.range_pair import Answered, StagingEnd, publishes

SOON_MS = 300


def delete_guest(node: NsqBroker) -> None:
    Administration(node.broker, 64).delete_user("guest")


def test_amqp_sessions_end_with_the_reason() -> None:
    node = NsqBroker()
    client = node.client()
    delete_guest(node)
    node.tick(SOON_MS)
    ((name, fields),) = client.methods()
    assert (name, fields["code"]) == ("connection.close", 320)
    assert fields["text"] == "CONNECTION_FORCED - user 'guest' is deleted"


def test_who_lost_the_tag_publishes_in_no_other_name() -> None:
    node = NsqBroker()
    guest = node.broker.users.users["guest"]
    guest.tags = ["impersonator"]
    client = node.client()
    ranges = StagingEnd(node)
    client.publish("", "nowhere", user_id="root")
    assert client.methods() == []
    assert ranges.publish_directly(publishes("", "nowhere", [b"m"], user_id="root")) == ("", 1)
    Administration(node.broker, 64).put_user("guest", guest.password_hash, guest.hashing, [])
    node.tick(SOON_MS)
    client.publish("", "nowhere", user_id="root")
    ((name, fields),) = client.methods()
    assert (name, fields["code"]) == ("channel.close", 406)
    with pytest.raises(Answered, match="user_id property set to 'root'"):
        ranges.publish_directly(publishes("", "nowhere", [b"m"], user_id="root"))


def test_nsq_sessions_end() -> None:
    node = NsqBroker()
    client = node.nsq_client()
    client.send(b"SUB t c\nRDY 1\n")
    delete_guest(node)
    node.tick(SOON_MS)
    assert client.session.closed


@pytest.mark.parametrize("again", [False, True], ids=["", "and made anew"])
def test_readers_of_ranges_end(again: bool) -> None:
    node = NsqBroker()
    end = StagingEnd(node)
    delete_guest(node)
    if again:
        node.definitions.put_user(UserRecord("guest", "", "", []))
        node.definitions.put_permission(PermissionRecord("guest", "/", ".*", ".*", ".*"))
    node.tick(SOON_MS)
    assert end.session.closed


def test_on_every_node(tmp_path: Path) -> None:
    cluster = QuietCluster(tmp_path)
    client = cluster.quiet["b"].client()
    asking = cluster.quiet["a"].broker.changes.ask()
    asking.run(lambda: delete_guest(cluster.quiet["a"]))  # all agree on it first
    cluster.run()
    cluster.quiet["b"].tick(SOON_MS)
    assert [name for name, _ in client.methods()] == ["connection.close"]
