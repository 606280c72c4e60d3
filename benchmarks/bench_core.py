"""The broker without sockets: processor time per message through decoder, queue and encoder.

Publishes lie ready as bytes; deliveries end in a buffer that is emptied each turn.  What is left
out is the kernel.  Good for comparing a change with its parent in one sitting, nothing else; the
tables ``core``, ``credit``, ``events`` and ``instructions-core`` use it.
"""

import os
import tempfile
import threading
import time
from pathlib import Path
from typing import cast

from penstock.backing.factory import BackingMaker
from penstock.broker.broker import Broker
from penstock.broker.rules.access import User, hash_password
from penstock.core.clock_types import MonoMs, WallMs
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from penstock.protocols.amqp.codec.letters import AmqpLetterWriter
from penstock.protocols.amqp.codec.methods import encode_method
from penstock.protocols.amqp.codec.properties import Properties, encode_content
from penstock.protocols.amqp.handshake import Limits
from penstock.protocols.amqp.session import AmqpSession
from penstock.runtime.disk.committer import Committer
from penstock.runtime.disk.event_log import EventLog
from penstock.runtime.disk.worker import DiskWorker
from penstock.runtime.turn import Turn
from penstock.storage.common.files import RealFileSystem
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.engine.engine import EngineLimits
from penstock.storage.engine.recovery import Opening
from penstock.storage.store.groups import StoreWriter

CHUNK_BYTES = 64 * 1024
NOW_MS = WallMs(1_700_000_000_000)


