"""Consumers of a queue: their windows and their outlets, which say how much they take.

Three things may stop a consumer, and each is one small object:

    its own window      how many deliveries it may hold unsettled (``prefetch``, 0 = any; or
                        ``window``, 0 = none, which may change at any time, also to below that)
    a shared window     the same over several consumers (a limit for their whole session)
    its outlet          its session's way out is full; opened again when it has drained

``holder`` is whatever the session needs to find its way back; a queue never looks at it.

A queue has its consumers in a ring, in turn.  One that has no room is *resting*, outside, from when
its turn comes until room comes to it: a thousand that take nothing cost no step of a delivery.

Invariant (``check``):
  G1  a consumer rests, or is once in the ring of its group, which is in turn then
"""

from collections import deque
from typing import Final, final

from mypy_extensions import i64

UNLIMITED: Final[i64] = 1 << 40
"""More messages than any queue delivers in one go."""
NO_WINDOW: Final[i64] = -1
SPARE: Final[i64] = 64
"""Cancelled consumers that a ring may keep in any case."""
OUTLET_BYTES: Final[i64] = 512 * 1024
"""More than this waiting to be sent shuts an outlet, where it was not told less."""


@final
class OutputWindow:
    """A session's way out, shared by all its consumers.

    With more than ``limit_bytes`` on its way it is shut until all of that has left.
    Where it ``gathers``, large contents are not copied into the session's output buffer: they, and
    what the buffer had before them, leave ``ahead`` of what it has now.
    """

    def __init__(self, limit_bytes: i64 = OUTLET_BYTES) -> None:
        self.open: bool = True
        self.gathers: bool = False
        self.ahead: list[bytes] = []
        self.ahead_bytes: i64 = 0
        self.limit_bytes: i64 = limit_bytes
        self.unsent_bytes: i64 = 0  # what the socket did not take at the last write
        self.busy: bool = False  # something was delivered since then
        self.round: i64 = 0  # of the output budget, the last in which it was
        self.since_round: i64 = 0  # and in each since this one

    def delivered(self, buffered_bytes: i64, ahead_bytes: i64 = 0) -> None:
        """Something was delivered; so much waits behind what the socket did not take.

        ``ahead_bytes``: and so much more is ``ahead``.
        """
        self.busy = True
        self.ahead_bytes += ahead_bytes
        if buffered_bytes + self.ahead_bytes + self.unsent_bytes >= self.limit_bytes:
            self.open = False

    def gather(self, can: bool) -> None:
        """Whether its socket writes several buffers at once."""
        self.gathers = can

    def put_ahead(self, data: bytes) -> None:
        self.ahead.append(data)
        self.ahead_bytes += len(data)

    def take_ahead(self) -> list[bytes]:
        ahead = self.ahead
        self.ahead = []
        self.ahead_bytes = 0
        return ahead

    def reopen(self) -> None:
        """All of it has left."""
        self.open = True

    def wrote(self, left_bytes: i64) -> i64:
        """The socket did not take so much; returns how much more than at the last write."""
        more = left_bytes - self.unsent_bytes
        self.unsent_bytes = left_bytes
        return more

    def enter_round(self, number: i64) -> bool:
        """It was delivered to in this round of the budget; True: for the first time in it."""
        self.busy = False
        if self.round == number:
            return False
        if self.round + 1 < number:
            self.since_round = number
        self.round = number
        return True

    def grant(self, limit_bytes: i64) -> None:
        self.limit_bytes = limit_bytes

    def room_bytes(self) -> i64:
        """How much one pass may bring, but for a first message of any size."""
        room = self.limit_bytes - self.unsent_bytes
        return room if room > 0 else 0

    def sent(self, size: i64) -> None:
        """To where it says what has left, instead of a socket."""
        self.unsent_bytes += size
        if self.unsent_bytes >= self.limit_bytes:
            self.open = False

    def has_left(self, size: i64) -> None:
        self.unsent_bytes -= size
        if self.unsent_bytes * 2 < self.limit_bytes:
            self.open = True


@final
class SharedWindow:
    """One limit over the unsettled deliveries of several consumers; 0 = none."""

    def __init__(self) -> None:
        self.limit: i64 = 0
        self.outstanding: i64 = 0

    def change(self, limit: i64) -> None:
        self.limit = limit

    def close(self) -> None:
        """There is no room any more, whatever is settled."""
        self.limit = -1

    def room(self) -> i64:
        if self.limit == 0:
            return UNLIMITED
        room = self.limit - self.outstanding
        return room if room > 0 else 0


