"""Two ends of AMQP connections without a socket, around a whole broker without a process.

``QuietBroker`` is everything of a node but its noise: the broker, its log on a disk in memory,
the committer (which may be told to wait), the turn, and a clock that a test moves.
``ClientEnd`` is the peer of one session: it speaks with the tests' own codec, so nothing of
the product judges itself.
"""

from __future__ import annotations

from typing import Any

from penstock.backing.ram_queue import RamQueue
from penstock.broker.access import HASHING, hash_password
from penstock.broker.broker import Broker
from penstock.server.amqp_session import AmqpSession, Limits
from penstock.server.committer import Committer
from penstock.server.turn import Turn
from penstock.storage.definitions import Definitions, PermissionRecord, UserRecord, VhostRecord
from penstock.storage.log_codec import LogGroup
from penstock.storage.message_log import MessageLog
from tests.helpers import raw_codec as codec
from tests.helpers.sim_files import SimFileSystem

LOG_DIR = "log"


class HeldCommitter(Committer):
    """Does every group at once, or, when told to ``hold``, only on ``finish``."""

    def __init__(self, files: SimFileSystem) -> None:
        super().__init__(files, LOG_DIR, lambda: None)
        self.hold = False
        self.held: list[LogGroup] = []
        self.seen: list[LogGroup] = []

    def idle(self) -> bool:
        return not self.held

    def commit_inline(self, group: LogGroup) -> None:
        self.submit(group)

    def submit(self, group: LogGroup) -> None:
        self.seen.append(group)
        self.held.append(group)
        if not self.hold:
            self.finish()

    def finish(self) -> None:
        held, self.held = self.held, []
        for group in held:
            super().commit_inline(group)


class QuietBroker:
    """A node without noise.  ``reports`` holds what sessions called their own fault."""

    def __init__(self, files: SimFileSystem | None = None, definitions: str = ":memory:") -> None:
        self.files = files or SimFileSystem()
        self.definitions = Definitions(definitions)
        self.now_ms = 1_700_000_000_000
        self.reports: list[str] = []
        self.clients: list[ClientEnd] = []
        self.limits = Limits(2047, 131_072, 60, 10_000, 1 << 27)
        self._names = 0
        self.log = MessageLog(self.files, LOG_DIR)
        self.broker = Broker(
            self.definitions,
            self.log,
            lambda queue_id, durable: RamQueue(self.log if durable else None, queue_id),
            lambda: self.new_name("life"),
            ["guest"],
        )
        self._open()
        self.committer = HeldCommitter(self.files)
        self.turn = Turn(self.broker, self.log, self.committer)

    def _open(self) -> None:
        if not self.definitions.load().vhosts:
            self.definitions.put_vhost(VhostRecord("/"))
            self.definitions.put_vhost(VhostRecord("closed"))
            hashed = hash_password("guest", b"salt")
            self.definitions.put_user(UserRecord("guest", hashed, HASHING, ["administrator"]))
            self.definitions.put_permission(PermissionRecord("guest", "/", ".*", ".*", ".*"))
            self.definitions.commit()
        topology = self.definitions.load()
        self.broker.open(topology, 1, self.now_ms)
        recovered = self.log.recover({record.queue_id for record in topology.queues})
        for record in topology.queues:
            found = recovered[record.queue_id]
            backing: Any = self.broker.vhosts[record.vhost].queues[record.name].backing
            backing.recover(found.messages, found.next_seq_id)

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
            loopback,
            self.now_ms,
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
        for _ in range(1000):
            self.turn.run(self.now_ms, idle)
            self.flush()
            if not self.turn.has_work():
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
        for client in self.clients:
            client.session.tick(self.now_ms)
            self.turn.touch(client.session)
        self.run()

    def check(self) -> None:
        for vhost in self.broker.vhosts.values():
            for queue in vhost.queues.values():
                queue.check()
        for client in self.clients:
            for channel in client.session.channels.values():
                channel.ledger.check()
        self.log.check()
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
        self.session.receive(data, self.node.now_ms)
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
            session.sent(len(data), self.node.now_ms)
            self.received += data
        if not session.outlet.open:
            session.outlet.open = True
            session.drained()

    def drop(self) -> None:
        """The line is cut."""
        self.lost = True
        self.session.lost(self.node.now_ms)
        self.node.run()

    # -- AMQP ------------------------------------------------------------------------------

    def frames(self) -> list[codec.Frame]:
        """What has arrived since the last time."""
        if self.received.startswith(b"AMQP"):
            self.received = self.received[8:]
        frames, self.received = codec.split_frames(self.received)
        return frames

    def methods(self) -> list[tuple[str, dict[str, Any]]]:
        """Methods that have arrived; the body of their content stands under ``body``."""
        found: list[tuple[str, dict[str, Any]]] = []
        for frame in self.frames():
            if frame.type == codec.METHOD:
                found.append(codec.decode_method(frame.payload))
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

    def open(self, frame_max: int = 131_072, heartbeat: int = 0, channel_max: int = 2047) -> None:
        self.send(codec.PROTOCOL_HEADER)
        capabilities = {"consumer_cancel_notify": True, "basic.nack": True}
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
        self.method(0, "connection.open", virtual_host="/")
        assert [name for name, _ in self.methods()][-1] == "connection.open-ok"
