"""A node: boot in order, run until told to stop, shut down in reverse.

    1  lock      the data directory is ours alone
    2  topology  definitions.db: virtual hosts, users, exchanges, queues, bindings
    3  messages  the engine is opened; every durable queue gets its own back
    4  listeners the loop accepts; the management server starts in its own thread
    5  ready     said once, with what was found

Shutting down (``ending``): no new connections, 320 to every client, what they hold goes back to
the queues, what rests in memory goes into segments, and the terms are written.
"""

import logging
import os
import platform
import resource
import secrets
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.backing.factory import BackingMaker
from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.broker.topology.internal_queues import is_internal
from penstock.broker.topology.mirror_copies import is_copy
from penstock.broker.vhost_removal import CloseSome
from penstock.clocks import mono_ms, wall_ms
from penstock.core import message
from penstock.core.clock_types import MonoMs
from penstock.core.errors import DamagedQueue
from penstock.gate import Gate
from penstock.node.auth_backends import Backends
from penstock.node.backup import Backup
from penstock.node.boot_definitions import load_definitions, warn_of_refused
from penstock.node.boot_topology import begin_data, create_defaults
from penstock.node.broker_settings import broker_options, engine_limits
from penstock.node.control_file import new_token, reached_at, remove_control, write_control
from penstock.node.data_dir import lock_data_dir, refuse_old_data
from penstock.node.inspection.audit_trail import AuditTrail
from penstock.node.inspection.event_collector import EventCollector
from penstock.node.inspection.event_exchange import EventExchange
from penstock.node.inspection.log_exchange import LogExchange
from penstock.node.inspection.logs import Logs
from penstock.node.inspection.span_export import SpanExport
from penstock.node.inspection.state_lines import log_events
from penstock.node.link_control import LinkControl
from penstock.node.listener_set import ListenerSet
from penstock.node.machine import (
    ASSUMED_BYTES,
    collector_paused,
    settle_memory,
    total_memory_bytes,
)
from penstock.node.password_worker import PasswordWorker
from penstock.node.reloading import Reloading
from penstock.node.resource_monitor import ResourceMonitor
from penstock.node.sessions import Sessions
from penstock.node.shutdown import Shutdown
from penstock.node.startup_progress import StartingPage, StartProgress
from penstock.node.systemd import Notifier
from penstock.protocols.amqp.codec.header_edit import with_stream_offsets
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from penstock.protocols.amqp.codec.letters import AmqpLetterWriter
from penstock.protocols.nsq.settings import make_nsq
from penstock.queues.context import STREAM, queue_type
from penstock.queues.stream_backing import BackingChoice
from penstock.runtime.disk.committer import Committer
from penstock.runtime.disk.event_log import EventLog
from penstock.runtime.disk.failpoint import arm_from
from penstock.runtime.disk.io_meter import DiskMeter
from penstock.runtime.disk.room import DiskRoom
from penstock.runtime.disk.worker import DiskWorker
from penstock.runtime.listener import check_listeners
from penstock.runtime.loop import TICK_MS, Loop
from penstock.runtime.turn import Turn
from penstock.secrets.sources import secret_of
from penstock.settings.listener_table import AMQP, HTTP, HTTPS, NSQ, listener_of
from penstock.settings.settings import NEWER, Settings
from penstock.storage.common.disk_jobs import JobBoard
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import RealFileSystem
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import Topology, owners_of_ids
from penstock.storage.engine.recovery import Opening, close_engine
from penstock.storage.engine.resting_queue import RestingQueue
from penstock.storage.store.groups import StoreWriter
from penstock.streams.reading import BlockCache
from penstock.streams.streams import Streams
from penstock.streams.writer import StreamWriter
from penstock.tls.options import TlsSet

if TYPE_CHECKING:
    from penstock.management.app import ManagementServer
    from penstock.management.rows.view import BrokerView
    from penstock.node.cluster.member import ClusterAccess, ClusterMember
    from penstock.node.cluster.node import ClusterNode
    from penstock.protocols.nsq.http.services import NsqServices

