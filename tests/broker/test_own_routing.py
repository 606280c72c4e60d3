"""What the broker itself routes takes some steps in each turn, within one dear route as well."""

from __future__ import annotations

import random

import pytest

from penstock.broker.administration import Administration
from penstock.broker.message_moves import COPY, DONE, MOVE, MessageMove
from penstock.broker.rules.rights import Rights
from penstock.core.message import PERSISTENT, Message
from penstock.core.steps import STEPS_MAX, steps
from penstock_ranges import staging
from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import SEGMENT_ENTRIES, ClientEnd, QuietBroker
from tests.helpers.range_pair import StagingEnd, bodies_in, check, publishes

WORD_MAX = 40_000
"""Steps of one word in these tests: a share is left behind a word, not within it."""
BODIES = [b"%d" % number for number in range(4)]


def dear_patterns(client: ClientEnd, count: int, words: int, exchange: str = "amq.topic") -> None:
    chance = random.Random(1)
    for _ in range(count):
        pattern = ".".join(chance.choice("a*##") for _ in range(words))
        where = {"queue": "q", "exchange": exchange, "routing_key": pattern}
        client.send(codec.method_frame(1, "queue.bind", **where, nowait=True))
    client.call("queue.bind", queue="q", exchange=exchange, routing_key="#")


def most_in_a_turn(node: QuietBroker, turns: int) -> int:
    most = 0
    for _ in range(turns):
        before = steps.taken
        node.turn.begin(node.now_ms, node.mono_ms)
        node.turn.run(node.now_ms, True)
        node.flush()
        most = max(most, int(steps.taken - before))
    return most


def key(number: int) -> str:
    return ".".join("a" for _ in range(60 + number))


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


@pytest.fixture
def client(node: QuietBroker) -> ClientEnd:
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    return client


PATTERNS = pytest.mark.parametrize(
    "patterns", [(80, 40), (300, 40)], ids=["many cheap routes", "each is dear"]
)


@PATTERNS
def test_dead_letters(node: QuietBroker, client: ClientEnd, patterns: tuple[int, int]) -> None:
    dear_patterns(client, *patterns)
    limits: dict[str, object] = {"x-dead-letter-exchange": "amq.topic", "x-message-ttl": 0}
    client.call("queue.declare", queue="short", arguments=limits)
    client.call("exchange.declare", exchange="f", type="fanout")
    client.call("queue.bind", queue="short", exchange="f", routing_key="")
    for number, body in enumerate(BODIES):
        method = codec.method_frame(1, "basic.publish", exchange="f", routing_key=key(number))
        client.send(method + codec.content_frames(1, body, {}), run=False)
    most = most_in_a_turn(node, 400)
    assert STEPS_MAX <= most <= STEPS_MAX + WORD_MAX
    assert bodies_in(node, "q") == BODIES
    node.check()


@PATTERNS
def test_delayed_messages(node: QuietBroker, client: ClientEnd, patterns: tuple[int, int]) -> None:
    """Of two exchanges: what waits for its turn keeps its order."""
    for name in ("one", "two"):
        client.call(
            "exchange.declare", exchange=name, type="x-delayed-message", durable=True,
            arguments={"x-delayed-type": "topic"},
        )  # fmt: skip
        dear_patterns(client, *patterns, name)
    for number, body in enumerate(BODIES):
        for name in ("one", "two"):
            client.publish(name, key(number), name.encode() + body, headers={"x-delay": 1000})
    assert bodies_in(node, "q") == []
    node.now_ms += 2000
    most = most_in_a_turn(node, 800)
    assert STEPS_MAX <= most <= STEPS_MAX + WORD_MAX
    found = bodies_in(node, "q")
    for name in (b"one", b"two"):
        assert [one for one in found if one.startswith(name)] == [name + one for one in BODIES]
    assert len(found) == 2 * len(BODIES)
    node.run()
    node.check()


def test_an_exchange_that_goes_meanwhile_takes_what_waits(
    node: QuietBroker, client: ClientEnd
) -> None:
    client.call(
        "exchange.declare", exchange="later", type="x-delayed-message",
        arguments={"x-delayed-type": "topic"},
    )  # fmt: skip
    dear_patterns(client, 300, 40, "later")
    client.publish("later", key(0), b"m", headers={"x-delay": 1000})
    node.now_ms += 2000
    most_in_a_turn(node, 2)
    assert node.broker.queue_turns.internal_routes.waiting
    client.call("exchange.delete", exchange="later")
    node.run()
    assert not node.broker.queue_turns.internal_routes.waiting
    assert bodies_in(node, "q") == []
    node.check()


