"""``MessageMove``: an operator moves, copies, retries, dead-letters or deletes selected messages.

In: sequence ids of ready messages of one queue, and one verb for all of them.  Out: the verb is
done slice by slice; ``counts`` has how many messages came to which of the ``OUTCOMES``.

    copy, move, retry   published where they are to go; ``StagedPublisher`` knows how
    move, retry         then they are out of the queue, held, and acknowledged when the publishes
                        are on disk: a crash may double a message, never lose one
    dead_letter         they die as if a consumer had rejected them
    delete              acknowledged at once

What goes to a queue whose master is on another node stays here until that has it, and for good if
that has no room for it; a consumer may get it meanwhile, and then it is in both.

A retry does not believe every ``x-death``, for publishers can write it.  The queue it names must
have the dead letter exchange and key by which the message came, and must be reached by where it is
sent to: so who may publish to a queue does not choose where an operator's retry leads.

A slice does all of that within one turn, so no consumer gets what was chosen in between.  A
message goes only if it leads somewhere: what would have no queue, or has no ``x-death`` to say
where it came from (retry), or finds a queue full that refuses publishes, stays.  So does what
would be lost on its way: it leads back to the queue it is in, where its newer self may be a
duplicate or push others out, or every queue it reaches takes each key once and has its own.
"""

from bisect import bisect_left
from collections import Counter
from typing import Final, final

from penstock.backing.message_deque import FEW_CHOSEN
from penstock.backing.variable_queue import VariableQueue
from penstock.broker.broker import Broker
from penstock.broker.rules.rights import Rights
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm
from penstock.core.errors import AccessRefused, NotFound, PreconditionFailed
from penstock.core.message import STORED, Address, Message, seq_id_of
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.queues.refusals import check_parts, check_read, leased
from penstock.routing.steps import RouteUnfinished, RoutingShare

COPY, MOVE, RETRY = "copy", "move", "retry"
DEAD_LETTER, DELETE = "dead_letter", "delete"
ACTIONS: Final = (MOVE, COPY, DELETE, RETRY, DEAD_LETTER)

SLICE_MESSAGES: Final = 256
SLICE_BYTES: Final = 1024 * 1024
SLICE_READS: Final = 8
"""Chosen messages may lie far apart on disk: so many reads in one turn."""
SLICE_PLACES: Final = 65_536
"""And in memory: what lies between them is looked at, if they are more than few."""
NAME_BYTES_MAX: Final = 255

DONE, GONE = "done", "gone"
UNROUTABLE, SAME_QUEUE, DUPLICATE = "unroutable", "same_queue", "duplicate"
WITHOUT_DEATH, FULL = "without_death", "full"
OUTCOMES: Final = (DONE, GONE, UNROUTABLE, SAME_QUEUE, DUPLICATE, WITHOUT_DEATH, FULL)
"""Of a chosen message; gone: not ready here any more.  All but the first leave it as it is."""


