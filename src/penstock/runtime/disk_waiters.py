"""Answers that wait for the disk, to callers from other threads (HTTP).

In: a position of the journal, and what else is to be waited for.  Out: a future that is done when
the journal is on disk up to there.
"""

from concurrent.futures import Future
from typing import Final

from mypy_extensions import i64

from penstock.core.confirm_watermark import PendingConfirm, all_over
from penstock.core.errors import BrokerError
from penstock.runtime.session import Session
from penstock.runtime.turn import Turn

LOST: Final = "the node of a queue's master was lost before it said that it has the message"


class DiskWaiters(Session):
    """Answers that wait for the journal; to the turn it is a session that has confirms to come."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn.flow.book)
        self._turn = turn
        # In any order of positions.
        self._waiting: list[tuple[i64, list[PendingConfirm], Future[None]]] = []

    def wait(self, position: i64, waits: list[PendingConfirm] | None = None) -> Future[None]:
        """Done when the journal is on disk up to there, and other nodes have said what they must.

        Fails with BrokerError where they say that they have not taken it.
        """
        future: Future[None] = Future()
        self._waiting.append((position, waits or [], future))
        self.awaiting_disk = True
        self._turn.fed(self)
        return future

    def confirm(self, durable_position: i64) -> None:
        waiting = self._waiting
        self._waiting = []
        for position, waits, future in waiting:
            if position > durable_position or not all_over(waits):
                self._waiting.append((position, waits, future))
                continue
            # The caller may have given up.
            if future.set_running_or_notify_cancel():
                if any(wait.lost for wait in waits):
                    future.set_exception(BrokerError(LOST))
                else:
                    future.set_result(None)
        self.awaiting_disk = len(self._waiting) > 0
