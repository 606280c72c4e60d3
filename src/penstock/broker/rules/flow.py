"""``Flow``: charges publishes to channels, and releases them.

    reader ─► channel ─► queue ─► message store      (``core/credit.py`` has the rules)

All stages run in one loop, so most messages are dealt with in the breath in which they are sent.
Credit is for what is not:

- A **channel** acknowledges to its reader when the turn of the loop is over: its share of a
  turn is its credit, and a reader that wants more than that waits for the processor.  "In
  flow" with no channel in flow thus says: the processor, or routing.
- A **queue** deals with messages at once, unless it is behind: its consumers have much to
  take (*crowded*), what it wrote to the index waits for the disk longer than is good (the
  journal is *behind*), or memory fills faster than paging frees it.  Then it keeps its
  acknowledgements, and the channels that feed it wait.  Crowded ones keep them no longer than
  ``CROWDED_MS`` at a time: a slow consumer is no reason to stop publishers, only to let it
  have its turns.
- The **message store** acknowledges to the queues when contents are in its file.  So many
  large messages may wait for the disk as the store's credit says, for each queue.

Which work takes the processor's time, that of readers (decoding), of channels (routing) or of
queues, is measured in one turn of ``MEASURED_TURNS``.  Where queues (journal, index, deliveries)
take more of it than channels, a channel that keeps its reader waiting until the turn is over is
in flow too: it waits for the queues.

A session without credit holds its publishes and goes on reading, because there may be
acknowledgements behind them; ``may_read_on`` says for how long.

``end_turn`` is the only cost while no stage waits: a list of the channels that published in the
turn.
"""

from collections import deque
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs
from penstock.core.credit import QUEUE, STORE, Credit, CreditSpec, FlowBook, FlowPeer, cost_of
from penstock.queues.queue import CROWDED_BYTES, Queue

CROWDED_MS: Final[i64] = 5
"""A publisher to a crowded queue goes on after so long: one that never waits would else take the
time its consumers need."""
HELD_OWN_MAX_BYTES: Final[i64] = 1024 * 1024
HELD_MAX_BYTES: Final[i64] = 16 * 1024 * 1024
"""So much one session, and all of them, hold of publishes before they are not read any more."""
MEASURED_TURNS: Final[i64] = 16
CREDITS_MAX: Final = 64
"""Queues a channel keeps credit with; above this, closed and full ones are forgotten."""
CROWDED: Final = "its consumers have much to take"
INDEX: Final = "its index waits for the disk"
WORK: Final = "their own work, deliveries included, takes the processor's time"
PAGING: Final = "its messages wait to be paged to disk"