@final
class MessageMove:
    """What one user wants done with messages of one queue; raises a ``BrokerError`` if not his.

    ``trouble``   why the last that found no room found none
    ``position``  of the journal that makes all of it safe, with ``waits`` of other nodes
    """

    def __init__(
        self,
        broker: Broker,
        rights: Rights,
        vhost: Vhost,
        queue: Queue,
        priority: int,
        action: str,
        target: tuple[str, str] | None,
    ) -> None:
        """``target``: exchange and routing key, for copy and move."""
        assert action in ACTIONS
        assert (target is not None) == (action in (COPY, MOVE))
        self.counts: Counter[str] = Counter()
        self.trouble: str = ""
        self.position: int = 0
        self.waits: list[PendingConfirm] = []
        self._broker = broker
        self._rights = rights
        self._vhost = vhost
        self._priority = priority
        self._action = action
        self._target = target
        self._share = RoutingShare()
        rights.read("queue", queue.name)
        queue.check_owner(None)
        check_parts(queue.backing, queue.name, queue.vhost)
        if not isinstance(queue, LocalQueue):
            raise PreconditionFailed(
                f"the master of {vhost.queue_text(queue.name)} is on another node: ask there"
            )
        self._queue = queue
        if queue.is_leased and action != COPY:
            raise leased(queue.name, queue.vhost)
        if queue.backing.part(priority) is None:
            raise PreconditionFailed(f"{vhost.queue_text(queue.name)} has no priority {priority}")
        if action == DEAD_LETTER and not queue.limits.buries:
            raise PreconditionFailed(
                f"{vhost.queue_text(queue.name)} has no dead letter exchange: its messages have"
                " nowhere to go when they are rejected"
            )
        if target is not None:
            self._may_publish(*target)

    def _may_publish(self, exchange: str, key: str) -> None:
        """Raises NotFound or AccessRefused."""
        found = None if exchange == "" else self._vhost.exchange(exchange)
        if found is not None and found.internal:
            text = self._vhost.exchange_text(exchange)
            raise AccessRefused(f"cannot publish to internal {text}")
        self._rights.publish(found, exchange, key)

    # -- a slice -----------------------------------------------------------------------------

    def step(self, seq_ids: list[int], now_ms: WallMs) -> list[int]:
        """Do it with the first of these, which ascend; returns the others.

        Raises NotFound when some could not be read; the verb is done with all others of the slice.
        """
        if self._queue.deleted:
            raise NotFound(f"no {self._vhost.queue_text(self._queue.name)}")
        part = self._part()
        near = bisect_left(seq_ids, seq_ids[0] + SLICE_PLACES)
        few = seq_ids[: min(max(near, FEW_CHOSEN), SLICE_MESSAGES)]
        few = few[: int(part.rare().settlement.few_reads(few, SLICE_READS))]
        self._share.begin()
        failed = part.records.failed_reads
        if self._action in (DELETE, DEAD_LETTER):
            self._take_away(few)
        else:
            few = self._publish(few, now_ms)
        self.position = int(self._broker.engine.journal.position)
        check_read(part, failed, self._queue.name, self._queue.vhost)
        return seq_ids[len(few) :]

    def _part(self) -> VariableQueue:
        part = self._queue.backing.part(self._priority)
        assert part is not None, "it was there at first"
        return part

    def _take_away(self, seq_ids: list[int]) -> None:
        queue = self._queue
        taken = queue.take_chosen(self._priority, seq_ids)
        self.counts[DONE] += len(taken)
        self.counts[GONE] += len(seq_ids) - len(taken)
        if self._action == DELETE:
            queue.backing.ack(taken)
        else:
            queue.bury(taken)
            queue.wake()  # so that they are buried in this turn

    def _publish(self, seq_ids: list[int], now_ms: WallMs) -> list[int]:
        """Returns those of them that were looked at."""
        messages, seq_ids = self._read(seq_ids)
        letters = [(one, *self._goal_of(one)) for one in messages]  # judged before any goes
        self.waits = [one for one in self.waits if not one.done]
        moved: list[int] = []
        leaving: list[
            tuple[int, list[PendingConfirm]]
        ] = []  # when other nodes have said that it is there
        for message, address, origin in letters:
            try:
                outcome = self._publish_one(message, address, origin, now_ms)
            except RouteUnfinished:  # from here on they are for the next slice
                seq_ids = seq_ids[: bisect_left(seq_ids, message.seq_id)]
                break
            self.counts[outcome] += 1
            if outcome != DONE:
                continue
            waits = self._vhost.waits.take()
            self.waits += waits
            if waits:
                leaving.append((int(message.seq_id), waits))
            else:
                moved.append(int(message.seq_id))
        if self._action != COPY:
            self._let_go(moved, leaving)
        here = bisect_left(messages, seq_ids[-1] + 1, key=seq_id_of) if seq_ids else 0
        self.counts[GONE] += len(seq_ids) - here
        return seq_ids

    def _let_go(self, moved: list[int], leaving: list[tuple[int, list[PendingConfirm]]]) -> None:
        letters, queue = self._broker.dead_letters, self._queue
        position = self._broker.engine.journal.position
        if moved:
            taken = queue.take_chosen(self._priority, moved)
            letters.settle_when(position, queue, taken, [])
        if leaving:
            letters.take_when(position, queue, self._priority, leaving)

    def _read(self, seq_ids: list[int]) -> tuple[list[Message], list[int]]:
        """Those that are here, with their contents, and how far that went."""
        part = self._part()
        found: list[Message] = []
        size = 0
        looked_at = 0
        for start, end in _runs(seq_ids):
            at = start
            while at < end and size < SLICE_BYTES:
                some = part.reads.read_range(at, end, end - at, SLICE_BYTES - size)
                found += some
                size += sum(int(one.size) for one in some)
                at = int(some[-1].seq_id) + 1 if some else end
            looked_at += at - start
            if at < end:
                break
        return found, seq_ids[:looked_at]

    def _publish_one(
        self, message: Message, address: Address | None, origin: Queue | None, now_ms: WallMs
    ) -> str:
        """Publish a copy of it; returns the outcome.  ``origin``: a queue it must reach.

        Raises RouteUnfinished when the slice has no time for it.
        """
        if address is None:
            return WITHOUT_DEATH
        publisher = self._broker.staging.publisher
        # Without the mark of the store: the copy's content is stored anew, if it is large.
        copy = Message(message.content, address.wire, message.flags & ~STORED, WallMs(0))
        queues = self._queues_for(address, copy, now_ms)
        if self._action != COPY and self._queue in queues:
            return SAME_QUEUE
        if origin is not None and origin not in queues:
            return UNROUTABLE
        known = _duplicate_count(queues)
        if publisher.publish(self._vhost, [copy], now_ms, False, self._share) == 0:
            if publisher.full == "":
                raise RouteUnfinished
            self.trouble = publisher.trouble()
            return FULL
        if publisher.unroutable:
            return UNROUTABLE
        return DUPLICATE if _duplicate_count(queues) - known == len(queues) else DONE

    def _queues_for(self, address: Address, copy: Message, now_ms: WallMs) -> list[Queue]:
        try:
            return self._broker.staging.publisher.queues_for(
                self._vhost, address, copy, now_ms, self._share
            )
        except (NotFound, AccessRefused):
            return []  # the exchange is gone, or internal

    def _goal_of(self, message: Message) -> tuple[Address | None, Queue | None]:
        """Where it is to go, None = it never died, and the queue it is to come back to (retry).

        Raises AccessRefused when the user may not publish there.
        """
        target, origin = self._target, None
        if target is None:
            exchange, key, origin = self._origin(message)
            if origin is None:
                return None, None
            self._rights.publish(self._vhost.exchanges.get(exchange), exchange, key)
            target = exchange, key
        wire = _short(target[0]) + _short(target[1])
        return self._broker.staging.publisher.address(self._vhost, wire), origin

    def _origin(self, message: Message) -> tuple[str, str, Queue | None]:
        """Where it was published before it died last, and in which queue; None = it did not."""
        died = self._broker.dead_letters.origin(message)
        if died is None:
            return "", "", None
        exchange, key, name = died
        queue = self._vhost.queues.get(name)
        if queue is None or not self._buries_so(queue, key, message):
            return "", "", None
        return exchange, key, queue

    def _buries_so(self, queue: Queue, key: str, message: Message) -> bool:
        """Would a death there, of a message with that key, have been published as this one was?"""
        came_by = self._broker.staging.publisher.address(self._vhost, message.address)
        limits = queue.limits
        buried_key = key if limits.dead_letter_key is None else limits.dead_letter_key
        return limits.dead_letter_exchange == came_by.exchange and buried_key == came_by.routing_key


def _duplicate_count(queues: list[Queue]) -> int:
    """How many they have dropped for their keys."""
    count = 0
    for queue in queues:
        keys = queue.backing.keys()
        if keys is not None:
            count += int(keys.duplicate_count)
    return count


def _runs(seq_ids: list[int]) -> list[tuple[int, int]]:
    """First place, and the one behind the last, of each run without a hole."""
    runs: list[tuple[int, int]] = []
    for seq_id in seq_ids:
        if runs and runs[-1][1] == seq_id:
            runs[-1] = (runs[-1][0], seq_id + 1)
        else:
            runs.append((seq_id, seq_id + 1))
    return runs


def _short(name: str) -> bytes:
    data = name.encode("utf-8", "surrogateescape")
    if len(data) > NAME_BYTES_MAX:
        raise PreconditionFailed(f"'{name}' has {len(data)} bytes, at most 255 are possible")
    return bytes([len(data)]) + data
