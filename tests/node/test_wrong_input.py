"""Whatever a peer sends, it is told what is right; nobody else notices, and the queues stay whole.

Peers say anything: methods with any values, contents that do not fit, frames that are none, after
their end too.  After each act the answer must be one that ``wrong_input.Model`` calls right, every
invariant of the node must hold, no session may report a fault of ours, and another connection
publishes and consumes and misses nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.runner import Bystander
from tests.helpers import raw_codec as codec
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.live_broker import LiveBroker
from tests.helpers.raw_amqp import CLOSED, SILENCE, open_client
from tests.helpers.wrong_input import (
    CODES,
    HARD,
    MESSAGE_MAX_BYTES,
    UNASKED,
    Act,
    Model,
    Right,
    lives,
)

Said = tuple[str, int, int]
"""Method, channel, and its code when it is a close."""

ACTS_AFTER_THE_END = 2


class Healthy:
    """A peer that does everything right, on queues that others may only look at."""

    def __init__(self, node: QuietBroker) -> None:
        self.client = node.client()
        self.client.call("queue.declare", queue="healthy", exclusive=True)
        self.client.call("confirm.select")
        self.client.consume("healthy")
        self._count = 0

    def goes_on(self) -> None:
        self._count += 1
        body = b"healthy %d" % self._count
        self.client.received = b""
        self.client.publish("", "healthy", body, delivery_mode=2)
        said = self.client.methods()
        mine = [fields for _, fields in said if fields.get("body", b"").startswith(b"healthy ")]
        assert [fields["body"] for fields in mine] == [body]
        acks = [fields["delivery_tag"] for name, fields in said if name == "basic.ack"]
        assert acks == [self._count]
        for name, fields in said:
            if name == "basic.deliver":
                self.client.method(1, "basic.ack", delivery_tag=fields["delivery_tag"])


def furnish(node: QuietBroker) -> None:
    """What the names in ``wrong_input.NAMES`` mean, whatever became of them before."""
    client = node.client()
    arguments: dict[str, dict[str, object]] = {
        "q": {"x-max-length": 5, "x-dead-letter-exchange": "x"},
        "short": {"x-max-length": 1, "x-overflow": "reject-publish"},
        "priorities": {"x-max-priority": 3, "x-message-ttl": 1000},
        "durable": {},
    }
    for queue, of_it in arguments.items():
        client.call("queue.delete", queue=queue)
        client.call("queue.declare", queue=queue, durable=queue == "durable", arguments=of_it)
        client.publish("", queue, b"left behind", delivery_mode=2)
        client.publish("", queue, b"left behind too", expiration="60000")
    for exchange, type_ in (
        ("x", "topic"), ("internal", "fanout"), ("headers", "headers"), ("hashes", "fanout")
    ):  # fmt: skip
        client.call("exchange.delete", exchange=exchange)
        client.call(
            "exchange.declare", exchange=exchange, type=type_, internal=exchange == "internal"
        )
        client.call("queue.bind", queue="durable", exchange=exchange, routing_key="#")
    client.drop()


def victim(node: QuietBroker) -> ClientEnd:
    """A connection with two channels, consumers and deliveries it has not settled."""
    client = node.client()
    client.call("channel.open", channel=2)
    client.call("queue.declare", queue="own", exclusive=True)
    client.method(1, "basic.get", queue="q")
    client.method(2, "basic.consume", queue="durable", consumer_tag="c", nowait=True)
    client.publish("", "own", b"mine")
    client.received = b""
    return client


def said(client: ClientEnd) -> list[Said]:
    """Methods that are answers; contents are left aside, they may be anything."""
    found: list[Said] = []
    for frame in client.frames():
        if frame.type != codec.METHOD:
            continue
        name, fields = codec.decode_method(frame.payload)
        if name not in UNASKED:
            code = fields["code"] if name in ("channel.close", "connection.close") else 0
            found.append((name, frame.channel, code))
    return found


def is_right(right: Right, act: Act, answers: list[Said]) -> bool:
    if right.anything:
        return True
    if not answers:
        return right.silence
    name, channel, code = answers[0]
    if len(answers) > 1:
        return False
    if name == "connection.close":
        return channel == 0 and code in right.codes & HARD
    if channel != act.channel:
        return False
    return code in right.codes - HARD if name == "channel.close" else name in right.replies


def live(node: QuietBroker, healthy: Healthy, life: list[Act]) -> None:
    furnish(node)
    client, model = victim(node), Model()
    after = 0
    for act in life:
        after += model.over
        if after > ACTS_AFTER_THE_END:
            break
        right = model.right(act)
        client.send(act.data)
        answers = said(client)
        assert is_right(right, act, answers), (act, right, answers)
        for name, channel, _ in answers:
            model.answered(name, channel)
        healthy.goes_on()
        node.check()
    client.drop()
    node.check()
    healthy.goes_on()


@settings(max_examples=4 * settings().max_examples)
@given(st.lists(lives(), min_size=1, max_size=4))
def test_everybody_else_goes_on_and_the_answer_is_right(several: list[list[Act]]) -> None:
    node = QuietBroker()
    node.limits.max_message_size_bytes = MESSAGE_MAX_BYTES
    healthy = Healthy(node)
    for life in several:
        live(node, healthy, life)
    node.tick(2000)
    node.check()
    assert "own" not in node.broker.vhosts["/"].queues


HANDSHAKE = (
    codec.PROTOCOL_HEADER,
    codec.method_frame(
        0, "connection.start-ok", mechanism="PLAIN", response="\0guest\0guest", locale="en_US"
    ),
    codec.method_frame(0, "connection.tune-ok", channel_max=2047, frame_max=131_072),
)


@given(st.integers(0, len(HANDSHAKE)), lives(4), st.booleans())
def test_before_it_is_open_nothing_is_done(steps: int, life: list[Act], drops: bool) -> None:
    """Out of order it is silence, a close or the end, and no channel ever answers."""
    node = QuietBroker()
    healthy = Healthy(node)
    client = node.connect()
    for step in HANDSHAKE[:steps]:
        client.send(step)
    client.received = b""
    for act in life:
        client.send(act.data)
        if client.session.state_name == "running":
            return  # it was the right step, by chance
        assert all(frame.channel == 0 for frame in client.frames())
        healthy.goes_on()
        node.check()
    if drops:
        client.drop()
    node.tick(15_000)
    assert client.session.closed or drops or client.session.state_name == "closing"
    node.check()


EARNED = frozenset().union(*CODES.values()) | {501, 503, 504, 505}
"""Codes that well-formed acts may be answered with."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A process; that it wrote no traceback is asked when it stops."""
    directory = tmp_path_factory.mktemp("wrong")
    limit = ("--max-message-size-bytes", str(MESSAGE_MAX_BYTES))
    with LiveBroker(directory, limit) as running:
        yield running


@pytest.fixture(scope="module")
def bystander(broker: BrokerProcess) -> Iterator[Bystander]:
    """It was there before any of the others."""
    beside = Bystander(broker.url)
    yield beside
    beside.close()


@settings(max_examples=6 * settings().max_examples)
@given(lives(20))
def test_a_process_outlives_it_on_real_sockets(
    broker: BrokerProcess, bystander: Bystander, life: list[Act]
) -> None:
    """All octets at once; what comes back are whole frames."""
    client, model = open_client(broker.url), Model()
    client.open_channel(2)
    for act in life:
        model.right(act)
    with contextlib.suppress(ConnectionError):
        client.send_off_record(b"".join(act.data for act in life))
    codes = set()
    while (event := client.receive_quietly(0.02)).name not in (CLOSED, SILENCE):
        if event.name in ("connection.close", "channel.close"):
            codes.add(event.args["code"])
    client.close_socket()
    bystander.round_trip()
    assert model.lost_track or codes <= EARNED
