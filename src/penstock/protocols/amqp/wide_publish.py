"""``WidePublish``: one message for more queues than a turn of the loop has time for.

In: the message and the queues of its route.  Out: each turn as many of them as ``QUEUES_AT_ONCE``
have it; its publisher's later messages wait meanwhile, so that none overtakes it.  Queues that are
deleted in between are left out, those that are bound in between do not get it.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.topology.routes import any_refuses
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm
from penstock.core.message import Message
from penstock.queues.queue import Queue

QUEUES_AT_ONCE: Final[i64] = 2048
"""Some milliseconds, most of all if each of them gets its first message."""


@final
class WidePublish:
    """``position``, ``refused``, ``waits``: what the publisher's confirm has to wait for so far."""

    def __init__(self, message: Message, queues: list[Queue]) -> None:
        # Never given to a queue: what the store has of a message goes with the last queue's copy.
        self._message = message.copy_for_queue()
        self._queues = queues
        self._place: i64 = 0
        self.position: i64 = 0
        self.refused: bool = False
        self.waits: list[PendingConfirm] = []

    def publish(self, vhost: Vhost, now_ms: WallMs) -> list[Queue]:
        """The queues that have it now; a part of it counts in ``steps``."""
        some = self._queues[self._place : self._place + QUEUES_AT_ONCE]
        self._place += QUEUES_AT_ONCE
        there: list[Queue] = []
        for queue in some:
            # One whose master is another node by now has another object.
            now = vhost.queues.get(queue.name) if queue.deleted else queue
            if now is not None and now.incarnation == queue.incarnation:
                there.append(now)
        if len(there) > 0:
            messages = [self._message.copy_for_queue()]
            if any_refuses(there):
                position, refused = vhost.publish_some(there, messages, now_ms)
                self.refused = self.refused or len(refused) > 0
            else:
                position = vhost.publish(there, messages, now_ms)
            self.position = max(self.position, position)
            self.waits += vhost.waits.take()
        return there

    def is_over(self) -> bool:
        return self._place >= len(self._queues)
