"""The blocking client's verbs against a running broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.client.amqp import (
    Channel,
    ChannelClosed,
    ClientError,
    Connection,
    ConnectionClosed,
    ConnectionLost,
    ConsumerCancelled,
    Delivery,
    Endpoint,
)
from penstock.client.sink import listen
from penstock.protocols.amqp.codec.properties import Properties
from tests.helpers.broker_process import BrokerProcess


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    with Connection(Endpoint.parse(broker.url)) as opened:
        yield opened


@pytest.fixture
def channel(connection: Connection) -> Channel:
    return connection.channel()


@pytest.fixture
def queue(channel: Channel) -> str:
    return channel.queue_declare(exclusive=True).text("queue")


def received(channel: Channel) -> Delivery:
    delivery = channel.next_delivery(5)
    assert delivery is not None
    return delivery


def test_a_message_keeps_body_properties_and_address(channel: Channel, queue: str) -> None:
    headers: dict[str, object] = {"number": 7, "nested": {"flag": True}}
    properties = Properties(headers=headers, content_type="text/plain", priority=3)
    channel.exchange_declare("client.topic", "topic", auto_delete=True)
    channel.queue_bind(queue, "client.topic", "a.#")
    channel.publish(b"x" * 300_000, "client.topic", "a.b", properties)
    channel.consume(queue, no_ack=True)
    delivery = received(channel)
    assert delivery.body == b"x" * 300_000
    assert delivery.properties == properties
    assert (delivery.exchange, delivery.routing_key) == ("client.topic", "a.b")
    assert (delivery.delivery_tag, delivery.redelivered) == (1, False)
    assert channel.next_delivery(0.05) is None


def test_confirms_are_awaited_and_returns_kept(channel: Channel, queue: str) -> None:
    channel.confirm_select()
    tags = [channel.publish(b"%d" % number, "", queue) for number in range(20)]
    assert tags == list(range(1, 21))
    channel.publish(b"nowhere", "", "no such queue", mandatory=True)
    assert channel.wait_for_confirms() == []
    assert not channel.unconfirmed
    [returned] = channel.returned
    assert returned.method.number("reply_code") == 312
    assert returned.body == b"nowhere"
    assert channel.queue_purge(queue) == 20


def test_get_ack_nack_reject_and_recover(channel: Channel, queue: str) -> None:
    for body in (b"one", b"two", b"three", b"four"):
        channel.publish(body, "", queue)
    deliveries = [channel.get(queue) for _ in range(4)]
    assert [d.body for d in deliveries if d] == [b"one", b"two", b"three", b"four"]
    assert channel.get(queue) is None
    channel.ack(1)
    channel.nack(2, requeue=False)
    channel.reject(3)
    again = channel.get(queue)
    assert again is not None
    assert (again.body, again.redelivered) == (b"three", True)
    channel.recover()
    last = [channel.get(queue, no_ack=True) for _ in range(2)]
    assert [d.body for d in last if d] == [b"three", b"four"]


def test_prefetch_holds_deliveries_back_until_acks(channel: Channel, queue: str) -> None:
    channel.qos(2)
    for number in range(5):
        channel.publish(b"%d" % number, "", queue)
    tag = channel.consume(queue)
    received(channel)
    second = received(channel)
    assert channel.next_delivery(0.1) is None
    channel.ack(second.delivery_tag, multiple=True)
    assert [received(channel).body for _ in range(2)] == [b"2", b"3"]
    channel.cancel(tag)
    channel.ack(4, multiple=True)
    assert channel.next_delivery(0.1) is None
    assert channel.queue_declare(queue, passive=True).number("message_count") == 1


def test_a_channel_the_broker_closes_says_why_and_the_connection_lives(
    connection: Connection,
) -> None:
    doomed, other = connection.channel(), connection.channel()
    with pytest.raises(ChannelClosed) as caught:
        doomed.queue_declare("no such queue", passive=True)
    assert caught.value.code == 404
    assert "no such queue" in caught.value.text
    with pytest.raises(ChannelClosed):
        doomed.publish(b"too late")
    assert other.queue_declare(exclusive=True).number("message_count") == 0
    assert connection.channel().number == doomed.number  # free again


def test_a_consumer_whose_queue_is_deleted_is_told(channel: Channel) -> None:
    channel.queue_declare("client.cancelled")
    channel.publish(b"last", "", "client.cancelled")
    channel.consume("client.cancelled", no_ack=True)
    assert received(channel).body == b"last"
    channel.queue_delete("client.cancelled")
    with pytest.raises(ConsumerCancelled):
        channel.next_delivery(5)


def test_wrong_credentials_and_unknown_vhosts_are_refused(broker: BrokerProcess) -> None:
    end = Endpoint.parse(broker.url)
    with pytest.raises(ConnectionClosed) as refused:
        Connection(Endpoint(end.host, end.port, end.user, "wrong", "/"))
    assert refused.value.code == 403
    with pytest.raises(ConnectionClosed) as missing:
        Connection(Endpoint(end.host, end.port, end.user, end.password, "no such vhost"))
    assert missing.value.code == 530


def test_nobody_there_and_somebody_else_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(8)
                peer.sendall(b"AMQP\x00\x01\x00\x00")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ConnectionLost, match="another protocol"):
            Connection(Endpoint("127.0.0.1", port, "guest", "guest", "/"))
        thread.join()
    with pytest.raises(ConnectionLost):
        Connection(Endpoint("127.0.0.1", port, "guest", "guest", "/"))


def test_a_peer_that_hangs_up_in_the_middle_is_a_lost_connection() -> None:
    with listen(blasting=False, body_bytes=16) as listener:
        port = listener.getsockname()[1]
        connection = Connection(Endpoint("127.0.0.1", port, "guest", "guest", "/"))
        with pytest.raises(ConnectionLost):
            connection.channel().exchange_delete("unknown to the sink")
        with pytest.raises(ConnectionLost):
            connection.channel()
        connection.close()


def test_a_closed_connection_answers_no_more(broker: BrokerProcess) -> None:
    connection = Connection(Endpoint.parse(broker.url))
    channel = connection.channel()
    channel.close()
    with pytest.raises(ClientError):
        channel.queue_declare()
    connection.close()
    connection.close()
    with pytest.raises(ClientError):
        connection.channel()
