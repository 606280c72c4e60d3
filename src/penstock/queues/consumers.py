"""Consumers of a queue: their windows and their outlets, which say how much they take.

Three things may stop a consumer, and each is one small object:

    its own window      how many deliveries it may hold unsettled (``prefetch``, 0 = any; or
                        ``window``, 0 = none, which may change at any time, also to below that)
    a shared window     the same over several consumers (a limit for their whole session)
    its outlet          its session's way out is full; opened again when it has drained

``holder`` is whatever the session needs to find its way back; a queue never looks at it.
"""

from typing import Final, final

from mypy_extensions import i64

UNLIMITED: Final[i64] = 1 << 40
"""More messages than any queue delivers in one go."""
NO_WINDOW: Final[i64] = -1
OUTLET_BYTES: Final[i64] = 512 * 1024
"""More than this waiting to be sent shuts an outlet, where it was not told less."""


@final
class OutputWindow:
    """A session's way out, shared by all its consumers.

    With more than ``limit_bytes`` on its way it is shut until all of that has left.
    """

    def __init__(self, limit_bytes: i64 = OUTLET_BYTES) -> None:
        self.open: bool = True
        self.limit_bytes: i64 = limit_bytes
        self.unsent_bytes: i64 = 0  # what the socket did not take at the last write
        self.busy: bool = False  # something was delivered since then
        self.round: i64 = 0  # of the output budget, the last in which it was
        self.since_round: i64 = 0  # and in each since this one

    def delivered(self, buffered_bytes: i64) -> None:
        """Something was delivered; so much waits behind what the socket did not take."""
        self.busy = True
        if buffered_bytes + self.unsent_bytes >= self.limit_bytes:
            self.open = False

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

    def room(self) -> i64:
        """How many more deliveries it takes now."""
        if not self.outlet.open:
            return 0
        room = self.shared.room()
        if self.no_ack:
            # Not counted, but not delivered either while the shared limit is reached.
            return UNLIMITED if room > 0 else 0
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
class PriorityGroup:
    """The consumers of one priority, served in turn; ``next`` is whose turn it is."""

    def __init__(self, priority: i64) -> None:
        self.priority: i64 = priority
        self.members: list[Consumer] = []
        self.next: i64 = 0
        self._of_holder: dict[int, int] = {}  # members by the identity of their holder
        self.shares_holder: bool = False  # two of them belong to one session's channel

    def add(self, consumer: Consumer) -> None:
        """Behind all others that wait for a turn: the one to be served next heads the ring."""
        self.members.insert(self.next, consumer)
        self.next = (self.next + 1) % len(self.members)
        self._count_holder(consumer, 1)

    def remove(self, consumer: Consumer) -> None:
        place: i64 = self.members.index(consumer)
        del self.members[place]
        if place < self.next:
            self.next -= 1
        self._count_holder(consumer, -1)

    def served_upto(self, place: i64) -> None:
        """The next in turn is the one behind it."""
        self.next = (place + 1) % len(self.members)

    def has_room(self) -> bool:
        return any(consumer.room() > 0 for consumer in self.members)

    def _count_holder(self, consumer: Consumer, more: int) -> None:
        """Not by looking at all members: a peer may add thousands with one read."""
        holder = id(consumer.holder)
        count = self._of_holder.get(holder, 0) + more
        if count > 0:
            self._of_holder[holder] = count
        else:
            del self._of_holder[holder]
        self.shares_holder = len(self._of_holder) < len(self.members)


@final
class ConsumerGroups:
    """The consumers of a queue by priority, highest first; ``active`` has all, if one is to."""

    def __init__(self, single_active: bool) -> None:
        self.groups: list[PriorityGroup] = []
        self.single_active: bool = single_active
        self.active: Consumer | None = None

    def add(self, consumer: Consumer) -> None:
        self._group(consumer.priority).add(consumer)
        if self.single_active and self.active is None:
            self.active = consumer

    def remove(self, consumer: Consumer, others: list[Consumer]) -> None:
        """``others`` in the order in which they came."""
        group = self._group(consumer.priority)
        group.remove(consumer)
        if len(group.members) == 0:
            self.groups.remove(group)
        if self.active is consumer:
            self.active = None
            for other in others:
                if other.priority == self.groups[0].priority:
                    self.active = other
                    break

    def _group(self, priority: i64) -> PriorityGroup:
        place = 0
        for group in self.groups:
            if group.priority == priority:
                return group
            if group.priority > priority:
                place += 1
        group = PriorityGroup(priority)
        self.groups.insert(place, group)
        return group
