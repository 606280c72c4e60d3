"""``Queue``: the interface of all queues.

    LocalQueue   its messages are on this node                 (``local.py``)
    StreamQueue  they stay, and each consumer reads all        (``stream.py``)
    RemoteQueue  its master is on another node                 (``cluster/remote/queue.py``)

In come batches of messages (``publish``) and settlements (``settle``, ``reject``, ``requeue``,
``give_back``); out come deliveries when the broker asks for them (``deliver``).  A queue never
calls its consumers: whenever something may have become deliverable it puts itself on the
``wakeups`` list of its context, and the broker's turn asks it.  So a hundred publishes in one turn
cost one delivery pass.

A consumer that settles one message of a window still nearly full has enough to work on:
refilling it can wait for the next settlements of the same moment (``refills``), so that
acknowledging one by one does not cost one system call a message.  The broker's turn asks
those queues as soon as nothing more comes in, or after ``REFILL_DELAY_MS``.

A verb that cannot be answered at once returns ``Pending`` (``core/pending.py``): a get while the
head is on disk, and most of what only the master of a remote queue knows.

Invariants (``check``):
  Q1  a consumer's ``outstanding`` is never negative
  Q2  the queue is on the wakeups list exactly when ``awake``, and on the refills list
      exactly when ``refilling``
  Q3  an exclusive consumer is alone
  Q4  ``unacked_count`` = deliveries waiting for settlement, over consumers and gets
"""

from typing import Final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.credit import QUEUE, FlowPeer
from penstock.core.message import Message
from penstock.core.pending import Pending
from penstock.queues.allocator import Delivery
from penstock.queues.consumers import Consumer
from penstock.queues.context import QUORUM, STREAM, QueueContext, QueueIdentity, queue_type
from penstock.queues.counting import QueueStatistics
from penstock.queues.leases import Leases
from penstock.queues.limits import NO_LIMITS, QueueLimits
from penstock.queues.publish_notes import PublishNotes
from penstock.queues.refusals import locked

CROWDED_BYTES: Final[i64] = 4 * 1024 * 1024

JUST_USED: Final = MonoMs(-1)
"""As ``last_used_ms``: until now; the next look says when that is."""


