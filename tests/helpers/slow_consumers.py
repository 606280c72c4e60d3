"""Consumers that never read their sockets, and others beside them whose rate is watched.

Raw sockets, so that reading costs nothing: the rate is bytes of deliveries, whatever they say.
"""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import RawClient, connect

BURST_BYTES = 80_000
RECEIVE_BYTES = 1 << 15
"""What the kernel keeps for a consumer that sleeps, about twice of it."""


def allow_sockets(count: int = 4096) -> None:
    """For this process and those it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count)), hard))


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def processor_seconds(pid: int) -> float:
    """In steps of ``TICK_S``."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def publishes(queue: str, count: int, size: int) -> bytes:
    one = codec.method_frame(1, "basic.publish", routing_key=queue)
    return (one + codec.content_frames(1, b"x" * size, {})) * count


def enter(url: str) -> RawClient:
    client = connect(url).open()
    client.open_channel(1)
    return client


def fill(url: str, queue: str, count: int, size: int) -> None:
    """A durable queue with so many transient messages, all of them there."""
    client = enter(url)
    client.call(1, "queue.declare", queue=queue, durable=True)
    burst = max(1, BURST_BYTES // size)
    for start in range(0, count, burst):
        client.sock.sendall(publishes(queue, min(burst, count - start), size))
    ready = 0
    while ready < count:
        time.sleep(0.05)
        answer = client.call(1, "queue.declare", queue=queue, passive=True)
        ready = int(answer.args["messages"])
    client.close_socket()


@contextlib.contextmanager
def sleepers(url: str, queues: list[str]) -> Iterator[list[RawClient]]:
    """One consumer for each of the queues; none reads anything after it began to consume."""
    asleep: list[RawClient] = []
    try:
        for queue in queues:
            client = connect(url)
            asleep.append(client)
            client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            client.open()
            client.open_channel(1)
            client.sock.sendall(codec.method_frame(1, "basic.consume", queue=queue, no_ack=True))
        yield asleep
    finally:
        for client in asleep:
            client.close_socket()


class Traffic:
    """``count`` healthy consumers, each with a queue, and a publisher that keeps all busy."""

    def __init__(self, url: str, count: int, size: int) -> None:
        names = [f"healthy-{number}" for number in range(count)]
        self._taken = [0] * count
        self._stopping = False
        self._consumers = [self._consumer(url, name) for name in names]
        self._publisher = enter(url)
        each = max(1, BURST_BYTES // size // count)
        self._burst = b"".join(publishes(name, each, size) for name in names)
        self._threads = [
            threading.Thread(target=self._read, args=(number,), daemon=True)
            for number in range(count)
        ]
        self._threads.append(threading.Thread(target=self._publish, daemon=True))

    @staticmethod
    def _consumer(url: str, queue: str) -> RawClient:
        client = enter(url)
        client.call(1, "queue.declare", queue=queue, exclusive=False, auto_delete=True)
        client.call(1, "basic.consume", queue=queue, no_ack=True)
        return client

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping = True
        self._publisher.close_socket()
        for thread in self._threads:
            thread.join(30)
        for client in self._consumers:
            client.close_socket()

    def rate(self, seconds: float) -> float:
        """Bytes per second that all of them read."""
        before, began = sum(self._taken), time.monotonic()
        time.sleep(seconds)
        return (sum(self._taken) - before) / (time.monotonic() - began)

    def per_processor_second(self, seconds: float, pid: int) -> float:
        """Bytes per second of the broker's processor time: other load hardly changes it."""
        before_s = processor_seconds(pid)
        taken = self.rate(seconds) * seconds
        return taken / max(processor_seconds(pid) - before_s, TICK_S)

    def _read(self, number: int) -> None:
        sock = self._consumers[number].sock
        sock.settimeout(0.2)
        while not self._stopping:
            with contextlib.suppress(TimeoutError):
                self._taken[number] += len(sock.recv(1 << 18))

    def _publish(self) -> None:
        sock = self._publisher.sock
        sock.settimeout(30)
        with contextlib.suppress(OSError):
            while not self._stopping:
                sock.sendall(self._burst)
