"""``EventCollector``: looks at the node for its event log, and carries events to the writer.

    book (what packages noted) ─────────────────────────┐
    alarms, every look ─────────────────────────────────┼─► EventLog, AuditTrail, EventExchange
    node, waits, rates and states, every interval ─────┘
    spans of messages ──────────────────────────────────► SpanExport

Called by the data loop between two turns, like the resource monitor.  What costs with the number
of queues and connections is a walk, ``SLICE`` of them at a look: it may take longer than the
interval, then the next begins when it is over.  A queue whose figures have not changed is not
written; a state that comes and goes between two looks is not seen.
"""

from collections.abc import Iterator
from typing import Final

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.clocks import wall_ms
from penstock.core.clock_types import MonoMs
from penstock.core.credit import CHANNEL, IDLE_AFTER_MS, KINDS, QUEUE, READER, FlowPeer
from penstock.core.events.book import EventBook
from penstock.node.inspection.audit_trail import AuditTrail
from penstock.node.inspection.event_exchange import EventExchange
from penstock.node.inspection.flow_view import because, stage_name, waited_for, why_most
from penstock.node.inspection.span_export import TAKES_PER_S, SpanExport
from penstock.node.sessions import describe
from penstock.protocols.description import SessionDescription
from penstock.queues.queue import Queue
from penstock.runtime.disk.event_log import EventLog
from penstock.runtime.loop import Loop
from penstock.settings.settings import Settings

CARRY_MS: Final = 1000 // TAKES_PER_S
SLICE: Final = 50
WAITS_MAX: Final = 200
"""Of one interval, the longest."""
TOO_MANY: Final = "too many at a time"
NODE_SHARE: Final = 10
"""All queues together may have so many times the samples of one."""

Counts = tuple[int, int, int, int, int, int, int, int]
NOTHING: Final[Counts] = (0, 0, 0, 0, 0, 0, 0, 0)


