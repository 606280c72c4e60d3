"""Log-ins and rights that a backend decides later: a session waits, in order, and alone."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.rules.judges import Account, Inquiry
from penstock.broker.rules.log_ins import Link
from penstock.core.clock_types import WallMs
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.slow_judge import SlowBackend, SlowJudge


class Node(QuietBroker):
    """Whose users are those of a slow backend."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = SlowJudge()
        self.backend = SlowBackend(self.judge)
        self.broker.users.form([Link(self.backend, self.backend)])

    def ann(self) -> ClientEnd:
        client = self.connect()
        client.send(codec.PROTOCOL_HEADER)
        client.send(start_ok("ann") + OPEN)
        return client

    def answer(self) -> None:
        """All that was asked, and what is asked then."""
        self.judge.holds = False
        self.judge.answer()
        self.run()


def start_ok(name: str) -> bytes:
    able = {"consumer_cancel_notify": True, "authentication_failure_close": True}
    return codec.method_frame(
        0,
        "connection.start-ok",
        client_properties={"capabilities": able},
        mechanism="PLAIN",
        response=f"\0{name}\0secret",
        locale="en_US",
    )


OPEN = (
    codec.method_frame(0, "connection.tune-ok", channel_max=2047, frame_max=131_072, heartbeat=0)
    + codec.method_frame(0, "connection.open", virtual_host="/")
    + codec.method_frame(1, "channel.open")
)


def names(client: ClientEnd) -> list[str]:
    return [name for name, _ in client.methods()]


def closed(client: ClientEnd) -> tuple[int, str]:
    found: list[dict[str, Any]] = [
        fields for name, fields in client.methods() if name.endswith(".close")
    ]
    return found[-1]["code"], found[-1]["text"]


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_log_in_waits_and_others_do_not(node: Node) -> None:
    node.backend.holds = True
    slow = node.ann()
    assert names(slow) == ["connection.start"]
    node.backend.holds = False
    assert "channel.open-ok" in names(node.ann())
    slow_inquiry = node.backend.asked
    assert len(slow_inquiry) == 2
    node.backend.inquiry = slow.session.ticket  # type: ignore[assignment]
    node.backend.answer()
    node.run()
    assert names(slow) == ["connection.tune", "connection.open-ok", "channel.open-ok"]
    assert len(node.backend.asked) == 2


def test_a_refused_log_in_and_one_that_ends_meanwhile(node: Node) -> None:
    node.backend.holds = True
    slow = node.ann()
    gone = node.ann()
    node.backend.inquiry.deny("away")
    inquiry = slow.session.ticket
    assert isinstance(inquiry, Inquiry)
    gone.drop()
    inquiry.deny("the HTTP backend cannot be asked")
    node.run()
    assert closed(slow)[0] == 403


def test_a_virtual_host_is_entered_when_the_backend_allows_it(node: Node) -> None:
    node.judge.holds = True
    client = node.ann()
    assert names(client) == ["connection.start", "connection.tune"]
    assert node.judge.asked[0].address == "127.0.0.1"
    node.answer()
    assert names(client) == ["connection.open-ok", "channel.open-ok"]


def test_a_virtual_host_that_is_refused(node: Node) -> None:
    node.judge.denied = {("vhost", "")}
    text = "NOT_ALLOWED - access to vhost '/' refused for user 'ann' by a test"
    assert closed(node.ann()) == (530, text)


def test_requests_keep_their_order_while_a_right_is_asked_for(node: Node) -> None:
    client = node.ann()
    client.received = b""
    node.judge.holds = True
    for name in ("a", "b"):
        client.method(1, "queue.declare", queue=name)
        client.publish("", name, b"to " + name.encode(), run=False)
        client.method(1, "basic.get", queue=name, no_ack=True)
    assert names(client) == []
    for _ in range(10):
        node.judge.answer()
        node.run()
    answers = [(name, fields.get("body")) for name, fields in client.methods()]
    got = [("basic.get-ok", b"to a"), ("basic.get-ok", b"to b")]
    assert answers == [("queue.declare-ok", None), got[0], ("queue.declare-ok", None), got[1]]
    asked = [(question.name, question.permission) for question in node.judge.asked[1:]]
    assert asked == [("a", 0), ("amq.default", 1), ("a", 2), ("b", 0), ("b", 2)]
    node.check()


def test_a_publish_is_routed_once_and_confirmed_when_it_is_allowed(node: Node) -> None:
    client = node.ann()
    client.call("queue.declare", queue="q")
    client.call("confirm.select")
    node.judge.holds = True
    for number in range(5):
        client.publish("", "q", b"%d" % number, run=False)
    client.publish("", "q", b"cc", headers={"CC": ["q2"]}, run=False)
    node.run()
    assert names(client) == []
    assert client.session.held_bytes > 0
    node.answer()
    found = client.methods()
    assert {name for name, _ in found} == {"basic.ack"}
    assert found[-1][1]["delivery_tag"] == 6
    assert client.call("queue.declare", queue="q")["messages"] == 6
    assert client.session.held_bytes == 0
    assert client.session.channels[1].publishing.traffic.published == 6
    node.check()


