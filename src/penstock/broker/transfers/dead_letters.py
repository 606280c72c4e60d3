"""Dead letters: messages that ended in a queue are published again to its dead-letter exchange.

In: ``deaths``, the list queues put on what died in this turn.  Out: publishes, and, when those
are on disk, the acknowledgement of what died.  Until then it stays pending in its queue, so a
crash in between brings it back and it dies again: a letter may come twice, it is never lost.
(RabbitMQ's classic queues forget the message first.)  A letter for another node is sent again if
that node is lost; what died waits until it has arrived.  One for a mirrored queue of this node
whose master leaves meanwhile is written and routed again: the next master may not have it.

A letter for an exchange that is not there, or that routes it nowhere, is dropped.  So is one that
would reach a queue again in a cycle without a rejection (RabbitMQ's rule).  Of a queue that buries
surely (``QueueLimits.buries_surely``) the first kind is not dropped, nor what a full queue refuses:
the message that died stays pending, and is buried again every ``RETRY_MS``; after a restart it is
ready again.  A letter may push out or overflow others, which die in turn: the list is read until it
is empty, some at a time, so that a long chain does not hold up the turn.
"""

from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.topology.vhost import Vhost
from penstock.broker.transfers.replies import Replies
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm, all_over, any_refused, any_stranded
from penstock.core.counting.traffic import DropCounters
from penstock.core.headers import HeaderReader
from penstock.core.letters import HeaderWriter
from penstock.core.message import PENDING, PERSISTENT, Message, priority_flags
from penstock.core.turn_part import TurnPart
from penstock.queues.context import QueueContext
from penstock.queues.limits import DeadLetterBatch
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.routing.steps import RouteUnfinished, RoutingShare
from penstock.storage.journal.journal import Journal

BURIED_AT_ONCE: Final[i64] = 2048
"""Letters of one turn; what is left over waits for the next."""
RETRY_MS: Final = 5000
"""After this time letters that no queue took are published again."""
NOWHERE: Final[i64] = -1
"""Instead of a position: no queue took the letter, or not each of them."""


@final
class Letters:
    """What died, with what its letters wait for: other nodes, and a position of the journal."""

    def __init__(
        self,
        position: i64,
        queue: Queue,
        messages: list[Message],
        waits: list[PendingConfirm],
        reason: str = "",
        carried: PendingConfirm | None = None,
        priority: i64 = -1,
        leaving: list[tuple[int, list[PendingConfirm]]] | None = None,
    ) -> None:
        """``reason``: of their death, "" = it is their queue that publishes them.

        ``carried``: of another publish, which waits for these.  ``leaving``: places of that
        priority that are not taken out yet, each with what it waits for.
        """
        self.reason: str = reason
        self.carried = carried
        self.priority: i64 = priority
        self.leaving = leaving or []
        self.position: i64 = position
        self.queue = queue
        self.messages = messages
        self.waits = waits


