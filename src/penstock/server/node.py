"""A node: boot in order, run until told to stop, shut down in reverse.

    1  lock      the data directory is ours alone
    2  topology  definitions.db: virtual hosts, users, exchanges, queues, bindings
    3  messages  the message log is read; every durable queue gets its own back
    4  listeners the loop accepts; the management server starts in its own thread
    5  ready     said once, with what was found

Shutting down: no new connections, 320 to every client, what they hold goes back to the
queues, the log ends with a clean marker.
"""

import ctypes
import fcntl
import gc
import json
import logging
import os
import platform
import resource
import secrets
import signal
import sys
import time
from base64 import urlsafe_b64encode
from typing import Final, cast

from penstock import __version__
from penstock.backing.interface import BackingQueue
from penstock.backing.ram_queue import RamQueue
from penstock.broker.access import HASHING, hash_password
from penstock.broker.broker import Broker
from penstock.core import message
from penstock.core.errors import DataDirLocked
from penstock.core.settings import Settings
from penstock.server.amqp_handshake import Limits
from penstock.server.amqp_link import CancelSink
from penstock.server.amqp_session import AmqpSession
from penstock.server.committer import Committer
from penstock.server.loop import Loop
from penstock.server.range_session import RangeLeases, RangeSession
from penstock.server.session import Session
from penstock.server.turn import Turn
from penstock.storage.definitions import Definitions, PermissionRecord, UserRecord, VhostRecord
from penstock.storage.files import RealFileSystem
from penstock.storage.message_log import MessageLog
from penstock.wire import ranges

PEER_VERSION: Final = "3.10.8"
"""The RabbitMQ release whose behaviour AMQP clients find here; some look at it."""
DRAIN_MS: Final = 3000
COMPACTION_INTERVAL_MS: Final = 250
_MALLOPT_TRIM_THRESHOLD: Final = -1
_MALLOPT_MMAP_THRESHOLD: Final = -3

logger = logging.getLogger("penstock")


def new_name(prefix: str) -> str:
    """22 random characters behind a prefix, as RabbitMQ names what clients leave unnamed."""
    return prefix + urlsafe_b64encode(secrets.token_bytes(16)).rstrip(b"=").decode()


class Sessions:
    """Chooses the protocol by the first bytes."""

    def __init__(self, broker: Broker, settings: Settings, tell_cancelled: CancelSink) -> None:
        self._broker = broker
        self._tell_cancelled = tell_cancelled
        self._leases = RangeLeases()
        self._limits = Limits(
            settings.channel_max,
            settings.frame_max,
            settings.heartbeat_s,
            settings.handshake_timeout_ms,
            settings.max_message_size_bytes,
        )
        self._properties = server_properties()

    def choose(self, first: bytes, peer: tuple[str, int], now_ms: int) -> Session | None:
        is_loopback = peer[0].startswith("127.") or peer[0] in ("::1", "::ffff:127.0.0.1")
        if first.startswith(ranges.MAGIC):
            return RangeSession(self._broker, self._leases, is_loopback)
        if ranges.MAGIC.startswith(first):
            return None
        name = f"{peer[0]}:{peer[1]}"
        return AmqpSession(
            self._broker,
            self._limits,
            self._properties,
            new_name,
            self._tell_cancelled,
            lambda text: logger.error("connection %s: %s", name, text),
            is_loopback,
            now_ms,
        )

    def tick(self, now_ms: int) -> None:
        self._leases.tick(now_ms)


def server_properties() -> dict[str, object]:
    """What ``connection.start`` tells a client about us."""
    return {
        "capabilities": {
            "publisher_confirms": True,
            "exchange_exchange_bindings": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "authentication_failure_close": True,
            "per_consumer_qos": True,
        },
        "cluster_name": f"penstock@{platform.node()}",
        "copyright": "Copyright Penstock contributors",
        "information": f"Penstock {__version__}, licensed under the Apache License 2.0",
        "platform": f"Python {platform.python_version()}",
        "product": "Penstock",
        "version": PEER_VERSION,
    }


