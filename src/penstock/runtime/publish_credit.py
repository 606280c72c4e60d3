"""What a sender of publishes may still give: the two credits every protocol's publisher has.

``credit`` is what the session's reader may still hand over, ``by_queue`` what may still be given
to queues that were behind.  One stage stands between them; its ``owner`` is the channel or
the session.
"""

from mypy_extensions import i64

from penstock.broker.rules.flow import Flow
from penstock.core.credit import CHANNEL, Credit, FlowPeer
from penstock.queues.queue import Queue
from penstock.runtime.session import Session


class PublishCredit:
    """Of one channel, or of a session that has none."""

    def __init__(self, session: Session, flow: Flow, owner: object) -> None:
        self._flow = flow
        self._session = session
        self.stage = FlowPeer(flow.book, CHANNEL, owner)
        self.credit = Credit(session.reader, self.stage, flow.spec)
        self.by_queue: dict[FlowPeer, Credit] = {}
        self._turn: i64 = 0
        self._taken: i64 = 0  # in this turn

    def take(self, cost: i64) -> None:
        """The reader hands something over.

        What stays below its credit is dealt with when the turn is over, unless the stage waits
        itself; so it is not even sent through it.
        """
        flow = self._flow
        if self._turn != flow.book.turns:
            self._turn = flow.book.turns
            self._taken = 0
        credit = self.credit
        self._taken += cost
        if flow.enabled and (self._taken >= credit.balance or len(self.stage.blockers) > 0):
            flow.take(credit, self._taken)
            self._taken = 0

    def charge(self, queues: list[Queue], cost: i64, journalled: bool, store_bytes: i64) -> None:
        """Something was given to these queues."""
        self._flow.charge(self.stage, self.by_queue, queues, cost, journalled, store_bytes)

    def count_held(self, size_bytes: i64) -> None:
        """So much more is held, or less."""
        self._session.count_held(size_bytes)
        self._flow.count_held(size_bytes)

    def give_up(self) -> None:
        """The publisher is gone: it waits for no queue, and no reader for it."""
        for credit in self.by_queue.values():
            credit.close()
        self.stage.lost()
