"""More than a broker can take: publishers at full speed, and no consumer or a slow one.

Options are one JSON object.  One process, one loop.  Three phases, each as long as it must be:

    overload  publishers with confirms publish as fast as the broker lets them, whatever it says
    relief    a fast consumer begins to empty the queue, until each publisher was confirmed anew
    drain     publishers stop, their last confirms come, and the queue is emptied to the end

Then each message is accounted for.  A publisher goes on writing when ``connection.blocked`` comes:
that is what the broker has to bear.  It prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import sys
import time
from collections import deque
from typing import Any, Final

from benchmarks.brokers import depth
from benchmarks.overload_wire import CONFIRMED, REFUSED, Account, Reader, ack, message_format, place
from penstock.client.amqp import ClientError, Connection, Endpoint
from penstock.core.errors import PenstockError
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import decode_method, encode_method

CONNECT_LIMIT_S: Final = 60.0
RECEIVE_BYTES: Final = 262_144
RUN_BYTES: Final = 64 * 1024
"""Messages that are composed at once, unless one is larger."""
SAMPLE_S: Final = 0.5
TURN_S: Final = 0.02
RELIEF_LEAST_S: Final = 2.0
RELIEF_LIMIT_S: Final = 60.0
CONFIRM_LIMIT_S: Final = 120.0
QUIET_S: Final = 1.0
STUCK_S: Final = 60.0
"""A queue that has messages and gives none for so long is not going to."""

Result = dict[str, Any]


class Peer:
    """A connection whose socket never waits; ``out`` is what it has still to send."""

    def __init__(self, connection: Connection) -> None:
        self.socket, rest = connection.detach()
        self.socket.setblocking(False)
        self.out = memoryview(b"")
        self.reader = Reader(rest, self.delivered, self.said)

    def delivered(self, tag: int, stamp: bytes) -> None:
        raise ClientError("a message came to a publisher")

    def said(self, payload: bytes) -> None:
        method = decode_method(payload)
        if method.key in {m.CHANNEL_CLOSE, m.CONNECTION_CLOSE}:
            raise ClientError(f"{method.number('reply_code')} {method.text('reply_text')}")

    def read(self) -> None:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ClientError("the broker hung up")
        self.reader.feed(data)

    def write(self) -> None:
        try:
            while self.out:
                self.out = self.out[self.socket.send(self.out) :]
        except BlockingIOError:
            return

    def wants_to_write(self) -> bool:
        return len(self.out) > 0


class Publisher(Peer):
    """At most ``window`` messages unconfirmed."""

    def __init__(self, endpoint: Endpoint, number: int, form: bytes, window: int) -> None:
        connection = Connection(endpoint, timeout_s=CONNECT_LIMIT_S)
        connection.channel().confirm_select()
        super().__init__(connection)
        self.number = number
        self.account = Account()
        self.paused = False
        self.confirmed_count = 0
        self.blocked_count = 0
        self.blocked_s = 0.0
        self.blocked_since_s = 0.0
        self.reasons: set[str] = set()
        self.resumed_s: float | None = None
        self._form = form
        self._window = window
        self._run = max(1, min(window, RUN_BYTES // len(form)))
        self._run_form = form * self._run

    def said(self, payload: bytes) -> None:
        method = decode_method(payload)
        if method.key in {m.BASIC_ACK, m.BASIC_NACK}:
            verdict = CONFIRMED if method.key == m.BASIC_ACK else REFUSED
            before = self.account.answered
            tag = method.number("delivery_tag")
            self.account.settle(tag, method.flag("multiple"), verdict)
            if verdict == CONFIRMED:
                self.confirmed_count += self.account.answered - before
        elif method.key == m.CONNECTION_BLOCKED:
            self.blocked_count += 1
            self.blocked_since_s = time.monotonic()
            self.reasons.add(method.text("reason"))
        elif method.key == m.CONNECTION_UNBLOCKED:
            self.unblocked()
        else:
            super().said(payload)

    def unblocked(self) -> None:
        if self.blocked_since_s:
            self.blocked_s += time.monotonic() - self.blocked_since_s
            self.blocked_since_s = 0.0

    def has_room(self) -> bool:
        return not self.paused and self.account.unanswered + self._run <= self._window

    def wants_to_write(self) -> bool:
        return len(self.out) > 0 or self.has_room()

    def write(self) -> None:
        if not self.out and self.has_room():
            first = self.account.published
            self.account.publish(self._run)
            numbers = [x for n in range(first, first + self._run) for x in (self.number, n)]
            self.out = memoryview(self._run_form % tuple(numbers))
        super().write()


class Consumer(Peer):
    """``rate`` messages per second acknowledged one by one; 0 = as fast as they come."""

    def __init__(
        self, endpoint: Endpoint, queue: str, prefetch: int, rate: float, accounts: list[Account]
    ) -> None:
        connection = Connection(endpoint, timeout_s=CONNECT_LIMIT_S)
        channel = connection.channel()
        channel.qos(prefetch)
        channel.consume(queue, "c")
        self.count = 0
        self.last_s = time.monotonic()
        self.ended = False
        self._rate = rate
        self._due_s = self.last_s
        self._held: deque[tuple[int, bytes]] = deque()
        self._batch = 1 if rate else max(1, prefetch // 10)
        self._accounts = accounts
        super().__init__(connection)

    def delivered(self, tag: int, stamp: bytes) -> None:
        self._held.append((tag, stamp))
        self.last_s = time.monotonic()

    def said(self, payload: bytes) -> None:
        self.ended = self.ended or decode_method(payload).key == m.BASIC_CANCEL_OK
        super().said(payload)

    def work(self, now_s: float, *, all_of_it: bool = False) -> None:
        """Acknowledge what is due."""
        if self._rate and not all_of_it:
            if not self._held:
                self._due_s = max(self._due_s, now_s)
            while self._held and self._due_s <= now_s:
                self._take(1)
                self._due_s += 1 / self._rate
            return
        while len(self._held) >= self._batch:
            self._take(self._batch)
        if self._held and (all_of_it or now_s - self.last_s > TURN_S):
            self._take(len(self._held))

    def _take(self, count: int) -> None:
        tag = 0
        for _ in range(count):
            tag, stamp = self._held.popleft()
            publisher, number = place(stamp)
            if not self._accounts[publisher].see(number):
                raise ClientError(f"message {number} of {publisher} was never published")
        self.count += count
        self.out = memoryview(bytes(self.out) + ack(tag, count > 1))
        self.write()

    def leave(self) -> None:
        """No more deliveries, please."""
        cancel = encode_method(1, m.BASIC_CANCEL, ("c", False))
        self.out = memoryview(bytes(self.out) + cancel)
        self.write()


class Load:
    """The loop, and what is looked at while it turns."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.endpoint = Endpoint.parse(given.uri)
        form = message_format(given.queue, given.size)
        self.publishers = [
            Publisher(self.endpoint, number, form, given.window)
            for number in range(given.publishers)
        ]
        self.accounts = [publisher.account for publisher in self.publishers]
        self.consumer: Consumer | None = None
        self.samples: list[Result] = []
        self._ways = selectors.DefaultSelector()
        self._peers: list[Peer] = []
        self._begin_s = time.monotonic()
        self._sample_s = self._begin_s
        for publisher in self.publishers:
            self.add(publisher)

    def add(self, peer: Peer) -> None:
        self._peers.append(peer)
        self._ways.register(peer.socket, selectors.EVENT_READ, peer)

    def drop(self, peer: Peer) -> None:
        self._peers.remove(peer)
        self._ways.unregister(peer.socket)
        peer.socket.close()

    def consume(self, prefetch: int, rate: float) -> None:
        given = self.given
        self.consumer = Consumer(self.endpoint, given.queue, prefetch, rate, self.accounts)
        self.add(self.consumer)

    def turn(self) -> None:
        for peer in self._peers:
            mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.wants_to_write() else 0)
            if self._ways.get_key(peer.socket).events != mask:
                self._ways.modify(peer.socket, mask, peer)
        ready: list[tuple[selectors.SelectorKey, int]] = self._ways.select(TURN_S)
        for key, events in ready:
            if events & selectors.EVENT_READ:
                key.data.read()
            if events & selectors.EVENT_WRITE:
                key.data.write()
        now_s = time.monotonic()
        if self.consumer is not None:
            self.consumer.work(now_s)
        if now_s - self._sample_s >= SAMPLE_S:
            self._sample(now_s)

    def _sample(self, now_s: float) -> None:
        self.samples.append(
            {
                "at_s": round(now_s - self._begin_s, 2),
                "span_s": round(now_s - self._sample_s, 4),
                "confirmed": sum(one.confirmed_count for one in self.publishers),
                "consumed": 0 if self.consumer is None else self.consumer.count,
                "blocked": sum(1 for one in self.publishers if one.blocked_since_s),
            }
        )
        self._sample_s = now_s

    # -- the phases --------------------------------------------------------------------------

    def overload(self) -> Result:
        given = self.given
        if given.consumer_rate:
            self.consume(given.consumer_prefetch, given.consumer_rate)
        begin_s = time.monotonic()
        while time.monotonic() - begin_s < given.seconds:
            self.turn()
            if given.size * sum(one.published for one in self.accounts) > given.limit_bytes:
                for publisher in self.publishers:
                    publisher.paused = True
        seconds = time.monotonic() - begin_s
        confirmed = sum(one.confirmed_count for one in self.publishers)
        return {
            "seconds": seconds,
            "confirmed": confirmed,
            "rate": confirmed / seconds,
            "limit_reached": self.publishers[0].paused,
            "consumer": self._consumer_result(),
        }

    def _consumer_result(self) -> Result:
        """Its rate in samples in which publishers were held (nothing was confirmed) and others.

        Where the queue was empty it is no question of the broker's.
        """
        if self.consumer is None:
            return {}
        seconds = {True: 0.0, False: 0.0}
        counts = {True: 0, False: 0}
        for before, after in zip(self.samples, self.samples[1:], strict=False):
            if before["confirmed"] <= after["consumed"]:
                continue
            held = before["confirmed"] == after["confirmed"]
            seconds[held] += after["span_s"]
            counts[held] += after["consumed"] - before["consumed"]
        return {
            "count": self.consumer.count,
            "held_s": seconds[True],
            "free_s": seconds[False],
            "held_rate": counts[True] / seconds[True] if seconds[True] else None,
            "free_rate": counts[False] / seconds[False] if seconds[False] else None,
        }

    def end_slow_consumer(self) -> None:
        """What it holds is acknowledged, so that nothing comes twice by its leaving."""
        consumer = self.consumer
        if consumer is None:
            return
        consumer.leave()
        limit_s = time.monotonic() + CONNECT_LIMIT_S
        while not consumer.ended or consumer.out:
            self.turn()
            if time.monotonic() > limit_s:
                raise ClientError("a consumer is not let go")
        consumer.work(time.monotonic(), all_of_it=True)
        while consumer.out:
            self.turn()
        self.consumer = None
        say_goodbye(consumer.socket)
        self.drop(consumer)

    def relieve(self) -> float:
        """The fast consumer comes; seconds until the last publisher was confirmed anew."""
        given = self.given
        before = [publisher.confirmed_count for publisher in self.publishers]
        for publisher in self.publishers:
            publisher.paused = False
        begin_s = time.monotonic()
        self.consume(given.drain_prefetch, 0.0)
        while True:
            self.turn()
            passed_s = time.monotonic() - begin_s
            for publisher, count in zip(self.publishers, before, strict=True):
                if publisher.resumed_s is None and publisher.confirmed_count > count:
                    publisher.resumed_s = passed_s
            late = passed_s > RELIEF_LIMIT_S
            done = all(one.resumed_s is not None for one in self.publishers)
            if late or (done and passed_s > RELIEF_LEAST_S):
                return passed_s

    def drain(self) -> Result:
        begin_s = time.monotonic()
        for publisher in self.publishers:
            publisher.paused = True
        consumer = self.consumer
        assert consumer is not None
        first = consumer.count
        asked_s = begin_s
        while True:
            self.turn()
            now_s = time.monotonic()
            unanswered = sum(one.unanswered for one in self.accounts)
            if unanswered and now_s - max(begin_s, consumer.last_s) < CONFIRM_LIMIT_S:
                continue
            if min(now_s - consumer.last_s, now_s - asked_s) < QUIET_S:
                continue
            asked_s = now_s
            left = depth(self.given.uri, self.given.queue)
            if left == 0 or now_s - consumer.last_s > STUCK_S:
                seconds = consumer.last_s - begin_s
                return {"count": consumer.count - first, "seconds": seconds, "left": left}

    def run(self) -> Result:
        overload = self.overload()
        overload["samples"] = list(self.samples)
        for publisher in self.publishers:
            if publisher.blocked_since_s:
                publisher.unblocked()
                publisher.blocked_since_s = time.monotonic()
        blocked_s = [publisher.blocked_s for publisher in self.publishers]
        self.end_slow_consumer()
        relief_s = self.relieve()
        drain = self.drain()
        accounts = [account.result() for account in self.accounts]
        return {
            "overload": overload,
            "blocked": {
                "publishers": sum(1 for one in self.publishers if one.blocked_count),
                "times": sum(one.blocked_count for one in self.publishers),
                "seconds": blocked_s,
                "reasons": sorted(set().union(*(one.reasons for one in self.publishers))),
                "still": sum(1 for one in self.publishers if one.blocked_since_s),
            },
            "relief_s": relief_s,
            "resumed_s": [publisher.resumed_s for publisher in self.publishers],
            "resumed": sum(1 for one in self.publishers if one.resumed_s is not None),
            "drain": drain,
            "accounts": accounts,
            "totals": {key: sum(one[key] for one in accounts) for key in accounts[0]},
        }


def say_goodbye(connected: socket.socket) -> None:
    connected.setblocking(True)
    connected.settimeout(CONNECT_LIMIT_S)
    connected.sendall(encode_method(0, m.CONNECTION_CLOSE, (200, "Goodbye", 0, 0)))
    connected.recv(RECEIVE_BYTES)


def main() -> int:
    try:
        print(json.dumps(Load(argparse.Namespace(**json.loads(sys.argv[1]))).run()))
    except (PenstockError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
