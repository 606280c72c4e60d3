"""The decisions of docs/nsq.md by their numbers, on a broker that runs: 1 to 8.

Each test fails when its decision is not kept.  The other half is in ``test_nsq_decisions_limits``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.helpers.nsq_amqp import BothBroker, Consumer, Taker
from tests.helpers.nsq_broker import eventually
from tests.helpers.nsq_live import RawClient
from tests.helpers.raw_nsq import dpub, pub

FAR_MS = 600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[BothBroker]:
    with BothBroker() as running:
        yield running


# -- 1: backlog before any channel ---------------------------------------------------------------


def test_01_a_topic_keeps_what_is_published_until_somebody_is_bound(broker: BothBroker) -> None:
    broker.publish("t1", "a", "b")
    assert broker.topic_row("t1")["depth"] == 2
    with Consumer(broker, "t1") as first, Consumer(broker, "t1", channel="d") as second:
        assert first.bodies(2) == ["a", "b"]
        assert broker.topic_row("t1")["depth"] == 0
        broker.publish("t1", "c")
        assert first.bodies(1) == ["c"]
        assert second.bodies(1) == ["c"]


def test_01_a_binding_of_amqp_counts(broker: BothBroker) -> None:
    broker.publish("t1amqp", "a", "b")
    with broker.amqp() as channel:
        channel.queue_declare("plain", exclusive=True)
        channel.queue_bind("plain", "nsq.t1amqp")
        broker.publish("t1amqp", "c")
        assert Taker(channel, "plain").take(3) == ["a", "b", "c"]
        assert broker.topic_row("t1amqp")["depth"] == 0
        with Consumer(broker, "t1amqp") as late:
            late.nothing()
            broker.publish("t1amqp", "d")
            assert late.bodies(1) == ["d"]


# -- 2: deferral counts from the publish ---------------------------------------------------------


def test_02_deferral_counts_from_the_publish(broker: BothBroker) -> None:
    broker.make("t2paused")
    broker.post("/topic/pause?topic=t2paused")
    with RawClient(broker) as producer:
        began = time.monotonic()
        for topic in ("t2early", "t2paused"):
            assert producer.ask(dpub(topic, 2000, b"m")) == b"OK"
    time.sleep(1.2)
    broker.post("/topic/unpause?topic=t2paused")
    with Consumer(broker, "t2early") as early, Consumer(broker, "t2paused") as paused:
        for consumer in (early, paused):
            consumer.take(1)
            assert 1.95 < time.monotonic() - began < 3.1  # from the hand-over it would be 3.2


def test_02_who_is_due_does_not_wait_behind_a_backlog(broker: BothBroker) -> None:
    broker.make("t2place")
    with RawClient(broker) as producer:
        assert producer.ask(dpub("t2place", 300, b"due")) == b"OK"
    broker.publish("t2place", *map(str, range(500)))
    assert broker.counts("t2place") == (500, 0, 1)
    broker.await_counts("t2place", 501, 0, 0)
    with Consumer(broker, "t2place", 1) as consumer:
        assert consumer.bodies(1) == ["due"]


def test_02_deferral_survives_a_kill() -> None:
    with BothBroker() as broker:
        broker.make("made")
        with RawClient(broker) as producer:
            began = time.monotonic()
            for topic in ("made", "backlog"):
                assert producer.ask(dpub(topic, 9000, b"m")) == b"OK"
        time.sleep(4.5)
        broker.kill()
        broker.start()
        ready = time.monotonic()
        with Consumer(broker, "made") as made, Consumer(broker, "backlog") as backlog:
            for consumer in (made, backlog):
                consumer.take(1)
                assert time.monotonic() - began > 8.95
        # Anew it would be some nine seconds after the start.
        assert time.monotonic() < max(began + 9, ready) + 4


# -- 3: what a lost consumer held ----------------------------------------------------------------


def test_03_what_a_lost_consumer_held_waits_for_its_timeout(broker: BothBroker) -> None:
    broker.publish("t3", "m")
    with Consumer(broker, "t3", msg_timeout=1500) as lost:
        began = time.monotonic()
        lost.take(1)
    with Consumer(broker, "t3") as other:
        eventually(lambda: broker.row("t3")["client_count"] == 1)
        assert broker.counts("t3") == (0, 1, 0)
        (again,) = other.take(1)
        assert time.monotonic() - began > 1.45
        assert again.attempts == 2


def test_03_with_the_setting_it_goes_back_at_once_to_its_place() -> None:
    with BothBroker(nsq_requeue_on_disconnect="true") as broker:
        broker.publish("t", "a", "b", "c")
        with Consumer(broker, "t", 2) as lost:
            assert lost.bodies(2) == ["a", "b"]
        with Consumer(broker, "t") as other:
            messages = other.take(3, within_s=5)
        assert [message.body for message in messages] == [b"a", b"b", b"c"]
        assert [message.attempts for message in messages] == [2, 2, 1]


def test_03_a_policy_says_so_of_a_channel(broker: BothBroker) -> None:
    broker.policy("t3policy", r"^nsq\.t3policy:", nsq_on_disconnect="requeue")
    broker.publish("t3policy", "m")
    with Consumer(broker, "t3policy") as lost:
        lost.take(1)
    with Consumer(broker, "t3policy") as other:
        (again,) = other.take(1, within_s=5)
        assert again.attempts == 2


def test_03_a_killed_node_gives_it_back_with_its_attempts() -> None:
    with BothBroker() as broker:
        broker.make("t")
        broker.publish("t", "held", "deferred")
        with Consumer(broker, "t") as consumer:
            held, deferred = consumer.take(2)
            consumer.requeue(held)
            consumer.take(1)
            consumer.requeue(deferred, FAR_MS)
            broker.await_counts("t", 0, 1, 1)
            time.sleep(0.8)  # what is no publish is on disk a moment later
            broker.kill()
        broker.start()
        assert broker.counts("t") == (1, 0, 1)
        with Consumer(broker, "t") as consumer:
            (again,) = consumer.take(1)
            assert (again.body, again.id, again.attempts) == (b"held", held.id, 3)


# -- 4: windows ----------------------------------------------------------------------------------


def test_04_rdy_is_a_window_and_prefetch_another(broker: BothBroker) -> None:
    broker.publish("t4", *map(str, range(10)))
    with broker.amqp() as channel, Consumer(broker, "t4", 3) as consumer:
        held = consumer.take(3)
        consumer.ready(1)  # below what is in flight
        consumer.finish(held[0], held[1])
        consumer.nothing()
        assert broker.counts("t4") == (7, 1, 0)
        taker = Taker(channel, "nsq.t4:c", prefetch=2)
        assert taker.take(2) == ["3", "4"]
        taker.listen()
        assert len(taker.got) == 2
        assert broker.counts("t4") == (5, 3, 0)
        consumer.finish(held[2])
        assert consumer.bodies(1) == ["5"]
        taker.ack(0)
        assert taker.take(3)[2] == "6"
        consumer.nothing()


# -- 5: lookup -----------------------------------------------------------------------------------


def test_05_the_embedded_lookup_announces_this_node(broker: BothBroker) -> None:
    broker.make("t5")
    eventually(lambda: broker.look("/channels?topic=t5").data == {"channels": ["c"]})
    found = broker.look("/lookup?topic=t5").data
    (producer,) = found["producers"]
    assert producer["broadcast_address"] == "127.0.0.1"
    assert (producer["tcp_port"], producer["http_port"]) == (broker.tcp_port, broker.api_port)
    with broker.amqp() as channel:  # what AMQP declares is announced as well
        channel.exchange_declare("nsq.t5amqp", "x-nsq-topic", durable=True)
    eventually(lambda: "t5amqp" in broker.look("/topics").data["topics"])


# -- 6: sampling ---------------------------------------------------------------------------------


def test_06_what_a_sample_leaves_out_is_gone_for_the_channel(broker: BothBroker) -> None:
    with (
        Consumer(broker, "t6", 1000, sample_rate=20) as sampler,
        Consumer(broker, "t6", channel="whole") as whole,
    ):
        broker.publish("t6", *map(str, range(400)))
        eventually(lambda: broker.row("t6")["depth"] == 0)
        kept = sampler.read(400, within_s=1)
        assert 30 <= len(kept) <= 140  # of 80 expected, six times the deviation away
        assert broker.counts("t6") == (0, len(kept), 0)
        eventually(lambda: broker.queue_row("nsq.t6:c")["messages"] == len(kept))
        with Consumer(broker, "t6") as other:
            other.nothing()
        assert whole.bodies(100)[-1] == "99"


# -- 7: AMQP consumers of a channel --------------------------------------------------------------


def test_07_amqp_consumers_have_no_deadline(broker: BothBroker) -> None:
    broker.make("t7")
    broker.publish("t7", "amqp", "nsq")
    with broker.amqp() as channel:
        taker = Taker(channel, "nsq.t7:c", prefetch=1)
        assert taker.take(1) == ["amqp"]
        with Consumer(broker, "t7", 2, msg_timeout=1000) as consumer:
            consumer.take(1)
            (again,) = consumer.take(1)
            assert (again.body, again.attempts) == (b"nsq", 2)
            taker.listen(0.5)  # more than 1.5 s since it took it
            assert len(taker.got) == 1
            assert broker.row("t7")["timeout_count"] == 1
            consumer.finish(again)
            channel.basic_cancel(taker.tag)
            channel.basic_nack(taker.got[0][0].delivery_tag, requeue=True)
            (returned,) = consumer.take(1)
            assert (returned.body, returned.attempts) == (b"amqp", 2)


def test_07_but_the_consumer_timeout_of_amqp_holds(broker: BothBroker) -> None:
    broker.make("t7late")
    broker.policy("t7late", r"^nsq\.t7late:", consumer_timeout=1000)
    broker.publish("t7late", "m")
    with broker.amqp() as channel, Consumer(broker, "t7late", 0) as consumer:
        taker = Taker(channel, "nsq.t7late:c")
        taker.take(1)

        def closed() -> bool:
            taker.listen(0.1)
            return bool(channel.is_closed)

        eventually(closed, 15)
        consumer.ready(1)
        assert consumer.take(1)[0].attempts == 2


def test_07_attempts_are_counted_for_both(broker: BothBroker) -> None:
    broker.publish("t7both", "m")
    with broker.amqp() as channel, Consumer(broker, "t7both", 1) as consumer:
        (first,) = consumer.take(1)
        consumer.ready(0)
        consumer.requeue(first)
        broker.await_counts("t7both", 1, 0, 0)
        method, _, _ = channel.basic_get("nsq.t7both:c")
        assert method.redelivered
        channel.basic_nack(method.delivery_tag, requeue=True)
        broker.await_counts("t7both", 1, 0, 0)
        consumer.ready(1)
        assert consumer.take(1)[0].attempts == 3


# -- 8: depth ------------------------------------------------------------------------------------


def test_08_depth_in_flight_and_deferred_are_three_numbers(broker: BothBroker) -> None:
    broker.make("t8")
    with RawClient(broker) as producer, Consumer(broker, "t8", 2) as consumer:
        for number in range(5):
            assert producer.ask(pub("t8", b"%d" % number)) == b"OK"
        assert producer.ask(dpub("t8", FAR_MS, b"later")) == b"OK"
        first, _ = consumer.take(2)
        assert broker.counts("t8") == (3, 2, 1)
        names = ("messages_ready", "messages_unacknowledged", "messages")

        def managed() -> list[int]:
            row = broker.queue_row("nsq.t8:c")
            return [row[name] for name in names]

        eventually(lambda: managed() == [3, 2, 5])
        consumer.ready(0)
        consumer.requeue(first, FAR_MS)
        broker.await_counts("t8", 3, 1, 2)
        eventually(lambda: managed() == [3, 1, 4])