@final
class Consumer:
    """One subscription to one queue, or the account of one session's single gets."""

    def __init__(
        self,
        tag: str,
        holder: object,
        outlet: OutputWindow,
        shared: SharedWindow,
        no_ack: bool,
        prefetch: i64,
        exclusive: bool,
        arguments: dict[str, object],
        priority: i64 = 0,
        window: i64 = NO_WINDOW,
        timeout_ms: i64 = 0,
    ) -> None:
        """``window``: of unsettled deliveries in place of ``prefetch``; 0 means none."""
        self.tag = tag
        self.holder = holder
        self.outlet = outlet
        self.shared = shared
        self.no_ack = no_ack
        self.prefetch: i64 = prefetch
        self.window: i64 = window
        self.exclusive = exclusive
        self.arguments = arguments
        self.priority: i64 = priority
        self.outstanding: i64 = 0
        self.delivered_count: i64 = 0
        self.acked_count: i64 = 0
        self.timeout_ms: i64 = timeout_ms  # its own for unsettled deliveries; 0 = the queue's
        self.queue: object = None  # where what it holds is settled
        self.cancelled: bool = False
        self.resting: bool = False  # without room, and out of turn until some comes

    def anew(self) -> "Consumer":
        """The same subscription, to another queue; it holds nothing."""
        return Consumer(
            self.tag,
            self.holder,
            self.outlet,
            self.shared,
            self.no_ack,
            self.prefetch,
            self.exclusive,
            self.arguments,
            self.priority,
            self.window,
            self.timeout_ms,
        )

    def allow(self, window: i64) -> None:
        """It may hold so many from now on."""
        self.window = window

    def join(self, queue: object) -> None:
        """It takes from this queue: settling goes there."""
        self.queue = queue

    def cancel(self) -> None:
        """Nothing more is delivered to it."""
        self.cancelled = True
        self.resting = False

    def rest(self) -> None:
        """It has no room: out of turn."""
        self.resting = True

    def end_rest(self) -> None:
        """Room may have come: it is in turn again."""
        self.resting = False

    def room(self) -> i64:
        """How many more deliveries it takes now."""
        if not self.outlet.open:
            return 0
        room = self.shared.room()
        if self.no_ack:
            # Not counted, but not delivered either while the shared limit is reached.
            if room > 0:
                return UNLIMITED
            return 0
        if self.window != NO_WINDOW:
            if self.window - self.outstanding < room:
                room = self.window - self.outstanding
        elif self.prefetch > 0 and self.prefetch - self.outstanding < room:
            room = self.prefetch - self.outstanding
        return room if room > 0 else 0

    def nearly_full(self) -> bool:
        """At least three quarters of its window are still unsettled."""
        if self.window != NO_WINDOW:
            return self.outstanding * 4 >= self.window * 3
        if self.prefetch > 0:
            return self.outstanding * 4 >= self.prefetch * 3
        shared = self.shared
        return shared.limit > 0 and shared.outstanding * 4 >= shared.limit * 3

    def take(self, count: i64) -> None:
        """Account for deliveries that wait for settlement."""
        self.outstanding += count
        self.shared.outstanding += count

    def release(self, count: i64) -> None:
        """Account for settlements."""
        self.outstanding -= count
        self.shared.outstanding -= count


@final
class ConsumerRing:
    """Consumers in turn, and some that were cancelled: fewer than those, but for ``SPARE``."""

    def __init__(self) -> None:
        self._turns: deque[Consumer] = deque()
        self._cancelled: i64 = 0  # at most so many of them are here

    def length(self) -> i64:
        """Those that were cancelled included."""
        return len(self._turns)

    def take(self) -> Consumer | None:
        """Out of the ring, the next in turn that has room; those before it rest."""
        while len(self._turns) > 0:
            consumer = self._turns.popleft()
            if consumer.cancelled:
                continue
            if consumer.room() > 0:
                return consumer
            consumer.rest()
        return None

    def has_room(self) -> bool:
        consumer = self.take()
        if consumer is None:
            return False
        self._turns.appendleft(consumer)
        return True

    def room(self, wanted: i64) -> i64:
        """How many messages they take now; not more than ``wanted`` is looked for."""
        total: i64 = 0
        looked_at: list[Consumer] = []
        while total < wanted:
            consumer = self.take()
            if consumer is None:
                break
            looked_at.append(consumer)
            total += consumer.room()
        self.put_first(looked_at)
        return total

    def first(self) -> Consumer | None:
        """The next in turn, with room or without, which stays in the ring."""
        while len(self._turns) > 0 and self._turns[0].cancelled:
            self._turns.popleft()
        return self._turns[0] if len(self._turns) > 0 else None

    def put_first(self, consumers: list[Consumer]) -> None:
        """Before all others, in this order."""
        self._turns.extendleft(reversed(consumers))

    def put_last(self, consumers: list[Consumer]) -> None:
        """Behind all others, in this order."""
        self._turns.extend(consumers)

    def add(self, consumer: Consumer) -> None:
        """Behind all others."""
        self._turns.append(consumer)

    def cancel_one(self) -> None:
        """A consumer was cancelled, which may be here: it is left out when there are many."""
        self._cancelled += 1
        if self._cancelled * 2 > len(self._turns) + SPARE:
            self._turns = deque([one for one in self._turns if not one.cancelled])
            self._cancelled = 0

    def in_turn(self) -> list[Consumer]:
        """All but those that were cancelled."""
        return [consumer for consumer in self._turns if not consumer.cancelled]


