"""A hundred messages from a pynsq writer to a pynsq reader; the first is given back once.

    python pynsq_program.py ADDRESS TOPIC OPTIONS      OPTIONS: JSON, as both take them

Prints what the reader finished, as JSON.  A program of its own, since pynsq leaves its sockets to
the end of the process.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Callable
from typing import Any

import nsq


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - callbacks of a library
            await asyncio.sleep(0.02)


async def talk(address: str, topic: str, options: dict[str, Any]) -> list[tuple[str, int]]:
    got: list[tuple[str, int]] = []
    answers: list[bytes] = []

    def handle(message: nsq.Message) -> bool:
        if message.body == b"0" and message.attempts == 1:
            return False
        got.append((message.body.decode(), message.attempts))
        return True

    def answered(_connection: object, data: bytes) -> None:
        answers.append(data)

    writer = nsq.Writer([address], **options)
    reader = nsq.Reader(
        topic=topic,
        channel="c",
        nsqd_tcp_addresses=[address],
        message_handler=handle,
        max_in_flight=20,
        requeue_delay=0,
        max_backoff_duration=0.1,
        **options,
    )
    await until(lambda: bool(writer.conns) and bool(reader.conns))
    writer.pub(topic, b"0", callback=answered)
    writer.mpub(topic, [b"%d" % number for number in range(1, 99)], callback=answered)
    writer.dpub(topic, 50, b"x" * 100_000, callback=answered)
    await until(lambda: len(answers) == 3)
    assert answers == [b"OK"] * 3, answers
    await until(lambda: len(got) == 100)
    reader.close()
    await asyncio.sleep(0.1)
    return got


if __name__ == "__main__":
    given = json.loads(sys.argv[3])
    if given.get("tls_v1"):
        given["tls_options"] = {"cert_reqs": ssl.CERT_NONE}
    sys.stdout.write(json.dumps(asyncio.run(talk(sys.argv[1], sys.argv[2], given))))