class Queue:
    """See the head of this file; ``leases`` is None where deliveries have no deadlines."""

    def __init__(
        self, identity: QueueIdentity, backing: BackingQueue, context: QueueContext
    ) -> None:
        self.vhost = identity.vhost
        self.name = identity.name
        self.durable = identity.durable
        self.auto_delete = identity.auto_delete
        self.arguments = identity.arguments
        self.backing: BackingQueue = backing
        self.owner: object = None  # the session an exclusive queue belongs to
        self.consumers: dict[Consumer, None] = {}  # in the order in which they came
        self.had_consumer: bool = False
        self.unacked_count: i64 = 0
        self.leases: Leases | None = None
        self.scanned: bool = False  # its deadlines are found by the scan loop
        self.limits: QueueLimits = NO_LIMITS
        self.statistics = QueueStatistics()
        self.flow: FlowPeer | None = None  # of publishes, since it was first behind with them
        self.releases_to: object = None  # the exchange whose delayed messages wait here
        self.paused: bool = False  # takes messages, gives none
        self.mirrors: PublishNotes | None = None  # of a master with mirrors
        self.deleted: bool = False
        self.awake: bool = False
        self.refilling: bool = False
        self.last_used_ms: MonoMs = MonoMs(0)
        self.expiry_due_ms = WallMs(0)  # when the schedule will look at its head; 0 = never
        self._context = context
        self._identity = identity

    def identity(self) -> QueueIdentity:
        return self._identity

    @property
    def incarnation(self) -> str:
        return self._identity.incarnation

    @property
    def user(self) -> str:
        """Who declared it, "" = it is not known, or the node itself."""
        return self._identity.user

    @property
    def remote(self) -> bool:
        """Its master is on another node."""
        return False

    @property
    def is_quorum(self) -> bool:
        return queue_type(self.arguments) == QUORUM

    @property
    def is_stream(self) -> bool:
        return queue_type(self.arguments) == STREAM

    @property
    def exclusive(self) -> bool:
        return self.owner is not None

    def check_owner(self, session: object) -> None:
        """Raises ResourceLocked when the queue is another session's exclusive one."""
        if self.owner is not None and self.owner is not session:
            raise locked(self.name, self.vhost)

    def flow_stage(self) -> FlowPeer:
        """Of what is published to it: made when that is behind for the first time."""
        if self.flow is None:
            self.flow = FlowPeer(self._context.book, QUEUE, self)
        return self.flow

    def used(self, mono_ms: MonoMs) -> None:
        """Its time without use begins again."""
        self.last_used_ms = mono_ms

    # -- turns -----------------------------------------------------------------------------

    def wake(self) -> None:
        """Something may be deliverable: ask for a turn."""
        if not self.awake and not self.deleted:
            self.awake = True
            self._context.wakeups[self] = None

    def refill(self) -> None:
        """Something may be deliverable, but there is no hurry: ask for a turn soon."""
        if not self.awake and not self.refilling and not self.deleted:
            self.refilling = True
            self._context.refills.append(self)

    def begin_turn(self) -> None:
        """It is not awake from here on, if it was, and may ask for another turn."""
        self.awake = False
        self._context.wakeups.pop(self, None)

    def refilled(self) -> None:
        """The moment is over."""
        self.refilling = False
        self.wake()

    def due_at(self, when_ms: WallMs) -> bool:
        """Its messages are due then, 0 = never; True = that is sooner than was known."""
        if when_ms <= 0 or 0 < self.expiry_due_ms <= when_ms:
            return False
        self.expiry_due_ms = when_ms
        return True

    def visited(self) -> None:
        """What was due has been looked at."""
        self.expiry_due_ms = WallMs(0)

    def disk_came(self) -> None:
        """Something was read from disk, or is on it now: ask for a turn."""
        self.wake()

    def set_paused(self, paused: bool) -> None:
        self.paused = paused
        self.wake()

    # -- publishing ------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: WallMs) -> None:
        """Take messages at the tail, unless it has mirrors and can confirm nothing."""
        raise NotImplementedError

    def publish_deferred(self, messages: list[Message], until_ms: WallMs, now_ms: WallMs) -> None:
        """Take messages that are not ready before that time; then their time to live begins."""
        raise NotImplementedError

    def overflowing(self, messages: list[Message]) -> set[int]:
        """The places of new messages it has no room for; what a consumer takes needs none."""
        return set()

    def refuse(self, messages: list[Message]) -> None:
        """They had no room, and may be dead letters all the same."""
        raise NotImplementedError

    def is_crowded(self) -> bool:
        """Consumers are here, but more waits for them than they take in a moment."""
        return False

    def is_eased(self) -> bool:
        """No longer crowded, by a margin."""
        return True

    # -- delivering ------------------------------------------------------------------------

    def deliver(self, now_ms: WallMs) -> list[Delivery]:
        """One pass over the consumers; asks for another turn itself if more can be done."""
        raise NotImplementedError

    def get(self, account: Consumer) -> Message | Pending | None:
        """One message for ``account``, whatever its window says; None when empty.

        ``AGAIN`` comes of a Pending when its head was not here.
        """
        raise NotImplementedError

    def spare_room(self, wanted: i64) -> i64:
        """How many messages consumers take now; not more than ``wanted`` is looked for."""
        room: i64 = 0
        if not self.paused:
            for consumer in self.consumers:
                if room >= wanted:
                    break
                room += consumer.room()
        return room

    def room_came(self, consumer: Consumer) -> None:
        """By other ways than settlements: its window, one that it shares, or its outlet."""
        self.wake()

    # -- settling --------------------------------------------------------------------------

    def settle(self, consumer: Consumer, messages: list[Message]) -> None:
        """The consumer is done with these, for good."""
        raise NotImplementedError

    def reject(self, consumer: Consumer, messages: list[Message]) -> None:
        """The consumer is done with these, and does not want them: they die."""
        raise NotImplementedError

    def requeue(self, given: dict[Consumer, list[Message]], failed: bool, now_ms: WallMs) -> None:
        """Consumers give these back: to their original places, as redelivered.

        ``failed``: they could not deal with them; a quorum queue counts that alone.  ``now_ms``:
        wall clock, for a quorum queue, whose messages may have to wait first.
        """
        raise NotImplementedError

    def hold(self, on: bool) -> None:
        """A consumer gives messages back in several pieces: deliver none before the last."""

    def give_back(
        self, consumer: Consumer, messages: list[Message], delay_ms: i64, now_ms: WallMs
    ) -> None:
        """Its consumer could not deal with these: to the tail, after a time; 0 = at once."""
        raise NotImplementedError

    def give_back_all(self, owner: i64) -> None:
        """A consumer left and its messages need not wait: to the places they had."""
        raise NotImplementedError

    # -- consumers -------------------------------------------------------------------------

    def add_consumer(self, consumer: Consumer) -> Pending | None:
        """Raises AccessRefused (exclusive use) or ResourceLocked (a range lease)."""
        raise NotImplementedError

    def remove_consumer(self, consumer: Consumer) -> None:
        """Stop delivering to it; what it holds stays with it until settled."""
        raise NotImplementedError

    def active_consumer(self) -> Consumer | None:
        """The one that gets all messages, if one is to have all and it is known here."""
        return None

    @property
    def unused(self) -> bool:
        """An auto-delete queue in this state goes."""
        raise NotImplementedError

    # -- time ------------------------------------------------------------------------------

    def use_leases(self) -> bool:
        """From now on deliveries have deadlines; False where the backing cannot do that."""
        raise NotImplementedError

    def expire(self, now_ms: WallMs) -> i64:
        """Let die some of what is over its time and no consumer could take; returns how many."""
        raise NotImplementedError

    def release_due(self, now_ms: WallMs) -> i64:
        """What is over its deadline or was delayed for long enough is ready; returns how many.

        Not all at once: ``next_due_ms`` says that there are more.
        """
        raise NotImplementedError

    def next_expiry_ms(self) -> WallMs:
        """0 as well while the head is on its way: it wakes the queue when it is there."""
        return WallMs(0)

    def next_due_ms(self) -> WallMs:
        """When it should be asked again for both; 0 = nothing here waits for a time."""
        raise NotImplementedError

    # -- limits and counts -----------------------------------------------------------------

    def set_limits(self, limits: QueueLimits) -> None:
        self.limits = limits

    def purge(self) -> int | Pending:
        """Drop what is ready; returns how many."""
        raise NotImplementedError

    def empty(self) -> int | Pending:
        """Let go of everything but what consumers without a deadline hold; returns how many."""
        raise NotImplementedError

    def counts(self) -> tuple[int, int] | Pending:
        """Messages ready and consumers."""
        raise NotImplementedError

    def deferred_count(self) -> i64:
        """How many wait for their time."""
        return self.backing.count_delayed()

    def dropped_count(self) -> i64:
        """How many did not fit its limits."""
        return 0

    def unacked_anywhere(self) -> i64:
        """Deliveries that are not settled, as its master counts them."""
        return self.unacked_count

    def consumers_anywhere(self) -> i64:
        return len(self.consumers)

    def measure_capacity(self, now_ms: WallMs) -> None:
        """An interval ends."""
        capacity = self.statistics.capacity
        if self.backing.ready_count() == 0:
            capacity.note(False, now_ms)  # what waited was purged, or its time was over
        capacity.look(now_ms)

    @property
    def is_leased(self) -> bool:
        """A reader of ranges holds it, which is as good as a consumer."""
        return False

    # -- its master ------------------------------------------------------------------------

    def master_node(self) -> str:
        """The name of the other node that is its master, or was; "" = this one."""
        return ""

    def why_down(self) -> str:
        """Its master is gone, and no other is expected; "" = it is not."""
        return ""

    def is_forsaken(self) -> bool:
        """Its master is gone, and no copy may take its place."""
        return False

    def end(self) -> list[Consumer]:
        """It is deleted, with everything in it; returns the consumers that lose it."""
        raise NotImplementedError

    def await_mirrors(self, mirrors: PublishNotes | None) -> None:
        """From now on publishers wait for these; None = there are none."""
        self.mirrors = mirrors

    def hand_over(self) -> None:
        """It is master no more, and its backing another's: nothing of it waits for a time."""
        raise NotImplementedError

    def succeed(self, old: "Queue") -> None:
        """It takes the place of that one."""
        self.paused = old.paused
        self.had_consumer = old.had_consumer

    def retire(self) -> list[Consumer]:
        """Another object takes its place; returns the consumers that lose it."""
        self.deleted = True
        if self.flow is not None:
            self.flow.lost()
        consumers = list(self.consumers)
        self.consumers = {}
        return consumers

    # -- invariants ------------------------------------------------------------------------

    def check(self) -> None:
        """Assert Q1-Q4 as far as the queue alone can see."""
        outstanding: i64 = 0
        for consumer in self.consumers:
            assert consumer.outstanding >= 0, "Q1"
            assert not consumer.exclusive or len(self.consumers) == 1, "Q3"
            outstanding += consumer.outstanding
        assert self.awake == (self in self._context.wakeups), "Q2"
        assert self.refilling == (self in self._context.refills), "Q2"
        assert outstanding <= self.unacked_count, "Q4"
        self.backing.check()
