"""ansq, unmodified: a client for asyncio.  It knows no TLS and no compression.

When a broker wants a secret, release 0.3 never believes that it has given it; so no AUTH here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import ansq
import pytest
from ansq.tcp.connection import NSQConnection
from ansq.tcp.types import NSQMessage

from tests.helpers.nsq_live import NsqLiveBroker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def broker() -> Iterator[NsqLiveBroker]:
    with NsqLiveBroker() as running:
        yield running


@asynccontextmanager
async def connected(broker: NsqLiveBroker, **asked: Any) -> AsyncIterator[NSQConnection]:
    options = ansq.ConnectionOptions(features=ansq.ConnectionFeatures(**asked))
    connection = await ansq.open_connection(
        "127.0.0.1", broker.tcp_port, connection_options=options
    )
    try:
        yield connection
    finally:
        await connection.close()


async def next_message(connection: NSQConnection) -> NSQMessage:
    message = await asyncio.wait_for(connection.wait_for_message(), 10)
    assert message is not None
    return message


def test_publish_consume_requeue_and_timeout(broker: NsqLiveBroker) -> None:
    async def talk() -> None:
        async with connected(broker) as producer, connected(broker, msg_timeout=1000) as consumer:
            await consumer.subscribe("ansq", "chan", 1)
            assert (await producer.pub("ansq", "first")).is_ok
            assert (await producer.mpub("ansq", "second", "third")).is_ok
            message = await next_message(consumer)
            assert (message.body, message.attempts) == (b"first", 1)
            await message.req(0)
            seen = []
            for _ in range(2):
                message = await next_message(consumer)
                seen.append(message.body)
                await message.fin()
            assert seen == [b"second", b"third"]
            message = await next_message(consumer)
            assert (message.body, message.attempts) == (b"first", 2)
            message = await next_message(consumer)  # its second is over
            assert (message.body, message.attempts) == (b"first", 3)
            await message.touch()
            await message.fin()
            assert (await producer.dpub("ansq", "late", 300)).is_ok
            message = await next_message(consumer)
            assert message.body == b"late"
            await message.fin()

    asyncio.run(talk())


def test_reader_and_writer(broker: NsqLiveBroker) -> None:
    async def talk() -> list[bytes]:
        address = [broker.nsq_address]
        writer = await ansq.create_writer(nsqd_tcp_addresses=address)
        reader = await ansq.create_reader("both", "chan", nsqd_tcp_addresses=address)
        await writer.mpub("both", *[str(number) for number in range(50)])
        got = []
        async for message in reader.messages():
            got.append(message.body)
            await message.fin()
            if len(got) == 50:
                break
        await reader.close()
        await writer.close()
        return got

    got = asyncio.run(asyncio.wait_for(talk(), 30))
    assert got == [b"%d" % number for number in range(50)]
