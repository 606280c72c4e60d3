"""One process of a load run: ``python -m penstock.client.worker`` is a publisher or consumer.

It is driven by its parent over its standard streams, one JSON object per line:

    parent → worker   the task: role, number, plan, descriptors
    worker → parent   {"state": "ready"}              connected, not yet working
    parent → worker   the times: start, measure from, end, deadline (monotonic ns)
    worker → parent   {"state": "consuming"}          consumers only: subscribed
    worker → parent   {"state": "done", "result": …}  or {"state": "failed", "error": …}

A process each, because one interpreter can do one thing at a time and a publisher that
waits for its own consumer measures itself.
"""

import json
import resource
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.amqp import Connection
from penstock.client.endpoint import ChannelClosed, ClientError, ConnectionClosed, Endpoint
from penstock.client.load import (
    KEY_DELIVER,
    BrokenStream,
    DeliveryScanner,
    SendTimes,
    due_after_ns,
    due_count,
)
from penstock.client.plan import LoadPlan
from penstock.client.shared import STOP_ALL, STOP_NOTHING, Counters, SendWindow, SendWindowFeed
from penstock.client.templates import composer_for
from penstock.core.counting.histogram import Histogram
from penstock.core.errors import PenstockError
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import decode_method, encode_method

BLOB_BYTES: Final = 65_536
RECEIVE_BYTES: Final = 131_072
NAP_S: Final = 0.05
"""How long a worker waits at most before it looks for the stop sign."""
QUIET_TURNS: Final = 32
"""A publisher that need not listen looks this seldom whether the broker said something."""
GOODBYE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Task:
    role: str
    number: int
    slot: int
    workers: int
    plan: LoadPlan
    counters: int
    rooms: list[int]


@dataclass(frozen=True, slots=True)
class Times:
    """When things happen, in nanoseconds of the monotonic clock; ``end`` 0 = by count."""

    start_ns: int
    measure_ns: int
    end_ns: int
    deadline_ns: int


class Worker:
    """What publishers and consumers have in common: a socket, counters, what went wrong."""

    def __init__(self, task: Task, connection: Connection) -> None:
        self.task = task
        self.plan = task.plan
        self.counters = Counters(task.counters, task.workers)
        self.frame_max = connection.frame_max
        self.first_ns = 0
        self.last_ns = 0
        self.blocked_ns = 0
        self._blocked_since_ns = 0
        self._measuring = False
        self.socket, self.early_bytes = connection.detach()

    def heed(self, control: list[tuple[int, bytes]], now_ns: int) -> None:
        """What the broker said besides messages and confirms."""
        for _, payload in control:
            method = decode_method(payload)
            if method.key == m.CONNECTION_CLOSE:
                code, text = method.number("reply_code"), method.text("reply_text")
                raise ConnectionClosed(code, text)
            if method.key == m.CHANNEL_CLOSE:
                raise ChannelClosed(method.number("reply_code"), method.text("reply_text"))
            if method.key == m.BASIC_CANCEL:
                raise ClientError("the broker cancelled the consumer")
            if method.key == m.CONNECTION_BLOCKED and not self._blocked_since_ns:
                self._blocked_since_ns = now_ns
            elif method.key == m.CONNECTION_UNBLOCKED and self._blocked_since_ns:
                self.blocked_ns += now_ns - self._blocked_since_ns
                self._blocked_since_ns = 0
        control.clear()

    def measures_from_now(self, now_ns: int, times: Times) -> bool:
        if self._measuring or now_ns < times.measure_ns:
            return False
        self._measuring = True
        return True

    def say_goodbye(self) -> None:
        """Close in order, so that all acks are taken before anything is deleted."""
        self.socket.settimeout(GOODBYE_S)
        until = time.monotonic() + GOODBYE_S
        answer = encode_method(0, m.CONNECTION_CLOSE_OK, ())  # the last frame there is
        tail = b""
        try:
            self.socket.sendall(encode_method(0, m.CONNECTION_CLOSE, (200, "Goodbye", 0, 0)))
            while not tail.endswith(answer) and time.monotonic() < until:
                data = self.socket.recv(RECEIVE_BYTES)
                if not data:
                    break
                tail = (tail + data)[-len(answer) :]
        except OSError:
            pass
        self.socket.close()

    def common_result(self, latency: Histogram) -> dict[str, Any]:
        if self._blocked_since_ns:
            self.blocked_ns += time.monotonic_ns() - self._blocked_since_ns
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "first_ns": self.first_ns,
            "last_ns": self.last_ns,
            "blocked_s": self.blocked_ns / 1e9,
            "cpu_s": usage.ru_utime + usage.ru_stime,
            "latency": {
                "buckets": latency.packed(),
                "sum_ns": latency.sum,
                "max_ns": int(latency.greatest),
            },
        }


