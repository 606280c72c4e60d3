"""Large contents leave without being copied, and what leaves is the same as if they were."""

from __future__ import annotations

import pytest

from penstock.protocols.amqp.codec.encoder import UNCOPIED_BYTES
from tests.helpers.connection_pair import ClientEnd, QuietBroker

SIZES = (10, UNCOPIED_BYTES, 20, 20, 3 * UNCOPIED_BYTES)


def delivered(gathers: bool, channel: int, frame_max: int = 131_072) -> tuple[ClientEnd, bytes]:
    """What waits to be sent to a consumer of messages of ``SIZES``."""
    node = QuietBroker()
    producer = node.client()
    producer.call("queue.declare", queue="q")
    for number, size in enumerate(SIZES):
        producer.publish("", "q", bytes([number]) * size)
    consumer = node.connect()
    consumer.open(frame_max)
    consumer.call("channel.open", channel=channel)
    consumer.session.outlet.gather(gathers)
    consumer.blocked = True
    consumer.received = b""
    consumer.consume("q", channel=channel, no_ack=True)
    outlet, out = consumer.session.outlet, consumer.session.out
    ahead_bytes = outlet.ahead_bytes
    ahead = b"".join(outlet.take_ahead())
    assert ahead_bytes == len(ahead)
    assert outlet.ahead_bytes == 0
    return consumer, ahead + out.getvalue()


@pytest.mark.parametrize("channel, frame_max", [(1, 131_072), (2, 131_072), (1, 8192)])
def test_the_same_octets_leave(channel: int, frame_max: int) -> None:
    _, copied = delivered(False, channel, frame_max)
    _, gathered = delivered(True, channel, frame_max)
    assert gathered == copied


def test_a_large_content_is_the_one_that_was_published() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    client.session.outlet.gather(True)
    client.blocked = True
    client.consume("q", no_ack=True)
    client.publish("", "q", b"x" * UNCOPIED_BYTES)
    client.publish("", "q", b"small")
    head, content = client.session.outlet.take_ahead()
    assert len(head) < 200
    assert content.count(b"x") == UNCOPIED_BYTES
    assert len(client.session.out) < 200


def test_what_goes_ahead_counts_for_the_outlet() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    outlet = client.session.outlet
    outlet.gather(True)
    outlet.grant(2 * UNCOPIED_BYTES)
    client.blocked = True
    client.consume("q", no_ack=True)
    for _ in range(5):
        client.publish("", "q", b"x" * UNCOPIED_BYTES)
    assert not outlet.open
    assert len(outlet.ahead) == 4
