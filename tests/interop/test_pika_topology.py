"""pika: exchanges, queues and their rules; every refusal with RabbitMQ's code and text."""

from __future__ import annotations

import time
from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

Connect = Callable[..., pika.BlockingConnection]
Act = Callable[[BlockingChannel, str], object]


def arrived(channel: BlockingChannel, queue: str) -> list[bytes]:
    """Empties a queue; the publishes before it were on the same channel or confirmed."""
    found = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return found
        found.append(body)


@pytest.mark.parametrize(
    "kind, binding, hits, misses",
    [
        ("direct", "a.b", ["a.b"], ["a", "a.b.c", ""]),
        ("fanout", "ignored", ["a.b", ""], []),
        ("topic", "a.*.c", ["a.b.c", "a..c"], ["a.c", "a.b.b.c"]),
        ("topic", "a.#", ["a", "a.b", "a.b.c"], ["b", "aa.b", ""]),
        ("topic", "#.z", ["z", "a.b.z"], ["a.z.b"]),
        ("topic", "#", ["", "a", "a.b"], []),
    ],
)
def test_keys_route(
    channel: BlockingChannel,
    name: str,
    kind: str,
    binding: str,
    hits: list[str],
    misses: list[str],
) -> None:
    channel.exchange_declare(name, kind)
    channel.queue_declare(name)
    channel.queue_bind(name, name, binding)
    for key in [*hits, *misses]:
        channel.basic_publish(name, key, key.encode())
    assert arrived(channel, name) == [key.encode() for key in hits]
    channel.queue_unbind(name, name, binding)
    channel.basic_publish(name, hits[0], b"unbound")
    assert arrived(channel, name) == []
    channel.exchange_delete(name)


@pytest.mark.parametrize(
    "arguments, hits, misses",
    [
        (
            {"x-match": "all", "kind": "log", "level": 3},
            [{"kind": "log", "level": 3, "more": True}],
            [{"kind": "log"}, {"kind": "log", "level": 4}, {}],
        ),
        (
            {"x-match": "any", "kind": "log", "level": 3},
            [{"kind": "log"}, {"level": 3, "kind": "x"}],
            [{"kind": "x"}, {}],
        ),
        ({"kind": None}, [{"kind": "anything"}, {"kind": None}], [{"other": 1}]),
        ({}, [{}, {"a": 1}], []),
    ],
)
def test_headers_route(
    channel: BlockingChannel,
    name: str,
    arguments: dict[str, object],
    hits: list[dict[str, object]],
    misses: list[dict[str, object]],
) -> None:
    channel.exchange_declare(name, "headers")
    channel.queue_declare(name)
    channel.queue_bind(name, name, "", arguments)
    for number, headers in enumerate([*hits, *misses]):
        properties = pika.BasicProperties(headers=headers)
        channel.basic_publish(name, "", b"%d" % number, properties)
    assert arrived(channel, name) == [b"%d" % number for number in range(len(hits))]
    channel.exchange_delete(name)


def test_exchange_to_exchange_delivers_once_even_in_a_circle(
    channel: BlockingChannel, name: str
) -> None:
    first, second = f"{name}-1", f"{name}-2"
    channel.exchange_declare(first, "topic")
    channel.exchange_declare(second, "fanout")
    channel.queue_declare(name)
    channel.exchange_bind(second, first, "go.#")
    channel.exchange_bind(first, second, "go.back")
    channel.queue_bind(name, second)
    channel.queue_bind(name, first, "go.there")
    channel.basic_publish(first, "go.there", b"once")
    channel.basic_publish(first, "stay", b"never")
    assert arrived(channel, name) == [b"once"]
    channel.exchange_unbind(second, first, "go.#")
    channel.basic_publish(first, "go.elsewhere", b"unbound")
    assert arrived(channel, name) == []
    channel.exchange_delete(first)
    channel.exchange_delete(second)


def test_the_server_names_queues_and_remembers_the_last_one(channel: BlockingChannel) -> None:
    first = channel.queue_declare("", exclusive=True).method.queue
    second = channel.queue_declare("", exclusive=True).method.queue
    assert first != second
    assert all(queue.startswith("amq.gen-") and len(queue) == 30 for queue in (first, second))
    channel.queue_bind("", "amq.fanout")
    channel.basic_publish("amq.fanout", "", b"to the last declared")
    assert arrived(channel, second) == [b"to the last declared"]
    assert arrived(channel, first) == []