COMMITTER_LOOK_S: Final = 0.001
LOOK_MS: Final = 5
"""Under load turns are shorter: what can wait so long is not looked at behind each of them."""

logger = logging.getLogger("penstock")

STREAM_CACHE_BYTES: Final = 16 * 1024 * 1024
"""Blocks of streams that were written or read last, for all their readers."""


class Node:
    """Everything of one running broker."""

    def __init__(
        self, settings: Settings, logs: Logs | None = None, notifier: Notifier | None = None
    ) -> None:
        self.settings = settings
        self._started = time.monotonic()
        self._logs = logs or Logs()
        self._notifier = notifier or Notifier({})
        self.tls = TlsSet(settings)
        check_listeners(settings, self.tls)
        arm_from(os.environ)
        self._lock_fd = lock_data_dir(settings.data_dir)
        refuse_old_data(settings.data_dir)
        raise_descriptor_limit()
        self.io = DiskMeter()
        self.files = RealFileSystem(self.io)
        self._room = DiskRoom(self.files, settings.data_dir)
        self.name = settings.node_name or f"penstock@{platform.node()}"
        self.cluster: ClusterNode | None = None  # once it serves
        self._access = self._cluster_access()
        self._password_worker = PasswordWorker(self._wake)
        self.definitions = Definitions(
            os.path.join(settings.data_dir, "definitions.db"), self._room.make_room
        )
        topology = self._topology()
        memory = settings.total_memory_override_bytes or total_memory_bytes()
        self.opening = self._opening(topology, memory or ASSUMED_BYTES)
        self.engine = self.opening.engine
        self.broker = self._broker()
        self.backends = Backends(settings, self.broker.users, self._wake)
        self.monitor = ResourceMonitor(self.broker.admission, self.name, settings.data_dir)
        self.monitor.set_limits(
            memory,
            settings.vm_memory_high_watermark,
            settings.vm_memory_high_watermark_paging_ratio,
            settings.disk_free_limit,
        )
        self.recovery = self._recover(topology)
        self.committer = Committer(
            self.files,
            self.engine.journal.directory,
            settings.journal_file_size_bytes,
            StoreWriter(self.files, self.engine.store.directory),
            self._wake,
            StreamWriter(self.files),
        )
        self.worker = DiskWorker(
            self.files, settings.data_dir, self._wake, self.engine.board.finish
        )
        self.turn = Turn(self.broker, self.engine, self.committer, self.worker)
        nsq_tls = self.tls.of(listener_of(NSQ))
        self.nsq = make_nsq(self.broker, settings, self.turn.cancelled, nsq_tls, self._wake)
        self.sessions = Sessions(self.broker, settings, self.turn.cancelled, self.nsq)
        self.gate = Gate(settings)
        self.loop = Loop(self.turn, self.sessions, self.gate)
        self._admin = Administration(self.broker, settings.queue_index_segment_entries)
        self.links = LinkControl(self.broker, self.loop, self.sessions, self._admin, settings)
        self.trail = self._audit_trail()
        self.events = self._event_collector()
        self.listener_set = ListenerSet(self.loop, settings, self.tls)
        self.ending = Shutdown(self.loop, settings.stop_timeout_s)
        self._lines = LogExchange(self.broker, self._logs, settings.default_vhost)
        self._reloading = Reloading(
            settings, self.broker, self.monitor, self.tls, self._logs, self.gate
        )
        self._stalled = ""
        self._control: Callable[[Settings], None] = lambda _settings: None  # until it serves

    def _cluster_access(self) -> "ClusterAccess | None":
        if not self.settings.cluster_etcd_endpoints:
            return None
        # The client of etcd costs a third of a second to import, as management does below.
        from penstock.node.cluster.member import cluster_access  # noqa: PLC0415

        return cluster_access(self.settings, self.name, self._wake, self.tls.between_nodes())

    def _join_cluster(self, member: "ClusterMember", close_some: CloseSome) -> "ClusterNode":
        from penstock.node.cluster.node import ClusterNode  # noqa: PLC0415 - as above

        cluster = ClusterNode(member, self.broker, self.loop, close_some, self.turn.cancelled)
        self.sessions.join(cluster.peers)
        self.turn.join(cluster)
        for kind in member.listeners:
            self.loop.listen(kind)
        return cluster

    def _audit_trail(self) -> AuditTrail:
        settings = self.settings
        return AuditTrail(
            Path(settings.audit_trail_dir or os.path.join(settings.data_dir, "audit-trail")),
            settings.audit_trail_file_size_bytes,
            settings.audit_trail_size_limit_bytes,
            settings.audit_trail,
        )

    def _event_collector(self) -> EventCollector:
        settings = self.settings
        directory = settings.event_log_dir or os.path.join(settings.data_dir, "events")
        log = EventLog(
            Path(directory),
            settings.event_log_file_size_bytes,
            settings.event_log_size_limit_bytes,
            log_events,
            writes=settings.event_log,
        )
        exchange = EventExchange(self.broker, settings)
        spans = self.broker.queue_context.sampling.spans
        sinks = log, self.trail, exchange, SpanExport(spans, settings, self.name)
        return EventCollector(self.broker, self.loop, *sinks, settings, self.name)

    def _wake(self) -> None:
        self.loop.wake()

    # -- boot ----------------------------------------------------------------------------

    def _opening(self, topology: Topology, memory_bytes: int) -> Opening:
        settings = self.settings
        entries = {vhost.name: vhost.segment_entries for vhost in topology.vhosts}
        return Opening(
            self.files,
            settings.data_dir,
            engine_limits(settings, settings.vm_memory_high_watermark.bytes_of(memory_bytes)),
            {
                queue_id: entries[queue.vhost]
                for queue_id, queue in owners_of_ids(topology.queues).items()
            },
            settings.journal_file_size_bytes,
            settings.msg_store_file_size_limit_bytes,
            self.definitions.deleted_queues(),
            stream_ids(topology),
            self._make_streams,
        )

    def _make_streams(self, board: JobBoard) -> Streams:
        cache = BlockCache(STREAM_CACHE_BYTES, with_stream_offsets)
        self._streams = Streams(self.settings.data_dir, board, cache)
        return self._streams

    def _topology(self) -> Topology:
        topology = self.definitions.load()
        if not (topology.vhosts or topology.users or self.settings.load_definitions):
            create_defaults(self.definitions, self.settings)
            topology = self.definitions.load()
        return topology

    def _broker(self) -> Broker:
        settings = self.settings
        return Broker(
            self.definitions,
            self.engine,
            self._backings(settings.priority_drop_order, AmqpHeaderReader()).make,
            lambda: secrets.token_hex(16),
            list(settings.loopback_users),
            AmqpLetterWriter(settings.compatibility == NEWER),
            AmqpHeaderReader(),
            broker_options(settings, self.name, self._password_worker.run),
        )

    def _backings(self, drop_order: str, reader: AmqpHeaderReader) -> BackingChoice:
        make = BackingMaker(self.engine, drop_order, reader).make
        return BackingChoice(self._streams, self.engine.journal, reader, make)

    def _give_up_copy(self, damage: DamagedQueue, topology: Topology) -> None:
        if self._access is None:
            return
        from penstock.node.cluster.damaged_copies import give_up_copy  # noqa: PLC0415 - as above

        give_up_copy(damage, topology, self.definitions, self.settings, self.name)

    def _recover(self, topology: Topology) -> str:
        """Messages; returns what was found, for the start screen."""
        opening = self.opening
        progress = StartProgress(self.files, self._notifier.progress)
        with self._starting_page(progress):
            try:
                opening.run(progress.run, progress.say)
                known = {one: opening.next_seq_id(one) for one in stream_ids(topology)}
                jobs = self._streams.recoveries(known)
                progress.run(jobs)
                streamed = int(self._streams.recovered(jobs))
            except DamagedQueue as damage:
                self._give_up_copy(damage, topology)
                raise
        self.definitions.forget_deleted_queues()
        self.broker.open(topology, wall_ms(), mono_ms())
        warn_of_refused(self.broker)
        begin_data(self.broker, self.settings)
        if self.settings.load_definitions:
            load_definitions(
                self.settings.load_definitions,
                self.broker,
                self.settings.queue_index_segment_entries,
            )
        self.broker.adopt(topology, opening.queues)
        reach("recovery.ready")
        copies = sum(is_copy(one.name) for one in topology.queues)
        internal = sum(is_internal(one.name) for one in topology.queues)
        text = f"{len(topology.queues) - copies - internal} durable queues"
        text += f", {copies} copies of mirrored ones" if copies else ""
        text += f", {internal} backlogs and delays of exchanges" if internal else ""
        text += f", {int(opening.messages) + streamed} messages"
        if opening.clean:
            return text
        cut = int(opening.bytes_cut)
        text += f", after a stop that was not clean ({int(opening.bytes_read) >> 20} MiB read)"
        return text + (f" ({cut} bytes of an unfinished write dropped)" if cut else "")

    def _starting_page(self, progress: StartProgress) -> StartingPage:
        """Where the management API will be."""
        kind = listener_of(HTTP if self.settings.http_listener else HTTPS)
        tls = self.tls.of(kind)
        context = None if tls is None else tls.context
        return StartingPage(
            kind.address(self.settings), kind.port(self.settings), progress, context
        )

    # -- run -----------------------------------------------------------------------------

    def serve(self, reread: Callable[[], Settings] | None = None) -> int:
        """Listen, say so, and turn until a signal says stop; returns the exit code.

        ``reread``: the settings once more, when SIGHUP asks for them.
        """
        from penstock.management.rows.view import BrokerView  # noqa: PLC0415 - as below
        from penstock.node.inspection.session_inspector import (  # noqa: PLC0415
            NodeSessionInspector,
            close_some,
        )

        settings = self.settings
        member = None if self._access is None else self._access.join()
        listeners = self.listener_set.open()
        nsq = self.nsq_services()
        inspected = (self.loop, self.sessions.inside, nsq.listeners)
        watch = NodeSessionInspector(*inspected, links=self.links)
        if member is not None:
            cluster = self.cluster = self._join_cluster(member, partial(close_some, self.loop))
            watch = NodeSessionInspector(*inspected, cluster.facts, cluster.forget, self.links)
        view = BrokerView(self.broker, watch, self.name, self.opening)
        token = new_token()
        management = self._management(view, token)
        management.start()
        plain = next((one for one in listeners if one.protocol == AMQP and one.port), None)
        amqp = reached_at(plain.host, plain.port) if plain else ""
        self._control = partial(
            write_control, settings.data_dir, management.listeners()[0], amqp, self.name, token
        )
        self._control(settings)
        nsq.start()
        self.listener_set.announce_to(nsq.announce)
        settle_memory()
        self.monitor.begin(mono_ms(), int(self.engine.ram.used_bytes()))
        self.events.start(mono_ms())
        self.ending.install(self._logs.flush)
        of_loop = [(one.protocol, one.host, one.port) for one in listeners]
        others = [*nsq.listeners(), *management.listeners()]
        self._say_ready([*of_loop, *((one.protocol, one.host, one.port) for one in others)])
        self._room.wait_while(lambda: not self.loop.stopping)
        try:
            self._turn_until_stopped(reread)
            logger.info("stopping: clients are told, and what is open is finished")
            self.ending.begun()
            self.links.stop()
            self._notifier.stopping(settings.stop_timeout_s)
            management.set_ready(ready=False)
            nsq.stop()
            self.ending.drain(self.sessions.peers, lambda: self._notifier.look(mono_ms()))
        finally:
            remove_control(settings.data_dir)
            nsq.stop()
            management.stop()
        return self._close()

    def _management(self, view: "BrokerView", token: str) -> "ManagementServer":
        """Not started yet."""
        # aiohttp costs a third of a second to import: only a node that serves pays for it.
        from penstock.management.app import ManagementServer  # noqa: PLC0415
        from penstock.management.statistics.node_facts import NodeFacts  # noqa: PLC0415
        from penstock.node.control import control_of  # noqa: PLC0415

        settings = self.settings
        facts = NodeFacts(self.name, settings, self.broker.admission.alarms, self.io.counts)
        journal = self.engine.journal
        backup = Backup(
            settings.data_dir, self.engine.board, journal.synced_end, journal.resting.referred
        )
        return ManagementServer(
            http_bind(settings),
            settings.http_port,
            self.loop.call,
            view,
            facts,
            settings.queue_index_segment_entries,
            control_of(self.listener_set, self.ending, self._logs, backup, self.trail),
            token,
            settings,
            settings.http_host_names,
            self.tls,
            self.gate,
        )

    def work(self, do: Callable[[Broker, Callable[[bool], None]], None]) -> int:
        """Without listeners; stops in good order when ``do`` has returned or raised.

        ``do``: gets the broker, and a function that lets the node turn; called with True it returns
        when everything is on disk.
        """
        self.monitor.begin(mono_ms(), int(self.engine.ram.used_bytes()))

        def turn(whole: bool) -> None:
            told = ""
            self._turn_once(0)
            while self.turn.publishers_wait() or (whole and not self._is_on_disk()):
                reason = self.turn.blocked_reason()
                if reason != told:
                    told = reason
                    logger.warning("waiting: %s", reason or "no more")
                self._turn_once(1)

        try:
            do(self.broker, turn)
        finally:
            self._close()
        return 0

    def _turn_once(self, wait_ms: int) -> None:
        self.monitor.look(self.loop.run_once(wait_ms))
        self._look_at_the_disk()

    def _is_on_disk(self) -> bool:
        journal = self.engine.journal
        return journal.is_on_disk() and self.committer.idle()

    def _has_default_log_in(self) -> bool:
        """Can the user of the settings log in with the password of the settings?"""
        user = self.broker.users.users.get(self.settings.default_user)
        return user is not None and user.has_password(secret_of(self.settings, "default_pass"))

    def nsq_services(self) -> "NsqServices":
        """Not started yet."""
        from penstock.protocols.nsq.http.services import NsqServices  # noqa: PLC0415 - as above

        return NsqServices(self.settings, self.loop, self.nsq, self.tls, self.gate)

    def _say_ready(self, listeners: list[tuple[str, str, int]]) -> None:
        """``listeners``: protocol, host and port of each."""
        from penstock.management.start_screen import start_screen  # noqa: PLC0415 - as in serve

        sys.stdout.write(
            start_screen(
                self.settings,
                version=__version__,
                pid=os.getpid(),
                compiled=is_compiled(),
                listeners=listeners,
                recovery=self.recovery,
                log_in=self._has_default_log_in(),
                ready_ms=(time.monotonic() - self._started) * 1000,
            )
        )
        sys.stdout.flush()
        self._notifier.ready(f"serving, {self.recovery} recovered")

    def _turn_until_stopped(self, reread: Callable[[], Settings] | None) -> None:
        wait_ms = LOOK_MS
        look_at_ms = MonoMs(0)
        while not self.loop.stopping:
            now_ms = self.loop.run_once(wait_ms)
            self.events.look(now_ms)
            wait_ms = LOOK_MS
            if now_ms < look_at_ms:
                continue
            wait_ms = TICK_MS
            look_at_ms = MonoMs(now_ms + LOOK_MS)
            self.monitor.look(now_ms)
            self._lines.look()
            self._notifier.look(now_ms)
            self._look_at_the_disk()
            self.links.look()
            self._admin.keep_renewed_hashes()
            if self.ending.take_reload():
                self._reload(reread)

    def _reload(self, reread: Callable[[], Settings] | None) -> None:
        if reread is not None:
            self._notifier.reloading()
            self._control(self._reloading.run(reread))
            self._notifier.ready("serving")

    def _look_at_the_disk(self) -> None:
        """Errors that are final end the node; a full disk is said once."""
        error = self.committer.error or self.worker.error or self.engine.disk_error()
        if error is not None:
            raise error
        for fault in self.engine.take_faults():
            logger.error("%s", fault)
        self._keep_reserve()
        stalled = self.turn.disk_stalled()
        if bool(stalled) != bool(self._stalled):
            if stalled:
                logger.warning("%s; publishers wait", stalled)
            else:
                logger.warning("the disk has space again")
        self._stalled = stalled

    def _keep_reserve(self) -> None:
        """While it has not what it should, publishers wait as for a disk that takes nothing."""
        journal = self.engine.journal
        sizes = int(journal.total_bytes()), int(journal.file_size_bytes)
        complete = self._room.look(mono_ms(), *sizes)
        if self.broker.admission.note_reserve(complete):
            if complete:
                logger.info("the reserve has its room again")
            else:
                logger.warning("the disk has no room for the reserve; publishers wait")

    # -- stop ----------------------------------------------------------------------------

    def _close(self) -> int:
        self.definitions.commit()
        if self.cluster is not None:
            self.cluster.leave()
        self.broker.queue_turns.long_works.finish()
        self._finish_disk_work()
        self.ending.tidying()
        if not self.ending.quick:
            self._tidy_up()
        self._password_worker.close()
        self.definitions.close()
        self.loop.close()
        self.events.stop()
        logger.info("stopped")
        self._logs.flush()
        self._notifier.close()
        os.close(self._lock_fd)
        return 0

    def _tidy_up(self) -> None:
        """What rests in memory goes into segments, so that the next start reads no journal."""
        durable: list[RestingQueue] = []
        next_seq_ids: dict[int, int] = {}
        for vhost in self.broker.vhosts.values():
            for backing in vhost.durable_backings():
                for part in backing.parts():
                    durable.append(part)
                    next_seq_ids[int(part.queue_id)] = int(part.records.next_seq_id)
        close_engine(self.engine, durable, next_seq_ids, self.files)

    def _finish_disk_work(self) -> None:
        """What was journalled and asked for so far; raises what went wrong."""
        if not self.ending.quick:
            self._commit_rest()
            self._await_committer()
            # What has moved is safe now where it went: else the next start has it twice.
            self.broker.dead_letters.settle()
            self.broker.keep_positions()
        self._commit_rest()
        self.backends.asking.stop()
        self.committer.close()
        self._collect()
        self.worker.close()
        self.worker.collect()
        error = self.committer.error or self.worker.error or self.engine.disk_error()
        if error is not None:
            raise error

    def _commit_rest(self) -> None:
        group = self.engine.seal(sync=True)
        if group is not None:
            self.committer.submit(group)

    def _await_committer(self) -> None:
        """Until it has done everything, or cannot."""
        committer = self.committer
        while not (committer.idle() or committer.stalled or committer.error):
            time.sleep(COMMITTER_LOOK_S)
        self._collect()

    def _collect(self) -> None:
        for done in self.committer.collect():
            self.engine.committed(done)


def stream_ids(topology: Topology) -> set[int]:
    return {one.queue_id for one in topology.queues if queue_type(one.arguments) == STREAM}


def raise_descriptor_limit() -> None:
    """As many connections as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def is_compiled() -> bool:
    """Do the compiled files run as extension modules?"""
    return not message.__file__.endswith(".py")


def http_bind(settings: Settings) -> str:
    """Where the management API listens."""
    return listener_of(HTTP).address(settings)


def run(settings: Settings, reread: Callable[[], Settings]) -> int:
    """``penstock serve``: run a node until it is told to stop."""
    logs = Logs()
    logs.apply(settings)
    if os.environ.get("PENSTOCK_REQUIRE_COMPILED") == "1" and not is_compiled():
        raise OSError("PENSTOCK_REQUIRE_COMPILED=1, but the compiled files are missing")
    with collector_paused():
        node = Node(settings, logs, Notifier(os.environ))
    return node.serve(reread)