class Publisher(Worker):
    """Sends until its quota, its time or the stop sign; then waits for open confirms."""

    def __init__(self, task: Task, connection: Connection) -> None:
        channel = connection.channel()
        if task.plan.confirm:
            channel.confirm_select()
        super().__init__(task, connection)
        self.socket.setblocking(False)
        self.composer = composer_for(task.plan, task.number, self.frame_max)
        self.ledger = SendTimes(max(1, task.plan.confirm))
        self._quota = task.plan.quota(task.number)
        self._room: SendWindow | None = None
        if task.plan.in_flight:
            self._room = SendWindow(task.rooms[task.number], task.plan.credit(task.number))
        self._quiet_turns = 0
        self._pending = memoryview(b"")

    def run(self, times: Times) -> dict[str, Any]:
        pause_s = (times.start_ns - time.monotonic_ns()) / 1e9
        if pause_s > 0:
            time.sleep(pause_s)
        self.first_ns = time.monotonic_ns()
        while self._goes_on(times):
            self._turn(times)
        self._finish(times)
        self.counters.put(self.task.slot, int(self.composer.sequence))
        result = self.common_result(self.ledger.latency)
        result["published"] = int(self.composer.sequence)
        result["confirmed"] = int(self.ledger.confirmed)
        result["nacked"] = int(self.ledger.nacked)
        return result

    def _goes_on(self, times: Times) -> bool:
        now_ns = time.monotonic_ns()
        if self.counters.stop != STOP_NOTHING or now_ns >= times.deadline_ns:
            return False
        if times.end_ns and now_ns >= times.end_ns:
            return False
        return not self._quota or self.composer.sequence < self._quota

    def _turn(self, times: Times) -> None:
        """Compose what may be sent, send what the socket takes, wait for what is missing."""
        now_ns = time.monotonic_ns()
        if self.measures_from_now(now_ns, times):
            self.ledger.forget_latencies()
        if not self._pending:
            self._compose(now_ns, times.start_ns)
        if self._pending:
            self._send()
        self._listen(self._patience_s(times.start_ns))

    def _compose(self, now_ns: int, start_ns: int) -> None:
        room = self._allowance(now_ns, start_ns)
        if room <= 0:
            return
        before = self.composer.sequence
        plan = self.plan
        schedule = (start_ns, plan.rate, plan.publishers, self.task.number)
        if plan.rate:
            blob = self.composer.compose_due(room, BLOB_BYTES, *schedule)
        else:
            blob = self.composer.compose(room, BLOB_BYTES, now_ns)
        sent = self.composer.sequence - before
        if plan.confirm and plan.rate:
            self.ledger.note_due(sent, *schedule)
        elif plan.confirm:
            self.ledger.note_sent(sent, now_ns)
        if self._room is not None:
            self._room.spend(sent)
        self._pending = memoryview(blob)

    def _allowance(self, now_ns: int, start_ns: int) -> int:
        """How many messages quota, rate, confirm window and consumers allow now."""
        sequence = self.composer.sequence
        allowed = self._quota - sequence if self._quota else 1 << 40
        if self.plan.rate:
            due = due_count(
                now_ns - start_ns, self.plan.rate, self.plan.publishers, self.task.number
            )
            allowed = min(allowed, due - sequence)
        if self.plan.confirm:
            allowed = min(allowed, self.ledger.room())
        if self._room is not None:
            if self._room.left < max(1, allowed):
                self._room.take()
            allowed = min(allowed, self._room.left)
        return int(allowed)

    def _send(self) -> None:
        try:
            sent = self.socket.send(self._pending)
        except BlockingIOError:
            return
        except OSError as error:
            self._hear_last_words()
            raise ClientError(f"sending failed: {error}") from error
        self._pending = self._pending[sent:]
        if not self._pending:
            self.counters.put(self.task.slot, int(self.composer.sequence))

    def _patience_s(self, start_ns: int) -> float:
        """How long to wait for the socket: not at all while there is something to send."""
        if self._pending:
            return NAP_S
        now_ns = time.monotonic_ns()
        if self._allowance(now_ns, start_ns) > 0:
            return 0.0
        if self.plan.rate and not self._is_held():
            due_ns = start_ns + due_after_ns(
                self.composer.sequence, self.plan.rate, self.plan.publishers, self.task.number
            )
            return min(NAP_S, max(0, int(due_ns) - now_ns) / 1e9)
        return NAP_S

    def _is_held(self) -> bool:
        if self.plan.confirm and self.ledger.room() <= 0:
            return True
        return self._room is not None and self._room.left <= 0

    def _listen(self, patience_s: float) -> None:
        if patience_s == 0.0 and not self.plan.confirm:
            self._quiet_turns += 1
            if self._quiet_turns % QUIET_TURNS:
                return
        reading: list[Any] = [self.socket]
        if self._room is not None and self._room.left <= 0 and not self._pending:
            reading.append(self._room.descriptor)
        writing = [self.socket] if self._pending else []
        readable, _, _ = select.select(reading, writing, [], patience_s)
        if self.socket in readable:
            self._hear()

    def _hear(self) -> None:
        data = self.early_bytes + self.socket.recv(RECEIVE_BYTES)
        self.early_bytes = b""
        if not data:
            raise ClientError("the broker hung up on a publisher")
        now_ns = time.monotonic_ns()
        self.ledger.feed(data, now_ns)
        if self.ledger.control:
            self.heed(self.ledger.control, now_ns)

    def _hear_last_words(self) -> None:
        """A broker that hangs up may have said why; that is the better error."""
        self.socket.setblocking(True)
        self.socket.settimeout(1.0)
        try:
            while True:
                self._hear()
        except (OSError, ClientError) as error:
            if isinstance(error, (ConnectionClosed, ChannelClosed)):
                raise

    def _finish(self, times: Times) -> None:
        """No frame is left half sent, no confirm unheard, unless the deadline comes."""
        while self._pending and time.monotonic_ns() < times.deadline_ns:
            self._send()
            if self._pending:
                self._listen(NAP_S)
        while self.plan.confirm and self.ledger.confirmed < self.ledger.sent:
            if time.monotonic_ns() >= times.deadline_ns or self.counters.stop == STOP_ALL:
                break
            self._listen(NAP_S)
        self.last_ns = time.monotonic_ns()


