"""Who may do what: patterns, topics, limits; the texts clients read are compared in conformance."""

from __future__ import annotations

import pytest

from penstock.broker.rules.access import User
from penstock.broker.rules.judges import READ, WRITE
from penstock.broker.rules.rights import Rights, covers
from penstock.core.errors import AccessRefused, NotAllowed, PreconditionFailed
from penstock.routing.exchanges import Exchange
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.range_pair import Answered, StagingEnd


@pytest.mark.parametrize(
    "pattern, name, covered",
    [
        ("", "", True),
        ("", "q", False),
        (".*", "", True),
        ("log", "catalog", True),
        ("^log", "catalog", False),
        ("^(a|b)$", "b", True),
        ("^(a|b)$", "bb", False),
        ("q.1", "qx1", True),
        (r"^\w+$", "grün", False),  # as in RabbitMQ, whose expressions know ASCII letters only
    ],
)
def test_a_pattern_is_searched(pattern: str, name: str, covered: bool) -> None:
    assert covers(pattern, name) is covered


def rights(configure: str = ".*", write: str = ".*", read: str = ".*") -> Rights:
    user = User("u", "", [])
    user.vhosts["v"] = (configure, write, read)
    return Rights(user, "v")


def test_each_permission_is_its_own() -> None:
    some = rights("^c", "^w", "^r")
    some.configure("queue", "c1")
    some.write("queue", "w1")
    some.read("queue", "r1")
    for check, name in ((some.configure, "w"), (some.write, "r"), (some.read, "c")):
        text = f"access to queue '{name}' in vhost 'v' refused for user 'u'"
        with pytest.raises(AccessRefused, match=text):
            check("queue", name)


def test_the_default_exchange_has_a_name_here() -> None:
    rights(write="^amq[.]default$").publish(None, "", "q")
    with pytest.raises(AccessRefused, match=r"exchange 'amq\.default'"):
        rights(write="^$").publish(None, "", "q")


def test_without_a_permission_there_is_none() -> None:
    with pytest.raises(AccessRefused):
        Rights(User("u", "", []), "v").read("queue", "q")


def exchange(kind: str) -> Exchange:
    return Exchange("v", "t", kind, True, False, False, {})


def test_topic_permissions_narrow_topic_exchanges_only() -> None:
    some = rights()
    some.topic(WRITE, exchange("topic"), "anything")  # none are given: all is allowed
    some.user.topics["v", "t"] = ("^{username}[.]{vhost}$", "^r")
    some.topic(WRITE, exchange("topic"), "u.v")
    some.topic(READ, exchange("topic"), "r")
    some.topic(WRITE, exchange("direct"), "else")
    some.topic(READ, None, "else")
    text = "access to topic 'else' in exchange 't' in vhost 'v' refused for user 'u'"
    for permission in (WRITE, READ):
        with pytest.raises(AccessRefused, match=text):
            some.topic(permission, exchange("topic"), "else")


def test_a_user_name_is_no_pattern() -> None:
    some = Rights(User("a.c", "", []), "v")
    some.user.vhosts["v"] = (".*", ".*", ".*")
    some.user.topics["v", "t"] = ("^{username}$", "")
    some.topic(WRITE, exchange("topic"), "a.c")
    with pytest.raises(AccessRefused):
        some.topic(WRITE, exchange("topic"), "abc")


def test_a_withdrawn_permission_holds_from_the_next_publish_on() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    for _ in range(2):
        client.publish("", "q")
    vhost, user = node.broker.vhosts["/"], node.broker.users.users["guest"]
    user.vhosts["/"] = (".*", "^no$", ".*")
    client.publish("", "q")
    assert vhost.queues["q"].backing.ready_count() == 3  # nobody has said that it changed
    vhost.epoch += 1
    client.publish("", "q")
    assert vhost.queues["q"].backing.ready_count() == 3
    assert client.methods()[-1][1]["code"] == 403


def test_connections_and_channels_are_counted_until_they_end() -> None:
    node = QuietBroker()
    vhost, user = node.broker.vhosts["/"], node.broker.users.users["guest"]
    first, second = node.client(), node.client()
    second.call("channel.open", 2)
    assert (vhost.budget.connection_count, user.connection_count, user.channel_count) == (2, 2, 3)
    second.call("channel.close", 2, code=200, text="", class_id=0, method_id=0)
    second.call("queue.declare", queue="q")
    second.method(1, "queue.declare", queue="q", durable=True)  # refused: the channel is over
    assert (user.channel_count, vhost.budget.channel_count) == (1, 1)
    second.drop()
    first.call("connection.close", 0, code=200, text="", class_id=0, method_id=0)
    first.drop()
    assert (vhost.budget.connection_count, user.connection_count, user.channel_count) == (0, 0, 0)
    assert vhost.budget.channel_count == 0


def test_channels_of_a_virtual_host_have_a_limit() -> None:
    node = QuietBroker()
    node.broker.vhosts["/"].budget.set("max-channels", 2)
    client = node.client()
    client.call("channel.open", 2)
    client.method(3, "channel.open")
    name, fields = client.methods()[-1]
    assert (name, fields["code"]) == ("connection.close", 530)
    assert "number of channels opened in vhost '/' has reached" in fields["text"]
    assert node.broker.users.entry.counts["limit"] == 1


def test_readers_of_ranges_count_as_connections() -> None:
    node = QuietBroker()
    vhost, user = node.broker.vhosts["/"], node.broker.users.users["guest"]
    StagingEnd(node, login=False)
    first, second = StagingEnd(node), StagingEnd(node)
    counts = (vhost.budget.connection_count, user.connection_count, node.broker.connection_count)
    assert counts == (2, 2, 2)
    user.limit("max-connections", 2)
    with pytest.raises(Answered, match=r"user connection limit \(2\) is reached"):
        StagingEnd(node)
    first.drop()
    StagingEnd(node).drop()
    second.drop()
    assert (vhost.budget.connection_count, user.connection_count) == (0, 0)


def test_limits_of_virtual_host_and_user() -> None:
    node = QuietBroker()
    broker = node.broker
    vhost, user = broker.vhosts["/"], broker.users.users["guest"]
    vhost.budget.max_connections = 0
    with pytest.raises(NotAllowed, match=r"access to vhost '/' refused .* limit \(0\) is reached"):
        broker.enter(user, "/")
    vhost.budget.max_connections = 1
    user.max_connections = 0
    with pytest.raises(NotAllowed, match=r"user connection limit \(0\) is reached"):
        broker.enter(user, "/")
    user.max_connections = -1
    assert broker.enter(user, "/") is vhost
    vhost.budget.max_queues = 1
    vhost.declare_queue("a", True, None, False, {})
    vhost.declare_queue("a", True, None, False, {})
    with pytest.raises(PreconditionFailed, match=r"queue limit in vhost '/' \(1\) is reached"):
        vhost.declare_queue("b", True, None, False, {})
