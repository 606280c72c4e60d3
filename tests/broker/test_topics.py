"""Topics and channels against a model: backlogs, pauses, deferrals, bindings, starts."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.broker.topology.topics import (
    Topic,
    TopicChannel,
    exchange_name,
    is_ephemeral,
    queue_name,
)
from penstock.core.message import PERSISTENT, Message
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.queue import Queue
from penstock.storage.common.read_retry import RETRY_LEAST_MS
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.raw_codec import content_frames, short_string
from tests.models.model_topics import ModelTopic, Sink

# A failed run is shrunk, and that alone may take minutes.
pytestmark = pytest.mark.timeout(600 + settings().max_examples // 2)

EVERYTHING = 1 << 40
TOPICS = ("t", "u#ephemeral")
CHANNELS = ("a", "b", "c#ephemeral")
TOPIC, CHANNEL = st.sampled_from(TOPICS), st.sampled_from(CHANNELS)
PLAIN: dict[str, dict[str, object]] = {
    "plain": {},
    "urgent": {"x-max-priority": 3},
    "once": {"x-message-deduplication": True},
}
"""Queues of AMQP that are bound to a topic."""
BEHIND = "behind"
"""One that is bound to an exchange that is bound to it."""


def nsq_message(name: bytes, *, persistent: bool = True) -> Message:
    content = content_frames(1, name, {"delivery_mode": 2 if persistent else 1})
    address = short_string("nsq.t") + short_string("")
    return Message(content, address, PERSISTENT if persistent else 0, 0)


def name_of(message: Message) -> bytes:
    """The one body frame is the last: its header, the name, the end mark."""
    return message.content[message.content.rindex(b"name") : -1]


def names_in(queue: Queue) -> list[bytes]:
    backing: Any = queue.backing
    return [
        name_of(message)
        for part in backing.parts()
        for message in part.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
    ]


class TopicMachine(RuleBasedStateMachine):
    @initialize(bound=st.sets(st.sampled_from(["a", "b", *PLAIN, BEHIND])))
    def begin(self, bound: set[str]) -> None:
        self.directory = tempfile.mkdtemp()
        self.node = QuietBroker(definitions=f"{self.directory}/definitions.db")
        self.model: dict[str, ModelTopic] = {}
        self.published = 0
        self.vhost.declare_exchange("fan", "fanout", True, False, False, {})
        for name, arguments in {**PLAIN, BEHIND: {}}.items():
            self.vhost.declare_queue(name, True, None, False, arguments)
        self.vhost.bind_queue(self.vhost.queues[BEHIND], "fan", "", {})
        for sink in sorted(bound):
            if sink in CHANNELS:
                self.make_channel("t", sink)
            else:
                self.bind_amqp("t", sink, True)

    @property
    def vhost(self) -> Any:
        return self.node.broker.vhosts["/"]

    def topic(self, name: str) -> Topic:
        topic = self.vhost.topics.topic(name)
        self.model.setdefault(name, ModelTopic(is_ephemeral(name)))
        return topic  # type: ignore[no-any-return]

    def queue_of(self, topic: str, sink: str) -> Queue:
        if sink in CHANNELS:
            return self.vhost.topics.topics[topic].channels[sink].queue  # type: ignore[no-any-return]
        return self.vhost.queues[sink]  # type: ignore[no-any-return]

    # -- coming and going --------------------------------------------------------------------

    @rule(name=TOPIC, channel=CHANNEL)
    def make_channel(self, name: str, channel: str) -> None:
        topic = self.topic(name)
        found = self.vhost.topics.channel(topic, channel)
        assert isinstance(found, TopicChannel)
        self.model[name].sinks.setdefault(channel, Sink())

    @rule(name=TOPIC, channel=CHANNEL)
    def delete_channel(self, name: str, channel: str) -> None:
        model = self.model.get(name)
        if model is None or channel not in model.sinks:
            return
        topics = self.vhost.topics
        assert topics.delete_channel(topics.topics[name].channels[channel]) == []
        del model.sinks[channel]
        self.lost_a_sink(name)

    @rule(name=TOPIC)
    def leave(self, name: str) -> None:
        """An ephemeral channel goes with its last consumer."""
        model = self.model.get(name)
        if model is None or CHANNELS[2] not in model.sinks:
            return
        queue = self.queue_of(name, CHANNELS[2])
        consumer = Consumer("c", "c", OutputWindow(), SharedWindow(), False, 1, False, {})
        consumer.window = 0
        queue.add_consumer(consumer)
        queue.remove_consumer(consumer)
        assert queue.unused
        self.vhost.delete_queue(queue)
        del model.sinks[CHANNELS[2]]
        self.lost_a_sink(name)

    def lost_a_sink(self, name: str) -> None:
        """An ephemeral topic goes with its last binding."""
        if self.model[name].ephemeral and not self.model[name].sinks:
            assert name not in self.vhost.topics.topics
            del self.model[name]

    @rule(name=TOPIC, really=st.sampled_from([False, False, True]))
    def delete_topic(self, name: str, really: bool) -> None:
        if name in self.model and really:
            self.let_go_of_sinks(name)
            self.vhost.topics.delete(self.vhost.topics.topics[name])
            del self.model[name]
            assert exchange_name(name) not in self.vhost.exchanges
            assert queue_name(name, "a") not in self.vhost.queues

    @rule(
        name=TOPIC,
        sink=st.sampled_from([*PLAIN, BEHIND]),
        bound=st.sampled_from([True, True, False]),
    )
    def bind_amqp(self, name: str, sink: str, bound: bool) -> None:
        """What is bound has its own model in each topic, so only to one of them."""
        if any(sink in other.sinks for key, other in self.model.items() if key != name):
            return
        if name not in self.model and not bound:
            return
        self.topic(name)
        sinks = self.model[name].sinks
        if bound == (sink in sinks):
            return
        way, source = "bind" if bound else "unbind", exchange_name(name)
        if sink == BEHIND:
            getattr(self.vhost, f"{way}_exchange")("fan", source, "", {})
        else:
            getattr(self.vhost, f"{way}_queue")(self.vhost.queues[sink], source, "", {})
        queue = self.vhost.queues[sink]
        if bound:
            sinks[sink] = Sink()
        else:
            del sinks[sink]
            self.let_go_of_all(queue)
            self.lost_a_sink(name)

    def let_go_of_sinks(self, name: str) -> None:
        """What is bound and no channel keeps what it has, but the model forgets it."""
        for sink in self.model[name].sinks:
            if sink not in CHANNELS:
                self.let_go_of_all(self.vhost.queues[sink])

    def let_go_of_all(self, queue: Queue) -> None:
        queue.purge()
        backing: Any = queue.backing
        for part in backing.parts():
            part.drop_delayed()

    # -- messages ----------------------------------------------------------------------------

    @rule(
        name=TOPIC,
        count=st.integers(1, 5),
        wait_ms=st.sampled_from([0, 0, 0, 5, 400]),
        ran=st.booleans(),
    )
    def publish(self, name: str, count: int, wait_ms: int, ran: bool) -> None:
        topic, now_ms = self.topic(name), self.node.now_ms
        names = [b"name%06d" % (self.published + i) for i in range(count)]
        self.published += count
        messages = [nsq_message(one, persistent=not self.model[name].ephemeral) for one in names]
        if wait_ms:
            self.vhost.topics.publish_deferred(topic, messages, count, now_ms + wait_ms, now_ms)
        else:
            self.vhost.topics.publish(topic, messages, count, now_ms)
        self.model[name].publish(names, now_ms + wait_ms if wait_ms else 0)
        if ran:
            self.node.run()

    @rule(name=TOPIC, count=st.integers(1, 5))
    def publish_by_amqp(self, name: str, count: int) -> None:
        """The same way as everybody."""
        if name not in self.model:
            return
        names = [b"name%06d" % (self.published + i) for i in range(count)]
        self.published += count
        client = self.node.clients[0] if self.node.clients else self.node.client()
        for one in names:
            client.publish(exchange_name(name), "", one, delivery_mode=2)
        self.model[name].publish(names, 0)

    @precondition(lambda self: any(topic.sinks for topic in self.model.values()))
    @rule(data=st.data(), count=st.integers(1, 4))
    def consume(self, data: st.DataObject, count: int) -> None:
        pairs = [(name, sink) for name in sorted(self.model) for sink in self.model[name].sinks]
        name, sink = data.draw(st.sampled_from(pairs))
        backing: Any = self.queue_of(name, sink).backing
        taken = backing.fetch(count, EVERYTHING)
        self.node.run()
        self.settle_model()
        for message in taken:
            self.model[name].sinks[sink].gone(name_of(message))
        backing.ack(taken)

    @rule(passed_ms=st.sampled_from([0, 5, 400, 1000]))
    def tick(self, passed_ms: int) -> None:
        self.node.tick(passed_ms)

    @rule(name=TOPIC, paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        if name in self.model:
            self.vhost.topics.pause(self.vhost.topics.topics[name], paused)
            self.model[name].paused = paused

    @rule(name=TOPIC)
    def empty(self, name: str) -> None:
        """What did not leave it yet."""
        if name in self.model:
            self.node.run()
            self.settle_model()
            self.vhost.topics.empty(self.vhost.topics.topics[name])
            self.model[name].backlog = {}

    # -- ends --------------------------------------------------------------------------------

    @rule(power_cut=st.booleans())
    def start_again(self, power_cut: bool) -> None:
        """When all is on disk: durable topics and channels are as they were."""
        for _ in range(3):
            self.node.tick(1000)
        self.settle_model()
        journal = self.node.engine.journal
        assert journal.durable_position == journal.position
        now_ms = self.node.now_ms
        if power_cut:
            self.node.files.power_cut(random.Random(7))
        else:
            self.node.files.kill()
        self.node.definitions.close()
        self.node = QuietBroker(self.node.files, f"{self.directory}/definitions.db")
        self.node.now_ms = now_ms
        for name in list(self.model):
            model = self.model[name]
            if model.ephemeral:
                self.let_go_of_sinks(name)
                del self.model[name]
            else:
                model.sinks.pop(CHANNELS[2], None)
        self.node.run()

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self.node.definitions.close()
            shutil.rmtree(self.directory)

    # -- always ------------------------------------------------------------------------------

    def settle_model(self) -> None:
        for model in self.model.values():
            model.move()
            for sink in model.sinks.values():
                sink.tick(self.node.now_ms)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "node"):
            return
        topics = self.vhost.topics
        topics.check()
        self.node.run()
        self.settle_model()
        topics.check()
        assert set(topics.topics) == set(self.model)
        for name, model in self.model.items():
            topic = topics.topics[name]
            assert topic.exchange.holds == model.holds()
            assert topic.depth() == len(model.backlog)
            assert set(topic.channels) == set(model.sinks) & set(CHANNELS)
            for key, sink in model.sinks.items():
                self.judge(self.queue_of(name, key), sink, key)
        self.node.engine.check()

    def judge(self, queue: Queue, sink: Sink, key: str) -> None:
        queue.check()
        found = names_in(queue)
        assert sorted(found) == sorted(sink.ready), key
        assert queue.deferred_count() == len(sink.deferred)
        assert sink.deferred == {} or queue.next_due_ms() == min(sink.deferred.values())
        in_order = [one for one in found if one not in sink.was_deferred]
        assert in_order == [one for one in sink.ready if one not in sink.was_deferred], key


TopicMachine.TestCase.settings = settings(stateful_step_count=40, deadline=None)
TestTopics = TopicMachine.TestCase


def test_a_topic_that_leads_nowhere_takes_messages_all_the_same() -> None:
    node = QuietBroker()
    vhost = node.broker.vhosts["/"]
    topic = vhost.topics.topic("t")
    vhost.declare_exchange("fan", "fanout", True, False, False, {})
    vhost.bind_exchange("fan", exchange_name("t"), "", {})
    assert vhost.topics.publish(topic, [nsq_message(b"name")], 4, node.now_ms) == 0
    assert topic.message_count == 1


def test_a_queue_that_is_no_channel_any_more_keeps_its_deadlines() -> None:
    """Nobody scans it then."""
    node = QuietBroker()
    vhost = node.broker.vhosts["/"]
    vhost.topics._scanned = True
    topic = vhost.topics.topic("t")
    queue = vhost.topics.channel(topic, "a").queue
    other = vhost.topics.channel(topic, "b").queue
    vhost.topics.publish_deferred(topic, [nsq_message(b"name")], 4, node.now_ms + 9, node.now_ms)
    assert queue.next_due_ms() == other.next_due_ms() == 0
    vhost.unbind_queue(queue, exchange_name("t"), "", {})
    assert queue.next_due_ms() == node.now_ms + 9
    vhost.delete_exchange(exchange_name("t"), False)
    assert other.next_due_ms() == node.now_ms + 9


def steps_of(act: Callable[[], object]) -> int:
    """How many instructions Python interprets for it; those of compiled functions are not seen."""
    steps = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return steps


def test_a_channel_costs_the_same_however_many_its_topic_has() -> None:
    node = QuietBroker()
    topics = node.broker.vhosts["/"].topics
    topics.measure([0.99], 60_000, topics.publish_time)
    topic = topics.topic("t")
    few, many = ("one", "two"), ("three", "four")

    def make_and_delete(names: tuple[str, str]) -> None:
        for name in names:
            topics.channel(topic, name)
        for name in names:
            topics.delete_channel(topic.channels[name])

    make_and_delete(few)  # what is done once in a life is done
    alone = steps_of(lambda: make_and_delete(few))
    for number in range(300):
        topics.channel(topic, f"c{number}")
    assert steps_of(lambda: make_and_delete(many)) < 1.2 * alone


def test_a_backlog_that_cannot_be_read_waits_and_moves_on_later() -> None:
    """It asked again in every turn, so the loop never slept."""
    with tempfile.TemporaryDirectory() as directory:
        node = QuietBroker(definitions=f"{directory}/definitions.db")
        topic = node.broker.vhosts["/"].topics.topic("t")
        names = [b"name%03d" % number for number in range(50)]
        messages = [nsq_message(name) for name in names]
        node.broker.vhosts["/"].topics.publish(topic, messages, 350, node.now_ms)
        node.run()
        node.files.kill()
        node.definitions.close()
        node = QuietBroker(node.files, f"{directory}/definitions.db")
        topics = node.broker.vhosts["/"].topics
        node.files.fail("pread")
        channel = topics.channel(topics.topic("t"), "c")
        node.run()
        assert channel.queue.backing.ready_count() == 0
        node.tick(300)
        node.tick(int(RETRY_LEAST_MS))
        assert names_in(channel.queue) == names
        node.definitions.close()
