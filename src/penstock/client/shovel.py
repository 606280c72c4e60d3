"""``QueueMover``: messages of some queues from one broker to another, none lost, order kept.

    source ─ deliver ─► publish, mandatory ─► target
           ◄─ ack ────  ◄───── confirm ─────

A message is acknowledged at the source only when the target has confirmed it.  Whatever ends the
shovel, a kill included, leaves each message at the source, at the target or at both; run again it
goes on.  At most ``window`` messages per queue are then at both.

One thread, one connection to either side, one channel per queue on each.  A message goes to the
queue of the same name through the default exchange, so its exchange and routing key become those;
properties and headers stay, with two exceptions that would make the target refuse or multiply it:
``user_id`` of another user is removed, and the header ``CC`` is renamed ``x-migrated-cc``.
"""

import time
from typing import Final

from penstock.client.amqp import Connection
from penstock.client.channel import Channel, Delivery
from penstock.client.endpoint import ClientError, Endpoint
from penstock.client.forwarding import Envelope, Forwarding, TargetRefused
from penstock.protocols.amqp.codec.properties import encode_properties

WINDOW: Final = 500
TIMEOUT_S: Final = 60.0
"""A broker may make a publisher wait a while."""
POLL_S: Final = 0.02
QUIET_S: Final = 1.0
"""A source that delivered nothing for so long is asked whether it is empty."""
CC: Final = "CC"
CC_AWAY: Final = "x-migrated-cc"


class QueueMove:
    def __init__(self, name: str, user: str, source: Channel, target: Channel, total: int) -> None:
        """``user``: at the target; ``total``: messages that are ready at the source."""
        self.name = name
        self.total = total
        self.renamed = 0  # header CC
        self.unnamed = 0  # property user_id
        self._user = user
        self._source = source
        self._forwarding = Forwarding(source, target, self._address, mandatory=True)
        self._empty = False
        self._heard_s = time.monotonic()

    def is_empty(self) -> bool:
        """Has the source had nothing ready for ``QUIET_S``, and is everything confirmed?"""
        if self._forwarding.waiting:
            return False
        if not self._empty and time.monotonic() - self._heard_s >= QUIET_S:
            found = self._source.queue_declare(self.name, passive=True)
            self._empty = found.number("message_count") == 0
        return self._empty

    @property
    def moved(self) -> int:
        return self._forwarding.settled

    @property
    def waits(self) -> bool:
        return self._forwarding.waiting > 0

    def publish(self) -> None:
        if self._forwarding.publish():
            self._heard_s = time.monotonic()
            self._empty = False

    def _address(self, delivery: Delivery) -> Envelope:
        return Envelope("", self.name, self._kept(delivery))

    def _kept(self, delivery: Delivery) -> bytes:
        """The properties, byte for byte unless something must go."""
        properties, headers = delivery.properties, delivery.properties.headers
        is_foreign = properties.user_id is not None and properties.user_id != self._user
        makes_copies = headers is not None and CC in headers
        if not is_foreign and not makes_copies:
            return delivery.written
        if is_foreign:
            properties = properties._replace(user_id=None)
            self.unnamed += 1
        if headers is not None and makes_copies:
            renamed = {CC_AWAY if name == CC else name: value for name, value in headers.items()}
            properties = properties._replace(headers=renamed)
            self.renamed += 1
        return encode_properties(properties)

    def settle(self) -> None:
        """Acknowledge at the source what the target has confirmed.  Raises TargetRefused."""
        try:
            self._forwarding.settle()
        except TargetRefused as error:
            raise TargetRefused(f"queue '{self.name}': {error}") from None


class QueueMover:
    """Opened by its constructor; ``step`` until it is ``empty`` or you have had enough."""

    def __init__(
        self, source: Endpoint, target: Endpoint, names: list[str], window: int = WINDOW
    ) -> None:
        """Raises ClientError; a queue that is missing at either side is named."""
        self._user = target.user
        self._from = Connection(source, timeout_s=TIMEOUT_S)
        try:
            self._to = Connection(target, timeout_s=TIMEOUT_S)
        except ClientError:
            self._from.close()
            raise
        try:
            self.queues = [self._begin(name, window) for name in names]
        except BaseException:
            self.close()
            raise

    def _begin(self, name: str, window: int) -> QueueMove:
        target = self._to.channel()
        target.queue_declare(name, passive=True)
        source = self._from.channel()
        total = source.queue_declare(name, passive=True).number("message_count")
        source.qos(window)
        source.consume(name)
        return QueueMove(name, self._user, source, target, total)

    def close(self) -> None:
        """What was not confirmed goes back to the source."""
        self._from.close()
        self._to.close()

    @property
    def blocked(self) -> str | None:
        """Why the target takes nothing at present."""
        return self._to.blocked

    @property
    def moved(self) -> int:
        return sum(queue.moved for queue in self.queues)

    def is_empty(self) -> bool:
        """Has every source queue had nothing ready, and is everything confirmed?"""
        return all(queue.is_empty() for queue in self.queues)

    def step(self) -> None:
        """Take what has come from either side; waits a little when there is nothing."""
        waits = any(queue.waits for queue in self.queues)
        self._to.take_all(POLL_S if waits else 0.0)
        for queue in self.queues:
            queue.settle()
        if self._to.blocked is not None:
            time.sleep(POLL_S)
            return
        self._from.take_all(0.0 if waits else POLL_S)
        for queue in self.queues:
            queue.publish()
