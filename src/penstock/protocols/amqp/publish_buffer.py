"""``PublishBuffer``: publishes of one channel that wait for credit, and what waits behind them.

Its credits are those of every publisher (``publish_credit.py``).  While a channel may not publish,
its publishes are held here, and with them what came behind them and must not overtake them.
Acknowledgements, rejections and cancellations do overtake: they make room, and nothing a publisher
sends depends on them.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.events import Event, MethodReceived, PublishRun
from penstock.protocols.amqp.link import Link
from penstock.runtime.publish_credit import PublishCredit

OVERTAKES: Final = (m.BASIC_NACK, m.BASIC_REJECT, m.BASIC_CANCEL)
"""Beside ``basic.ack``, which has a run of its own."""

SHIFTED_AT_ONCE: Final[i64] = 4096
EVENT_BYTES: Final[i64] = 1024
"""As which an event that is no publish is counted, beside the method's own size."""


@final
class PublishBuffer(PublishCredit):
    """Of one channel; ``channel`` is the owner of its stage."""

    def __init__(self, link: Link, channel: object) -> None:
        super().__init__(link.session, link.broker.flow, channel)
        self._held: list[Event | None] = []  # None: it went on
        self._place: i64 = 0

    def has_held(self) -> bool:
        return len(self._held) > 0

    def hold(self, event: Event) -> None:
        self._held.append(event)
        self.count_held(_size_of(event))

    def hold_first(self, event: Event) -> None:
        """It goes on before all others."""
        self._held.insert(int(self._place), event)
        self.count_held(_size_of(event))

    def first(self) -> Event | None:
        """The oldest that waits."""
        return self._held[self._place] if self._held else None

    def drop_first(self) -> None:
        event = self._held[self._place]
        assert event is not None
        self.count_held(-_size_of(event))
        # Of what went on nothing may stay: under load the list is never empty.
        self._held[self._place] = None
        self._place += 1
        if self._place == len(self._held):
            self._held = []
            self._place = 0
        elif self._place == SHIFTED_AT_ONCE:
            del self._held[: self._place]
            self._place = 0

    def close(self) -> None:
        """The channel is closed: no credit is waited for, and what it held is dropped."""
        while self._held:
            self.drop_first()
        self.give_up()


def _size_of(event: Event) -> i64:
    """Above 0 for each: a session that holds anything is known by its ``held_bytes``."""
    if isinstance(event, PublishRun):
        return event.size_bytes
    if isinstance(event, MethodReceived):
        return EVENT_BYTES + event.method.size_bytes
    return EVENT_BYTES
