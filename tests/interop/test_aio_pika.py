"""aio-pika: asyncio, floats in headers, many tasks on one connection, robust reconnection."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import aio_pika
import pytest
from aio_pika.abc import AbstractConnection, AbstractIncomingMessage, AbstractQueue

from tests.helpers.broker_process import BrokerProcess


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AbstractConnection]:
    connection = await aio_pika.connect(url)
    async with connection:
        yield connection


def numbered(number: int) -> aio_pika.Message:
    return aio_pika.Message(
        b"%d" % number,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        message_id=f"m-{number}",
    )


async def take(queue: aio_pika.abc.AbstractQueue, count: int) -> list[AbstractIncomingMessage]:
    taken = []
    async with queue.iterator(timeout=10) as messages:
        async for message in messages:
            await message.ack()
            taken.append(message)
            if len(taken) == count:
                break
    return taken


def test_confirmed_publishing_and_acked_consuming(broker: BrokerProcess, name: str) -> None:
    async def story() -> None:
        async with connected(broker.url) as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=50)
            queue = await channel.declare_queue(name, durable=True)
            await asyncio.gather(
                *(channel.default_exchange.publish(numbered(n), name) for n in range(500))
            )
            taken = await take(queue, 500)
            assert [message.body for message in taken] == [b"%d" % n for n in range(500)]
            assert [message.message_id for message in taken][-1] == "m-499"
            assert not any(message.redelivered for message in taken)
            left = await channel.declare_queue(name, passive=True)
            assert left.declaration_result.message_count == 0

    run(story())


def test_header_types_make_the_round_trip(broker: BrokerProcess, name: str) -> None:
    headers = {
        "double": 2.5,
        "long": 2**40,
        "negative": -1,
        "truth": True,
        "text": "grüße ✓",
        "nothing": None,
        "time": dt.datetime(2024, 2, 29, 12, 30, tzinfo=dt.UTC),
        "list": [1, "two", 3.5, {"four": [None]}],
        "table": {"inner": {"x": 1}},
    }

    async def story() -> None:
        async with connected(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(name, auto_delete=True)
            await channel.default_exchange.publish(
                aio_pika.Message(b"", headers=headers, priority=7, expiration=60), name
            )
            (message,) = await take(queue, 1)
            assert message.headers == headers
            assert message.priority == 7
            assert message.expiration == 60

    run(story())


def test_many_channels_and_tasks_share_a_connection(broker: BrokerProcess, name: str) -> None:
    """Twenty channels, each with its queue; frames of all interleave on one socket."""

    async def pair(connection: AbstractConnection, number: int) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(f"{name}-{number}", exclusive=True)
        body = bytes([number]) * 200_000
        for _ in range(3):
            await channel.default_exchange.publish(aio_pika.Message(body), queue.name)
        assert [message.body for message in await take(queue, 3)] == [body] * 3
        await channel.close()

    async def story() -> None:
        async with connected(broker.url) as connection:
            await asyncio.gather(*(pair(connection, number) for number in range(20)))

    run(story())


def test_an_unroutable_message_raises(broker: BrokerProcess, name: str) -> None:
    async def story() -> None:
        async with connected(broker.url) as connection:
            channel = await connection.channel(on_return_raises=True)
            with pytest.raises(aio_pika.exceptions.PublishError, match="NO_ROUTE"):
                await channel.default_exchange.publish(numbered(1), name)

    run(story())


def test_refusals_have_their_own_exceptions(broker: BrokerProcess, name: str) -> None:
    async def story() -> None:
        async with connected(broker.url) as connection:
            channel = await connection.channel()
            with pytest.raises(aio_pika.exceptions.ChannelNotFoundEntity, match="no queue"):
                await channel.declare_queue(name, passive=True)
            channel = await connection.channel()
            await channel.declare_queue(name, auto_delete=True)
            with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed, match="inequiv"):
                await channel.declare_queue(name, durable=True)

    run(story())


def test_a_robust_connection_restores_its_consumer_after_kill_9(
    own_broker: BrokerProcess,
) -> None:
    """connect_robust declares, binds and consumes again by itself; we only restart the broker."""

    async def story() -> None:
        connection = await aio_pika.connect_robust(own_broker.url, reconnect_interval=0.1)
        async with connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange("events", "topic", durable=True)
            queue = await channel.declare_queue("kept", durable=True)
            await queue.bind(exchange, "a.#")
            got: asyncio.Queue[bytes] = asyncio.Queue()

            async def keep(message: AbstractIncomingMessage) -> None:
                await message.ack()
                await got.put(message.body)

            await queue.consume(keep)
            await exchange.publish(numbered(1), "a.b")
            assert await got.get() == b"1"
            again = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_: again.set())
            await asyncio.to_thread(own_broker.kill)
            await asyncio.to_thread(own_broker.start)
            await again.wait()
            await exchange.publish(numbered(2), "a.c")
            # The acknowledgement of the first may have died with the broker.
            while (body := await got.get()) != b"2":
                assert body == b"1"

    run(story())


async def stream_of(channel: aio_pika.abc.AbstractChannel, name: str) -> AbstractQueue:
    """With twenty messages, each confirmed before the next."""
    await channel.set_qos(prefetch_count=50)
    queue = await channel.declare_queue(name, durable=True, arguments={"x-queue-type": "stream"})
    for number in range(20):
        await channel.default_exchange.publish(numbered(number), name)
    return queue


class Offsets:
    """Those that come to one consumer; each is acknowledged."""

    def __init__(self) -> None:
        self.seen: list[object] = []
        self._came = asyncio.Event()

    async def got(self, message: AbstractIncomingMessage) -> None:
        self.seen.append(message.headers["x-stream-offset"])
        self._came.set()
        await message.ack()

    async def wait(self, count: int) -> list[object]:
        async with asyncio.timeout(30):
            while len(self.seen) < count:
                self._came.clear()
                await self._came.wait()
        return self.seen


def test_a_stream_from_every_kind_of_place(broker: BrokerProcess, name: str) -> None:
    async def story() -> None:
        async with connected(broker.url) as connection:
            queue = await stream_of(await connection.channel(), name)
            for offset, first in (
                ("first", 0),
                (5, 5),
                (-3, 17),
                ("last", 19),
                ("1h", 0),
                (dt.datetime.now(dt.UTC) - dt.timedelta(hours=1), 0),
            ):
                offsets = Offsets()
                tag = await queue.consume(offsets.got, arguments={"x-stream-offset": offset})
                assert await offsets.wait(20 - first) == list(range(first, 20)), offset
                await queue.cancel(tag)

    run(story())


def test_a_robust_consumer_of_a_stream_goes_on_after_a_kill(own_broker: BrokerProcess) -> None:
    """Its arguments are the same each time; the position that the broker keeps is another one."""

    async def story() -> None:
        connection = await aio_pika.connect_robust(own_broker.url, reconnect_interval=0.1)
        channel = await connection.channel()
        queue = await stream_of(channel, "s")
        offsets = Offsets()
        arguments: dict[str, Any] = {
            "x-stream-offset": "first",
            "x-stream-automatic-offset-tracking": True,
        }
        await queue.consume(offsets.got, arguments=arguments, consumer_tag="billing")
        await offsets.wait(20)
        await asyncio.sleep(2.5)  # until its position is written
        own_broker.kill()
        await asyncio.to_thread(own_broker.start)
        async with connected(own_broker.url) as other:
            publisher = await other.channel()
            await publisher.default_exchange.publish(numbered(20), "s")
        assert await offsets.wait(21) == list(range(21))
        await connection.close()

    run(story())