class Consumer(Worker):
    """Takes deliveries until the stop sign; a channel for each of its queues."""

    def __init__(self, task: Task, connection: Connection) -> None:
        self._queues = task.plan.queues_of_consumer(task.number)
        for _ in self._queues:
            channel = connection.channel()
            if task.plan.prefetch:
                channel.qos(task.plan.prefetch)
        super().__init__(task, connection)
        self.scanner = DeliveryScanner(
            KEY_DELIVER, len(self._queues), max(1, task.plan.publishers), task.plan.ack_every
        )
        self._giver = SendWindowFeed(task.rooms)
        self._unsent = b""

    def run(self, times: Times) -> dict[str, Any]:
        # The kernel waits for us: no extra call per read, as a timeout of Python's costs one.
        nap = struct.pack("ll", 0, int(NAP_S * 1e6))
        self.socket.setblocking(True)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, nap)
        self._subscribe()
        tell({"state": "consuming"})
        while self.counters.stop != STOP_ALL and time.monotonic_ns() < times.deadline_ns:
            self._take(times)
        self.scanner.settle_rest()
        self.socket.setblocking(True)
        self._unsent += self.scanner.acks.getvalue()
        self.socket.sendall(self._unsent)
        return self._result()

    def _subscribe(self) -> None:
        for number, queue in enumerate(self._queues, 1):
            no_ack = self.plan.ack_every == 0
            no_arguments: dict[str, object] = {}
            values = (0, queue, f"c{number}", False, no_ack, False, False, no_arguments)
            self.socket.sendall(encode_method(number, m.BASIC_CONSUME, values))

    def _take(self, times: Times) -> None:
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            if self._unsent:
                self._send_acks()
            return
        if not data:
            raise ClientError("the broker hung up on a consumer")
        now_ns = time.monotonic_ns()
        if self.measures_from_now(now_ns, times):
            self.scanner.forget_latencies()
        if self.early_bytes:
            data = self.early_bytes + data
            self.early_bytes = b""
        before = self.scanner.messages
        self.scanner.feed(data, now_ns)
        if self.scanner.control:
            self.heed(self.scanner.control, now_ns)
        if self.plan.ack_every:
            self._send_acks()
        self._count(int(self.scanner.messages - before), now_ns)

    def _count(self, taken: int, now_ns: int) -> None:
        if taken:
            self.first_ns = self.first_ns or now_ns
            self.last_ns = now_ns
            self.counters.put(self.task.slot, int(self.scanner.messages))
            self._giver.give(taken)

    def _send_acks(self) -> None:
        """Never waits: a broker that is busy sending to us must not find us busy as well."""
        if len(self.scanner.acks):
            self._unsent += self.scanner.acks.getvalue()
            self.scanner.acks.truncate(0)
        if self._unsent:
            try:
                sent = self.socket.send(self._unsent, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            self._unsent = self._unsent[sent:]

    def _result(self) -> dict[str, Any]:
        result = self.common_result(self.scanner.latency)
        result["consumed"] = int(self.scanner.messages)
        result["body_bytes"] = int(self.scanner.body_bytes)
        result["redelivered"] = int(self.scanner.redelivered)
        result["out_of_order"] = int(self.scanner.out_of_order)
        result["foreign"] = int(self.scanner.foreign)
        return result


def tell(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main() -> int:
    fields = json.loads(sys.stdin.readline())
    fields["plan"] = LoadPlan.from_json(json.dumps(fields["plan"]))
    task = Task(**fields)
    try:
        connection = Connection(Endpoint.parse(task.plan.uri))
        kind = Publisher if task.role == "publisher" else Consumer
        worker = kind(task, connection)
        tell({"state": "ready"})
        line = sys.stdin.readline()
        if not line:  # the parent is gone
            return 1
        result = worker.run(Times(**json.loads(line)))
        worker.say_goodbye()
    except (PenstockError, BrokenStream, OSError) as error:
        tell({"state": "failed", "error": f"{task.role} {task.number}: {error}"})
        return 1
    tell({"state": "done", "result": result})
    return 0


if __name__ == "__main__":
    sys.exit(main())
