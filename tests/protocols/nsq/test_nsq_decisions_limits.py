"""The decisions of docs/nsq.md by their numbers, on a broker that runs: 9 to 16.

Each test fails when its decision is not kept.  The first half is in ``test_nsq_decisions``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import hostile_machine
from tests.helpers.administer import MEMORY, administer
from tests.helpers.hostile_machine import HostileMachine
from tests.helpers.live_broker import REPOSITORY
from tests.helpers.nsq_amqp import BothBroker, Consumer, Taker
from tests.helpers.nsq_broker import eventually
from tests.helpers.nsq_live import RawClient
from tests.helpers.raw_nsq import auth, mpub, pub

SLOW_BYTES_PER_S = 100_000
BIG = b"x" * 150_000
"""The slow disk takes a second and a half for it."""

READ_AHEAD_MAX_BYTES = 32 * 1024 * 1024
"""Of one connection, with what the kernel buffers."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BothBroker]:
    with BothBroker(nsq_e2e_processing_latency_percentiles="0.5,1.0") as running:
        yield running


# -- 9: memory or disk ---------------------------------------------------------------------------


def test_09_backend_depth_is_what_is_not_in_memory_and_the_order_stays(broker: BothBroker) -> None:
    numbers = [str(number) for number in range(300)]
    broker.make("t9")
    broker.publish("t9", *numbers[:100])
    assert broker.row("t9")["backend_depth"] == 0
    broker.policy("t9", r"^nsq\.t9:", queue_mode="lazy")
    eventually(lambda: broker.row("t9")["backend_depth"] > 0)
    broker.publish("t9", *numbers[100:200])

    def agrees() -> bool:
        managed, row = broker.queue_row("nsq.t9:c"), broker.row("t9")
        not_in_memory = managed["messages_ready"] - managed["messages_ready_ram"]
        return row["depth"] == 200 and 0 < row["backend_depth"] == not_in_memory

    eventually(agrees)
    broker.policy("t9", r"^nsq\.t9:", queue_mode="default")
    broker.publish("t9", *numbers[200:])
    assert broker.row("t9")["depth"] == 300
    with Consumer(broker, "t9", 300) as consumer:
        assert consumer.bodies(300) == numbers


def test_09_there_is_no_mem_queue_size(broker: BothBroker) -> None:
    assert "mem_queue_size" not in broker.ask("GET", "/config/mem_queue_size").body


# -- 10: OK means on disk ------------------------------------------------------------------------


class SlowBroker(BothBroker):
    """Its disk takes ``SLOW_BYTES_PER_S``."""

    def __init__(self, directory: Path, **settings: object) -> None:
        directory.mkdir()
        super().__init__(directory, **settings)
        self.more_environment |= HostileMachine(directory, SLOW_BYTES_PER_S).environment

    def seconds_to_ok(self, topic: str) -> float:
        with RawClient(self) as producer:
            assert producer.ask(pub(topic, b"first")) == b"OK"  # the topic is there
            began = time.monotonic()
            assert producer.ask(pub(topic, BIG)) == b"OK"
            return time.monotonic() - began


needs_slow_disk = pytest.mark.skipif(
    hostile_machine.missing_reason() is not None, reason=str(hostile_machine.missing_reason())
)


@needs_slow_disk
def test_10_ok_waits_for_the_disk_unless_the_topic_is_fast(tmp_path: Path) -> None:
    with SlowBroker(tmp_path / "durable") as broker:
        broker.policy("quick", r"^nsq\.quick$", "exchanges", nsq_publish_mode="fast")
        assert broker.seconds_to_ok("quick") < 1
        assert broker.seconds_to_ok("sure") > 1.4
        assert [broker.topic_row(topic)["depth"] for topic in ("quick", "sure")] == [2, 2]


