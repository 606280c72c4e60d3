"""``Forwarding``: messages of one queue from a source channel to a target channel.

    source ─ deliver ─► publish ─► target
           ◄─ ack ────  ◄─ confirm ─

A message is acknowledged at the source when the mode says so: when the target has confirmed it
(ON_CONFIRM: nothing is lost, a message may come twice), when it was published ("on-publish"), or by
the source itself when it was delivered (NO_ACK).  Shovels, federation and the migration tool are
made of this; each says by ``address`` where a delivery goes and with which properties.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.client.channel import Channel, Delivery
from penstock.client.endpoint import ClientError

ON_CONFIRM: Final = "on-confirm"
NO_ACK: Final = "no-ack"


class TargetRefused(ClientError):
    """The target did not take a message; it is still at the source."""


class Envelope(NamedTuple):
    """``written``: the properties, encoded."""

    exchange: str
    routing_key: str
    written: bytes


class Forwarding:
    """Both channels are open; the source's consumer is there or comes next."""

    def __init__(
        self,
        source: Channel,
        target: Channel,
        address: Callable[[Delivery], Envelope | None],
        mode: str = ON_CONFIRM,
        *,
        mandatory: bool = False,
        limit: int | None = None,
    ) -> None:
        """``address``: None = the message ends here, and is acknowledged.

        ``mandatory``: a message that no queue takes is refused; ``limit``: so many at most.
        """
        self.published = 0
        self.settled = 0
        self.limit = limit
        self._source = source
        self._target = target
        self._address = address
        self._mode = mode
        self._mandatory = mandatory
        self._waiting: deque[tuple[int, int]] = deque()  # confirm tag, delivery tag
        if mode == ON_CONFIRM:
            target.confirm_select()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_done(self) -> bool:
        return self.limit is not None and self.settled >= self.limit

    def publish(self) -> int:
        """At the target, what the source has delivered; returns how many it took."""
        count = 0
        if self._target.returned or self._target.nacked:
            return 0
        while self.limit is None or self.published < self.limit:
            delivery = self._source.next_delivery(0.0)
            if delivery is None:
                break
            count += 1
            self._publish(delivery)
        return count

    def _publish(self, delivery: Delivery) -> None:
        address = self._address(delivery)
        self.published += 1
        if address is None:
            self._settle_at_once(delivery)
            return
        tag = self._target.publish(
            delivery.body,
            address.exchange,
            address.routing_key,
            mandatory=self._mandatory,
            written=address.written,
        )
        if self._mode == ON_CONFIRM:
            self._waiting.append((tag, delivery.delivery_tag))
        else:
            self._settle_at_once(delivery)

    def _settle_at_once(self, delivery: Delivery) -> None:
        self.settled += 1
        if self._mode != NO_ACK:
            self._source.ack(delivery.delivery_tag)

    def settle(self) -> None:
        """Acknowledge at the source what the target has confirmed.

        Raises TargetRefused when the target has refused one, and has answered for all others: it
        comes before the confirms of what is on its way to the disk.  One that no queue took is
        returned, and confirmed as if one had, so after a return no confirm counts.
        """
        if self._target.returned:
            raise TargetRefused("no queue of the target takes a message")
        last = 0
        while self._waiting and self._is_confirmed(self._waiting[0][0]):
            _, last = self._waiting.popleft()
            self.settled += 1
        if last:
            self._source.ack(last, multiple=True)
        if not self._target.nacked or self._target.unconfirmed:
            return
        for tag, delivery_tag in self._waiting:
            if tag not in self._target.nacked:
                self._source.ack(delivery_tag)
        raise TargetRefused("the target refuses messages: is a queue full?")

    def _is_confirmed(self, tag: int) -> bool:
        return tag not in self._target.unconfirmed and tag not in self._target.nacked