@pytest.mark.parametrize("wait_ms", [0, 100], ids=["ready", "deferred"])
@PATTERNS
def test_a_backlog_of_a_topic(
    node: QuietBroker, client: ClientEnd, patterns: tuple[int, int], wait_ms: int
) -> None:
    """It goes on through an exchange that is bound to the topic."""
    dear_patterns(client, *patterns)
    topics = node.broker.vhosts["/"].topics
    topic = topics.topic("t")
    for number, body in enumerate(BODIES):
        address = codec.short_string("nsq.t") + codec.short_string(key(number))
        content = codec.content_frames(1, body, {"delivery_mode": 2})
        message = Message(content, address, PERSISTENT, 0)
        if wait_ms:
            topics.publish_deferred(topic, [message], 1, node.now_ms + wait_ms, node.now_ms)
        else:
            topics.publish(topic, [message], 1, node.now_ms)
    method = codec.method_frame(
        1, "exchange.bind", destination="amq.topic", source="nsq.t", nowait=True
    )
    client.send(method, run=False)
    most = most_in_a_turn(node, 400)
    assert STEPS_MAX <= most <= STEPS_MAX + WORD_MAX
    node.tick(1000)
    assert bodies_in(node, "q") == BODIES
    assert topic.depth() == 0
    node.check()


@PATTERNS
def test_a_history_that_goes_to_an_exchange(
    node: QuietBroker, client: ClientEnd, patterns: tuple[int, int]
) -> None:
    dear_patterns(client, *patterns)
    client.call("exchange.declare", exchange="past", type="x-recent-history")
    for number, body in enumerate(BODIES):
        client.publish("past", key(number), body)
    before = steps.taken
    method = codec.method_frame(1, "exchange.bind", destination="amq.topic", source="past")
    client.send(method, run=False)
    most = max(int(steps.taken - before), most_in_a_turn(node, 400))
    assert STEPS_MAX <= most <= STEPS_MAX + WORD_MAX
    assert bodies_in(node, "q") == BODIES
    node.run()
    node.check()


def trace(node: QuietBroker, client: ClientEnd, patterns: tuple[int, int], *, opened: bool) -> None:
    """Dear patterns listen to the firehose.  ``opened``: behind an exchange that reads headers."""
    for name in (KEYED, OTHER):
        client.call("queue.declare", queue=name)
        client.call("exchange.declare", exchange=name, type="fanout")
        client.call("queue.bind", queue=name, exchange=name)
    dear_patterns(client, *patterns, "amq.topic" if opened else TRACE)
    if opened:
        client.call("exchange.bind", destination="amq.headers", source=TRACE, routing_key="#")
        client.call("exchange.bind", destination="amq.topic", source="amq.headers")
    Administration(node.broker, SEGMENT_ENTRIES).trace("/", on=True)


TRACE = "amq.rabbitmq.trace"
KEYED = ".".join("a" for _ in range(60))
OTHER = "b." + KEYED
"""Two exchanges and queues that are traced with keys of many words."""
OPENED = pytest.mark.parametrize("opened", [False, True], ids=["by key", "opened"])


@OPENED
@PATTERNS
def test_copies_of_deliveries_and_publishes(
    node: QuietBroker, client: ClientEnd, patterns: tuple[int, int], opened: bool
) -> None:
    """Of another connection, which waits for them; what was published is delivered behind them."""
    trace(node, client, patterns, opened=opened)
    other = node.client()
    other.consume(OTHER, no_ack=True)
    data = b""
    for number, body in enumerate(BODIES):
        exchange = KEYED if number % 2 else OTHER
        method = codec.method_frame(1, "basic.publish", exchange=exchange, routing_key="")
        get = codec.method_frame(1, "basic.get", queue=KEYED, no_ack=True)
        data += method + codec.content_frames(1, body, {}) + get
    before = steps.taken
    other.send(data, run=False)
    most = int(steps.taken - before)
    turns = 0
    while other.session.has_more or node.broker.traces.behind:
        turns += 1
        before = steps.taken
        other.session.go_on(node.now_ms)
        most = max(most, most_in_a_turn(node, 1), int(steps.taken - before))
        assert len(node.broker.traces.waiting) <= 3
    assert turns > 1
    assert most <= 2 * STEPS_MAX + WORD_MAX
    node.run()
    assert sorted(body for body in other.bodies() if body) == BODIES
    copies = bodies_in(node, "q")
    assert [copies.count(body) for body in BODIES] == [2] * len(BODIES)
    assert [body for at, body in enumerate(copies) if body not in copies[:at]] == BODIES
    node.check()


@PATTERNS
def test_a_virtual_host_that_goes_takes_its_copies(
    node: QuietBroker, client: ClientEnd, patterns: tuple[int, int]
) -> None:
    trace(node, client, patterns, opened=True)
    for body in BODIES:
        client.publish(KEYED, "", body, run=False)
    if patterns[0] > 100:
        assert node.broker.traces.behind
    node.broker.remove_vhost(node.broker.vhosts["/"])
    node.run()
    assert not node.broker.traces.behind


