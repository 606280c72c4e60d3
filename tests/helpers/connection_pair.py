"""Two ends of AMQP connections without a socket, around a whole broker without a process.

``QuietBroker`` is everything of a node but its noise: the broker, its engine on a disk in memory,
the committer (which may be told to wait), disk jobs done when they are asked for, the turn, and two
clocks that a test moves: ``now_ms`` of the wall, and ``mono_ms``, by which queues are unused.
``ClientEnd`` is the peer of one session: it speaks with the tests' own codec, so nothing of
the product judges itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.backing.factory import BackingMaker
from penstock.broker.broker import Broker
from penstock.broker.rules.access import HASHING, hash_password
from penstock.core.clock_types import MonoMs, WallMs
from penstock.node.node import stream_ids
from penstock.protocols.amqp.codec.header_edit import with_stream_offsets
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from penstock.protocols.amqp.codec.letters import AmqpLetterWriter
from penstock.protocols.amqp.handshake import Limits
from penstock.protocols.amqp.session import AmqpSession
from penstock.queues.stream_backing import BackingChoice
from penstock.runtime.disk.committer import Committer
from penstock.runtime.disk.worker import DiskWorker
from penstock.runtime.session import Session
from penstock.runtime.turn import Turn
from penstock.storage.common.disk_jobs import DiskJob, JobBoard, run_job
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import (
    PermissionRecord,
    UserRecord,
    VhostRecord,
    owners_of_ids,
)
from penstock.storage.engine.engine import EngineLimits
from penstock.storage.engine.recovery import Opening
from penstock.storage.journal.codec import JournalGroup
from penstock.storage.store.groups import StoreWriter
from penstock.streams.reading import BlockCache
from penstock.streams.streams import Streams
from penstock.streams.writer import StreamWriter
from tests.helpers import raw_codec as codec
from tests.helpers.sim_files import SimFileSystem

DIRECTORY = "data"
JOURNAL_FILE_BYTES = 1 << 20
SEGMENT_ENTRIES = 16_384
EVERYTHING = 1 << 40


class HeldCommitter(Committer):
    """Does every group at once, or, when told to ``hold``, only on ``finish``."""

    def __init__(self, files: SimFileSystem, file_bytes: int = JOURNAL_FILE_BYTES) -> None:
        super().__init__(
            files,
            f"{DIRECTORY}/journal",
            file_bytes,
            StoreWriter(files, f"{DIRECTORY}/store/persistent"),
            lambda: None,
            StreamWriter(files),
        )
        self.hold = False
        self.held: list[JournalGroup] = []
        self.seen: list[JournalGroup] = []
        self.inline_count = 0

    def idle(self) -> bool:
        return not self.held

    def commit_inline(self, group: JournalGroup) -> None:
        self.inline_count += 1
        self.submit(group)

    def submit(self, group: JournalGroup) -> None:
        self.seen.append(group)
        self.held.append(group)
        if not self.hold:
            self.finish()

    def finish(self) -> None:
        held, self.held = self.held, []
        for group in held:
            super().commit_inline(group)


class PromptWorker(DiskWorker):
    """Does every job when it is submitted, or, when told to ``hold``, only on ``finish_all``."""

    def __init__(self, files: SimFileSystem, finish: Callable[[DiskJob], None]) -> None:
        super().__init__(files, DIRECTORY, lambda: None, finish)
        self.hold = False
        self.held: list[DiskJob] = []
        self._disk = files
        self._told = finish

    def submit_writes(self, jobs: list[DiskJob]) -> None:
        self.held += jobs

    def submit_reads(self, jobs: list[DiskJob]) -> None:
        self.held += jobs

    def collect(self) -> list[DiskJob]:
        return [] if self.hold else self.finish_all()

    def finish_all(self) -> list[DiskJob]:
        held, self.held = self.held, []
        for job in held:
            if not job.cancelled:
                run_job(job, self._disk)
            self._told(job)
        return held

    def idle(self) -> bool:
        return not self.held


class QuietBroker:
    """A node without noise.  ``reports`` holds what sessions called their own fault."""

    def __init__(
        self,
        files: SimFileSystem | None = None,
        definitions: str | Definitions = ":memory:",
        memory_bytes: int = EVERYTHING,
        drop_order: str = "lowest",
        limits: EngineLimits | None = None,
        journal_file_bytes: int = JOURNAL_FILE_BYTES,
        mono_ms: int = 5_000_000,
        segment_entries: int = SEGMENT_ENTRIES,
    ) -> None:
        self.files = files or SimFileSystem()
        if isinstance(definitions, str):
            definitions = Definitions(definitions)
        self.definitions = definitions
        self.now_ms = 1_700_000_000_000
        self.mono_ms = mono_ms
        self.reports: list[str] = []
        self.clients: list[ClientEnd] = []
        self.limits = Limits(2047, 131_072, 60, 10_000, 1 << 27)
        self._create(segment_entries)
        topology = self.definitions.load()
        # Random in a broker: what an earlier life left must not be met again under its name.
        kept = [record.incarnation for record in topology.queues]
        self._names = max((int(one[4:]) for one in kept if one.startswith("life")), default=0)
        entries = {vhost.name: vhost.segment_entries for vhost in topology.vhosts}
        self.opening = Opening(
            self.files,
            DIRECTORY,
            limits or EngineLimits(4096, EVERYTHING, 32_768, memory_bytes, memory_bytes // 2),
            {
                queue_id: entries[record.vhost]
                for queue_id, record in owners_of_ids(topology.queues).items()
            },
            journal_file_bytes,
            deleted=self.definitions.deleted_queues(),
            streams=stream_ids(topology),
            beside=self._make_streams,
        )
        self.engine = self.opening.engine
        self.opening.run(self._run_jobs, lambda _text: None)
        known = {one: self.opening.next_seq_id(one) for one in stream_ids(topology)}
        jobs = self.streams.recoveries(known)
        self._run_jobs(jobs)
        self.streams.recovered(jobs)
        self.definitions.forget_deleted_queues()
        reader = AmqpHeaderReader()
        make = BackingMaker(self.engine, drop_order, reader).make
        self.make_backing = BackingChoice(self.streams, self.engine.journal, reader, make).make
        self.broker = Broker(
            self.definitions,
            self.engine,
            self.make_backing,
            lambda: self.new_name("life"),
            ["guest"],
            AmqpLetterWriter(),
            AmqpHeaderReader(),
        )
        self.broker.open(topology, 1, MonoMs(self.mono_ms))
        self.broker.adopt(topology, self.opening.queues)
        self.committer = HeldCommitter(self.files, journal_file_bytes)
        self.worker = PromptWorker(self.files, self.engine.board.finish)
        self.turn = Turn(self.broker, self.engine, self.committer, self.worker)

    def _make_streams(self, board: JobBoard) -> Streams:
        self.streams = Streams(DIRECTORY, board, BlockCache(1 << 20, with_stream_offsets, 1 << 20))
        return self.streams

    def _run_jobs(self, jobs: list[DiskJob]) -> None:
        for job in jobs:
            run_job(job, self.files)

    def _create(self, segment_entries: int) -> None:
        if not self.definitions.load().vhosts:
            self.definitions.put_vhost(VhostRecord("/", segment_entries))
            self.definitions.put_vhost(VhostRecord("closed", segment_entries))
            hashed = hash_password("guest", b"salt")
            self.definitions.put_user(UserRecord("guest", hashed, HASHING, ["administrator"]))
            self.definitions.put_permission(PermissionRecord("guest", "/", ".*", ".*", ".*"))
            self.definitions.commit()

    def new_name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def connect(self, *, loopback: bool = True) -> ClientEnd:
        """A session that has seen nothing yet."""
        session = AmqpSession(
            self.broker,
            self.limits,
            {"product": "Penstock"},
            self.new_name,
            self.turn.cancelled,
            self.reports.append,
            ("127.0.0.1" if loopback else "10.0.0.7", loopback),
            WallMs(self.now_ms),
        )
        client = ClientEnd(self, session)
        self.clients.append(client)
        return client

    def client(self, **options: Any) -> ClientEnd:
        """A session with channel 1 open."""
        client = self.connect()
        client.open(**options)
        client.call("channel.open")
        return client

    def run(self, *, idle: bool = True) -> None:
        """Turns until there is nothing to do, with what the loop does after each."""
        for turns in range(1000):
            self.turn.begin(WallMs(self.now_ms), MonoMs(self.mono_ms))
            for stage in self.turn.flow.book.take_freed():
                assert isinstance(stage.owner, Session)
                stage.owner.resume(WallMs(self.now_ms))
                self.turn.fed(stage.owner)
            self.turn.run(WallMs(self.now_ms), idle)
            for client in self.clients:
                if client.session.waiting_head:
                    client.session.go_on(WallMs(self.now_ms))
                    self.turn.fed(client.session)
            self.turn.blocked_reason()  # it looks
            for client in self.clients:
                client.session.look_at_gate()
            self.flush()
            self.turn.flow.end_turn(MonoMs(self.mono_ms))
            if self.engine.disk_error() is not None:
                return  # a node would stop here
            if self.worker.hold and turns > 50:
                return  # the engine asks again and again whether what is held is written
            is_due = self.turn.wait_ms(1, WallMs(self.now_ms), MonoMs(self.mono_ms)) == 0
            done = not self.turn.has_work() and not is_due
            if done and (self.worker.hold or self.worker.idle()):
                return
        raise AssertionError("the broker never comes to rest")

    def flush(self) -> None:
        touched, self.turn.touched = self.turn.touched, []
        for session in touched:
            session.touched = False
        for client in self.clients:
            client.flush()

    def tick(self, ms: int) -> None:
        self.now_ms += ms
        self.mono_ms += ms
        self.turn.begin(WallMs(self.now_ms), MonoMs(self.mono_ms))
        for client in self.clients:
            client.session.tick(WallMs(self.now_ms))
            self.turn.touch(client.session)
        self.run()

    def check(self) -> None:
        for vhost in self.broker.vhosts.values():
            vhost.copies.check()
            for queue in vhost.queues.values():
                queue.check()
        for client in self.clients:
            for channel in client.session.channels.values():
                channel.ledger.check()
        self.engine.check()
        assert not self.reports


class ClientEnd:
    """The peer of one session.  ``blocked`` = it does not take the broker's bytes."""

    def __init__(self, node: QuietBroker, session: AmqpSession) -> None:
        self.node = node
        self.session = session
        self.blocked = False
        self.received = b""
        self.lost = False

    # -- bytes -----------------------------------------------------------------------------

    def send(self, data: bytes, *, run: bool = True) -> None:
        self.session.receive(data, WallMs(self.node.now_ms))
        self.node.turn.fed(self.session)
        if run:
            self.node.run()

    def flush(self) -> None:
        """What the loop does with a session's output."""
        session = self.session
        if self.blocked or self.lost:
            return
        data = session.out.getvalue()
        session.out.truncate(0)
        if data:
            session.sent(len(data), WallMs(self.node.now_ms))
            self.received += data
        if not session.outlet.open:
            session.outlet.open = True
            session.drained()

    def drop(self) -> None:
        """The line is cut."""
        self.lost = True
        self.session.lost(WallMs(self.node.now_ms))
        self.node.run()

    # -- AMQP ------------------------------------------------------------------------------

    def frames(self) -> list[codec.Frame]:
        """What has arrived since the last time."""
        if self.received.startswith(b"AMQP"):
            self.received = self.received[8:]
        frames, self.received = codec.split_frames(self.received)
        return frames

    def methods(self) -> list[tuple[str, dict[str, Any]]]:
        """Methods that have arrived; their content is under ``body`` and ``properties``."""
        found: list[tuple[str, dict[str, Any]]] = []
        for frame in self.frames():
            if frame.type == codec.METHOD:
                found.append(codec.decode_method(frame.payload))
            elif frame.type == codec.HEADER:
                found[-1][1]["properties"] = codec.decode_header(frame.payload)[2]
            elif frame.type == codec.BODY:
                body = found[-1][1].get("body", b"")
                found[-1][1]["body"] = body + frame.payload
        return found

    def bodies(self) -> list[bytes]:
        return [fields.get("body", b"") for _, fields in self.methods()]

    def method(self, channel: int, name: str, **fields: Any) -> None:
        self.send(codec.method_frame(channel, name, **fields))

    def call(self, name: str, channel: int = 1, **fields: Any) -> dict[str, Any]:
        """A method and its one answer; what came before is thrown away."""
        self.received = b""
        self.method(channel, name, **fields)
        answers = self.methods()
        assert [answer for answer, _ in answers] == [name + "-ok"], answers
        return answers[0][1]

    def publish(
        self,
        exchange: str,
        routing_key: str,
        body: bytes = b"m",
        *,
        channel: int = 1,
        mandatory: bool = False,
        run: bool = True,
        **properties: Any,
    ) -> None:
        method = codec.method_frame(
            channel,
            "basic.publish",
            exchange=exchange,
            routing_key=routing_key,
            mandatory=mandatory,
        )
        self.send(method + codec.content_frames(channel, body, properties), run=run)

    def consume(self, queue: str, tag: str = "c", channel: int = 1, **fields: Any) -> None:
        self.method(channel, "basic.consume", queue=queue, consumer_tag=tag, nowait=True, **fields)

    def open(
        self,
        frame_max: int = 131_072,
        heartbeat: int = 0,
        channel_max: int = 2047,
        *,
        blocked: bool = False,
        vhost: str = "/",
    ) -> None:
        """``blocked``: it understands connection.blocked."""
        self.send(codec.PROTOCOL_HEADER)
        capabilities = {
            "consumer_cancel_notify": True,
            "basic.nack": True,
            "connection.blocked": blocked,
        }
        self.method(
            0,
            "connection.start-ok",
            client_properties={"capabilities": capabilities},
            mechanism="PLAIN",
            response="\0guest\0guest",
            locale="en_US",
        )
        self.method(
            0,
            "connection.tune-ok",
            channel_max=channel_max,
            frame_max=frame_max,
            heartbeat=heartbeat,
        )
        self.method(0, "connection.open", virtual_host=vhost)
        assert [name for name, _ in self.methods()][-1] == "connection.open-ok"
