"""pika in the conversation of a load (the words ``load-publish`` and ``load-consume``).

    python load_pika.py load-publish URLS QUEUE NAME RATE WINDOW
    python load_pika.py load-consume URLS QUEUE NAME

See tests/interop/CONVERSATION.md for what it says.  It knows several nodes and goes on at the next
one when its connection is lost, or cannot be had, or when no confirm comes for ``PATIENCE_S``.
"""

from __future__ import annotations

import itertools
import logging
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

import pika
import pika.exceptions
from pika.adapters.utils.connection_workflow import AMQPConnectorException

PATIENCE_S = 1.0
BEGIN_S = 2.0
"""A node that takes a connection and answers nothing is left after this."""
RETRY_S = 0.1
TICK_S = 0.01
SIZE = 100
PREFETCH = 50
OPTIONS = "?connection_attempts=1&socket_timeout=1&stack_timeout=2&heartbeat=4"
PERSISTENT = pika.BasicProperties(delivery_mode=2)

stopped = threading.Event()


def say(*words: object) -> None:
    sys.stdout.write(" ".join([str(time.time_ns() // 1_000_000), *map(str, words)]) + "\n")
    sys.stdout.flush()


def listen() -> None:
    """The end of what we are told is the word to end."""
    sys.stdin.read()
    stopped.set()


class Publisher:
    """One life: a connection that is driven by its callbacks until it is lost."""

    def __init__(self, url: str, queue: str, identity: str, rate: int, window: int) -> None:
        self.queue = queue
        self.identity = identity
        self.rate = rate
        self.window = window
        self.sent = 0
        self.has_begun = False
        self.waiting: dict[int, str] = {}  # by the channel's number
        self.confirmed_s = self.began_s = time.monotonic()
        self.channel: Any = None
        self.connection = pika.SelectConnection(
            pika.URLParameters(url + OPTIONS),
            self.opened,
            lambda connection, _: connection.ioloop.stop(),
            lambda connection, _: connection.ioloop.stop(),
        )

    def opened(self, connection: Any) -> None:
        connection.ioloop.call_later(BEGIN_S, self.look)
        connection.channel(on_open_callback=self.channel_opened)

    def channel_opened(self, channel: Any) -> None:
        self.channel = channel
        channel.add_on_close_callback(lambda *_: self.end())
        channel.queue_declare(self.queue, durable=True, callback=self.declared)

    def declared(self, _frame: Any) -> None:
        self.channel.confirm_delivery(self.answered, callback=lambda _: self.begin())

    def look(self) -> None:
        if not self.has_begun:
            self.end()

    def begin(self) -> None:
        self.has_begun = True
        say("life", self.identity)
        self.began_s = self.confirmed_s = time.monotonic()
        self.tick()

    def tick(self) -> None:
        now_s = time.monotonic()
        if not self.waiting:
            self.confirmed_s = now_s
            if stopped.is_set():
                return self.end()
        if now_s - self.confirmed_s > PATIENCE_S:
            say("impatient", self.identity)
            return self.end()
        due = int((now_s - self.began_s) * self.rate) - self.sent
        if not stopped.is_set():
            for _ in range(min(due, self.window - len(self.waiting))):
                self.publish()
            if due > self.window:  # what could not be sent in time is not made up for
                self.began_s += (due - self.window) / self.rate
        self.connection.ioloop.call_later(TICK_S, self.tick)
        return None

    def publish(self) -> None:
        self.sent += 1
        one = f"{self.identity}:{self.sent}"
        self.waiting[self.sent] = one
        body = (one + " ").ljust(SIZE, ".").encode()
        self.channel.basic_publish("", self.queue, body, PERSISTENT)

    def answered(self, frame: Any) -> None:
        self.confirmed_s = time.monotonic()
        method = frame.method
        sign = "+" if method.NAME == "Basic.Ack" else "-"
        last = method.delivery_tag
        first = last if not method.multiple else min(self.waiting, default=last)
        for number in range(first, last + 1):
            one = self.waiting.pop(number, None)
            if one is not None:
                say(sign, one)

    def end(self) -> None:
        """Orderly if it can be; a dead node gets no more than a moment."""
        if not (self.connection.is_closing or self.connection.is_closed):
            self.connection.close()
        self.connection.ioloop.call_later(0.5, self.connection.ioloop.stop)

    def live(self) -> None:
        with suppress(pika.exceptions.AMQPError):
            self.connection.ioloop.start()
        for one in self.waiting.values():
            say("?", one)


def give_up(connection: pika.BlockingConnection) -> None:
    """Blocking calls have no time limit, and no way in from another thread but this."""
    with suppress(OSError, AttributeError):  # it has just gone by itself
        connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)


def consume(url: str, queue: str, identity: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(url + OPTIONS))
    try:
        late = threading.Timer(BEGIN_S, give_up, [connection])
        late.start()
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        late.cancel()
        channel.basic_qos(prefetch_count=PREFETCH)

        def received(_channel: Any, method: Any, _properties: Any, body: bytes) -> None:
            one = body.split(b" ", 1)[0].decode()
            say("*", identity, one, int(method.redelivered))
            channel.basic_ack(method.delivery_tag)

        channel.basic_consume(queue, received)
        say("life", identity)
        while not stopped.is_set() and channel.consumer_tags:
            connection.process_data_events(0.1)
    finally:
        if connection.is_open:
            connection.close()


def main() -> None:
    logging.disable(logging.CRITICAL)
    word, urls, queue, name, *numbers = sys.argv[1:]
    threading.Thread(target=listen, daemon=True).start()
    nodes = itertools.cycle(urls.split(","))
    for life in itertools.count(1):
        if stopped.is_set():
            break
        identity = f"{name}.{life}"
        if word == "load-publish":
            Publisher(next(nodes), queue, identity, int(numbers[0]), int(numbers[1])).live()
        else:
            gone = (pika.exceptions.AMQPError, AMQPConnectorException, OSError)
            with suppress(*gone):  # the next one, then
                consume(next(nodes), queue, identity)
        stopped.wait(RETRY_S)
    say("end", name)


if __name__ == "__main__":
    main()