@final
class DeadLetters(TurnPart):
    """``vhosts`` is the broker's own registry."""

    def __init__(
        self,
        vhosts: dict[str, Vhost],
        replies: Replies,
        writer: HeaderWriter,
        reader: HeaderReader,
        journal: Journal,
        context: QueueContext,
    ) -> None:
        super().__init__()
        self.published_count: i64 = 0
        self.fates = DropCounters()  # of those that were buried
        self._share = RoutingShare()
        self._vhosts = vhosts
        self._replies = replies
        self.writer: Final = writer
        self._reader: Final = reader
        self._journal = journal
        self._deaths = context.deaths
        self._waits = context.waits
        self._away: list[Letters] = []
        self._again: list[Letters] = []  # stranded: it is not known where they are
        # What died, in the order of the positions that make its letters safe.
        self._waiting: list[tuple[int, Queue, list[Message]]] = []
        # What no queue took, of queues that bury surely; all of it is tried at one time.
        self._kept: list[DeadLetterBatch] = []
        self._retry_at_ms = WallMs(0)

    def origin(self, message: Message) -> tuple[str, str, str] | None:
        """Exchange and key of the publish before its last death, and the queue it died in."""
        deaths = self._reader.read(message, "x-death")
        death = deaths[0] if isinstance(deaths, list) and deaths else None
        if not isinstance(death, dict):
            return None
        name, exchange, keys = death.get("queue"), death.get("exchange"), death.get("routing-keys")
        key = keys[0] if isinstance(keys, list) and keys else None
        if not (isinstance(name, str) and isinstance(exchange, str) and isinstance(key, str)):
            return None
        return exchange, key, name

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        """Publish what died."""
        if self._again or self._deaths:
            self._share.begin()
        if self._again:
            self._publish_again(now_ms)
        if self._kept and not 0 < self._retry_at_ms - now_ms <= RETRY_MS:
            self._deaths.extend(self._kept)
            self._kept = []
        left = BURIED_AT_ONCE
        while self._deaths and left > 0 and not self._share.is_over():
            deaths = self._deaths[:]
            self._deaths.clear()
            for death in deaths:
                if left <= 0 or self._share.is_over():
                    self._deaths.append(death)
                    continue
                left -= len(death.messages)
                self._bury(death, now_ms)
        return len(self._deaths) > 0

    def _bury(self, death: DeadLetterBatch, now_ms: WallMs) -> None:
        queue = cast(LocalQueue, death.queue)
        vhost = self._vhosts.get(queue.vhost)
        if queue.deleted or vhost is None:
            return
        self._count(queue, death.reason, len(death.messages))
        if death.refused:
            rest: list[Message] = []
            self._publish_all(vhost, queue, death.reason, death.messages, now_ms, [], [], rest)
            self._waits.forget_after(0)
            self._put_off(queue, death.reason, rest, True)
        else:
            self._bury_all(vhost, queue, death.reason, death.messages, now_ms)

    def _count(self, queue: LocalQueue, reason: str, count: i64) -> None:
        self.fates.count(reason, count)
        queue.statistics.buried(count)

    def _bury_all(
        self, vhost: Vhost, queue: LocalQueue, reason: str, messages: list[Message], now_ms: WallMs
    ) -> None:
        """Those that cannot be read stay in their queue, which has a fault then."""
        unread: list[Message] = []
        untaken: list[Message] = []
        rest: list[Message] = []
        position = self._publish_all(vhost, queue, reason, messages, now_ms, unread, untaken, rest)
        if unread or untaken or rest:
            kept = {id(message) for message in (*unread, *untaken, *rest)}
            messages = [message for message in messages if id(message) not in kept]
            _give_back(queue, unread)
        if untaken:
            self._keep(DeadLetterBatch(queue, reason, untaken, False), now_ms)
        self.settle_when(position, queue, messages, self._waits.take(), reason)
        self._put_off(queue, reason, rest, False)

    def _put_off(
        self, queue: LocalQueue, reason: str, messages: list[Message], refused: bool
    ) -> None:
        """To the next turn."""
        if messages:
            self._count(queue, reason, -len(messages))
            self._deaths.append(DeadLetterBatch(queue, reason, messages, refused))

    def _keep(self, batch: DeadLetterBatch, now_ms: WallMs) -> None:
        # They are not buried yet.
        self._count(cast(LocalQueue, batch.queue), batch.reason, -len(batch.messages))
        if not self._kept:
            self._retry_at_ms = WallMs(now_ms + RETRY_MS)
        self._kept.append(batch)

    def _publish_all(
        self,
        vhost: Vhost,
        queue: LocalQueue,
        reason: str,
        messages: list[Message],
        now_ms: WallMs,
        unread: list[Message],
        untaken: list[Message],
        rest: list[Message],
    ) -> i64:
        """The position that makes their letters safe, 0 = any.

        ``unread`` gets what cannot be read, ``untaken`` what is to be published again, ``rest``
        what another turn has time for.
        """
        position: i64 = 0
        exchange = queue.limits.dead_letter_exchange
        if exchange is None:
            return position  # its policy has changed meanwhile
        for message in messages:
            if self._share.is_over():
                rest.append(message)
                continue
            whole = queue.whole(message)
            if whole is None:
                unread.append(message)
                continue
            self._share.of(message)
            try:
                at = self._publish(vhost, queue, exchange, reason, whole, now_ms)
            except RouteUnfinished:
                rest.append(message)
                continue
            position = at if at > 0 else position
            if at == NOWHERE and queue.limits.buries_surely:
                untaken.append(message)
        return position

    def _publish_again(self, now_ms: WallMs) -> None:
        """They go where their addresses lead now; they may be there already."""
        again, self._again = self._again, []
        for letters in again:
            queue, messages = letters.queue, letters.messages
            vhost = self._vhosts.get(queue.vhost)
            if queue.deleted or vhost is None:
                continue
            if letters.reason:
                self._bury_all(vhost, cast(LocalQueue, queue), letters.reason, messages, now_ms)
            else:
                _give_back(queue, messages)  # an internal queue looks at what is ready

    def settle_later(self, position: i64, queue: Queue, messages: list[Message]) -> None:
        """Acknowledge them when the journal is on disk up to ``position``; 0 = at once.

        What was just published of them may wait for other nodes, too.
        """
        self.settle_when(position, queue, messages, self._waits.take())

    def settle_when(
        self,
        position: i64,
        queue: Queue,
        messages: list[Message],
        waits: list[PendingConfirm],
        reason: str = "",
    ) -> None:
        """As ``settle_later``.  What gets lost on its way is sent again: it has no other sender."""
        if waits:
            for wait in waits:
                wait.must_arrive()
            self._away.append(Letters(position, queue, messages, waits, reason))
        elif position <= self._journal.durable_position:
            queue.backing.ack_behind(messages)  # the publish that pushed them out may not be synced
        else:
            self._waiting.append((int(position), queue, messages))

    def take_when(
        self,
        position: i64,
        queue: Queue,
        priority: i64,
        leaving: list[tuple[int, list[PendingConfirm]]],
    ) -> None:
        """Those of ascending places are taken out when they are where they go to, on other nodes.

        What is refused there or got lost stays, as does what a consumer has taken by then: it may
        be in two places.
        """
        waits = [one for _, waits in leaving for one in waits]
        for wait in waits:
            wait.must_arrive()
        letters = Letters(position, queue, [], waits, priority=priority, leaving=leaving)
        self._away.append(letters)

    def carry(
        self, position: i64, queue: Queue, waits: list[PendingConfirm], carried: PendingConfirm
    ) -> None:
        """What was on its way elsewhere was published here: ``carried`` ends when that is safe."""
        self._away.append(Letters(position, queue, [], waits, carried=carried))
        self._waits.move()  # though the journal may not move

    def _publish(
        self, vhost: Vhost, queue: Queue, exchange: str, reason: str, whole: Message, now_ms: WallMs
    ) -> i64:
        """The journal's position behind its letter; 0 = none is needed, or ``NOWHERE``."""
        time_s = int(now_ms) // 1000
        key = queue.limits.dead_letter_key
        letter = self.writer.write(
            whole, queue.name, reason, time_s, exchange, key, queue.is_quorum
        )
        flags = (whole.flags & PERSISTENT) | priority_flags(letter.priority)
        copy = Message(letter.content, letter.address, flags, WallMs(0))
        if exchange == "":
            self._replies.publish(letter.keys, [copy.copy_for_queue()])
        found = vhost.find_queues(
            exchange, letter.keys[0], letter.headers, letter.keys[1:], now_ms, self._share
        )
        queues = [queue for queue in found if queue.name not in letter.seen_queues]
        if len(queues) == 0:
            return 0 if found else NOWHERE
        self.published_count += 1
        position, refused = vhost.publish_some(queues, [copy], now_ms)
        return NOWHERE if refused else position

    def settle(self) -> None:
        """The journal is on disk further than before, or other nodes have said something."""
        durable = self._journal.durable_position
        if self._away:
            self._away = [one for one in self._away if not self._settled(one, durable)]
        count = 0
        for position, queue, messages in self._waiting:
            if position > durable:
                break
            count += 1
            if not queue.deleted:
                queue.backing.ack(messages)
        if count:
            del self._waiting[:count]

    def _settled(self, letters: Letters, durable_position: i64) -> bool:
        """Then they are acknowledged."""
        if letters.position > durable_position or not all_over(letters.waits):
            return False
        queue = letters.queue
        carried = letters.carried
        if carried is not None:
            carried.follow(letters.waits)
            self._waits.move()
        elif queue.deleted:
            pass
        elif letters.priority >= 0:
            safe = [seq_id for seq_id, waits in letters.leaving if _are_there(waits)]
            assert isinstance(queue, LocalQueue)
            queue.backing.ack(queue.take_chosen(letters.priority, safe))
        elif any_stranded(letters.waits):
            self._again.append(letters)
            queue.wake()  # for a turn in which they are published
        else:
            queue.backing.ack(letters.messages)
        return True


def _give_back(queue: Queue, messages: list[Message]) -> None:
    """What was handed out is ready again; what was taken from its place is so after a start."""
    back = [message for message in messages if message.flags & PENDING]
    if back:
        queue.backing.requeue(back)
        queue.wake()


def _are_there(waits: list[PendingConfirm]) -> bool:
    return not any_refused(waits) and not any_stranded(waits)