class Node:
    """Everything of one running broker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._started = time.monotonic()
        self._lock_fd = lock_data_dir(settings.data_dir)
        raise_descriptor_limit()
        files = RealFileSystem()
        log_dir = os.path.join(settings.data_dir, "log")
        files.makedirs(log_dir)
        self.definitions = Definitions(os.path.join(settings.data_dir, "definitions.db"))
        self.log = MessageLog(files, log_dir, settings.log_file_size_limit_bytes)
        self.broker = Broker(
            self.definitions,
            self.log,
            self._make_backing,
            lambda: secrets.token_hex(16),
            list(settings.loopback_users),
        )
        self.recovery = self._recover()
        self.committer = Committer(files, log_dir, self._wake)
        self.turn = Turn(self.broker, self.log, self.committer)
        self.loop = Loop(
            self.turn,
            Sessions(self.broker, settings, self.turn.cancelled),
            settings.handshake_timeout_ms,
        )
        self._compacted_at_ms = 0

    def _make_backing(self, queue_id: int, durable: bool) -> BackingQueue:
        """Every queue rests in memory; durable ones keep a record in the log."""
        return RamQueue(self.log if durable else None, queue_id)

    def _wake(self) -> None:
        self.loop.wake()

    # -- boot ----------------------------------------------------------------------------

    def _recover(self) -> str:
        """Definitions, then messages; returns what was found, for the start screen."""
        topology = self.definitions.load()
        if not topology.vhosts:
            self._create_defaults()
            topology = self.definitions.load()
        now_ms = time.time_ns() // 1_000_000
        self.broker.open(topology, now_ms, now_ms)
        recovered = self.log.recover({record.queue_id for record in topology.queues})
        count = 0
        for record in topology.queues:
            found = recovered.get(record.queue_id)
            if found is None:
                continue
            queue = self.broker.vhosts[record.vhost].queues[record.name]
            cast(RamQueue, queue.backing).recover(found.messages, found.next_seq_id)
            count += len(found.messages)
            self.broker.expire_messages(queue, now_ms)
        cut = self.log.statistics()["bytes_cut"]
        text = f"{len(topology.queues)} durable queues, {count} messages"
        return text + (f" ({cut} bytes of an unfinished write dropped)" if cut else "")

    def _create_defaults(self) -> None:
        settings = self.settings
        user = settings.default_user
        hashed = hash_password(settings.default_pass, secrets.token_bytes(4))
        self.definitions.put_vhost(VhostRecord(settings.default_vhost))
        self.definitions.put_user(UserRecord(user, hashed, HASHING, ["administrator"]))
        self.definitions.put_permission(
            PermissionRecord(user, settings.default_vhost, ".*", ".*", ".*")
        )
        self.definitions.commit()

    # -- run -----------------------------------------------------------------------------

    def serve(self) -> int:
        """Listen, say so, and turn until a signal says stop; returns the exit code."""
        # aiohttp costs a third of a second to import: only a node that serves pays for it.
        from penstock.management.app import ManagementServer  # noqa: PLC0415
        from penstock.management.node_facts import NodeFacts  # noqa: PLC0415
        from penstock.management.start_screen import start_screen  # noqa: PLC0415
        from penstock.management.view import BrokerView  # noqa: PLC0415
        from penstock.server.watch import NodeWatch  # noqa: PLC0415

        settings = self.settings
        amqp_port = self.loop.listen(settings.bind, settings.amqp_port)
        view = BrokerView(self.broker, NodeWatch(self.loop, settings.bind, amqp_port))
        facts = NodeFacts(view.node_name, settings.data_dir, settings.file_name)
        management = ManagementServer(
            settings.bind, settings.http_port, self.loop.call, view, facts
        )
        http_port = management.start()
        self._settle_memory()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        sys.stdout.write(
            start_screen(
                self.settings,
                version=__version__,
                pid=os.getpid(),
                compiled=is_compiled(),
                amqp_port=amqp_port,
                http_port=http_port,
                recovery=self.recovery,
                ready_ms=(time.monotonic() - self._started) * 1000,
            )
        )
        sys.stdout.flush()
        try:
            self._turn_until_stopped()
            management.set_ready(ready=False)
            self._drain()
        finally:
            management.stop()
        return self._close()

    def _stop(self, _number: int, _frame: object) -> None:
        self.loop.stopping = True
        self.loop.wake()

    def _turn_until_stopped(self) -> None:
        loop = self.loop
        while not loop.stopping:
            loop.run_once(loop.wait_ms())
            if self.committer.error is not None:
                raise self.committer.error
            self._compact()

    def _compact(self) -> None:
        """Move the last live messages out of a file that is mostly garbage.

        One file a time: its messages make one group, and a group should stay small.
        """
        now_ms = time.monotonic_ns() // 1_000_000
        if now_ms - self._compacted_at_ms < COMPACTION_INTERVAL_MS:
            return
        self._compacted_at_ms = now_ms
        for file_no in self.log.files_to_compact()[:1]:
            concerned = set(self.log.queue_ids_in(file_no))
            for vhost in self.broker.vhosts.values():
                for name, queue_id in vhost.queue_ids.items():
                    if queue_id in concerned:
                        backing = cast(RamQueue, vhost.queues[name].backing)
                        self.log.relocate(queue_id, backing.messages_in_file(file_no))

    def _settle_memory(self) -> None:
        """What is alive now stays: keep the collector from walking it again and again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        # Buffers of some hundred KiB come and go each turn; without this the C library
        # would map and unmap them every time.
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(_MALLOPT_MMAP_THRESHOLD, 8 * 1024 * 1024)
            libc.mallopt(_MALLOPT_TRIM_THRESHOLD, 64 * 1024 * 1024)

    # -- stop ----------------------------------------------------------------------------

    def _drain(self) -> None:
        """Tell the clients, wait a little for their close-ok."""
        loop = self.loop
        loop.stop_listening()
        loop.shut_down_sessions()
        until = time.monotonic() + DRAIN_MS / 1000
        while loop.connections and time.monotonic() < until:
            loop.run_once(50)
        loop.drop_all()
        loop.run_once(0)

    def _close(self) -> int:
        delivered: dict[int, list[int]] = {}
        next_seq_ids: dict[int, int] = {}
        for vhost in self.broker.vhosts.values():
            for name, queue_id in vhost.queue_ids.items():
                backing = cast(RamQueue, vhost.queues[name].backing)
                delivered[queue_id] = backing.delivered_seq_ids()
                next_seq_ids[queue_id] = int(backing.next_seq_id())
        self.definitions.commit()
        self.committer.submit(self.log.close_cleanly(delivered, next_seq_ids))
        self.committer.close()
        self.definitions.close()
        self.loop.close()
        os.close(self._lock_fd)
        if self.committer.error is not None:
            raise self.committer.error
        return 0


def raise_descriptor_limit() -> None:
    """As many connections as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def lock_data_dir(path: str) -> int:
    """Take the data directory for this process; raises DataDirLocked naming the holder."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    fd = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 32).decode().strip() or "unknown"
        os.close(fd)
        raise DataDirLocked(f"{path} is in use by process {holder}") from None
    os.truncate(fd, 0)
    os.write(fd, f"{os.getpid()}\n".encode())
    return fd


def is_compiled() -> bool:
    """Are the hot rooms running as extension modules?"""
    return not message.__file__.endswith(".py")


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(
            {
                "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage(),
            }
        )


def set_up_logging(level: str, log_format: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def run(settings: Settings) -> int:
    """``penstock serve``: run a node until it is told to stop."""
    set_up_logging(settings.log_level, settings.log_format)
    if os.environ.get("PENSTOCK_REQUIRE_COMPILED") == "1" and not is_compiled():
        raise OSError("PENSTOCK_REQUIRE_COMPILED=1, but the compiled files are missing")
    return Node(settings).serve()
