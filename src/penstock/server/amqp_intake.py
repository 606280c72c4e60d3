"""What a channel's publishes wait for, and what waits with them.

``credit`` is what its reader may still hand to the channel, ``by_queue`` what the channel may
still give to queues that were behind.  While a channel may not publish, its publishes are held
here, and with them what came behind them and must not overtake them.  Acknowledgements, rejections
and cancellations do overtake: they make room, and nothing a publisher sends depends on them.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.credit import CHANNEL, Credit, Stage
from penstock.queues.queue import Queue
from penstock.server.amqp_link import Link
from penstock.wire.amqp import methods as m
from penstock.wire.amqp.events import Event, PublishRun

OVERTAKES: Final = (m.BASIC_NACK, m.BASIC_REJECT, m.BASIC_CANCEL)
"""Beside ``basic.ack``, which has a run of its own."""

SHIFTED_AT_ONCE: Final[i64] = 4096
_GONE: Final = Event(0)


@final
class Intake:
    """Of one channel; ``channel`` is for those who want to know whose it is."""

    def __init__(self, link: Link, channel: object) -> None:
        self._flow = link.broker.flow
        self._session = link.session
        self.stage = Stage(self._flow.book, CHANNEL, channel)
        self.credit = Credit(link.session.reader, self.stage, self._flow.spec)
        self.by_queue: dict[Stage, Credit] = {}
        self._turn: i64 = 0
        self._taken: i64 = 0  # in this turn
        self._held: list[Event] = []
        self._place: i64 = 0

    def take(self, cost: i64) -> None:
        """The reader hands something over.

        What stays below its credit is dealt with when the turn is over, unless the channel waits
        itself; so it is not even sent through it.
        """
        flow = self._flow
        if self._turn != flow.turns:
            self._turn = flow.turns
            self._taken = 0
        credit = self.credit
        self._taken += cost
        if flow.enabled and (self._taken >= credit.balance or self.stage.is_blocked()):
            flow.take(credit, self._taken)
            self._taken = 0

    def charge(self, queues: list[Queue], cost: i64, journalled: bool, store_bytes: i64) -> None:
        """The channel has given something to these queues."""
        self._flow.charge(self.stage, self.by_queue, queues, cost, journalled, store_bytes)

    def has_held(self) -> bool:
        return len(self._held) > 0

    def hold(self, event: Event) -> None:
        self._held.append(event)
        if isinstance(event, PublishRun):
            self._count(event.size_bytes)

    def first(self) -> Event | None:
        """The oldest that waits."""
        return self._held[self._place] if self._held else None

    def drop_first(self) -> None:
        event = self._held[self._place]
        if isinstance(event, PublishRun):
            self._count(-event.size_bytes)
        # Of what went on nothing may stay: under load the list is never empty.
        self._held[self._place] = _GONE
        self._place += 1
        if self._place == len(self._held):
            self._held = []
            self._place = 0
        elif self._place == SHIFTED_AT_ONCE:
            del self._held[: self._place]
            self._place = 0

    def _count(self, size_bytes: i64) -> None:
        self._session.held_bytes += size_bytes
        self._flow.held_bytes += size_bytes

    def close(self) -> None:
        """The channel is over: it waits for nobody, nobody for it, and what it held is dropped."""
        while self._held:
            self.drop_first()
        for credit in self.by_queue.values():
            credit.close()
        self.stage.lost()
