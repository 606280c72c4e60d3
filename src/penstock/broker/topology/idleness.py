"""``Idleness``: how long queues have been unused, and which of them ``x-expires`` ends.

    touch(queue)      the queue was used: its time starts again
    watch(queue)      the queue may be unused from now on
    changed(queue)    its ``x-expires`` is another one: its time starts again
    take_expired()    the queues whose time is over

All times here are those of the monotonic clock: setting the clock of the machine deletes no queue.
(The time to live of a message is kept on disk and follows the wall clock, as with RabbitMQ.)
Callers hand in no time: ``now_ms`` is that of the turn.  ``Broker.open`` sets it once, then only
``Turn.begin`` does.

A queue whose master is on another node never expires here.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import MonoMs, WallMs
from penstock.queues.queue import JUST_USED, Queue
from penstock.queues.schedule import Schedule

EXPIRED_AT_ONCE: Final[i64] = 64
"""In one turn; deleting a queue takes its time."""


@final
class Idleness:
    """Of all queues of a node."""

    def __init__(self) -> None:
        self.now_ms: MonoMs = MonoMs(0)
        self.schedule = Schedule()
        self._due_ms: dict[Queue, MonoMs] = {}  # when the schedule will look at each that it has

    def set_now(self, mono_ms: MonoMs) -> None:
        self.now_ms = mono_ms

    def touch(self, queue: Queue) -> None:
        queue.used(self.now_ms)
        self.watch(queue)

    def watch(self, queue: Queue) -> None:
        """One entry in the schedule is enough: when it is due, it moves on by itself."""
        if _may_expire(queue) and queue not in self._due_ms:
            due_ms = MonoMs(queue.last_used_ms + queue.limits.expires_ms)
            self._due_ms[queue] = due_ms
            self.schedule.add(due_ms, queue)

    def changed(self, queue: Queue) -> None:
        self._due_ms.pop(queue, None)  # the entry in the schedule is stale
        self.touch(queue)

    def next_ms(self) -> MonoMs:
        """When ``take_expired`` should be called next; 0 = no queue can expire."""
        return MonoMs(self.schedule.next_ms())

    def is_due(self) -> bool:
        next_ms = self.schedule.next_ms()
        return 0 < next_ms <= self.now_ms

    def take_expired(self) -> list[Queue]:
        """The first of them; ``next_ms`` says when there are more."""
        expired: list[Queue] = []
        for due_ms, queue in self.schedule.take_due(self.now_ms, EXPIRED_AT_ONCE):
            if due_ms != self._due_ms.get(queue, 0):
                continue
            del self._due_ms[queue]
            if queue.deleted:
                continue
            if queue.is_leased or queue.last_used_ms == JUST_USED:
                queue.used(self.now_ms)
            if _may_expire(queue) and self.now_ms - queue.last_used_ms >= queue.limits.expires_ms:
                expired.append(queue)
            else:
                self.watch(queue)
        return expired

    def unused_since_ms(self, queue: Queue, wall_ms: WallMs) -> WallMs:
        """When it was used last, by the wall clock; 0 = not known."""
        if queue.last_used_ms <= 0:
            return WallMs(0)
        return WallMs(wall_ms - (self.now_ms - queue.last_used_ms))


def _may_expire(queue: Queue) -> bool:
    return queue.limits.expires_ms > 0 and len(queue.consumers) == 0 and not queue.remote
