"""Publishes through an exchange of many bindings flat out, consumes, and counts both.

``penstock bench`` sends the keys of its bindings; here the keys are other than the bindings'
patterns, and may be ever new.  Two processes, as there: this one publishes, a child of it
consumes on one connection, a channel for each queue.  At most ``in_flight`` messages are
published and not yet consumed.  Options are one JSON object, and so is what it prints.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import sys
import time
import traceback
from typing import Any

from benchmarks.topology_wire import RUN, Frames, Messages, heed
from penstock.client.amqp import Connection, Endpoint
from penstock.client.endpoint import ClientError
from penstock.client.load import KEY_DELIVER, BrokenStream, DeliveryScanner
from penstock.client.procstat import ProcessGauge
from penstock.client.shared import STOP_ALL, Counters, SendWindow, SendWindowFeed
from penstock.core.errors import PenstockError
from penstock.protocols.amqp.codec.methods import decode_method

RECEIVE_BYTES = 131_072
NAP_S = 0.05
LIMIT_S = 120.0
CONSUMED = 0
"""The slot of what is shared in which the consumer counts."""


# -- the consumer -----------------------------------------------------------------------------


def subscribe(uri: str, queues: list[str]) -> tuple[socket.socket, bytes]:
    connection = Connection(Endpoint.parse(uri), timeout_s=LIMIT_S)
    for queue in queues:
        connection.channel().consume(queue, no_ack=True)
    return connection.detach()


def consume(
    connected: socket.socket, early: bytes, queues: int, counters: Counters, room: int
) -> None:
    """Until the publisher says that all is over."""
    scanner = DeliveryScanner(KEY_DELIVER, queues, 1, 0)
    giver = SendWindowFeed([room])
    connected.settimeout(NAP_S)
    data = early
    while counters.stop != STOP_ALL:
        if data:
            before = scanner.messages
            scanner.feed(data, time.monotonic_ns())
            counters.put(CONSUMED, int(scanner.messages))
            giver.give(int(scanner.messages - before))
        if scanner.control:
            raise ClientError(f"{decode_method(scanner.control[0][1]).name} came to the consumer")
        try:
            data = connected.recv(RECEIVE_BYTES)
        except TimeoutError:
            data = b""
            continue
        if not data:
            raise ClientError("the broker hung up on the consumer")


def start_consumer(uri: str, queues: list[str], counters: Counters, room: int) -> int:
    connected, early = subscribe(uri, queues)
    child = os.fork()
    if child:
        connected.close()
        return child
    code = 0
    try:
        consume(connected, early, len(queues), counters, room)
    except BaseException:
        traceback.print_exc()
        code = 1
    os._exit(code)


# -- the publisher ----------------------------------------------------------------------------


class Publisher:
    """Sends runs of messages as long as there is room for them."""

    def __init__(self, uri: str, messages: Messages, room: SendWindow) -> None:
        connection = Connection(Endpoint.parse(uri), timeout_s=LIMIT_S)
        connection.channel()
        self.published = 0
        self._messages = messages
        self._room = room
        self._socket, self._rest = connection.detach()
        self._socket.settimeout(LIMIT_S)

    def until(self, end_s: float, child: int) -> None:
        room = self._room
        while time.monotonic() < end_s:
            if room.left < RUN:
                room.take()
            if room.left < RUN:
                self._wait(child)
                continue
            self._socket.sendall(self._messages.run())
            self.published += RUN
            room.left -= RUN

    def _wait(self, child: int) -> None:
        sources: list[Any] = [self._socket, self._room.descriptor]
        readable, _, _ = select.select(sources, [], [], NAP_S)
        if self._socket in readable:
            data = self._socket.recv(RECEIVE_BYTES)
            if not data:
                raise ClientError("the broker hung up on the publisher")
            frames = Frames(self._rest + data)
            for payload in frames:
                heed(payload)
            self._rest = frames.rest
        if not readable and os.waitpid(child, os.WNOHANG)[0]:
            raise ClientError("the consumer ended too early")


class Mark:
    """How far all have come at one moment."""

    def __init__(
        self,
        publisher: Publisher,
        counters: Counters,
        gauges: tuple[ProcessGauge, ProcessGauge],
    ) -> None:
        self.at_s = time.monotonic()
        self.published = publisher.published
        self.consumed = counters.total(CONSUMED, 1)
        self.cpu_s, self.generator_cpu_s = (sum(gauge.cpu_s()) for gauge in gauges)


def between(begin: Mark, end: Mark) -> dict[str, Any]:
    seconds, consumed = end.at_s - begin.at_s, end.consumed - begin.consumed
    cpu_s = end.cpu_s - begin.cpu_s
    return {
        "measured_s": seconds,
        "publish_rate": (end.published - begin.published) / seconds,
        "consume_rate": consumed / seconds,
        "broker": {
            "cpu_us_per_message": cpu_s / consumed * 1e6 if consumed else 0.0,
            "cpu_cores": cpu_s / seconds,
        },
        "generator": {
            "cpu_cores": (end.generator_cpu_s - begin.generator_cpu_s) / seconds,
            "cores": len(os.sched_getaffinity(0)),
        },
    }


def measure(given: argparse.Namespace) -> dict[str, Any]:
    counters, room = Counters.create(1), SendWindow.create()
    made = (given.kind, given.exchange, given.subjects, given.keys, given.size)
    publisher = Publisher(given.uri, Messages(*made), SendWindow(room, given.in_flight))
    child = start_consumer(given.uri, given.queues, counters, room)
    gauges = (ProcessGauge(given.pid, tree=True), ProcessGauge(os.getpid(), tree=True))
    try:
        publisher.until(time.monotonic() + given.warmup, child)
        begin = Mark(publisher, counters, gauges)
        publisher.until(begin.at_s + given.seconds, child)
        found = between(begin, Mark(publisher, counters, gauges))
        limit_s = time.monotonic() + LIMIT_S / 4
        while counters.total(CONSUMED, 1) < publisher.published and time.monotonic() < limit_s:
            time.sleep(NAP_S)
        found |= {"published": publisher.published, "consumed": counters.total(CONSUMED, 1)}
    finally:
        counters.ask_to_stop(STOP_ALL)
    if os.waitpid(child, 0)[1]:
        raise ClientError("the consumer failed")
    return found


def main() -> int:
    try:
        print(json.dumps(measure(argparse.Namespace(**json.loads(sys.argv[1])))))
    except (PenstockError, BrokenStream, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
