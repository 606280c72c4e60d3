"""Publishes through an exchange of many bindings flat out, consumes, and counts both.

``penstock bench`` sends the keys of its bindings; here the keys are other than the bindings'
patterns, and may be ever new.  One loop, two connections: one publishes, the other consumes on a
channel for each queue.  At most ``in_flight`` messages are published and not yet consumed.  Options
are one JSON object, and so is what it prints.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import sys
import time
from typing import Any, NamedTuple

from benchmarks.topology_wire import RUN, Frames, Messages, heed
from penstock.client.amqp import Connection, Endpoint
from penstock.client.endpoint import ClientError
from penstock.client.load import KEY_DELIVER, BrokenStream, DeliveryScanner
from penstock.client.procstat import ProcessGauge
from penstock.core.errors import PenstockError
from penstock.protocols.amqp.codec.methods import decode_method

RECEIVE_BYTES = 131_072
NAP_S = 0.05
LIMIT_S = 120.0
GONE_S = 30.0


class Mark(NamedTuple):
    """How far all have come at one moment."""

    at_s: float
    published: int
    consumed: int
    cpu_s: float
    generator_cpu_s: float


class Load:
    """Sends runs of messages as long as there is room for them, and takes what comes."""

    def __init__(self, given: argparse.Namespace) -> None:
        publisher, consumer = (
            Connection(Endpoint.parse(given.uri), timeout_s=LIMIT_S) for _ in range(2)
        )
        publisher.channel()
        for queue in given.queues:
            consumer.channel().consume(queue, no_ack=True)
        made = (given.kind, given.exchange, given.subjects, given.keys, given.size)
        self.published = 0
        self._messages = Messages(*made)
        self._scanner = DeliveryScanner(KEY_DELIVER, len(given.queues), 1, 0)
        self._in_flight = given.in_flight
        self._out = memoryview(b"")
        self._publisher, self._rest = publisher.detach()
        self._consumer, early = consumer.detach()
        self._publisher.setblocking(False)
        self._gauges = [ProcessGauge(given.pid, tree=True)] if given.pid else []
        self._own = ProcessGauge(os.getpid(), tree=False)
        self._take(early)

    @property
    def consumed(self) -> int:
        return int(self._scanner.messages)

    def mark(self) -> Mark:
        cpu_s = sum(sum(gauge.cpu_s()) for gauge in self._gauges)
        own_s = sum(self._own.cpu_s())
        return Mark(time.monotonic(), self.published, self.consumed, cpu_s, own_s)

    def until(self, end_s: float, *, sending: bool = True) -> None:
        """Without ``sending`` it ends when all is consumed."""
        while time.monotonic() < end_s and (sending or self.consumed < self.published):
            room = self.published + RUN - self.consumed <= self._in_flight
            writing = [self._publisher] if self._out or (sending and room) else []
            reading = [self._consumer, self._publisher]
            readable, writable, _ = select.select(reading, writing, [], NAP_S)
            if self._consumer in readable:
                self._take(self._consumer.recv(RECEIVE_BYTES) or gone("consumer"))
            if self._publisher in readable:
                self._rest = self._heard(self._publisher.recv(RECEIVE_BYTES) or gone("publisher"))
            if writable:
                if not self._out:
                    self._out = memoryview(self._messages.run())
                    self.published += RUN
                self._out = self._out[self._publisher.send(self._out) :]

    def _take(self, data: bytes) -> None:
        self._scanner.feed(data, time.monotonic_ns())
        if self._scanner.control:
            name = decode_method(self._scanner.control[0][1]).name
            raise ClientError(f"{name} came to the consumer")

    def _heard(self, data: bytes) -> bytes:
        frames = Frames(self._rest + data)
        for payload in frames:
            heed(payload)
        return frames.rest


def gone(whom: str) -> bytes:
    raise ClientError(f"the broker hung up on the {whom}")


def measure(given: argparse.Namespace) -> dict[str, Any]:
    load = Load(given)
    load.until(time.monotonic() + given.warmup)
    begin = load.mark()
    load.until(begin.at_s + given.seconds)
    end = load.mark()
    load.until(end.at_s + GONE_S, sending=False)
    seconds, consumed = end.at_s - begin.at_s, end.consumed - begin.consumed
    cpu_s = end.cpu_s - begin.cpu_s
    return {
        "publish_rate": (end.published - begin.published) / seconds,
        "consume_rate": consumed / seconds,
        "published": load.published,
        "consumed": load.consumed,
        "broker": {
            "cpu_us_per_message": cpu_s / consumed * 1e6 if consumed else 0.0,
            "cpu_cores": cpu_s / seconds,
        },
        "generator": {"cpu_cores": (end.generator_cpu_s - begin.generator_cpu_s) / seconds},
    }


def main() -> int:
    try:
        print(json.dumps(measure(argparse.Namespace(**json.loads(sys.argv[1])))))
    except (PenstockError, BrokenStream, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