def stage(node: QuietBroker, batch: int, producer: str) -> str:
    end = StagingEnd(node)
    name = end.begin(batch, producer)
    data = b"".join(publishes("h", key(n), [body]) for n, body in enumerate(BODIES))
    assert end.block(data) == ""
    end.end(len(BODIES))
    return name


@PATTERNS
def test_batches_of_two_producers(
    node: QuietBroker, client: ClientEnd, patterns: tuple[int, int]
) -> None:
    client.call("exchange.declare", exchange="h", type="headers", durable=True)
    client.call("exchange.bind", destination="amq.topic", source="h", routing_key="")
    dear_patterns(client, *patterns)
    sets = {producer: stage(node, 1, producer) for producer in ("p1", "p2")}
    for producer, name in sets.items():
        end = StagingEnd(node)
        request = staging.CommitRequest(producer, "r1", 1, False, 0, [name])
        end.send(staging.encode_commit(request), run=False)
    most = most_in_a_turn(node, 800)
    assert STEPS_MAX <= most <= STEPS_MAX + WORD_MAX
    assert sorted(bodies_in(node, "q")) == sorted(2 * BODIES)
    node.run()
    check(node)


def test_a_publish_by_ranges(node: QuietBroker, client: ClientEnd) -> None:
    client.call("exchange.declare", exchange="h", type="headers", durable=True)
    client.call("exchange.bind", destination="amq.topic", source="h", routing_key="")
    dear_patterns(client, 80, 40)
    end = StagingEnd(node)
    data = b"".join(publishes("h", key(n), [body]) for n, body in enumerate(BODIES))
    before = steps.taken
    end.send(staging.encode_publish(data, True, 1000), run=False)
    assert steps.taken - before <= 2 * STEPS_MAX + WORD_MAX
    while end.silent():  # a tick, and the turns that go on with what it left
        before = steps.taken
        node.tick(20)
        assert steps.taken - before <= 4 * STEPS_MAX
    assert staging.decode_published(end.expect(staging.PUBLISHED)) == ("", 0)
    assert bodies_in(node, "q") == BODIES
    check(node)


@pytest.mark.parametrize("action", [COPY, MOVE])
@PATTERNS
def test_messages_that_an_operator_moves(
    node: QuietBroker, client: ClientEnd, action: str, patterns: tuple[int, int]
) -> None:
    dear_patterns(client, *patterns)
    client.call("queue.declare", queue="a", durable=True)
    for body in BODIES:
        client.publish("", "a", body, delivery_mode=2)
    vhost = node.broker.vhosts["/"]
    rights = Rights(node.broker.users.users["guest"], "/")
    client.call("exchange.declare", exchange="h", type="headers")
    client.call("exchange.bind", destination="amq.topic", source="h", routing_key="")
    target = ("h", key(0))
    move = MessageMove(node.broker, rights, vhost, vhost.queue("a"), 0, action, target)
    left, most, count = list(range(len(BODIES) + 3)), 0, 0
    while left:
        before = steps.taken
        left = move.step(left, node.now_ms)
        most = max(most, int(steps.taken - before))
        count += 1
    assert count > 1
    assert most <= STEPS_MAX + WORD_MAX
    node.run()
    assert bodies_in(node, "q") == BODIES
    assert bodies_in(node, "a") == (BODIES if action == COPY else [])
    assert move.counts == {DONE: len(BODIES), "gone": 3}
    node.check()


def test_a_binding_that_comes_and_goes_during_a_route(node: QuietBroker, client: ClientEnd) -> None:
    """What is bound all the time gets the letter, what is no longer bound does not."""
    dear_patterns(client, 300, 40)
    for name in ("gone", "deleted", "stays"):
        client.call("queue.declare", queue=name)
        client.call("queue.bind", queue=name, exchange="amq.topic", routing_key="a.#")
    limits: dict[str, object] = {"x-dead-letter-exchange": "amq.topic", "x-message-ttl": 0}
    client.call("queue.declare", queue="short", arguments=limits)
    client.call("exchange.declare", exchange="f", type="fanout")
    client.call("queue.bind", queue="short", exchange="f", routing_key="")
    method = codec.method_frame(1, "basic.publish", exchange="f", routing_key=key(0))
    client.send(method + codec.content_frames(1, b"m", {}), run=False)
    most_in_a_turn(node, 2)
    assert bodies_in(node, "stays") == []
    where = {"exchange": "amq.topic", "routing_key": "a.#"}
    client.send(codec.method_frame(1, "queue.unbind", queue="gone", **where), run=False)
    client.send(codec.method_frame(1, "queue.delete", queue="deleted", nowait=True), run=False)
    node.run()
    assert [bodies_in(node, name) for name in ("gone", "stays", "q")] == [[], [b"m"], [b"m"]]
    node.check()
