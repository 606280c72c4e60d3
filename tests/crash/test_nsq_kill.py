"""Kill the broker under NSQ clients: what nsqd would have lost is there when it comes back.

Waiting, in flight and deferred messages all survive, with the attempts that were made and the time
for which they were deferred; what was finished stays away once a later publish was answered.
"""

from __future__ import annotations

import time

import pytest

from tests.helpers.nsq_amqp import BothBroker, Consumer
from tests.helpers.nsq_live import NsqLiveBroker, RawClient
from tests.helpers.raw_nsq import NsqMessage, dpub, fin, mpub, pub


def collect(broker: NsqLiveBroker, channel: str, count: int) -> dict[bytes, NsqMessage]:
    """So many messages of a channel, finished as they come; later ones too."""
    found: dict[bytes, NsqMessage] = {}
    with RawClient(broker) as consumer:
        assert consumer.ask(f"SUB t {channel}\nRDY 100\n".encode()) == b"OK"
        for _ in range(count):
            (message,) = consumer.read(1)
            assert isinstance(message, NsqMessage)
            assert message.body not in found
            found[message.body] = message
            consumer.send(fin(message.id))
        assert consumer.read(1, within_s=0.5) == []
    return found


@pytest.mark.parametrize("kills", [1, 3])
def test_a_kill_loses_nothing(kills: int) -> None:
    deferral_s = 6 + 4 * kills  # longer than the starts, on a busy machine, too
    with NsqLiveBroker() as broker, RawClient(broker) as producer, RawClient(broker) as consumer:
        assert consumer.ask(b"SUB t c\nRDY 4\n") == b"OK"
        bodies = [b"%d" % number for number in range(8)]
        assert producer.ask(mpub("t", bodies)) == b"OK"
        taken = {message.body: message for message in consumer.read(4)}
        assert sorted(taken) == bodies[:4]
        consumer.send(fin(taken[b"0"].id))
        consumer.send(b"REQ %s %d\n" % (taken[b"1"].id, deferral_s * 1000))
        (fifth, sixth) = consumer.read(2)
        assert {fifth.body, sixth.body} == {b"4", b"5"}
        deferred_at = time.time()
        assert producer.ask(dpub("t", deferral_s * 1000, b"later")) == b"OK"
        assert producer.ask(pub("t", b"last")) == b"OK"
        for _ in range(kills):
            broker.kill()
            broker.start()
        again = collect(broker, "c", 7)  # those not deferred: 2 to 7, and the last
        assert sorted(again) == [*(b"%d" % number for number in range(2, 8)), b"last"]
        for body in (b"2", b"3", b"4", b"5"):
            assert again[body].attempts == 2, body
        for body in (b"6", b"7", b"last"):
            assert again[body].attempts == 1, body
        assert again[b"2"].id == taken[b"2"].id
        assert again[b"2"].timestamp_ns == taken[b"2"].timestamp_ns
        assert time.time() < deferred_at + deferral_s
        deferred = collect(broker, "c", 2)
        assert time.time() >= deferred_at + deferral_s - 0.1
        assert {body: deferred[body].attempts for body in deferred} == {b"1": 2, b"later": 1}


def test_a_backlog_without_channels_survives() -> None:
    with NsqLiveBroker() as broker, RawClient(broker) as producer:
        assert producer.ask(mpub("t", [b"a", b"b"])) == b"OK"
        assert producer.ask(dpub("t", 2000, b"late")) == b"OK"
        broker.kill()
        broker.start()
        assert list(collect(broker, "first", 3)) == [b"a", b"b", b"late"]


def test_a_topic_that_is_a_stream_loses_nothing_and_stays() -> None:
    sent: list[bytes] = []
    done: set[bytes] = set()
    with BothBroker() as broker:
        broker.policy("stream", "^nsq[.]t$", "exchanges", nsq_topic_type="stream")
        for _ in range(3):
            with RawClient(broker) as producer, Consumer(broker, "t", 20) as consumer:
                bodies = [b"%d" % number for number in range(len(sent), len(sent) + 100)]
                assert producer.ask(mpub("t", bodies)) == b"OK"
                sent += bodies
                for _ in range(60):
                    (message,) = consumer.take(1)
                    consumer.finish(message)
                    done.add(message.body)
                broker.kill()
            broker.start()
        with Consumer(broker, "t", 100) as consumer:
            while messages := consumer.read(100, 1):
                consumer.finish(*messages)
                done |= {message.body for message in messages}
        assert done == set(sent)
        assert broker.post("/channel/create?topic=t&channel=late&start=first").status == 200
        assert list(collect(broker, "late", 300)) == sent
