"""Clients that work a broker until it dies under them, and remember what they were promised.

``Promises`` is the account of one queue: what was sent, confirmed, handed out, acknowledged,
and what the last look after a restart found.  The clients fill it in *before* they send, so
whatever the broker has got, the account knows of it.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator

from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import HungUp, open_client

Id = tuple[str, int]
"""Who published it, and the how manieth of theirs it is; a name beginning with T: transient."""
TIMEOUT_S = 15.0
_DELIVER, _ACK = codec.METHOD_IDS["basic.deliver"], codec.METHOD_IDS["basic.ack"]
_CLOSE = codec.METHOD_IDS["connection.close"]
SIZES = (0, 10, 100, 1000, 1000, 5000, 300_000)
ROUTES: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "direct-0"): ("direct-0",),
    ("", "direct-1"): ("direct-1",),
    ("fan", ""): ("fan-0", "fan-1"),
    ("relay", "any"): ("fan-0", "fan-1"),
    ("top", "k.a.b"): ("topic-0",),
    ("heads", ""): ("topic-0", "direct-1"),
}
QUEUES = ("direct-0", "direct-1", "fan-0", "fan-1", "topic-0", "barrier")


class Gone(Exception):
    """The broker is not there any more, or has said goodbye."""


class Promises:
    """The account of one queue since the last look."""

    def __init__(self) -> None:
        self.known: list[Id] = []  # found there by the last look, in order
        self.sent: set[Id] = set()
        self.confirmed: set[Id] = set()
        self.acked: set[Id] = set()  # an acknowledgement was sent, or was about to be
        self.certain: set[Id] = set()  # ... and a confirm that was asked for later has come
        self.delivered: set[Id] = set()  # received by somebody, in this life or an earlier one
        self.had_consumer = False


def body_of(one: Id, size: int) -> bytes:
    head = f"{one[0]}:{one[1]}:".encode()
    return head + bytes(one[1] * 7 + i & 0xFF for i in range(min(size, 256))) * -(-size // 256)


def id_of(body: bytes) -> Id:
    publisher, number, _ = body.split(b":", 2)
    return publisher.decode(), int(number)


class Line:
    """A connection with one channel, read and written by one thread."""

    def __init__(self, url: str, capabilities: dict[str, bool] | None = None) -> None:
        try:
            self.sock: socket.socket = open_client(url, capabilities=capabilities).sock
        except (HungUp, ConnectionError) as error:
            raise Gone from error  # before the login was over
        self.sock.settimeout(TIMEOUT_S)
        self._rest = b""

    def send(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise Gone from error

    def frames(self, wait_s: float = TIMEOUT_S) -> list[codec.Frame]:
        """What comes next; empty when nothing came in time."""
        frames: list[codec.Frame] = []
        while not frames:
            self.sock.settimeout(wait_s)
            try:
                data = self.sock.recv(1 << 18)
            except TimeoutError:
                return []
            except OSError as error:
                raise Gone from error
            finally:
                self.sock.settimeout(TIMEOUT_S)
            if not data:
                raise Gone
            frames, self._rest = codec.split_frames(self._rest + data)
        for frame in frames:
            if method_ids(frame) == _CLOSE:
                self.send(codec.method_frame(0, "connection.close-ok"))
                raise Gone
            assert method_ids(frame) != codec.METHOD_IDS["channel.close"], frame.payload
        return frames

    def call(self, name: str, **values: object) -> dict[str, object]:
        """A method and its reply, when nothing else is under way."""
        self.send(codec.method_frame(1, name, **values))
        found: list[codec.Frame] = []
        while not found:
            found = self.frames()
        answer, fields = codec.decode_method(found[0].payload)
        assert answer == name + "-ok", f"{name} was answered with {answer} {fields}"
        return fields

    def close(self) -> None:
        """In order, so that the broker has taken back what we held before we go on."""
        try:
            self.send(codec.method_frame(0, "connection.close", code=200, text="bye"))
            ids: list[tuple[int, int]] = []
            while codec.METHOD_IDS["connection.close-ok"] not in ids:
                ids = [method_ids(frame) for frame in self.frames()]
        except Gone:
            pass
        finally:
            self.sock.close()


def method_ids(frame: codec.Frame) -> tuple[int, int]:
    if frame.type != codec.METHOD:
        return (0, 0)
    ids: tuple[int, int] = struct.unpack_from(">HH", frame.payload)
    return ids


class Delivery:
    def __init__(self, consumer: str, tag: int, redelivered: bool, body: bytes) -> None:
        self.consumer, self.tag, self.redelivered, self.body = consumer, tag, redelivered, body


class Deliveries:
    """Frames in, whole deliveries and confirmed numbers out."""

    def __init__(self) -> None:
        self.confirmed_to = 0
        self._open: tuple[str, int, bool] | None = None
        self._missing = 0
        self._parts: list[bytes] = []

    def take(self, frames: list[codec.Frame]) -> Iterator[Delivery]:
        for frame in frames:
            if method_ids(frame) == _DELIVER:
                end = 5 + frame.payload[4]
                tag, redelivered = struct.unpack_from(">QB", frame.payload, end)
                self._open = (frame.payload[5:end].decode(), tag, bool(redelivered))
                self._parts = []
            elif method_ids(frame) == _ACK:
                self.confirmed_to = struct.unpack_from(">Q", frame.payload, 4)[0]
            elif frame.type == codec.HEADER:
                self._missing = struct.unpack_from(">Q", frame.payload, 4)[0]
            elif frame.type == codec.BODY:
                self._parts.append(frame.payload)
                self._missing -= len(frame.payload)
            if frame.type in (codec.HEADER, codec.BODY) and self._missing == 0 and self._open:
                yield Delivery(*self._open, b"".join(self._parts))
                self._open = None


class Publishing:
    """The confirming half of a line: numbers, and what each promises where."""

    def __init__(self, line: Line, name: str, promises: dict[str, Promises]) -> None:
        self.line = line
        self.name = name
        self.number = 0
        self._promises = promises
        self._waiting: dict[int, list[tuple[str, Id]]] = {}
        line.call("confirm.select")

    def publish(self, address: tuple[str, str], queues: tuple[str, ...], size: int) -> None:
        self.number += 1
        one = (self.name, self.number)
        for queue in queues:
            self._promises[queue].sent.add(one)
        self._waiting[self.number] = [(queue, one) for queue in queues]
        properties: dict[str, object] = {"delivery_mode": 1 if self.name[0] == "T" else 2}
        if address[0] == "heads":
            properties["headers"] = {"kind": "known"}
        exchange, key = address
        self.line.send(
            codec.method_frame(1, "basic.publish", exchange=exchange, routing_key=key)
            + codec.content_frames(1, body_of(one, size), properties)
        )

    def confirmed(self, to_number: int) -> None:
        for number in [known for known in self._waiting if known <= to_number]:
            for queue, one in self._waiting.pop(number):
                self._promises[queue].confirmed.add(one)

    def unconfirmed(self) -> int:
        return len(self._waiting)


class Worker(threading.Thread):
    """Runs ``work`` until the broker is gone; anything else that ends it is a failure."""

    def __init__(self, url: str, name: str, seed: str, promises: dict[str, Promises]) -> None:
        super().__init__(name=name, daemon=True)
        self.url = url
        self.rng = random.Random(seed)
        self.promises = promises
        self.sizes = SIZES
        self.failure: BaseException | None = None
        self.ready = threading.Event()

    def run(self) -> None:
        try:
            line = Line(self.url)
            try:
                self.work(line)
            finally:
                line.sock.close()
        except Gone:
            pass
        except BaseException as error:
            self.failure = error
        finally:
            self.ready.set()

    def work(self, line: Line) -> None:
        raise NotImplementedError


class Publisher(Worker):
    """Batches of mixed sizes along mixed ways, never more than a window unconfirmed."""

    def work(self, line: Line) -> None:
        publishing = Publishing(line, self.name, self.promises)
        deliveries = Deliveries()
        self.ready.set()
        rng = self.rng
        window = rng.choice((1, 10, 100))
        while True:
            address = rng.choice(list(ROUTES))
            for _ in range(rng.randint(1, 8)):
                size = rng.choice(self.sizes[: rng.randint(1, len(self.sizes))])
                publishing.publish(address, ROUTES[address], size)
            wait_s = 0.002
            while publishing.unconfirmed() > window:
                list(deliveries.take(line.frames()))
                publishing.confirmed(deliveries.confirmed_to)
            list(deliveries.take(line.frames(wait_s)))
            publishing.confirmed(deliveries.confirmed_to)


class Acknowledger(Worker):
    """Takes from one queue; acknowledges one by one, many at once, or gives back.

    Now and then it publishes with confirm on the same channel: when that confirm comes, the
    acknowledgements sent before are on disk, for they stand before it in the journal.
    """

    queue = ""

    def work(self, line: Line) -> None:
        self.account = self.promises[self.queue]
        self.account.had_consumer = True
        self.publishing = Publishing(line, self.name, self.promises)
        self.line = line
        self.settled: list[Id] = []
        self.barriers: list[tuple[int, list[Id]]] = []
        line.call("basic.qos", prefetch_count=self.rng.choice((1, 7, 50, 300)))
        line.send(codec.method_frame(1, "basic.consume", queue=self.queue, consumer_tag="c"))
        self.ready.set()
        deliveries = Deliveries()
        held: list[tuple[int, Id]] = []
        while True:
            arrived = deliveries.take(line.frames(0.002))
            held += [(delivery.tag, self.received(delivery)) for delivery in arrived]
            self.confirmed(deliveries.confirmed_to)
            if held and self.rng.random() < 0.5:
                self.settle(held)
            if self.settled and self.rng.random() < 0.3:
                self.barrier()

    def received(self, delivery: Delivery) -> Id:
        one = id_of(delivery.body)
        known = one in self.account.delivered
        assert delivery.redelivered or not known, f"{one} came twice, the second time unmarked"
        assert one not in self.account.certain, f"{one} came although it was acknowledged"
        self.account.delivered.add(one)
        return one

    def settle(self, held: list[tuple[int, Id]]) -> None:
        how = self.rng.choice(("each", "multiple", "multiple", "nack", "drop", "requeue all"))
        count = self.rng.randint(1, len(held))
        taken, held[:] = held[:count], held[count:]
        last_tag = taken[-1][0]
        if how == "requeue all":
            self.send("basic.nack", delivery_tag=last_tag, multiple=True, requeue=True)
        elif how == "nack":
            for tag, _ in taken:
                self.send("basic.nack", delivery_tag=tag, requeue=True)
        else:
            self.note_acked([one for _, one in taken])
            if how == "multiple":
                self.send("basic.ack", delivery_tag=last_tag, multiple=True)
            elif how == "drop":
                self.send("basic.nack", delivery_tag=last_tag, multiple=True)
            else:
                for tag, _ in self.rng.sample(taken, len(taken)):
                    self.send("basic.ack", delivery_tag=tag)

    def send(self, method: str, **values: object) -> None:
        self.line.send(codec.method_frame(1, method, **values))

    def note_acked(self, ids: list[Id]) -> None:
        self.account.acked.update(ids)
        self.settled += ids

    def barrier(self) -> None:
        self.publishing.publish(("", "barrier"), ("barrier",), 10)
        self.barriers.append((self.publishing.number, self.settled))
        self.settled = []

    def confirmed(self, to_number: int) -> None:
        self.publishing.confirmed(to_number)
        while self.barriers and self.barriers[0][0] <= to_number:
            self.account.certain.update(self.barriers.pop(0)[1])


class Churner(Worker):
    """Declares and deletes durable queues, exchanges and bindings; a queue gets messages.

    ``wanted`` says what must be there after a restart: True, False, or None while an order
    is under way.  ``filled`` counts the confirmed messages of a queue.
    """

    def __init__(self, url: str, name: str, seed: str, promises: dict[str, Promises]) -> None:
        super().__init__(url, name, seed, promises)
        self.wanted: dict[str, bool | None] = {}
        self.bound: dict[str, bool | None] = {}
        self.modes: tuple[str, ...] = ("default",)
        self.filled: dict[str, int] = {}

    def work(self, line: Line) -> None:
        line.call("queue.declare", queue=f"{self.name}-transient")
        line.call("queue.declare", queue=f"{self.name}-exclusive", durable=True, exclusive=True)
        line.call("exchange.declare", exchange=f"{self.name}-transient", type="topic")
        line.call("confirm.select")
        self.ready.set()
        self.published = 0
        for number in range(10_000):
            name = f"{self.name}-{number}"
            self.declare(line, name)
            if self.rng.random() < 0.7:
                self.delete(line, self.rng.choice([n for n, w in self.wanted.items() if w]))
            time.sleep(self.rng.random() * 0.004)

    def declare(self, line: Line, name: str) -> None:
        self.wanted[name] = None
        self.bound[name] = None
        self.filled[name] = 0
        line.call("exchange.declare", exchange=name, type="topic", durable=True)
        mode = self.rng.choice(self.modes)
        arguments = {"x-queue-type": mode} if mode == "stream" else {"x-queue-mode": mode}
        line.call("queue.declare", queue=name, durable=True, arguments=arguments)
        self.wanted[name] = True
        line.call("queue.bind", queue=name, exchange=name, routing_key="#")
        line.call("exchange.bind", destination=name, source="churn", routing_key=name)
        self.bound[name] = True
        messages = self.rng.randint(0, 3)
        for _ in range(messages):
            line.send(
                codec.method_frame(1, "basic.publish", exchange="churn", routing_key=name)
                + codec.content_frames(1, b"churn:1:", {"delivery_mode": 2})
            )
        self.published += messages
        deliveries = Deliveries()
        while messages and deliveries.confirmed_to < self.published:
            list(deliveries.take(line.frames()))
        self.filled[name] = messages

    def delete(self, line: Line, name: str) -> None:
        self.wanted[name] = None
        self.bound[name] = None
        line.call("queue.delete", queue=name)
        line.call("exchange.delete", exchange=name)
        self.wanted[name] = False
        self.bound[name] = False
