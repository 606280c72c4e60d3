"""Credit flow: a fast sender waits for a slow receiver, stage by stage.

    reader ─► channel ─► queue ─► message store
        ◄─        ◄─        ◄─          acknowledgements and grants come back

A ``FlowPeer`` sends, receives or both.  A ``Credit`` is one sender and one receiver:
what the sender may still send before it hears from the receiver.  ``send`` uses it up; at nothing
left the sender is *blocked* by that receiver, as it may be by several at a time.  The receiver
acknowledges what it has dealt with (``ack``), and after every ``more_after`` of that grants as much
again, unless it is blocked itself: then the grant is deferred until it is not.  So a wait at
the far end travels upstream to the reader of the socket (rules CR-1 to CR-7 of RabbitMQ's
credit_flow).

What differs from the peer:

- Stages are objects in one process, and messages go from one to the next in batches.  The last
  batch may use more than there is (the balance becomes negative), as the peer's may.
- A batch costs one credit a message, or one a KiB of its contents where that is more
  (``cost_of``).  The peer counts messages, so that 4,000 large ones are gigabytes.
- A receiver may *keep* what was sent to it (``keep``) and acknowledge all of it at once when it
  is no longer behind (``release``).  What it can deal with in the same breath costs no credit
  at all: its sender need not send it through here.
- The loop tells the book the time; a stage that was blocked less than a second
  ago is still said to be in flow, as there.

Invariants (``check``):
  C1  of every credit: balance + in hand + acknowledged and not yet granted + deferred = initial
  C2  a sender's blockers are exactly its open credits with nothing left; each is there once
  C3  grants are deferred only by a receiver that is blocked
  C4  with nothing in hand and nothing deferred there is credit left: no sender waits for ever
      (which is why ``more_after`` may not be above ``initial``)
  C5  a closed credit blocks no sender and is on no list

While the event log is on (``FlowBook.noting``), each credit also counts the milliseconds for which
it blocked its sender (``take_waits``).
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs

FLOW_LASTS_MS: Final[i64] = 1000
"""So long after it was blocked a stage is still in flow (CR-7)."""
IDLE_AFTER_MS: Final[i64] = 10_000
HISTORY_S: Final = 10
_HISTORY: Final[i64] = (1 << 10) - 1

READER: Final = 0
CHANNEL: Final = 1
QUEUE: Final = 2
STORE: Final = 3
NODE: Final = 4
KINDS: Final = ("connection", "channel", "queue", "message store", "node")


def cost_of(count: i64, size_bytes: i64) -> i64:
    """What a batch uses of a credit."""
    kibibytes = size_bytes >> 10
    return kibibytes if kibibytes > count else count


@final
class CreditSpec:
    """How much a sender may have under way, and after how much it is granted more."""

    def __init__(self, initial: i64, more_after: i64) -> None:
        assert 0 < more_after <= initial
        self.initial: i64 = initial
        self.more_after: i64 = more_after


@final
class FlowPeer:
    """A stage of ``kind`` on the way of messages; ``owner`` is the object that it stands for."""

    def __init__(self, book: "FlowBook", kind: i64, owner: object, why: str = "") -> None:
        self.kind: i64 = kind
        self.owner = owner
        self.why: str = why  # for what it last kept its acknowledgements back
        self.blocked_by: FlowPeer | None = None  # the last one that did
        self.blockers: list[Credit] = []
        self.kept: list[Credit] = []  # sent to us, and not acknowledged for the time being
        self.kept_at_ms = MonoMs(0)
        self.flow_s: i64 = 0  # seconds in flow, in all
        self.history: i64 = 0  # the last ten of them, a bit each
        self._book = book
        self._listed: bool = False
        self.down: Credit | None = None  # of a stage with a single receiver
        self._waiting: list[Credit] = []  # senders whose grants we defer
        self._senders: list[Credit] = []
        self._last_flow_ms = MonoMs(-FLOW_LASTS_MS)
        self.waited_ms: i64 = 0  # for a receiver without a credit; not yet taken
        self.noted: bool = False

    def is_blocked(self) -> bool:
        return len(self.blockers) > 0

    def in_flow(self) -> bool:
        """Blocked now or a moment ago."""
        if len(self.blockers) > 0:
            return True
        return self._book.now_ms - self._last_flow_ms < FLOW_LASTS_MS

    def state(self, idle_ms: i64) -> str:
        """In RabbitMQ's words; ``idle_ms``: for how long its owner has had nothing to do."""
        if self.in_flow():
            return "flow"
        return "idle" if idle_ms > IDLE_AFTER_MS else "running"

    def explain(self, why: str) -> None:
        """For that it keeps its senders waiting from now on."""
        self.why = why

    def keep(self, credit: "Credit", cost: i64, why: str = "") -> None:
        """Take what is sent, and acknowledge it later; ``why``: if not always so."""
        self.why = why
        if len(self.kept) == 0:
            self.kept_at_ms = self._book.now_ms
        if credit.kept == 0:
            self.kept.append(credit)
        credit.keep(cost)

    def release(self) -> None:
        """Acknowledge all that was kept."""
        kept = self.kept
        self.kept = []
        for credit in kept:
            credit.ack_kept()

    def lost(self) -> None:
        """It is gone: its senders are free, and nothing more comes from it."""
        for credit in self._senders[:]:
            credit.close()
        for credit in self.blockers[:]:
            credit.close()
        if self.down is not None:
            self.down.close()

    def send_down(self, receiver: "FlowPeer", spec: CreditSpec) -> "Credit":
        """That is its single receiver from now on."""
        if self.down is not None:
            self.down.close()
        self.down = Credit(self, receiver, spec)
        return self.down

    # -- for credits ---------------------------------------------------------------------

    def add_sender(self, credit: "Credit") -> None:
        self._senders.append(credit)

    def senders(self) -> list["Credit"]:
        """The credits of its senders."""
        return self._senders

    def forget_sender(self, credit: "Credit") -> None:
        self._senders.remove(credit)
        if credit.kept > 0:
            self.kept.remove(credit)
        if credit.deferred > 0:
            self._waiting.remove(credit)

    def block(self, credit: "Credit") -> None:
        if len(self.blockers) == 0:
            self._list(credit.receiver)
            if self.kind == QUEUE:
                self._book.count_blocked_queues(1)
        self.blockers.append(credit)
        if credit.begin_wait(self._book.now_ms, self._book.noting):
            self._book.noted.append(credit)

    def _list(self, receiver: "FlowPeer") -> None:
        self.blocked_by = receiver
        if not self._listed:
            self._listed = True
            self._book.flowing.append(self)

    def waited_for(self, receiver: "FlowPeer", since_ms: MonoMs) -> None:
        """It was in flow a moment ago, between two looks."""
        now_ms = self._book.now_ms
        self._last_flow_ms = now_ms
        self._list(receiver)
        if self._book.noting and now_ms > since_ms:
            self.waited_ms += now_ms - since_ms
            if not self.noted:
                self.noted = True
                self._book.noted_stages.append(self)

    def unblock(self, credit: "Credit") -> None:
        self.blockers.remove(credit)
        credit.end_wait(self._book.now_ms)
        if len(self.blockers) > 0:
            return
        self._last_flow_ms = self._book.now_ms
        if self.kind == QUEUE:
            self._book.count_blocked_queues(-1)
        waiting = self._waiting
        self._waiting = []
        for sender in waiting:
            sender.grant_deferred()
        if self.kind == READER:
            self._book.freed.append(self)

    def defer(self, credit: "Credit") -> None:
        """It is granted what it has deferred when this stage is not blocked any more."""
        self._waiting.append(credit)

    def take_waited_ms(self) -> i64:
        """How long it waited for receivers without a credit since the last time."""
        waited_ms = self.waited_ms
        self.waited_ms = 0
        self.noted = False
        return waited_ms

    def second_over(self) -> bool:
        """Write the last second down; False = nothing to tell of the last ten."""
        flowed: i64 = 1 if self.in_flow() else 0
        self.flow_s += flowed
        self.history = ((self.history << 1) | flowed) & _HISTORY
        if self.history == 0:
            self._listed = False
        return self._listed

    def share(self) -> float:
        """Of the last ten seconds in flow."""
        count = 0
        for second in range(HISTORY_S):
            if self.history & (i64(1) << second):
                count += 1
        return count / HISTORY_S

    def check(self) -> None:
        for credit in self.blockers:
            assert not credit.closed
            assert credit.sender is self
            assert credit.balance <= 0, "C2"
        assert len(set(self.blockers)) == len(self.blockers), "C2"
        assert not self._waiting or self.blockers, "C3"
        for credit in self._senders:
            assert not credit.closed, "C5"
            credit.check()
        for credit in self.kept + self._waiting:
            assert credit in self._senders, "C5"