@needs_slow_disk
def test_10_a_policy_beats_the_mode_of_the_node(tmp_path: Path) -> None:
    with SlowBroker(tmp_path / "fast", nsq_publish_mode="fast") as broker:
        broker.policy("sure", r"^nsq\.sure$", "exchanges", nsq_publish_mode="durable")
        assert broker.seconds_to_ok("quick") < 1
        assert broker.seconds_to_ok("sure") > 1.4


def test_10_what_was_accepted_fast_goes_to_the_journal() -> None:
    with BothBroker(nsq_publish_mode="fast") as broker:
        broker.make("t")
        broker.publish("t", "a", "b")
        time.sleep(0.6)
        broker.kill()
        broker.start()
        with Consumer(broker, "t") as consumer:
            assert consumer.bodies(2) == ["a", "b"]


# -- 11: alarms ----------------------------------------------------------------------------------


def test_11_publishes_wait_for_an_alarm_while_consuming_goes_on() -> None:
    with BothBroker() as broker:
        broker.make("t")
        broker.publish("t", "a", "b", "c")
        with Consumer(broker, "t", 1, msg_timeout=60_000) as client:
            (first,) = client.take(1)
            administer(broker, MEMORY, "0")
            client.send(pub("t", b"late"))
            client.send(b"TOUCH %s\n" % first.id)
            client.finish(first)
            (second,) = client.take(1)  # no OK before it
            assert second.body == b"b"
            client.requeue(second)
            (third,) = client.take(1)
            assert third.body == b"c"
            client.ready(2)
            assert client.bodies(1) == ["b"]
            client.nothing(0.5)
            assert broker.counts("t") == (0, 2, 0)
            assert broker.post("/pub?topic=t", b"x").status == 503
            assert broker.row("t")["message_count"] == 3
            administer(broker, MEMORY, "0.4")
            client.ready(3)
            answered = client.read(2)
            assert b"OK" in answered
            assert [one.body for one in answered if one != b"OK"] == [b"late"]
            assert broker.post("/pub?topic=t", b"x").body == "OK"


def test_11_who_publishes_on_is_not_read_and_others_consume() -> None:
    with BothBroker() as broker:
        broker.make("t")
        broker.publish("t", "a")
        with RawClient(broker) as producer, Consumer(broker, "t") as consumer:
            (message,) = consumer.take(1)
            administer(broker, MEMORY, "0")
            batch = mpub("t", [b"x" * 1000] * 1000)
            assert producer.send_until_stuck(batch, READ_AHEAD_MAX_BYTES) < READ_AHEAD_MAX_BYTES
            consumer.finish(message)
            broker.await_counts("t", 0, 0, 0)


# -- 12: AUTH ------------------------------------------------------------------------------------


DENIED = b"E_UNAUTHORIZED AUTH failed for "


def test_12_rights_are_those_of_a_user_of_the_broker() -> None:
    with BothBroker(nsq_auth_required="true") as broker:
        writer = broker.user("writer", "^$", r"^nsq\.t$", "^$")
        reader = broker.user("reader", "^$", "^$", r"^nsq\.t:c$")

        def asked(secret: str, command: bytes) -> bytes:
            with RawClient(broker) as client:
                assert client.ask(auth(secret)).startswith(b'{"identity":')
                answer: bytes = client.ask(command)
                return answer

        assert asked("guest:guest", b"SUB t c\n") == b"OK"
        assert asked(writer, pub("t", b"m")) == b"OK"
        assert asked(writer, b"SUB t c\n") == DENIED + b'SUB on "t" "c"'
        assert asked(writer, pub("new", b"m")) == DENIED + b'PUB on "new" ""'
        assert asked(reader, b"SUB t c\n") == b"OK"
        assert asked(reader, b"SUB t new\n") == DENIED + b'SUB on "t" "new"'
        assert asked(reader, pub("t", b"m")) == DENIED + b'PUB on "t" ""'
        for words in (auth("writer:wrong"), pub("t", b"m"), b"SUB t c\n"):
            with RawClient(broker) as client:
                assert client.ask(words).startswith(b"E_AUTH_F")  # FAILED, or FIRST
        assert broker.row("t")["message_count"] == 1