def test_an_auto_delete_queue_goes_with_its_last_consumer(
    channel: BlockingChannel, connect: Connect, name: str
) -> None:
    channel.queue_declare(name, auto_delete=True)
    tags = [channel.basic_consume(name, lambda *_: None) for _ in range(2)]
    channel.basic_cancel(tags[0])
    assert channel.queue_declare(name, passive=True).method.consumer_count == 1
    channel.basic_cancel(tags[1])
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue"):
        channel.queue_declare(name, passive=True)


def test_an_auto_delete_exchange_goes_with_its_last_binding(
    channel: BlockingChannel, name: str
) -> None:
    channel.exchange_declare(name, "direct", auto_delete=True)
    channel.queue_declare(name)
    channel.queue_bind(name, name, "a")
    channel.queue_delete(name)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no exchange"):
        channel.exchange_declare(name, passive=True)


def test_an_exclusive_queue_is_locked_for_others_and_goes_with_its_owner(
    connect: Connect, channel: BlockingChannel, name: str
) -> None:
    owner = connect()
    owner.channel().queue_declare(name, exclusive=True)
    channel.basic_publish("", name, b"routing is allowed")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.basic_get(name)
    assert caught.value.reply_code == 405
    assert caught.value.reply_text == (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{name}' in vhost '/'. "
        "It could be originally declared on another connection or the exclusive property value "
        "does not match that of the original declaration."
    )
    owner.close()
    again = connect().channel()
    assert again.queue_declare(name, exclusive=True).method.message_count == 0


