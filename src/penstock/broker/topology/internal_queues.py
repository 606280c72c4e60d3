"""``InternalQueues``: queues no client sees, in which messages of exchanges are.

    x-delayed-message   takes its queue for a destination of messages that have a delay (delays.py)
    x-nsq-topic         takes its queue for the only destination while it holds (topics.py)
    x-recent-history    takes its queue for one more destination, which keeps them (histories.py)
    a staged set        takes its queue for messages of a batch that may be committed (staging.py)

That of a durable exchange is a durable queue whose name begins with ``amq.delayed.``,
``amq.backlog.`` or ``amq.history.``, that of a staged set one that begins with ``amq.staged.``; no
client may use such names.
"""

from collections.abc import Callable
from typing import Final, final

from penstock.broker.topology.histories import Histories, HistoryReader
from penstock.core.errors import Corrupt
from penstock.queues.limits import QueueLimits
from penstock.queues.local import LocalQueue
from penstock.routing.exchanges import DELAYED, NSQ_TOPIC, Exchange
from penstock.routing.recent_history import RECENT_HISTORY, history_length
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import QueueRecord

HISTORY: Final = "amq.history."
PREFIXES: Final = {DELAYED: "amq.delayed.", NSQ_TOPIC: "amq.backlog.", RECENT_HISTORY: HISTORY}
"""By the types of exchanges that have an internal queue."""

STAGED: Final = "amq.staged."
"""Queues of staged sets, which belong to no exchange."""

NewQueue = Callable[[int, str, str, bool, bool], LocalQueue]
"""(queue id, name, incarnation, kept, delivers) -> a queue that nothing else knows."""


def is_backlog(name: str) -> bool:
    return name.startswith(PREFIXES[NSQ_TOPIC])


def is_staged(name: str) -> bool:
    return name.startswith(STAGED)


def is_history(name: str) -> bool:
    return name.startswith(HISTORY)


def is_internal(name: str) -> bool:
    return name.startswith((*PREFIXES.values(), STAGED))


def has_internal_queue(exchange: Exchange) -> bool:
    return exchange.type in PREFIXES


def internal_name(exchange: Exchange) -> str:
    """Of an exchange that has one."""
    return PREFIXES[exchange.type] + exchange.name


@final
class InternalQueues:
    """Those of one virtual host, by the names of their queues."""

    def __init__(
        self,
        vhost: str,
        definitions: Definitions,
        new_queue: NewQueue,
        new_incarnation: Callable[[], str],
        histories: Histories,
    ) -> None:
        self.histories = histories
        self.queues: dict[str, LocalQueue] = {}
        self._ends: dict[str, int] = {}  # of histories, when their newest binding was made
        self._vhost = vhost
        self._definitions = definitions
        self._new_queue = new_queue
        self._new_incarnation = new_incarnation

    def open(self, exchange: Exchange) -> None:
        """For an exchange that has just been declared."""
        name = internal_name(exchange)
        queue_id = self._definitions.next_queue_id() if exchange.durable else 0
        incarnation = self._new_incarnation()
        kept, delivers = exchange.durable, not exchange.remembers
        self._attach(exchange, self._new_queue(queue_id, name, incarnation, kept, delivers))
        if exchange.durable:
            self._definitions.put_queue(
                QueueRecord(queue_id, incarnation, self._vhost, name, False, {})
            )

    def open_staged(self) -> LocalQueue:
        """For a set that begins."""
        incarnation = self._new_incarnation()
        name = STAGED + incarnation
        queue_id = self._definitions.next_queue_id()
        self._definitions.put_queue(
            QueueRecord(queue_id, incarnation, self._vhost, name, False, {})
        )
        queue = self._new_queue(queue_id, name, incarnation, True, True)
        self.queues[name] = queue
        return queue

    def close_staged(self, queue: LocalQueue) -> None:
        """Its set is published, or dropped with what is in it."""
        del self.queues[queue.name]
        queue.end()
        self._definitions.delete_queue(self._vhost, queue.name)

    def recover(self, record: QueueRecord, exchanges: dict[str, Exchange]) -> LocalQueue:
        delivers = not is_history(record.name)
        queue = self._new_queue(record.queue_id, record.name, record.incarnation, True, delivers)
        if is_staged(record.name):
            self.queues[record.name] = queue
            return queue
        exchange = exchanges.get(record.name.split(".", 2)[2])
        if exchange is None or not has_internal_queue(exchange):
            raise Corrupt(f"the internal queue {record.name!r} belongs to no exchange that has one")
        self._attach(exchange, queue)
        return queue

    def _attach(self, exchange: Exchange, queue: LocalQueue) -> None:
        exchange.internal_queue = queue
        if exchange.remembers:
            queue.set_limits(QueueLimits(history_length(exchange.arguments)))
        else:
            queue.releases_to = exchange
        self.queues[queue.name] = queue

    def bound(self, exchange: Exchange) -> None:
        """It remembers messages: those that come from now on find their way to what is bound."""
        name = internal_name(exchange)
        (part,) = self.queues[name].backing.parts()
        self._ends[name] = int(part.records.next_seq_id)

    def reader(self, name: str) -> HistoryReader | None:
        """Of a history, as it was when its newest binding was made."""
        end = self._ends.get(name)
        return None if end is None else HistoryReader(self.queues[name], end)

    def close(self, exchange: Exchange) -> None:
        """The exchange goes, and with it what waits there."""
        if not has_internal_queue(exchange):
            return
        queue = self.queues.pop(internal_name(exchange))
        self._ends.pop(queue.name, None)
        queue.end()
        if exchange.durable:
            self._definitions.delete_queue(self._vhost, queue.name)