def test_12_without_auth_a_client_is_the_user_of_the_settings() -> None:
    with BothBroker(nsq_user="reader") as broker:
        broker.user("reader", r"^nsq\.t($|:)", "^$", r"^nsq\.t:c$")
        for command, answer in (
            (b"SUB t c\n", b"OK"),
            (b"SUB t d\n", DENIED + b'SUB on "t" "d"'),
            (pub("t", b"m"), DENIED + b'PUB on "t" ""'),
            (auth("guest:guest"), b"E_AUTH_DISABLED AUTH disabled"),
        ):
            with RawClient(broker) as client:
                assert client.ask(command) == answer


# -- 13: what is dropped -------------------------------------------------------------------------


def test_13_ephemeral_drops_the_newest_drop_head_the_oldest(broker: BothBroker) -> None:
    broker.make("t13", "c#ephemeral")
    broker.make("t13", "head")
    broker.policy("t13", r"^nsq\.t13:head$", max_length=10)
    with RawClient(broker) as producer:
        bodies = [b"%d" % number for number in range(10_020)]
        assert producer.ask(mpub("t13", bodies)) == b"OK"
    assert broker.counts("t13", "c#ephemeral") == (10_000, 0, 0)
    assert broker.counts("t13", "head") == (10, 0, 0)
    with (
        Consumer(broker, "t13", 2500, channel="c#ephemeral") as ephemeral,
        Consumer(broker, "t13", channel="head") as head,
    ):
        assert head.bodies(10) == [str(number) for number in range(10_010, 10_020)]
        seen = []
        while len(seen) < 10_000:
            messages = ephemeral.take(min(1000, 10_000 - len(seen)))
            ephemeral.finish(*messages)
            seen += [message.body for message in messages]
        assert seen == bodies[:10_000]
        ephemeral.nothing()


def test_13_so_does_an_ephemeral_topic_before_its_first_channel(broker: BothBroker) -> None:
    with RawClient(broker) as producer:
        bodies = [b"%d" % number for number in range(10_020)]
        assert producer.ask(mpub("t13#ephemeral", bodies)) == b"OK"
    assert broker.topic_row("t13#ephemeral")["depth"] == 10_000
    with Consumer(broker, "t13#ephemeral", 2500) as consumer:
        assert consumer.bodies(100) == [str(number) for number in range(100)]


def test_13_ephemeral_is_transient() -> None:
    with BothBroker() as broker:
        broker.make("gone#ephemeral")
        broker.make("stays", "c#ephemeral")
        broker.make("stays", "d")
        broker.publish("stays", "m")
        broker.restart()
        (topic,) = broker.stats()["topics"]
        assert topic["topic_name"] == "stays"
        assert [one["channel_name"] for one in topic["channels"]] == ["d"]
        assert broker.counts("stays", "d") == (1, 0, 0)


# -- 14: dead letters ----------------------------------------------------------------------------


def test_14_dead_letters_after_one_attempt_more_than_the_limit(broker: BothBroker) -> None:
    broker.policy("t14", r"^nsq\.t14:", delivery_limit=2, dead_letter_exchange="dead")
    broker.make("t14")
    with broker.amqp() as channel:
        channel.exchange_declare("dead", "fanout")
        channel.queue_declare("dead letters", exclusive=True)
        channel.queue_bind("dead letters", "dead")
        broker.publish("t14", "returned", "left")
        attempts: dict[bytes, list[int]] = {b"returned": [], b"left": []}
        with Consumer(broker, "t14", msg_timeout=1000) as consumer:
            for _ in range(6):
                (message,) = consumer.take(1)
                attempts[message.body].append(message.attempts)
                if message.body == b"returned":
                    consumer.requeue(message)
            taker = Taker(channel, "dead letters")
            assert taker.take(2) == ["returned", "left"]
            consumer.nothing()
        assert attempts == {b"returned": [1, 2, 3], b"left": [1, 2, 3]}
        headers = taker.got[0][1].headers
        assert headers["x-death"][0]["reason"] == "delivery_limit"
        assert broker.counts("t14") == (0, 0, 0)