REFUSALS: dict[str, tuple[Act, int, str]] = {
    "passive declare of a missing queue": (
        lambda channel, name: channel.queue_declare(f"{name}x", passive=True),
        404,
        "NOT_FOUND - no queue '{name}x' in vhost '/'",
    ),
    "passive declare of a missing exchange": (
        lambda channel, name: channel.exchange_declare(f"{name}x", passive=True),
        404,
        "NOT_FOUND - no exchange '{name}x' in vhost '/'",
    ),
    "get from a missing queue": (
        lambda channel, name: channel.basic_get(f"{name}x"),
        404,
        "NOT_FOUND - no queue '{name}x' in vhost '/'",
    ),
    "bind to a missing exchange": (
        lambda channel, name: channel.queue_bind(name, f"{name}x"),
        404,
        "NOT_FOUND - no exchange '{name}x' in vhost '/'",
    ),
    "other durability": (
        lambda channel, name: channel.queue_declare(name, durable=True),
        406,
        (
            "PRECONDITION_FAILED - inequivalent arg 'durable' for queue '{name}' in vhost '/': "
            "received 'true' but current is 'false'"
        ),
    ),
    "other auto-delete": (
        lambda channel, name: channel.queue_declare(name, auto_delete=True),
        406,
        (
            "PRECONDITION_FAILED - inequivalent arg 'auto_delete' for queue '{name}' in vhost '/': "
            "received 'true' but current is 'false'"
        ),
    ),
    "other exchange type": (
        lambda channel, name: channel.exchange_declare("amq.direct", "fanout", durable=True),
        406,
        (
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.direct' in vhost '/': "
            "received 'fanout' but current is 'direct'"
        ),
    ),
    "reserved queue name": (
        lambda channel, name: channel.queue_declare(f"amq.{name}"),
        403,
        "ACCESS_REFUSED - queue name 'amq.{name}' contains reserved prefix 'amq.*'",
    ),
    "reserved exchange name": (
        lambda channel, name: channel.exchange_declare(f"amq.{name}"),
        403,
        "ACCESS_REFUSED - exchange name 'amq.{name}' contains reserved prefix 'amq.*'",
    ),
    "deleting a predeclared exchange": (
        lambda channel, name: channel.exchange_delete("amq.topic"),
        403,
        "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed",
    ),
    "binding to the default exchange": (
        lambda channel, name: channel.queue_bind(name, "", "key"),
        403,
        "ACCESS_REFUSED - operation not permitted on the default exchange",
    ),
    "deleting a queue that is not empty": (
        lambda channel, name: (
            channel.basic_publish("", name, b"full"),
            channel.queue_delete(name, if_empty=True),
        ),
        406,
        "PRECONDITION_FAILED - queue '{name}' in vhost '/' not empty",
    ),
    "deleting a queue that is used": (
        lambda channel, name: (
            channel.basic_consume(name, lambda *_: None),
            channel.queue_delete(name, if_unused=True),
        ),
        406,
        "PRECONDITION_FAILED - queue '{name}' in vhost '/' in use",
    ),
    "deleting an exchange that is used": (
        lambda channel, name: (
            channel.queue_bind(name, "amq.match", "k"),
            channel.exchange_declare(name),
            channel.queue_bind(name, name, "k"),
            channel.exchange_delete(name, if_unused=True),
        ),
        406,
        "PRECONDITION_FAILED - exchange '{name}' in vhost '/' in use",
    ),
    "a second consumer beside an exclusive one": (
        lambda channel, name: (
            channel.basic_consume(name, lambda *_: None, exclusive=True),
            channel.basic_consume(name, lambda *_: None),
        ),
        403,
        "ACCESS_REFUSED - queue '{name}' in vhost '/' in exclusive use",
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_closes_the_channel_and_nothing_else(
    connection: pika.BlockingConnection, name: str, case: str
) -> None:
    act, code, text = REFUSALS[case]
    channel = connection.channel()
    channel.queue_declare(name)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        act(channel, name)
    assert (caught.value.reply_code, caught.value.reply_text) == (code, text.format(name=name))
    assert connection.channel().queue_declare(name, passive=True).method.queue == name


def test_a_late_refusal_comes_with_the_next_answer(
    connection: pika.BlockingConnection, name: str
) -> None:
    """Publish and ack have no answer of their own."""
    channel = connection.channel()
    channel.queue_declare(name)
    channel.basic_publish(f"{name}x", "key", b"to nowhere")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(name, passive=True)
    assert caught.value.reply_text == f"NOT_FOUND - no exchange '{name}x' in vhost '/'"
    channel = connection.channel()
    channel.basic_ack(7)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        channel.queue_declare(name, passive=True)
    assert caught.value.reply_code == 406
    assert caught.value.reply_text == "PRECONDITION_FAILED - unknown delivery tag 7"


@pytest.mark.parametrize(
    "act, code, text",
    [
        (
            lambda channel: channel.exchange_declare("typed", "nope"),
            503,
            "COMMAND_INVALID - unknown exchange type 'nope'",
        ),
        (
            lambda channel: channel.basic_qos(prefetch_size=10),
            540,
            "NOT_IMPLEMENTED - prefetch_size!=0 (10)",
        ),
        (
            lambda channel: channel.basic_recover(requeue=False),
            540,
            "NOT_IMPLEMENTED - requeue=false",
        ),
    ],
)
def test_what_makes_no_sense_closes_the_connection(
    connect: Connect, act: Callable[[BlockingChannel], object], code: int, text: str
) -> None:
    connection, other = connect(), connect()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        act(connection.channel())
    assert (caught.value.reply_code, caught.value.reply_text) == (code, text)
    assert other.channel().is_open


def test_a_wrong_password_is_refused(connect: Connect) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError) as caught:
        connect(credentials=pika.PlainCredentials("guest", "wrong"))
    assert "(403) 'ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN." in (
        str(caught.value)
    )


def test_a_missing_virtual_host_is_refused(connect: Connect) -> None:
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as caught:
        connect(virtual_host="nowhere")
    assert "530" in str(caught.value)
    assert "NOT_ALLOWED - vhost nowhere not found" in str(caught.value)


def test_heartbeats_keep_an_idle_connection(connect: Connect) -> None:
    connection = connect(heartbeat=1)
    channel = connection.channel()
    connection.process_data_events(time_limit=4)
    assert channel.queue_declare("", exclusive=True).method.queue


def test_a_silent_client_is_cut_off(
    connect: Connect, connection: pika.BlockingConnection, name: str
) -> None:
    """pika sends heartbeats only while it is called; its exclusive queue shows that it is gone."""
    silent = connect(heartbeat=1)
    silent.channel().queue_declare(name, exclusive=True)
    started = time.monotonic()
    refusals = []
    while time.monotonic() < started + 10:
        try:
            connection.channel().queue_declare(name, passive=True)
        except pika.exceptions.ChannelClosedByBroker as error:
            refusals.append(error.reply_code)
            if error.reply_code == 404:
                break
        time.sleep(0.1)
    lasted_s = time.monotonic() - started
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        silent.process_data_events(time_limit=1)
    assert refusals[0] == 405
    assert refusals[-1] == 404
    assert 1.5 < lasted_s < 5, "cut off after two to three intervals of one second"


def test_what_the_server_says_of_itself(connection: pika.BlockingConnection) -> None:
    said = connection._impl.server_properties
    assert {"product", "version", "platform", "copyright", "information", "cluster_name"} <= set(
        said
    )
    assert {
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "per_consumer_qos",
        "authentication_failure_close",
    } <= {key for key, value in said["capabilities"].items() if value is True}