@final
class Flow:
    """Of one node; without ``spec`` what channels publish is not charged."""

    def __init__(self, spec: CreditSpec | None, store_spec: CreditSpec) -> None:
        self.book = FlowBook()
        self.spec = CreditSpec(1, 1) if spec is None else spec
        self.store_spec = store_spec
        self.store = FlowPeer(self.book, STORE, None)
        self.enabled: bool = spec is not None
        self.journal_behind: bool = False
        self.paging_behind: bool = False
        self.held_bytes: i64 = 0  # as of ``Session``, of all sessions
        self.measuring: bool = False  # in this turn
        self.decode_ns: i64 = 0  # of a measured turn, spent by readers on decoding
        self.publish_ns: i64 = 0  # and by queues on what is published
        self.reader_ns: i64 = 0  # of the last seconds' measured turns
        self.channel_ns: i64 = 0
        self.queue_ns: i64 = 0
        # All queues, as those whose work takes time.
        self.works = FlowPeer(self.book, QUEUE, None, WORK)
        self._halved_at_ms = MonoMs(0)
        self._turn_over: list[FlowPeer] = []  # channels that published since the last turn
        self._behind: list[FlowPeer] = []  # queues that keep acknowledgements
        self._unsealed: list[Credit] = []  # with the contents the store has not sealed
        self._unsealed_costs: list[int] = []
        self._sealed: deque[tuple[list[Credit], list[int]]] = deque()

    # -- publishing ------------------------------------------------------------------------

    def take(self, credit: Credit, cost: i64) -> None:
        """A reader hands something to a channel."""
        channel = credit.receiver
        if len(channel.kept) == 0:
            self._turn_over.append(channel)
        channel.keep(credit, cost)

    def must_charge(self, queues: list[Queue], store_bytes: i64) -> bool:
        """Is there anything that a queue might not deal with at once?  Mostly not."""
        return (
            store_bytes > 0
            or self.journal_behind
            or self.paging_behind
            or self.book.blocked_queues > 0
            or len(queues) > 1
            or queues[0].is_crowded()
        )

    def charge(
        self,
        channel: FlowPeer,
        by_queue: dict[FlowPeer, Credit],
        queues: list[Queue],
        cost: i64,
        journalled: bool,
        store_bytes: i64,
    ) -> None:
        """A channel has given something of ``cost`` to the queues.

        ``journalled``: some of it must reach the disk; ``store_bytes``: so much of it lies in the
        message store.
        """
        for queue in queues:
            if store_bytes > 0 and queue.durable:
                self._charge_store(queue.flow_stage(), cost_of(1, store_bytes))
            why = ""
            if queue.is_crowded():
                why = CROWDED
            elif journalled and self.journal_behind and queue.durable:
                why = INDEX
            elif self.paging_behind and queue.backing.ready_bytes() > CROWDED_BYTES:
                why = PAGING
            elif queue.flow is None or not queue.flow.is_blocked():
                continue
            stage = queue.flow_stage()
            if len(stage.kept) == 0:
                self._behind.append(stage)
            stage.keep(self._credit(channel, by_queue, stage), cost, why)

    def _credit(
        self, channel: FlowPeer, by_queue: dict[FlowPeer, Credit], stage: FlowPeer
    ) -> Credit:
        credit = by_queue.get(stage)
        if credit is None or credit.closed:
            if len(by_queue) >= CREDITS_MAX:
                _forget_idle(by_queue)
            credit = Credit(channel, stage, self.spec)
            by_queue[stage] = credit
        return credit

    def _charge_store(self, stage: FlowPeer, cost: i64) -> None:
        credit = stage.down
        if credit is None:
            credit = stage.send_down(self.store, self.store_spec)
        credit.send(cost)
        self._unsealed.append(credit)
        self._unsealed_costs.append(int(cost))

    # -- the disk --------------------------------------------------------------------------

    def sealed(self) -> None:
        """A group was sealed, with all the store had."""
        self._sealed.append((self._unsealed, self._unsealed_costs))
        self._unsealed = []
        self._unsealed_costs = []

    def committed(self) -> None:
        """The oldest group that was sealed is on disk."""
        owed, costs = self._sealed.popleft()
        _acknowledge(owed, costs)

    def nothing_stored(self) -> None:
        """The store has nothing to seal: what was charged was given up before it was written."""
        if self._unsealed:
            owed, costs = self._unsealed, self._unsealed_costs
            self._unsealed = []
            self._unsealed_costs = []
            _acknowledge(owed, costs)

    # -- the turn --------------------------------------------------------------------------

    def end_turn(self, now_ms: MonoMs) -> None:
        """The processor is free again."""
        self.book.tick(now_ms)
        if self._turn_over:
            channels = self._turn_over
            self._turn_over = []
            queues_weigh = self.queue_ns > self.reader_ns + self.channel_ns
            for channel in channels:
                if queues_weigh and len(channel.kept) > 0 and channel.kept[0].balance <= 0:
                    channel.waited_for(self.works, channel.kept[0].since_ms)
                channel.release()
        if self._behind:
            stages = self._behind
            self._behind = [stage for stage in stages if self._stays(stage, now_ms)]

    def begin_turn(self, now_ms: MonoMs) -> None:
        """The loop woke; is this turn one to be measured?"""
        self.book.begin_turn(now_ms)
        self.measuring = self.book.turns % MEASURED_TURNS == 0
        self.decode_ns = 0
        self.publish_ns = 0

    def count_held(self, more_bytes: i64) -> None:
        """Sessions hold so much more, or less."""
        self.held_bytes += more_bytes

    def note_journal(self, is_behind: bool) -> None:
        """More waits for the journal than it should, or not any more."""
        self.journal_behind = is_behind

    def note_paging(self, is_behind: bool) -> None:
        """The same of paging."""
        self.paging_behind = is_behind

    def count_decoding(self, took_ns: i64) -> None:
        """Of a measured turn."""
        self.decode_ns += took_ns

    def count_publishing(self, took_ns: i64) -> None:
        """Of a measured turn."""
        self.publish_ns += took_ns

    def measured(self, received_ns: i64, turn_ns: i64, now_ms: MonoMs) -> None:
        """What sessions took for what they received, and the broker for its turn."""
        if now_ms - self._halved_at_ms >= 1000:
            self._halved_at_ms = now_ms
            self.reader_ns //= 2
            self.channel_ns //= 2
            self.queue_ns //= 2
        self.reader_ns += self.decode_ns
        self.channel_ns += received_ns - self.decode_ns - self.publish_ns
        self.queue_ns += self.publish_ns + turn_ns

    def processor_shares(self) -> list[float]:
        """Of the time spent on messages, what readers, channels and queues take of it."""
        times = [int(self.reader_ns), int(self.channel_ns), int(self.queue_ns)]
        total = sum(times)
        return [time / total if total > 0 else 0.0 for time in times]

    def _stays(self, stage: FlowPeer, now_ms: MonoMs) -> bool:
        """Is the queue still behind?  If not, it acknowledges what it kept."""
        if stage.why == CROWDED:
            queue = cast(Queue, stage.owner)
            if now_ms - stage.kept_at_ms < CROWDED_MS and not queue.is_eased():
                return True
        elif self._waits_for_disk(stage):
            return True
        stage.release()
        return False

    def _waits_for_disk(self, stage: FlowPeer) -> bool:
        if stage.why == INDEX:
            return self.journal_behind
        return stage.why == PAGING and self.paging_behind

    def has_work(self) -> bool:
        """May a stage go on at once?"""
        if self.book.freed:
            return True
        for stage in self._behind:
            if stage.why != CROWDED and not self._waits_for_disk(stage):
                return True
        return False

    def is_someone_behind(self) -> bool:
        """Must the loop look again soon?"""
        return len(self._behind) > 0

    def may_read_on(self, own_bytes: i64) -> bool:
        """May a session that holds so much read what else its peer sends?"""
        if own_bytes == 0:
            return True
        return own_bytes <= HELD_OWN_MAX_BYTES and self.held_bytes <= HELD_MAX_BYTES


def _acknowledge(owed: list[Credit], costs: list[int]) -> None:
    for place in range(len(owed)):
        owed[place].ack(costs[place])


def _forget_idle(by_queue: dict[FlowPeer, Credit]) -> None:
    """Credit that is whole is as good as new."""
    for stage, credit in list(by_queue.items()):
        if credit.closed or credit.in_hand == 0:
            credit.close()
            del by_queue[stage]