def test_14_the_policy_of_the_page(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "nsq.md").read_text(encoding="utf-8")
    file = tmp_path / "definitions.json"
    file.write_text(page.split("<!-- policy -->\n```json\n")[1].split("```")[0])
    with BothBroker() as broker:
        administer(broker, "definitions", "import", str(file))
        broker.publish("any", "m")
        with Consumer(broker, "any") as consumer:
            for attempt in range(1, 6):
                (message,) = consumer.take(1)
                assert message.attempts == attempt
                consumer.requeue(message)
            consumer.nothing()
        with broker.amqp() as channel:
            _, _, body = channel.basic_get("dead letters", auto_ack=True)
            assert body == b"m"


def test_14_without_a_policy_nothing_is_a_dead_letter(broker: BothBroker) -> None:
    broker.publish("t14off", "m")
    with Consumer(broker, "t14off") as consumer:
        for attempt in range(1, 60):
            (message,) = consumer.take(1)
            assert message.attempts == attempt
            consumer.requeue(message)


# -- 15: one set of counters ---------------------------------------------------------------------


def test_15_a_message_nobody_will_acknowledge_is_measured(broker: BothBroker) -> None:
    broker.make("t15auto")
    broker.publish("t15auto", "a", "b")
    with broker.amqp() as channel:
        assert channel.basic_get("nsq.t15auto:c", auto_ack=True)[2] == b"a"
        channel.basic_consume("nsq.t15auto:c", lambda *_: None, auto_ack=True)
        eventually(lambda: broker.row("t15auto")["e2e_processing_latency"]["count"] == 2)


@pytest.mark.parametrize("by", ["nsq", "amqp"])
def test_15_whoever_ends_a_message_it_is_counted(broker: BothBroker, by: str) -> None:
    topic = f"t15{by}"
    broker.make(topic)
    broker.publish(topic, "a", "b", "c")
    time.sleep(0.3)
    if by == "nsq":
        with Consumer(broker, topic) as consumer:
            consumer.finish(*consumer.take(2))
            broker.await_counts(topic, 0, 1, 0)
    else:
        with broker.amqp() as channel:
            taker = Taker(channel, f"nsq.{topic}:c")
            taker.take(3)
            taker.ack(0)
            taker.ack(1)
            broker.await_counts(topic, 0, 1, 0)
    row = broker.row(topic)
    assert (row["message_count"], row["requeue_count"]) == (3, 0)
    latency = row["e2e_processing_latency"]
    assert latency["count"] == 2
    for quantile in latency["percentiles"]:
        assert 0.25e9 < quantile["value"] < 10e9
    assert broker.topic_row(topic)["e2e_processing_latency"]["count"] == 2

    def counted() -> bool:
        stats = broker.queue_row(f"nsq.{topic}:c").get("message_stats", {})
        return (stats.get("publish"), stats.get("ack")) == (3, 2)

    eventually(counted)


# -- 16: ids -------------------------------------------------------------------------------------


def test_16_ids_differ_and_ascend_over_a_restart() -> None:
    with BothBroker() as broker:
        ids: list[bytes] = []
        broker.make("t")
        for _ in range(2):
            with RawClient(broker) as producer, Consumer(broker, "t", 2500) as consumer:
                # More in one command than a millisecond has ids.
                assert producer.ask(mpub("t", [b"m"] * 9000)) == b"OK"
                assert producer.ask(pub("t", b"m")) == b"OK"
                for _ in range(9):
                    messages = consumer.take(1000)
                    consumer.finish(*messages)
                    ids += [message.id for message in messages]
                (last,) = consumer.take(1)
                consumer.finish(last)
                ids.append(last.id)
                broker.await_counts("t", 0, 0, 0)
            broker.restart()
        assert len(set(ids)) == len(ids)
        assert ids == sorted(ids)
