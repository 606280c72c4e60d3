"""The bodies of an archive's messages, and a queue that is filled with them."""

from __future__ import annotations

import random
import time
from typing import Any

from penstock.client.amqp import Connection, Endpoint
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import encode_method
from penstock.protocols.amqp.codec.properties import Properties, encode_content

BLOCK_MESSAGES = 1024
POLL_S = 0.05
PROPERTIES: dict[str, Any] = {
    "content_type": "application/octet-stream",
    "app_id": "bench",
    "delivery_mode": 2,
}


def body_of(kind: str, size: int, chance: random.Random) -> bytes:
    """``random`` bytes, which nothing makes smaller, or an order as ``json``."""
    if kind == "random":
        return chance.randbytes(size)
    words: list[bytes] = []
    left = size
    while left > 0:
        words.append(
            b'{"order":%d,"customer":"%08x-%04x","article":"%s","price":%d.%02d,"paid":%s},'
            % (
                *(chance.randrange(10**8), chance.getrandbits(32), chance.getrandbits(16)),
                chance.choice((b"lamp", b"chair", b"table", b"shelf", b"carpet")),
                *(chance.randrange(1000), chance.randrange(100)),
                chance.choice((b"true", b"false")),
            )
        )
        left -= len(words[-1])
    return b"".join(words)[:size]


def fill(url: str, queue: str, count: int, size: int, bodies: str) -> float:
    """A durable queue with so many persistent messages; returns the seconds."""
    chance = random.Random(1)
    with Connection(Endpoint.parse(url), timeout_s=600.0) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        head = encode_method(channel.number, m.BASIC_PUBLISH, (0, "", queue, False, False))
        properties = Properties(**PROPERTIES)
        messages = [
            head
            + encode_content(
                properties, body_of(bodies, size, chance), channel.number, connection.frame_max
            )
            for _ in range(BLOCK_MESSAGES)
        ]
        began_s = time.monotonic()
        for at in range(0, count, BLOCK_MESSAGES):
            connection.send(b"".join(messages[: count - at]))
        while channel.queue_declare(queue, passive=True).number("message_count") < count:
            time.sleep(POLL_S)
        return time.monotonic() - began_s