@final
class Credit:
    """What ``sender`` may still send to ``receiver``."""

    def __init__(self, sender: FlowPeer, receiver: FlowPeer, spec: CreditSpec) -> None:
        self.sender = sender
        self.receiver = receiver
        self.spec = spec
        self.balance: i64 = spec.initial
        self.in_hand: i64 = 0  # sent, and not acknowledged
        self.kept: i64 = 0  # of that, what the receiver will acknowledge all at once
        self.deferred: i64 = 0  # granted, as soon as the receiver is not blocked itself
        self.due: i64 = spec.more_after  # so much more acknowledged, and more is granted
        self.closed: bool = False
        self.since_ms = MonoMs(0)  # when it last began to block its sender
        self.waited_ms: i64 = 0  # for how long it did; not yet taken
        self.noted: bool = False
        receiver.add_sender(self)

    def send(self, cost: i64) -> None:
        before = self.balance
        self.balance = before - cost
        self.in_hand += cost
        if before > 0 and self.balance <= 0 and not self.closed:
            self.sender.block(self)

    def ack(self, cost: i64) -> None:
        """The receiver has dealt with so much of what is in hand."""
        self.in_hand -= cost
        self.due -= cost
        if self.due > 0 or self.closed:
            return
        more = self.spec.more_after
        grant = (-self.due // more + 1) * more
        self.due += grant
        if self.receiver.is_blocked():
            if self.deferred == 0:
                self.receiver.defer(self)
            self.deferred += grant
        else:
            self.bump(grant)

    def keep(self, cost: i64) -> None:
        """Send it; the receiver will acknowledge it with ``ack_kept``."""
        self.kept += cost
        self.send(cost)

    def ack_kept(self) -> None:
        cost = self.kept
        self.kept = 0
        self.ack(cost)

    def grant_deferred(self) -> None:
        grant = self.deferred
        self.deferred = 0
        self.bump(grant)

    def bump(self, grant: i64) -> None:
        """More may be sent."""
        before = self.balance
        self.balance = before + grant
        if before <= 0 and self.balance > 0:
            self.sender.unblock(self)

    def close(self) -> None:
        """One of the two is gone: the other owes it nothing and waits for nothing."""
        if self.closed:
            return
        self.closed = True
        self.receiver.forget_sender(self)
        self.kept = 0
        self.deferred = 0
        if self.balance <= 0:
            self.sender.unblock(self)

    def begin_wait(self, now_ms: MonoMs, noting: bool) -> bool:
        """It blocks its sender from now on; True = from now on that is to be noted."""
        self.since_ms = now_ms
        is_new = noting and not self.noted
        self.noted = self.noted or noting
        return is_new

    def end_wait(self, now_ms: MonoMs) -> None:
        self.waited_ms += now_ms - self.since_ms

    def take_waited_ms(self, now_ms: MonoMs) -> i64:
        """For how long it blocked its sender since the last time; ``noted``: it still does."""
        self.noted = self.balance <= 0 and not self.closed
        if self.noted:
            self.end_wait(now_ms)
            self.since_ms = now_ms
        waited_ms = self.waited_ms
        self.waited_ms = 0
        return waited_ms

    def check(self) -> None:
        spec = self.spec
        granted_later = spec.more_after - self.due
        total = self.balance + self.in_hand + granted_later + self.deferred
        assert total == spec.initial, "C1"
        assert (self in self.sender.blockers) == (self.balance <= 0), "C2"
        assert self.deferred == 0 or self.receiver.is_blocked(), "C3"
        assert self.balance > 0 or self.in_hand > 0 or self.deferred > 0, "C4"


@final
class Wait:
    """``waiter`` was blocked by ``receiver`` for so long since waits were last taken."""

    def __init__(self, waiter: FlowPeer, receiver: FlowPeer, why: str, blocked_ms: i64) -> None:
        self.waiter = waiter
        self.receiver = receiver
        self.why = why
        self.blocked_ms: i64 = blocked_ms


@final
class FlowBook:
    """Of one node: the time, the stages in flow, and those that may go on."""

    def __init__(self) -> None:
        self.now_ms = MonoMs(0)
        self.flowing: list[FlowPeer] = []  # blocked in the last ten seconds
        self.blocked_queues: i64 = 0
        self.freed: list[FlowPeer] = []  # readers that are no longer blocked, for the loop
        self.noting: bool = False  # the event log takes the waits
        self.noted: list[Credit] = []  # that blocked since they were last taken
        self.noted_stages: list[FlowPeer] = []
        self.turns: i64 = 0  # of the loop
        self._second_ms = MonoMs(0)

    def begin_turn(self, now_ms: MonoMs) -> None:
        """The loop woke."""
        self.now_ms = now_ms
        self.turns += 1

    def note_waits(self, noting: bool) -> None:
        """The event log takes the waits from now on, or takes them no more."""
        self.noting = noting

    def count_blocked_queues(self, more: i64) -> None:
        self.blocked_queues += more

    def take_freed(self) -> list[FlowPeer]:
        freed = self.freed
        self.freed = []
        return freed

    def take_waits(self) -> list[Wait]:
        """How long stages waited for others since the last time; empty unless ``noting``."""
        waits: list[Wait] = []
        going_on: list[Credit] = []
        for credit in self.noted:
            waited_ms = credit.take_waited_ms(self.now_ms)
            if credit.noted:
                going_on.append(credit)
            if waited_ms > 0:
                receiver = credit.receiver
                waits.append(Wait(credit.sender, receiver, receiver.why, waited_ms))
        self.noted = going_on
        for stage in self.noted_stages:
            works = stage.blocked_by
            waited_ms = stage.take_waited_ms()
            if works is not None:
                waits.append(Wait(stage, works, works.why, waited_ms))
        self.noted_stages = []
        return waits

    def tick(self, now_ms: MonoMs) -> None:
        """Once a second, or more often."""
        self.now_ms = now_ms
        if now_ms - self._second_ms < 1000:
            return
        self._second_ms = now_ms
        self.flowing = [stage for stage in self.flowing if stage.second_over()]
