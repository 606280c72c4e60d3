"""Answers that wait for the disk, of whoever asks the data loop from outside (HTTP).

In: a position of the journal.  Out: a future that is done when the journal is on disk up to there.
"""

from concurrent.futures import Future

from mypy_extensions import i64

from penstock.server.session import Session
from penstock.server.turn import Turn


class DiskWaiters(Session):
    """Answers that wait for the journal; to the turn it is a session that has confirms to come."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn.flow.book)
        self._turn = turn
        self._waiting: list[tuple[i64, Future[None]]] = []  # in any order of positions

    def wait(self, position: i64) -> Future[None]:
        """Done when the journal is on disk up to there."""
        future: Future[None] = Future()
        self._waiting.append((position, future))
        self.awaiting_disk = True
        self._turn.fed(self)
        return future

    def confirm(self, durable_position: i64) -> None:
        waiting = self._waiting
        self._waiting = [one for one in waiting if one[0] > durable_position]
        self.awaiting_disk = len(self._waiting) > 0
        for position, future in waiting:
            # Who asked may have given up, and then nobody waits for it.
            if position <= durable_position and future.set_running_or_notify_cancel():
                future.set_result(None)
