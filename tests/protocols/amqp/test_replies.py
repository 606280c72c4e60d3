"""Direct reply-to where a broker in one process shows more than the conversation on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.transfers.replies import REPLY_TO
from penstock.protocols.amqp.codec.header_edit import with_reply_to
from penstock.protocols.amqp.codec.properties import body_of, decode_properties
from penstock.storage.definitions.records import PermissionRecord
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker

MEGABYTE = 1024 * 1024


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def ask(client: ClientEnd, channel: int = 1) -> str:
    """Wait for answers on the channel; returns the name a request would carry."""
    client.consume(REPLY_TO, "r", channel, no_ack=True)
    waiting = client.session.channels[channel].replies.consumer
    assert waiting is not None
    return waiting.name


def test_who_does_not_read_its_answers_loses_the_channel_not_the_broker(node: QuietBroker) -> None:
    client, server = node.client(), node.client()
    client.call("channel.open", channel=2)
    name, other = ask(client), ask(client, 2)
    client.received = b""
    client.blocked = True
    for _ in range(200):
        server.publish("", name, b"x" * MEGABYTE)
    assert len(client.session.out) < 67 * MEGABYTE
    client.blocked = False
    node.run()
    server.publish("", name, b"too late")
    told = client.methods()
    assert {method for method, _ in told[:-1]} == {"basic.deliver"}
    assert told[-1][0] == "channel.close"
    assert told[-1][1]["code"] == 406
    assert "leaves more than 67108864 bytes unread" in told[-1][1]["text"]
    assert list(node.broker.replies.consumers) == [other]
    node.check()


def test_an_answer_on_its_way_when_the_channel_closes_goes_nowhere(node: QuietBroker) -> None:
    client, server = node.client(), node.client()
    name = ask(client)
    client.received = b""
    server.publish("", name, b"answer", run=False)
    client.method(1, "channel.close", code=200)
    assert [method for method, _ in client.methods()] == ["channel.close-ok"]
    assert not node.broker.replies.consumers
    node.check()


def test_the_answer_after_a_new_consumer_in_the_same_turn_is_not_its(node: QuietBroker) -> None:
    client, server = node.client(), node.client()
    name = ask(client)
    client.received = b""
    server.publish("", name, b"old", run=False)
    client.send(
        codec.method_frame(1, "basic.cancel", consumer_tag="r", nowait=True)
        + codec.method_frame(
            1, "basic.consume", queue=REPLY_TO, consumer_tag="s", no_ack=True, nowait=True
        ),
    )
    assert client.methods() == []


def test_a_lost_connection_takes_its_names_with_it(node: QuietBroker) -> None:
    client = node.client()
    ask(client)
    client.drop()
    assert not node.broker.replies.consumers


def test_a_copy_in_a_lazy_queue_does_not_take_the_answer_away(node: QuietBroker) -> None:
    """The queue lets go of the content as soon as it has it."""
    client, server = node.client(), node.client()
    name = ask(client)
    lazy = {"x-queue-mode": "lazy"}
    server.call("queue.declare", queue="q", durable=True, arguments=lazy)
    client.received = b""
    server.publish("", name, b"answer", headers={"CC": ["q"]}, delivery_mode=2)
    assert client.bodies() == [b"answer"]
    assert node.broker.vhosts["/"].queues["q"].backing.ready_count() == 1


def test_answers_from_another_virtual_host_arrive(node: QuietBroker) -> None:
    guest = node.broker.users.users["guest"]
    grant = PermissionRecord("guest", "closed", ".*", ".*", ".*")
    guest.vhosts[grant.vhost] = (grant.configure, grant.write, grant.read)
    client, server = node.client(), node.client(vhost="closed")
    name = ask(client)
    client.received = b""
    server.publish("", name, b"answer")
    assert client.bodies() == [b"answer"]


def test_requests_go_by_the_rights_of_any_publish(node: QuietBroker) -> None:
    guest = node.broker.users.users["guest"]
    guest.vhosts["/"] = (".*", "^requests$", ".*")
    client, server = node.client(), node.client()
    name = ask(client)
    server.publish("", name, b"answer")
    method, fields = server.methods()[-1]
    assert (method, fields["code"]) == ("channel.close", 403)


_TEXTS = st.text(max_size=40).filter(lambda text: len(text.encode()) < 200)


@given(
    body=st.binary(max_size=300),
    name=_TEXTS,
    properties=st.fixed_dictionaries(
        {"reply_to": _TEXTS},
        optional={
            "content_type": _TEXTS,
            "headers": st.dictionaries(_TEXTS, _TEXTS, max_size=3),
            "delivery_mode": st.integers(1, 2),
            "correlation_id": _TEXTS,
            "expiration": _TEXTS,
            "timestamp": st.integers(0, 1 << 40),
            "cluster_id": _TEXTS,
        },
    ),
)
def test_only_the_reply_to_of_a_content_is_changed(
    body: bytes, name: str, properties: dict[str, object]
) -> None:
    content = codec.content_frames(3, body, properties)
    changed = with_reply_to(content, name.encode())
    assert decode_properties(changed).as_dict() == properties | {"reply_to": name}
    assert body_of(changed) == body
    assert changed == codec.content_frames(3, body, properties | {"reply_to": name})
