"""Where delayed messages wait: a queue behind each ``x-delayed-message`` exchange.

Routing takes the room for a destination of messages that have a delay; nobody sees it, consumes
from it or declares it.  The room of a durable exchange is a durable queue whose name begins with
``amq.delayed.``, which no client may use.  What happens in it is ``delays.py``.
"""

from collections.abc import Callable
from typing import Final, final

from penstock.core.errors import Corrupt
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange
from penstock.storage.definition_records import QueueRecord
from penstock.storage.definitions import Definitions

ROOM_PREFIX: Final = "amq.delayed."

NewQueue = Callable[[int, str, str, bool], Queue]
"""(queue id, name, incarnation, kept) -> a queue that nothing else knows."""


def is_room(name: str) -> bool:
    return name.startswith(ROOM_PREFIX)


@final
class WaitingRooms:
    """Those of one virtual host, by the names of their queues."""

    def __init__(
        self,
        vhost: str,
        definitions: Definitions,
        new_queue: NewQueue,
        new_incarnation: Callable[[], str],
    ) -> None:
        self.rooms: dict[str, Queue] = {}
        self._vhost = vhost
        self._definitions = definitions
        self._new_queue = new_queue
        self._new_incarnation = new_incarnation

    def open(self, exchange: Exchange) -> None:
        """For an exchange that has just been declared."""
        name = ROOM_PREFIX + exchange.name
        queue_id = self._definitions.next_queue_id() if exchange.durable else 0
        incarnation = self._new_incarnation()
        self._attach(exchange, self._new_queue(queue_id, name, incarnation, exchange.durable))
        if exchange.durable:
            self._definitions.put_queue(
                QueueRecord(queue_id, incarnation, self._vhost, name, False, {})
            )

    def recover(self, record: QueueRecord, exchanges: dict[str, Exchange]) -> Queue:
        exchange = exchanges.get(record.name[len(ROOM_PREFIX) :])
        if exchange is None or not exchange.delays:
            raise Corrupt(f"the room {record.name!r} belongs to no exchange that delays")
        queue = self._new_queue(record.queue_id, record.name, record.incarnation, True)
        self._attach(exchange, queue)
        return queue

    def _attach(self, exchange: Exchange, queue: Queue) -> None:
        exchange.room = queue
        queue.releases_to = exchange
        self.rooms[queue.name] = queue

    def close(self, exchange: Exchange) -> None:
        """The exchange goes, and with it what waits there."""
        queue = self.rooms.pop(ROOM_PREFIX + exchange.name, None)
        if queue is None:
            return
        queue.deleted = True
        queue.backing.delete()
        if exchange.durable:
            self._definitions.delete_queue(self._vhost, queue.name)