class Bench:
    """One broker in memory, a publisher and a consumer session."""

    def __init__(self, directory: str, credit: bool = True, events: bool = False) -> None:
        files = RealFileSystem()
        limits = EngineLimits(4096, 1 << 27, 32_768, 1 << 34, 1 << 33)
        opening = Opening(files, directory, limits, {})
        opening.run(lambda jobs: None, lambda text: None)
        engine = opening.engine
        self.woken = threading.Event()
        self.committer = Committer(
            files,
            engine.journal.directory,
            int(engine.journal.file_size_bytes),
            StoreWriter(files, engine.store.directory),
            self.woken.set,
        )
        worker = DiskWorker(files, directory, self.woken.set, engine.board.finish)
        self.broker = Broker(
            Definitions(os.path.join(directory, "definitions.db")),
            engine,
            BackingMaker(engine, "lowest", AmqpHeaderReader()).make,
            lambda: "incarnation",
            [],
            AmqpLetterWriter(),
            AmqpHeaderReader(),
        )
        self.broker.flow.enabled = credit
        self.broker.events.on = self.broker.flow.book.noting = events
        # Queues are sampled where there is a log to write to.
        self.broker.events.directory = str(Path(directory) / "events") if events else ""
        self.log = EventLog(Path(directory) / "events", 1 << 24, 1 << 27) if events else None
        if self.log is not None:  # queues are sampled from their beginning
            self.broker.events.directory = str(self.log.directory)
        self._carry_at_ms = self._interval_at_ms = self._delivered = 0
        user = User("guest", hash_password("guest", b"salt"), [])
        user.vhosts["/"] = (".*", ".*", ".*")
        self.broker.users.users["guest"] = user
        self.broker.add_vhost("/", 16_384)
        self.turn = Turn(self.broker, engine, self.committer, worker)
        self.publisher = self.session()
        self.consumer = self.session()

    def take_turn(self) -> None:
        """As the loop does, but for the sockets."""
        flow = self.broker.flow
        now_ms = WallMs(time.time_ns() // 1_000_000)
        # one clock will do: no queue expires here
        self.turn.begin(now_ms, MonoMs(now_ms))
        for stage in flow.book.take_freed():
            cast(AmqpSession, stage.owner).resume(now_ms)
        self.turn.run(now_ms, True)
        flow.end_turn(MonoMs(time.time_ns() // 1_000_000))
        if self.log is not None and now_ms >= self._carry_at_ms:
            self._carry_at_ms = now_ms + 250
            self._carry_events(self.log, now_ms)

    def _carry_events(self, log: EventLog, now_ms: WallMs) -> None:
        """As the collector does, for one queue."""
        if now_ms >= self._interval_at_ms:
            self._interval_at_ms = now_ms + 1000
            self.broker.queue_context.sampling.begin_interval(200, 200)
            self.broker.flow.book.take_waits()
            for queue in self.broker.vhosts["/"].queues.values():
                assert queue.statistics.sampler is not None
                delivered = int(queue.statistics.delivered_count)
                queue.statistics.sampler.begin(delivered, delivered - self._delivered, 20)
                self._delivered = delivered
        log.put([event[:3] for event in self.broker.events.take()])

    def session(self) -> AmqpSession:
        return AmqpSession(
            self.broker,
            Limits(10, 131072, 0, 10000, 1 << 27),
            {},
            lambda prefix: prefix + "x",
            self.turn.cancelled,
            print,
            ("127.0.0.1", True),
            NOW_MS,
        )


def greet(session: AmqpSession) -> None:
    session.receive(b"AMQP\x00\x00\x09\x01", NOW_MS)
    for key, values in (
        (m.CONNECTION_START_OK, [{}, "PLAIN", b"\x00guest\x00guest", "en_US"]),
        (m.CONNECTION_TUNE_OK, [10, 131072, 0]),
        (m.CONNECTION_OPEN, ["/", "", False]),
    ):
        session.receive(encode_method(0, key, values), NOW_MS)
    session.receive(encode_method(1, m.CHANNEL_OPEN, [""]), NOW_MS)
    assert session.state_name == "running"


def publishes(size: int, varied: bool, persistent: bool) -> list[bytes]:
    """Chunks of whole publishes."""
    properties = Properties(delivery_mode=2 if persistent else None)
    chunks: list[bytes] = []
    chunk, number = bytearray(), 0
    while len(chunks) < 32:
        key = f"q{number % 7}" if varied else "q0"
        if varied:
            headers: dict[str, object] = {"n": number, "kind": "varied"}
            properties = properties._replace(headers=headers, priority=number % 5)
        chunk += encode_method(1, m.BASIC_PUBLISH, [0, "amq.topic", key, False, False])
        chunk += encode_content(properties, b"x" * size, 1, 131072)
        number += 1
        if len(chunk) >= CHUNK_BYTES:
            chunks.append(bytes(chunk))
            chunk.clear()
    return chunks


def run(
    size: int,
    varied: bool,
    no_ack: bool,
    persistent: bool,
    seconds: float,
    credit: bool = True,
    events: bool = False,
) -> float:
    """Nanoseconds of processor time per message."""
    with tempfile.TemporaryDirectory() as directory:
        bench = Bench(directory, credit, events)
        if bench.log is not None:
            bench.log.start()
        for session in (bench.publisher, bench.consumer):
            greet(session)
        consumer = bench.consumer
        for method, values in (
            (m.QUEUE_DECLARE, [0, "q", False, persistent, False, False, False, {}]),
            (m.QUEUE_BIND, [0, "q", "amq.topic", "#", False, {}]),
            (m.BASIC_QOS, [0, 0 if no_ack else 2000, False]),
            (m.BASIC_CONSUME, [0, "q", "c", False, no_ack, False, False, {}]),
        ):
            consumer.receive(encode_method(1, method, values), NOW_MS)
        consumer.out.truncate(0)
        chunks = publishes(size, varied, persistent)
        count, begun = 0, time.process_time()
        until = time.monotonic() + seconds
        queue = bench.broker.vhosts["/"].queues["q"]
        while time.monotonic() < until:
            for chunk in chunks:
                while bench.publisher.held_bytes > 0:
                    bench.woken.wait(0.005)  # as the loop waits: it costs no processor time
                    bench.woken.clear()
                    bench.take_turn()
                bench.publisher.receive(chunk, NOW_MS)
                while bench.turn.has_work():
                    bench.take_turn()
                    consumer.out.getvalue()
                    consumer.out.truncate(0)
                    consumer.outlet.open = True
                    if not no_ack and queue.unacked_count:
                        tag = consumer.channels[1].ledger.next_tag - 1
                        consumer.receive(encode_method(1, m.BASIC_ACK, [tag, True]), NOW_MS)
                    queue.wake()
                    if queue.backing.ready_count() == 0:
                        break
        count = int(queue.statistics.delivered_count)
        if bench.log is not None:
            bench.log.stop()
        spent = time.process_time() - begun
        bench.committer.close()
        return spent / count * 1e9
