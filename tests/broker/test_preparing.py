"""New topics wait for channels others know; who follows is told; times are measured."""

from __future__ import annotations

from penstock.core.counting.histogram import Histogram
from penstock.core.message import Message
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from tests.helpers.connection_pair import QuietBroker

NOW_MS = 1_700_000_000_000


def message(body: bytes = b"x") -> Message:
    return Message(body, b"\x05nsq.t\0", 0, 0)


def test_a_prepared_topic_holds_until_its_channels_are_there() -> None:
    node = QuietBroker()
    topics = node.broker.vhosts["/"].topics
    asked: list[str] = []

    def ask(name: str) -> bool:
        asked.append(name)
        return True

    topics.report_to(None, ask)
    topic = topics.topic("t")
    early = topics.channel(topic, "early")
    topics.publish(topic, [message()], 1, NOW_MS)
    node.turn.run(NOW_MS, True)
    topics.check()
    assert asked == ["t"]
    assert topic.depth() == 1, "somebody else may have a channel"
    known = topics.channel(topic, "known")
    topics.prepared("t")
    node.turn.run(NOW_MS, True)
    topics.check()
    assert topic.depth() == 0
    for channel in (early, known):
        assert channel.queue.backing.ready_count() == 1
    topics.prepared("t")
    topics.prepared("nobody")


def test_nobody_is_asked_of_what_nobody_knows() -> None:
    node = QuietBroker()
    topics = node.broker.vhosts["/"].topics
    topics.report_to(None, lambda _name: False)
    topic = topics.topic("t")
    topics.channel(topic, "c")
    assert not topic.preparing
    assert not topic.exchange.holds


def test_each_change_of_names_is_told() -> None:
    node = QuietBroker()
    topics = node.broker.vhosts["/"].topics
    seen: list[tuple[str, list[str]]] = []

    def look() -> None:
        seen.append(
            (" ".join(topics.topics), [c for t in topics.topics.values() for c in t.channels])
        )

    topics.report_to(look, None)
    topic = topics.topic("t")
    assert seen[-1] == ("t", [])
    channel = topics.channel(topic, "c")
    assert seen[-1] == ("t", ["c"])
    topics.delete_channel(channel)
    assert seen[-1] == ("t", [])
    topics.delete(topic)
    assert seen[-1] == ("", [])


def test_channels_are_measured_when_quantiles_are_asked_for() -> None:
    node = QuietBroker()
    topics = node.broker.vhosts["/"].topics
    unmeasured = topics.channel(topics.topic("u"), "c")
    assert unmeasured.queue.statistics.latency is None
    topics.latency_targets, topics.latency_window_ms = [1.0], 60_000
    topic = topics.topic("t")
    queue = topics.channel(topic, "c").queue
    consumer = Consumer("c", "c", OutputWindow(), SharedWindow(), False, 0, False, {})
    queue.add_consumer(consumer)
    topics.publish(topic, [message()], 1, NOW_MS)
    queue.settle(consumer, queue.deliver(NOW_MS + 100)[0].messages)
    queue.deliver(NOW_MS + 250)
    total = Histogram()
    assert queue.statistics.latency is not None
    queue.statistics.latency.times_ms.add_to(total, NOW_MS + 250)
    assert (total.count, total.percentile(1.0)) == (1, 250)
