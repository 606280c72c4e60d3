"""pynsq in the conversation of a load (``load-publish`` and ``load-consume``), at NSQ's ports.

    python load_pynsq.py load-publish ADDRESSES TOPIC NAME RATE WINDOW
    python load_pynsq.py load-consume ADDRESSES TOPIC NAME

Writer and reader are given all nodes and connect again by themselves.  The writer has no patience
of its own: what was not answered for ``PATIENCE_S`` gives its place in the window to others.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import sys
import threading
import time
from typing import Any

import nsq

PATIENCE_S = 3.0
TICK_S = 0.01
SIZE = 100
OPTIONS = {"heartbeat_interval": 1}

stopped = threading.Event()


def say(*words: object) -> None:
    sys.stdout.write(" ".join([str(time.time_ns() // 1_000_000), *map(str, words)]) + "\n")
    sys.stdout.flush()


def listen() -> None:
    sys.stdin.read()
    stopped.set()


class Publisher:
    def __init__(self, addresses: list[str], topic: str, name: str, window: int) -> None:
        self.topic = topic
        self.name = name
        self.window = window
        self.sent = 0
        self.waiting: dict[str, float] = {}  # since when
        self.writer = nsq.Writer(addresses, reconnect_interval=0.2, **OPTIONS)

    async def work(self, rate: int) -> None:
        began_s = time.monotonic()
        while not stopped.is_set() or self.waiting:
            await asyncio.sleep(TICK_S)
            now_s = time.monotonic()
            for one in [key for key, since in self.waiting.items() if now_s - since > PATIENCE_S]:
                self.given_up(one)
            due = int((now_s - began_s) * rate) - self.sent
            if stopped.is_set() or not self.writer.conns:
                continue
            for _ in range(min(due, self.window - len(self.waiting))):
                self.publish()
            if due > self.window:
                began_s += (due - self.window) / rate

    def publish(self) -> None:
        self.sent += 1
        one = f"{self.name}.1:{self.sent}"
        self.waiting[one] = time.monotonic()
        body = (one + " ").ljust(SIZE, ".").encode()
        self.writer.pub(self.topic, body, callback=functools.partial(self.answered, one))

    def answered(self, one: str, _connection: object, data: object) -> None:
        if one not in self.waiting:
            if data == b"OK":
                say("+", one)
        elif data == b"OK":
            del self.waiting[one]
            say("+", one)
        else:
            self.given_up(one)

    def given_up(self, one: str) -> None:
        del self.waiting[one]
        say("?", one)


async def publish(addresses: list[str], topic: str, name: str, rate: int, window: int) -> None:
    say("life", f"{name}.1")
    await Publisher(addresses, topic, name, window).work(rate)


async def consume(addresses: list[str], topic: str, name: str) -> None:
    def received(message: Any) -> bool:
        say("*", f"{name}.1", message.body.split(b" ", 1)[0].decode(), int(message.attempts > 1))
        return True

    reader = nsq.Reader(
        topic=topic,
        channel="load",
        nsqd_tcp_addresses=addresses,
        message_handler=received,
        max_in_flight=50,
        max_backoff_duration=0.1,
        **OPTIONS,
    )
    say("life", f"{name}.1")
    while not stopped.is_set():  # noqa: ASYNC110 - set by a thread
        await asyncio.sleep(TICK_S)
    reader.close()
    await asyncio.sleep(0.1)


def main() -> None:
    logging.disable(logging.CRITICAL)
    word, addresses, topic, name, *numbers = sys.argv[1:]
    threading.Thread(target=listen, daemon=True).start()
    nodes = addresses.split(",")
    if word == "load-publish":
        asyncio.run(publish(nodes, topic, name, int(numbers[0]), int(numbers[1])))
    else:
        asyncio.run(consume(nodes, topic, name))
    say("end", name)


if __name__ == "__main__":
    main()
