"""A broker reduced to its queues, on a real socket: for tests of range readers.

The queues and the range sessions are the product's own; users, listeners and the loop are a
few lines here.  So a test can reach into a queue, and count or break connections.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any, Self

from penstock.broker.rules.access import User, hash_password
from penstock.broker.rules.admission import Admission
from penstock.broker.rules.alarms import Alarms
from penstock.broker.rules.flow import Flow
from penstock.broker.rules.log_ins import LogIns
from penstock.broker.topology.changes import Changes
from penstock.broker.topology.idleness import Idleness
from penstock.broker.transfers.deferred_trim import DeferredTrim
from penstock.clocks import mono_ms
from penstock.cluster.remote.peer_client import PeerClient
from penstock.cluster.remote.queue import RemoteQueue
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.credit import CreditSpec
from penstock.core.errors import NotFound
from penstock.core.events.book import EventBook
from penstock.core.message import Message
from penstock.protocols.ranges.leases import RangeLeases
from penstock.protocols.ranges.session import RangeSession
from penstock.queues.context import QueueContext
from penstock.queues.queue import Queue
from penstock.queues.sampling import Sampling, no_times
from penstock.storage.engine.ram import RamAccount
from penstock.storage.index.segment_jobs import WriteAccount
from pyspark_penstock.endpoints import Endpoint
from tests.helpers.engines import transient_backing
from tests.helpers.queues import identity, local_queue
from tests.helpers.range_grace import LEASE_GRACE_MS
from tests.helpers.raw_codec import content_frames, short_string

TICK_S = 0.02


class QueueHall:
    """Stands in for broker and virtual host: the few calls a range session makes."""

    name = "/"

    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.queue_ids: dict[str, int] = {}
        self.flow = Flow(CreditSpec(400, 200), CreditSpec(4000, 800))
        self.events = EventBook()
        ram = RamAccount(1 << 30, 1 << 29, WriteAccount())
        self.changes = Changes(Admission(Alarms(ram)), self.events)
        self.waits = PendingConfirms()
        self.engine = SimpleNamespace(ram=ram)
        self.staging = SimpleNamespace(message_bytes_max=1 << 27)
        self.letting_go = DeferredTrim()
        self.idleness = Idleness()
        guest = User("guest", hash_password("guest", b"salt"), [])
        guest.vhosts["/"] = (".*", ".*", ".*")
        self.users = LogIns(self.events, [])
        self.users.users["guest"] = guest
        self.clock_ms = 1_700_000_000_000
        self._made = 0

    def declare(self, name: str) -> Queue:
        self._made += 1
        backing = transient_backing()
        queue = local_queue(backing, name=name, incarnation=f"life{self._made}")
        self.queues[name] = queue
        return queue

    def declare_elsewhere(self, queue: Queue, node: str) -> None:
        """Another node is its master; "" = nobody is."""
        who = identity(queue.name, durable=True, incarnation=queue.incarnation)
        sampling = Sampling(EventBook(), no_times)
        context = QueueContext(self.waits, self.flow.book, sampling)
        remote = RemoteQueue(who, context)
        if node:
            remote.follow(PeerClient(self.flow.book, node))
        old = self.queues.get(queue.name)
        if old is not None:
            old.deleted = True
        self.queues[queue.name] = remote

    def delete(self, name: str) -> None:
        self.queues.pop(name).deleted = True

    def publish(self, name: str, bodies: list[bytes], **properties: Any) -> None:
        address = short_string("ex") + short_string(f"key.{name}")
        content = [content_frames(1, body, properties) for body in bodies]
        messages = [Message(data, address, 1, 0) for data in content]
        self.queues[name].publish(messages, self.clock_ms)

    # -- what a session calls --------------------------------------------------------------

    def enter(self, user: User, vhost: str) -> QueueHall:
        if vhost != "/":
            raise NotFound(f"vhost {vhost} not found")
        return self

    def count_connection(self, user: User, vhost: QueueHall, more: int) -> None:
        """Nothing here has a limit."""

    def queue(self, name: str) -> Queue:
        if name not in self.queues:
            raise NotFound(f"no queue '{name}' in vhost '/'")
        return self.queues[name]

    def touch(self, queue: Queue) -> None:
        self.idleness.touch(queue)


def move_master(name: str, term: int, old: QueueHall, new: QueueHall, node: str) -> Queue:
    """As after a failover: all that ``old`` had is at ``new``, which numbers on from its term."""
    lost = old.queues[name]
    backing = transient_backing()
    old_backing: Any = lost.backing
    for message in old_backing.reads.read_range(0, 1 << 62, 1 << 20, 1 << 40):
        backing.replica.begin_at(message.seq_id)
        copy = message.copy_for_queue()
        copy.enqueued_at_ms = message.enqueued_at_ms
        backing.publish([copy], message.enqueued_at_ms)
    backing.replica.begin_at(term << 40)
    queue = local_queue(backing, name=name, incarnation=lost.incarnation)
    queue.range_lease.begin(max(int(lost.range_lease.token), term << 40), elsewhere=True)
    old.declare_elsewhere(lost, node)
    before = new.queues.get(name)
    if before is not None:
        before.deleted = True
    new.queues[name] = queue
    return queue


class RangeHost:
    """Carries sessions over TCP from a thread; everything else happens under ``lock``."""

    def __init__(self) -> None:
        self.hall = QueueHall()
        self.leases = RangeLeases(LEASE_GRACE_MS, self.hall.letting_go, self.hall.idleness)
        self.lock = threading.Lock()
        self.accepted = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sessions: dict[socket.socket, RangeSession] = {}
        self._running = True
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self._listener.getsockname()[1], "/", "guest", "guest")

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.endpoint.port}/%2f"

    def drop_connections(self) -> None:
        """As if every line had been cut."""
        with self.lock:
            for sock in list(self._sessions):
                self._lost(sock)

    def forget_leases(self) -> None:
        """As if the broker had been restarted, with the messages still there."""
        self.drop_connections()
        with self.lock:
            self.hall.idleness.set_now(MonoMs(mono_ms() + 3_600_000))
            self.leases.tick()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        self._thread.join(5)
        self._listener.close()
        for sock in self._sessions:
            sock.close()

    def _run(self) -> None:
        while self._running:
            try:
                readable, _, _ = select.select([self._listener, *self._sessions], [], [], TICK_S)
            except (OSError, ValueError):
                continue  # the test has just cut a line
            with self.lock:
                self.hall.idleness.set_now(mono_ms())
                for sock in readable:
                    if sock is self._listener:
                        self._accept()
                    elif sock in self._sessions:
                        self._read(sock)
                self.hall.letting_go.run(0, False)
                for sock, session in list(self._sessions.items()):
                    session.tick(_now_ms())
                    self._write(sock, session)
                self.leases.tick()

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        self.accepted += 1
        hall: Any = self.hall
        self._sessions[sock] = RangeSession(
            hall, self.leases, ("127.0.0.1", True), WallMs(_now_ms())
        )

    def _read(self, sock: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = sock.recv(65536)
        if not data:
            self._lost(sock)
            return
        session = self._sessions[sock]
        session.receive(data, _now_ms())
        self._write(sock, session)

    def _write(self, sock: socket.socket, session: RangeSession) -> None:
        while len(session.out):
            data = session.out.getvalue()
            session.out.truncate(0)
            try:
                sock.sendall(data)
            except OSError:
                self._lost(sock)
                return
            session.sent(len(data), _now_ms())
        if session.closed:
            self._lost(sock)

    def _lost(self, sock: socket.socket) -> None:
        self._sessions.pop(sock).lost(_now_ms())
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
