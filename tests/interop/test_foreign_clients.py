"""amqplib (Node), the Java client, amqp091-go, bunny and php-amqplib in the same conversation.

The programs are described in CONVERSATION.md.  What a program publishes is read by pika and the
other way round, so that two implementations have to agree about every byte.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess
from tests.interop.programs import PROGRAMS, Program, built, finish, hear, missing_reason, start

Say = Callable[..., dict[str, Any]]
Connect = Callable[..., pika.BlockingConnection]
UNASKED = {"ruby": {"priority": 0}}
"""Properties that a library sends with each message."""

# The first test of a program may have to fetch its libraries.
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module", params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> tuple[Program, Path]:
    reason = missing_reason(request.param)
    if reason:
        pytest.skip(reason)
    return request.param, built(request.param)


@pytest.fixture
def say(program: tuple[Program, Path]) -> Say:
    return lambda *words: finish(start(*program, *words))


def body(number: int, size: int) -> bytes:
    return (b"%08d:" % number).ljust(size, bytes([number % 251]))


def properties(number: int) -> pika.BasicProperties:
    return pika.BasicProperties(
        delivery_mode=2,
        content_type="text/plain",
        message_id=f"m-{number}",
        headers={
            "number": number,
            "text": "grüße",
            "flag": True,
            "nested": {"list": [1, "two"]},
        },
    )


def digest(numbers: range, size: int) -> str:
    whole = hashlib.sha256()
    for number in numbers:
        whole.update(body(number, size))
    return whole.hexdigest()


def test_pika_reads_what_it_publishes(
    broker: BrokerProcess,
    program: tuple[Program, Path],
    say: Say,
    channel: BlockingChannel,
    name: str,
) -> None:
    unasked = UNASKED.get(program[0].name, {})
    assert say("publish", broker.url, name, 5, 300, 200) == {"confirmed": 300}
    assert channel.queue_declare(name, durable=True, passive=True).method.message_count == 300
    for number in range(5, 305):
        method, its_properties, its_body = channel.basic_get(name, auto_ack=True)
        assert not method.redelivered
        assert its_body == body(number, 200)
        assert vars(its_properties) == vars(properties(number)) | unasked


def test_it_reads_what_pika_publishes(
    broker: BrokerProcess, say: Say, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    for number in range(200):
        channel.basic_publish("", name, body(number, 100), properties(number))
    said = say("consume", broker.url, name, 200)
    assert said == {
        "numbers": list(range(200)),
        "sha256": digest(range(200), 100),
        "redelivered": 0,
        "properties": {
            key: value for key, value in vars(properties(0)).items() if value is not None
        },
    }
    assert channel.queue_declare(name, passive=True).method.message_count == 0


def test_large_messages_over_many_frames(broker: BrokerProcess, say: Say, name: str) -> None:
    assert say("publish", broker.url, name, 0, 4, 1_500_000) == {"confirmed": 4}
    said = say("consume", broker.url, name, 4)
    assert said["numbers"] == [0, 1, 2, 3]
    assert said["sha256"] == digest(range(4), 1_500_000)


def test_it_sees_the_manners_of_rabbitmq(broker: BrokerProcess, say: Say, name: str) -> None:
    assert say("behave", broker.url, name) == {
        "returned": {
            "code": 312,
            "text": "NO_ROUTE",
            "key": f"{name}-nobody",
            "body": "come back",
            "before_confirm": True,
        },
        "settled": ["one false 2", "one true 2", "two false 1", "three false 0", "empty"],
        "bound": "through two",
        "missing": {"code": 404, "text": f"NOT_FOUND - no queue '{name}-missing' in vhost '/'"},
        "locked": {
            "code": 405,
            "text": "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue "
            f"'{name}-mine' in vhost '/'. It could be originally declared on another connection "
            "or the exclusive property value does not match that of the original declaration.",
        },
        "deleted": 0,
    }


def test_it_is_answered_without_a_queue(
    broker: BrokerProcess, program: tuple[Program, Path], channel: BlockingChannel, name: str
) -> None:
    """Direct reply-to, which the Java client uses unless it is told of a queue."""
    channel.queue_declare(name, exclusive=False, auto_delete=True)
    process = start(*program, "ask", broker.url, name, 5)
    for _, asked, question in channel.consume(name, auto_ack=True, inactivity_timeout=30):
        assert asked is not None, "nobody asks"
        assert asked.reply_to.startswith("amq.rabbitmq.reply-to.")
        properties = pika.BasicProperties(correlation_id=asked.correlation_id)
        channel.basic_publish("", asked.reply_to, b"answer to " + question, properties)
        if question == b"question 4":
            break
    assert finish(process) == {"answers": [f"answer to question {number}" for number in range(5)]}


def test_it_reads_a_stream_from_every_kind_of_place(
    broker: BrokerProcess,
    program: tuple[Program, Path],
    say: Say,
    channel: BlockingChannel,
    name: str,
) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_delivery()
    for number in range(20):
        channel.basic_publish("", name, b"m%d" % number)
    ago = int(time.time()) - 3600
    for offset, first in (
        ("first", 0),
        ("#5", 5),
        ("#-3", 17),
        ("last", 19),
        ("1h", 0),
        (f"@{ago}", 0),
    ):
        said = say("stream", broker.url, name, offset, 20 - first)
        assert said == {"offsets": list(range(first, 20))}, offset
    process = start(*program, "stream", broker.url, name, "next", 1)
    hear(process, "consuming")
    channel.basic_publish("", name, b"late")
    assert finish(process) == {"offsets": [20]}
    for begin, count in ((0, 8), (8, 5), (13, 8)):
        said = say("stream", broker.url, name, "first", count, "billing")
        assert said == {"offsets": list(range(begin, begin + count))}


def test_it_hears_that_its_queue_was_deleted(
    broker: BrokerProcess, program: tuple[Program, Path], channel: BlockingChannel, name: str
) -> None:
    """Its channel stays open, and declares the queue again."""
    channel.queue_declare(name, durable=True)
    process = start(*program, "cancelled", broker.url, name)
    hear(process, "consuming")
    channel.queue_delete(name)
    assert finish(process) == {"messages": 0}


def test_it_comes_back_after_kill_9_and_nothing_confirmed_is_lost(
    own_broker: BrokerProcess, program: tuple[Program, Path], connect_to: Connect
) -> None:
    """Confirm by confirm; the broker is killed under it.

    The one message that was on its way may arrive twice: the client cannot know whether the
    lost confirm stands for a lost message, and sends it again.
    """
    count = 2000
    process = start(*program, "endure", own_broker.url, "q", count)
    hear(process, "started")
    own_broker.kill()
    own_broker.start()
    said = finish(process)
    assert said["confirmed"] == count
    assert said["reconnects"] >= 1
    channel = connect_to(own_broker.url).channel()
    numbers = []
    while (got := channel.basic_get("q", auto_ack=True))[0] is not None:
        numbers.append(int(got[2][:8]))
    assert sorted(set(numbers)) == list(range(count))
    assert numbers == sorted(numbers)
    assert len(numbers) <= count + 1


@pytest.mark.long  # most of it is in the test above
def test_an_application_lives_on_through_two_restarts(
    own_broker: BrokerProcess, program: tuple[Program, Path], connect_to: Connect
) -> None:
    """Killed once and stopped politely once, under publishers and consumers.

    The Java client and bunny recover by themselves, amqp-connection-manager does it for Node, in Go
    and PHP it is the application's own loop.  A private queue, which dies with its connection, must
    be back too.
    """
    count = 4000
    process = start(*program, "survive", own_broker.url, "q", count)
    hear(process, "started")
    own_broker.kill()
    own_broker.start()
    hear(process, "halfway")
    own_broker.restart()
    said = finish(process)
    assert said.pop("reconnects") >= 2
    assert said == {"confirmed": count, "received": count, "news": "the end"}
    channel = connect_to(own_broker.url).channel()
    assert channel.queue_declare("q", passive=True).method.message_count == 0