def test_a_publish_that_is_refused_closes_its_channel_only(node: Node) -> None:
    client = node.ann()
    client.call("channel.open", 2)
    node.judge.denied = {("exchange", "amq.default")}
    client.publish("", "q")
    code, text = closed(client)
    assert code == 403
    assert text.endswith("refused for user 'ann' by a test")
    assert client.call("queue.declare", 2, queue="q")["messages"] == 0


def test_keys_of_copies_wait_in_the_middle_of_a_run(node: Node) -> None:
    client = node.ann()
    client.call("exchange.declare", exchange="t", type="topic")
    client.call("queue.declare", queue="q")
    client.call("queue.bind", queue="q", exchange="t", routing_key="#")
    node.judge.known |= set(node.judge.asked)
    client.publish("t", "k", b"0")
    node.judge.known |= set(node.judge.asked)
    node.judge.holds = True
    for number in range(1, 6):
        copies = {"CC": [f"k{number}"]} if number in (2, 4) else {}
        client.publish("t", "k", b"%d" % number, headers=copies, run=False)
    for _ in range(8):
        node.judge.answer()
        node.run()
    client.received = b""
    for _ in range(6):
        client.method(1, "basic.get", queue="q", no_ack=True)
        node.judge.answer()
        node.run()
    assert client.bodies() == [b"0", b"1", b"2", b"3", b"4", b"5"]
    node.check()


def test_a_transaction_publishes_each_message_once(node: Node) -> None:
    client = node.ann()
    client.call("queue.declare", queue="q")
    client.call("tx.select")
    client.publish("", "q", b"1")
    node.judge.holds = True
    client.publish("", "q", b"2", headers={"CC": ["other"]}, run=False)
    client.received = b""
    client.method(1, "tx.commit")
    for _ in range(8):
        node.judge.answer()
        node.run()
    assert names(client) == ["tx.commit-ok"]
    node.judge.holds = False
    assert client.call("queue.declare", queue="q")["messages"] == 2
    node.check()


# -- what ends -----------------------------------------------------------------------------------


def test_a_lost_right_cancels_a_consumer_and_refuses_publishes(node: Node) -> None:
    client = node.ann()
    client.call("queue.declare", queue="q")
    client.call("channel.open", 2)
    client.consume("q")
    client.publish("", "q", b"before", channel=2)
    client.received = b""
    node.judge.denied = {("queue", "q"), ("exchange", "amq.default")}
    node.judge.lost = True
    node.tick(1000)
    assert names(client) == ["basic.cancel"]
    client.publish("", "q", b"after", channel=2)
    assert closed(client)[0] == 403


def test_a_lost_virtual_host_ends_the_connection(node: Node) -> None:
    client = node.ann()
    client.received = b""
    node.judge.denied = {("vhost", "")}
    node.judge.lost = True
    node.tick(1000)
    assert closed(client)[0] == 530


def test_an_expired_log_in_ends_as_rabbitmq_ends_it(node: Node) -> None:
    node.backend.expires_at_ms = WallMs(node.now_ms + 2500)
    client = node.ann()
    client.received = b""
    node.tick(1000)
    node.tick(1000)
    assert names(client) == []
    node.tick(1000)
    assert closed(client) == (320, "CONNECTION_FORCED - credential expired")


@pytest.mark.parametrize("slowly", [False, True])
def test_a_new_secret_renews_the_log_in(node: Node, slowly: bool) -> None:
    node.backend.expires_at_ms = WallMs(node.now_ms + 1500)
    client = node.ann()
    client.received = b""
    node.judge.renewal = renewal = Inquiry()
    account = Account("ann", [], node.judge, WallMs(node.now_ms + 5000))
    if not slowly:
        renewal.allow(account)
    client.method(0, "connection.update-secret", new_secret=b"new", reason="due")
    client.method(1, "queue.declare", queue="q")
    if slowly:
        assert names(client) == []
        renewal.allow(account)
        node.run()
    assert names(client) == ["connection.update-secret-ok", "queue.declare-ok"]
    node.tick(4000)
    assert names(client) == []
    node.tick(2000)
    assert closed(client)[0] == 320


@pytest.mark.parametrize("name", ["", "bob"])
def test_a_secret_that_is_refused_or_of_another_user(node: Node, name: str) -> None:
    client = node.ann()
    client.received = b""
    node.judge.renewal = renewal = Inquiry()
    if name:
        renewal.allow(Account(name, [], node.judge))
    else:
        renewal.deny("no")
    client.method(0, "connection.update-secret", new_secret=b"new", reason="due")
    text = "NOT_ALLOWED - New secret was refused by one of the backends"
    assert closed(client) == (530, text)


def test_a_new_secret_without_a_right_ends_what_rests_on_it(node: Node) -> None:
    client = node.ann()
    client.call("queue.declare", queue="q")
    client.consume("q")
    client.received = b""
    node.judge.denied = {("queue", "q")}
    node.judge.renewal = renewal = Inquiry()
    renewal.allow(Account("ann", [], node.judge))
    client.method(0, "connection.update-secret", new_secret=b"new", reason="due")
    assert names(client) == ["basic.cancel", "connection.update-secret-ok"]


def test_a_secret_of_an_internal_user_changes_nothing() -> None:
    client = QuietBroker().client()
    client.received = b""
    client.method(0, "connection.update-secret", new_secret=b"new", reason="due")
    assert names(client) == ["connection.update-secret-ok"]