@final
class PriorityGroup:
    """The consumers of one priority, served in turn."""

    def __init__(self, priority: i64) -> None:
        self.priority: i64 = priority
        self.ring = ConsumerRing()
        self.count: i64 = 0
        self._of_holder: dict[int, int] = {}  # consumers by the identity of their holder
        self.shares_holder: bool = False  # two of them belong to one session's channel

    def add(self, consumer: Consumer) -> None:
        """Behind all others that wait for a turn."""
        self.ring.add(consumer)
        self._count_holder(consumer, 1)

    def remove(self, consumer: Consumer) -> None:
        """It was cancelled."""
        self.ring.cancel_one()
        self._count_holder(consumer, -1)

    def _count_holder(self, consumer: Consumer, more: int) -> None:
        """Not by looking at all consumers: a peer may add thousands with one read."""
        self.count += more
        holder = id(consumer.holder)
        count = self._of_holder.get(holder, 0) + more
        if count > 0:
            self._of_holder[holder] = count
        else:
            del self._of_holder[holder]
        self.shares_holder = len(self._of_holder) < self.count


_NO_GROUPS: Final[dict[int, PriorityGroup]] = {}
_NONE_IN_TURN: Final[list[PriorityGroup]] = []
"""Of queues that never had a consumer: nothing is ever put into these."""


@final
class ConsumerGroups:
    """The consumers of a queue by priority.

    ``sole`` gets all messages, past the rings: the active one, or the only one there is.
    """

    def __init__(self, single_active: bool) -> None:
        self.single_active: bool = single_active
        self.sole: Consumer | None = None
        self._by_priority: dict[int, PriorityGroup] = _NO_GROUPS
        self._in_turn: list[PriorityGroup] = _NONE_IN_TURN  # highest first; in others all rest

    def add(self, consumer: Consumer) -> None:
        priority = int(consumer.priority)
        group = self._by_priority.get(priority)
        if group is None:
            if len(self._by_priority) == 0:
                self._by_priority = {}
                self._in_turn = []
            group = PriorityGroup(priority)
            self._by_priority[priority] = group
        is_first = len(self._by_priority) == 1 and group.count == 0
        group.add(consumer)
        self._enter(group)
        if is_first or not self.single_active:
            self.sole = consumer if is_first else None

    def remove(self, consumer: Consumer, others: dict[Consumer, None]) -> None:
        """It was cancelled; ``others`` are those that stay."""
        group = self._by_priority[int(consumer.priority)]
        group.remove(consumer)
        if group.count == 0:
            del self._by_priority[int(group.priority)]
            place = self._place(group.priority)
            if place < len(self._in_turn) and self._in_turn[place] is group:
                del self._in_turn[place]
        if self.single_active:
            if self.sole is consumer:
                self.sole = self._in_turn[0].ring.first() if len(others) > 0 else None
        else:
            self.sole = next(iter(others)) if len(others) == 1 else None

    def come_back(self, consumer: Consumer) -> None:
        """Room came to one that was resting: it is the last in turn."""
        group = self._by_priority[int(consumer.priority)]
        consumer.end_rest()
        group.ring.add(consumer)
        self._enter(group)

    def first(self) -> PriorityGroup | None:
        """The highest group in which one has room."""
        while len(self._in_turn) > 0:
            if self._in_turn[0].ring.has_room():
                return self._in_turn[0]
            del self._in_turn[0]
        return None

    def room(self, wanted: i64) -> i64:
        """How many messages they take now; not more than ``wanted`` is looked for."""
        if self.sole is not None:
            return self.sole.room()
        total: i64 = 0
        place: i64 = 0
        while total < wanted and place < len(self._in_turn):
            room = self._in_turn[place].ring.room(wanted - total)
            total += room
            if room > 0:
                place += 1
            else:
                del self._in_turn[place]
        return total

    def _enter(self, group: PriorityGroup) -> None:
        """One of it is in turn."""
        place = self._place(group.priority)
        if place == len(self._in_turn) or self._in_turn[place] is not group:
            self._in_turn.insert(place, group)

    def _place(self, priority: i64) -> i64:
        """Of the first group that is not higher: priorities are as many as a peer likes."""
        low: i64 = 0
        high: i64 = len(self._in_turn)
        while low < high:
            middle = (low + high) >> 1
            if self._in_turn[middle].priority > priority:
                low = middle + 1
            else:
                high = middle
        return low

    def check(self, consumers: dict[Consumer, None]) -> None:
        """Assert G1."""
        found: list[Consumer] = []
        for group in self._by_priority.values():
            there = group.ring.in_turn()
            assert not there or group in self._in_turn, "G1"
            found += there
        resting = [one for one in consumers if one.resting]
        assert len(found) + len(resting) == len(consumers), "G1"
        assert set(found) | set(resting) == set(consumers), "G1"