class EventCollector:
    """Of one node."""

    def __init__(
        self,
        broker: Broker,
        loop: Loop,
        log: EventLog,
        trail: AuditTrail,
        exchange: EventExchange,
        spans: SpanExport,
        settings: Settings,
        node_name: str,
    ) -> None:
        self._broker = broker
        self._book: EventBook = broker.events
        self._loop = loop
        self._log = log
        self._trail = trail
        self._exchange = exchange
        self._spans = spans
        self._node_name = node_name
        self._interval_ms = 1000 * settings.event_log_interval_s
        self._quota = settings.event_log_samples_per_s * settings.event_log_interval_s
        self._began_ms = MonoMs(0)
        self._looked_ms = MonoMs(0)
        self._interval_at_ms = MonoMs(0)
        self._carry_at_ms = MonoMs(0)
        self._walk: Iterator[None] | None = None
        self._walked_ms = MonoMs(0)
        self._counts: dict[Queue, Counts] = {}
        self._states: dict[object, str] = {}
        self._alarms: dict[str, MonoMs] = {}  # since when

    def start(self, now_ms: MonoMs) -> None:
        """From here on the notes of packages are kept, and messages are sampled."""
        self._log.start()
        self._trail.start()
        self._spans.start()
        book = self._book
        book.set_now(wall_ms())
        book.open()
        book.note("node_started", (self._node_name, __version__, self._interval_ms))
        if not self._log.writes:
            return  # what came and went is enough for the lines of the log
        book.begin_log(str(self._log.directory))
        self._broker.flow.book.note_waits(True)
        self._began_ms = self._walked_ms = now_ms
        self._interval_at_ms = MonoMs(now_ms + self._interval_ms)
        self._give_samples()
        for vhost in self._broker.vhosts.values():
            for queue in vhost.queues.values():
                self._counts[queue] = _counts_of(queue)
                queue.statistics.start_sampling(
                    self._broker.queue_context.sampling, vhost.name, queue.name
                )

    def look(self, now_ms: MonoMs) -> None:
        """What is due; called after every turn, so it looks once a millisecond at most."""
        if now_ms == self._looked_ms or not self._book.on:
            return
        self._looked_ms = now_ms
        self._look_at_alarms(now_ms)
        if self._walk is not None and next(self._walk, self) is self:
            self._walk = None
        if self._walk is None and now_ms >= self._interval_at_ms and self._log.writes:
            self._interval_at_ms = MonoMs(self._interval_at_ms + self._interval_ms)
            if self._interval_at_ms <= now_ms:
                # The loop, or a walk, was slow.
                self._interval_at_ms = MonoMs(now_ms + self._interval_ms)
            self._note_node(now_ms)
            self._note_waits()
            self._give_samples()
            self._walk = self._walk_all(now_ms - self._walked_ms)
            self._walked_ms = now_ms
        if now_ms >= self._carry_at_ms:
            self._carry_at_ms = MonoMs(now_ms + CARRY_MS)
            self._carry()
        self._exchange.look()

    def stop(self) -> None:
        """The last words; what waits is written."""
        if self._book.on:
            self._book.note("node_stopped", (self._node_name,))
            self._carry()
            self._book.close()
            self._broker.flow.book.note_waits(False)
            self._log.stop()
            self._trail.stop()
            self._spans.stop()

    def _carry(self) -> None:
        dropped = self._book.take_dropped()
        if dropped:
            self._log.drop(dropped, TOO_MANY)
            self._trail.drop(dropped, TOO_MANY)
        events = self._book.take()
        if events:
            self._log.put([(at, kind, _named(values)) for at, kind, values, _ in events])
            self._trail.put(events)
            self._exchange.put(events)
        self._book.lacks_records(self._trail.dropped_count)
        self._spans.look(self._book.now_ms)

    # -- the node --------------------------------------------------------------------------

    def _look_at_alarms(self, now_ms: MonoMs) -> None:
        alarms = self._broker.admission.alarms
        if alarms.memory != ("memory" in self._alarms):
            used, limit = int(alarms.used_bytes()), int(alarms.memory_limit_bytes)
            self._alarm_moved("memory", used, limit, now_ms)
        if alarms.disk != ("disk" in self._alarms):
            free, limit = int(alarms.disk_free_bytes), int(alarms.disk_limit_bytes)
            self._alarm_moved("disk", free, limit, now_ms)

    def _alarm_moved(self, resource: str, used: int, limit: int, now_ms: MonoMs) -> None:
        since_ms = self._alarms.pop(resource, None)
        if since_ms is None:
            self._alarms[resource] = now_ms
            self._book.note("alarm_set", (resource, used, limit))
        else:
            self._book.note("alarm_cleared", (resource, used, limit, now_ms - since_ms))

    def _note_node(self, now_ms: MonoMs) -> None:
        alarms = self._broker.admission.alarms
        flow = self._broker.flow
        stages = list(flow.book.flowing)
        window_s = self._interval_ms // 1000
        in_flow = [_seconds(stages, kind, window_s) for kind in (READER, CHANNEL, QUEUE)]
        sessions = [one.session for one in self._loop.connections.values()]
        described = [describe(one) for one in sessions if one is not None]
        channels = sum(len(one.channel_numbers()) for one in described)
        self._book.note(
            "node",
            (
                now_ms - self._began_ms,
                window_s,
                len(sessions),
                channels,
                sum(len(vhost.queues) for vhost in self._broker.vhosts.values()),
                int(alarms.used_bytes()),
                int(alarms.memory_limit_bytes),
                int(alarms.disk_free_bytes),
                int(alarms.disk_limit_bytes),
                *in_flow,
                why_most(stages, CHANNEL) or None,
                *(round(share, 3) for share in flow.processor_shares()),
                self._loop.turn.blocked_reason() or None,
            ),
        )

    def _note_waits(self) -> None:
        """One line for each pair, the longest first."""
        pairs: dict[tuple[str, str, str, str, str], int] = {}
        for wait in self._broker.flow.book.take_waits():
            waiter, receiver = wait.waiter, wait.receiver
            pair = (
                KINDS[waiter.kind],
                stage_name(waiter),
                KINDS[receiver.kind],
                waited_for(receiver),
                because(receiver),
            )
            pairs[pair] = pairs.get(pair, 0) + int(wait.blocked_ms)
        longest = sorted(pairs, key=lambda pair: -pairs[pair])[:WAITS_MAX]
        for pair in longest:
            self._book.note("wait", (*pair, pairs[pair], self._interval_ms))

    def _give_samples(self) -> None:
        sampling = self._broker.queue_context.sampling
        sampling.begin_interval(NODE_SHARE * self._quota, max(1, self._quota))

    # -- the walk --------------------------------------------------------------------------

    def _walk_all(self, interval_ms: int) -> Iterator[None]:
        """One look's share of the work between two yields."""
        counts: dict[Queue, Counts] = {}
        states: dict[object, str] = {}
        queues = [queue for one in self._broker.vhosts.values() for queue in one.queues.values()]
        for at in range(0, len(queues), SLICE):
            for queue in queues[at : at + SLICE]:
                if not queue.deleted:
                    self._look_at_queue(queue, counts, states, interval_ms)
            yield
        sessions = [one.session for one in self._loop.connections.values()]
        for at in range(0, len(sessions), SLICE):
            for session in sessions[at : at + SLICE]:
                if session is not None:
                    self._look_at_session(describe(session), states)
            yield
        self._counts, self._states = counts, states

    def _look_at_queue(
        self, queue: Queue, counts: dict[Queue, Counts], states: dict[object, str], interval_ms: int
    ) -> None:
        now = _counts_of(queue)
        before = self._counts.get(queue, NOTHING)
        counts[queue] = now
        name = (queue.vhost, queue.name)
        deltas = [max(new - old, 0) for new, old in zip(now[:4], before[:4], strict=True)]
        if now != before:
            self._book.note("queue_rates", (*name, interval_ms, *deltas, *now[4:]))
        sampler = queue.statistics.sampler
        if sampler is not None:
            sampler.begin(now[1], deltas[1], max(1, self._quota))
            if sampler.open:
                sampler.tell_old()
        state = self._queue_state(queue)
        self._note_state("queue_state", queue, name, state, states)

    def _queue_state(self, queue: Queue) -> str:
        """As management says it; most queues never were behind, and have no stage."""
        if queue.backing.why_stopped():
            return "stopped"
        idle_ms = self._book.now_ms - queue.statistics.active_at_ms
        if queue.flow is not None:
            return queue.flow.state(idle_ms)
        return "idle" if idle_ms > IDLE_AFTER_MS else "running"

    def _look_at_session(self, one: SessionDescription, states: dict[object, str]) -> None:
        session = one.session
        one.note_entered(self._book)
        if session.client.entered_at_ms == 0:
            return
        name = session.client.event_name
        self._note_state("connection_state", session, (name,), one.state(), states)
        for number, channel, state in one.channel_states():
            self._note_state("channel_state", channel, (name, number), state, states)

    def _note_state(
        self,
        kind: str,
        one: object,
        name: tuple[object, ...],
        state: str,
        states: dict[object, str],
    ) -> None:
        was = self._states.get(one)
        states[one] = state
        if was is not None and was != state:
            self._book.note(kind, (*name, state, was))


def _counts_of(queue: Queue) -> Counts:
    counted = queue.statistics
    given_back = counted.redelivered_count + counted.requeued_count + counted.timed_out_count
    return (
        int(counted.published_count),
        int(counted.delivered_count),
        int(counted.acked_count),
        int(given_back),
        int(queue.backing.ready_count()),
        int(queue.unacked_count),
        int(queue.backing.ready_bytes()),
        len(queue.consumers),
    )


def _seconds(stages: list[FlowPeer], kind: int, window_s: int) -> int:
    """Of the last ones, those in which one of that kind was in flow."""
    bits = 0
    for stage in stages:
        if stage.kind == kind:
            bits |= int(stage.history)
    return (bits & ((1 << window_s) - 1)).bit_count()


def _named(values: tuple[object, ...]) -> tuple[object, ...]:
    """A queue in the first place is written as its virtual host and name."""
    first = values[0]
    return (first.vhost, first.name, *values[2:]) if isinstance(first, Queue) else values
