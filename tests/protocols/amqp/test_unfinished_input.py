"""What has come in part is counted, and no peer may have too much of it."""

from __future__ import annotations

import pytest

from penstock.protocols.amqp.input import OVERHEAD_BYTES
from penstock.protocols.amqp.session import RUNNING
from penstock.protocols.ranges.session import LOGIN_MAX_BYTES
from penstock.storage.engine.ram import INPUT_ALONE_PART, INPUT_FREE_BYTES, INPUT_PART
from penstock_ranges import frames as range_frames
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.range_pair import StagingEnd

MIB = 1024 * 1024
PIECE = b"z" * 100_000


@pytest.fixture
def node() -> QuietBroker:
    made = QuietBroker()
    made.broker.engine.ram.limit_bytes = 64 * MIB
    return made


def begin(client: ClientEnd, channel: int, size: int) -> None:
    method = codec.method_frame(channel, "basic.publish", routing_key="q")
    client.send(method + codec.header_frame(channel, size, {}))


def send(client: ClientEnd, channel: int, size: int) -> int:
    """Pieces of a content; how much was sent before the connection was closed."""
    frame = codec.encode_frame(codec.BODY, channel, PIECE)
    sent = 0
    while sent < size and client.session.state == RUNNING:
        client.send(frame)
        sent += len(PIECE)
    return sent


def refused(client: ClientEnd) -> bool:
    said = [fields for name, fields in client.methods() if name == "connection.close"]
    return [fields["code"] for fields in said] == [506]


def test_it_counts_as_memory_until_it_is_whole_or_gone(node: QuietBroker) -> None:
    ram, client = node.broker.engine.ram, node.client()
    client.call("queue.declare", queue="q")
    begin(client, 1, 10 * len(PIECE))
    send(client, 1, 9 * len(PIECE))
    assert 9 * len(PIECE) < ram.input_bytes < 10 * len(PIECE)
    assert ram.used_bytes() >= ram.input_bytes
    send(client, 1, len(PIECE))
    assert ram.input_bytes == 0
    begin(client, 1, 10 * len(PIECE))
    send(client, 1, 5 * len(PIECE))
    client.session.lost(node.now_ms)
    assert ram.input_bytes == 0


def test_one_connection_may_have_one_message_of_the_largest_size(node: QuietBroker) -> None:
    node.broker.engine.ram.limit_bytes = 1 << 40
    client = node.client()
    client.session._input._max_bytes = 4 * MIB + OVERHEAD_BYTES
    for channel in (1, 2, 3):
        if channel > 1:
            client.call("channel.open", channel)
        begin(client, channel, 4 * MIB)
    assert send(client, 1, 3 * MIB) >= 3 * MIB
    assert send(client, 2, 3 * MIB) < 3 * MIB
    assert refused(client)
    assert node.broker.engine.ram.input_bytes == 0


def test_one_that_is_alone_may_have_half_of_the_memory(node: QuietBroker) -> None:
    client = node.client()
    begin(client, 1, 60 * MIB)
    sent = send(client, 1, 60 * MIB)
    assert abs(sent - 64 * MIB // INPUT_ALONE_PART) < MIB
    assert refused(client)
    client.session.receive(PIECE * 100, node.now_ms)
    assert node.broker.engine.ram.input_bytes == 0, "what comes behind the end is not kept"


def test_several_share_a_quarter_and_small_ones_are_let_in(node: QuietBroker) -> None:
    node.client()
    clients = [node.client() for _ in range(4)]
    for client in clients:
        begin(client, 1, 30 * MIB)
    share = 64 * MIB // INPUT_PART
    sent = [send(client, 1, 10 * MIB) for client in clients]
    assert sent[0] >= 10 * MIB
    assert all(one < 10 * MIB for one in sent[2:])
    assert node.broker.engine.ram.input_bytes <= share
    small = node.client()
    begin(small, 1, INPUT_FREE_BYTES)
    send(small, 1, 9 * len(PIECE))
    assert not refused(small)


def test_what_is_held_is_counted_with_it(node: QuietBroker) -> None:
    node.broker.admission.vhost_reasons["/"] = "over budget"
    node.run()
    ended = 0
    for _ in range(8):
        client = node.client()
        begin(client, 1, 100 * len(PIECE))
        send(client, 1, 100 * len(PIECE))
        ended += refused(client)
    assert node.broker.flow.held_bytes <= 64 * MIB // INPUT_PART + MIB
    assert ended >= 6


def test_before_a_log_in_little_is_read() -> None:
    node = NsqBroker("nsq_auth_required = true")
    end = StagingEnd(node, login=False)
    end.send((LOGIN_MAX_BYTES + 1).to_bytes(4, "big") + b"\x10")
    assert end.session.closed
    staging = StagingEnd(node)
    staging.send(range_frames.frame(99, b"x" * 500_000))
    staging.hear()
    assert "unknown request" in range_frames.decode_error(staging.replies[-1][1])[1]
    client = node.nsq_client()
    client.send(b"PUB t\n" + (65_537).to_bytes(4, "big"))
    assert client.heard() == [b"E_BAD_MESSAGE PUB message too big 65537 > 65536"]
    known = node.nsq_client()
    known.send(b"AUTH\n\0\0\0\x0bguest:guest")
    known.heard()
    known.send(b"PUB t\n" + (65_537).to_bytes(4, "big") + b"x" * 65_537)
    assert known.heard() == [b"OK"]
