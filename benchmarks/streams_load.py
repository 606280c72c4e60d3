"""What reads a stream beside the table ``streams``: consumers, or queries of Spark.

Each is a process that prints lines of two numbers, seconds of the monotonic clock and how many
messages its readers have had by then, all from the stream's first one on.  It ends when its input
does; consumers also when one of them has read so many.

    python -m benchmarks.streams_load consume URI STREAM CONSUMERS COUNT
    python -m benchmarks.streams_load query URI STREAM QUERIES DIRECTORY
"""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path
from typing import Any, Final

from penstock.client.amqp import ClientError, Connection, Endpoint
from penstock.client.load import KEY_DELIVER, DeliveryScanner
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import decode_method, encode_method

PREFETCH: Final = 1000
ACK_EVERY: Final = 100
RECEIVE_BYTES: Final = 256 * 1024
TELL_S: Final = 0.2
BATCH_MESSAGES: Final = 200_000
"""A query's batch: some seconds of reading."""


def tell(count: int) -> None:
    print(f"{time.monotonic():.3f} {count}", flush=True)


class Reader:
    """One consumer with a connection of its own, from the first message on."""

    def __init__(self, uri: str, stream: str) -> None:
        connection = Connection(Endpoint.parse(uri), timeout_s=60.0)
        connection.channel().qos(PREFETCH)
        self.scanner = DeliveryScanner(KEY_DELIVER, 1, 1, ACK_EVERY)
        self.socket, _ = connection.detach()
        start = {"x-stream-offset": "first"}
        values = (0, stream, "reader", False, False, False, False, start)
        self.socket.sendall(encode_method(1, m.BASIC_CONSUME, values))
        self.socket.setblocking(False)
        self.wrong = 0  # messages out of order
        self._unsent = b""

    def fileno(self) -> int:
        return self.socket.fileno()

    def read(self) -> None:
        """What is there; acknowledgements that do not leave wait for the next time."""
        scanner = self.scanner
        data = self.socket.recv(RECEIVE_BYTES)
        scanner.feed(data, time.monotonic_ns())
        for _, payload in scanner.control:
            method = decode_method(payload)
            if method.key != m.BASIC_CONSUME_OK:
                raise ClientError(f"{method.name} came to a consumer")
        scanner.control.clear()
        if not data:
            raise ClientError("the broker hung up on a consumer")
        self._unsent += scanner.acks.getvalue()
        scanner.acks.truncate(0)
        if self._unsent:
            try:
                self._unsent = self._unsent[self.socket.send(self._unsent) :]
            except BlockingIOError:
                return


def consume(uri: str, stream: str, consumers: int, count: int) -> None:
    opened = [Reader(uri, stream) for _ in range(consumers)]
    readers = {reader.fileno(): reader for reader in opened}
    epoll = select.epoll()
    epoll.register(sys.stdin.fileno(), select.EPOLLIN)
    for number in readers:
        epoll.register(number, select.EPOLLIN)
    tell_s = 0.0
    most = 0
    while most < count:
        for number, _ in epoll.poll(TELL_S):
            if number not in readers:
                return
            reader = readers[number]
            reader.read()
            messages = int(reader.scanner.messages)
            if messages <= count:  # behind these are another publisher's, who began with 1 again
                reader.wrong = int(reader.scanner.out_of_order)
            most = max(most, messages)
        if time.monotonic() >= tell_s:
            tell(sum(int(reader.scanner.messages) for reader in opened))
            tell_s = time.monotonic() + TELL_S
    tell(sum(int(reader.scanner.messages) for reader in opened))
    wrong = sum(reader.wrong for reader in opened)
    if wrong:
        raise ClientError(f"{wrong} messages came out of order")


def query(uri: str, stream: str, queries: int, scratch: Path) -> None:
    """Streaming queries that read everything and write nothing, of one Spark on two cores."""
    from penstock.spark.launcher.session import session

    with session("streams", "local[2]", uri, scratch) as spark:
        running = []
        for number in range(queries):
            options = {
                "stream": stream,
                "group": f"query-{number}",
                "startingOffsets": "earliest",
                "maxMessagesPerTrigger": str(BATCH_MESSAGES),
            }
            frame = spark.readStream.format("penstock").options(**options).load()
            writer = frame.writeStream.format("noop")
            running.append(writer.option("checkpointLocation", str(scratch / str(number))).start())
        rows: dict[tuple[int, int], int] = {}
        while not select.select([sys.stdin], [], [], TELL_S)[0]:
            known = len(rows)
            for number, one in enumerate(running):
                if one.exception() is not None:
                    raise ClientError(str(one.exception()))
                told: dict[str, Any] | None = one.lastProgress
                if told and told["numInputRows"]:
                    rows[number, told["batchId"]] = told["numInputRows"]
            if len(rows) > known:
                tell(sum(rows.values()))


def main() -> int:
    side, uri, stream, readers, more = sys.argv[1:]
    if side == "consume":
        consume(uri, stream, int(readers), int(more))
    else:
        query(uri, stream, int(readers), Path(more))
    return 0


if __name__ == "__main__":
    sys.exit(main())
