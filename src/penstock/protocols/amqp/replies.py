"""Direct reply-to on one channel: who waits for answers, and how they reach it.

The registry of all names is the broker's (``broker.transfers.replies``); here are the rules of a
channel: one reply consumer, which cannot acknowledge, and whose requests name it.  Answers
are numbered as RabbitMQ does it: each with the tag the next delivery will have.

There is no queue to rest in, so an answer goes to the client's output whether it reads or not.
One that leaves too much unread loses the channel, and is told why, before the broker's
memory goes.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.transfers.replies import REPLY_PREFIX, ReplyConsumer
from penstock.core.errors import PreconditionFailed
from penstock.core.message import ASKS_REPLY, Message
from penstock.protocols.amqp.codec.encoder import short_bytes, write_deliveries
from penstock.protocols.amqp.codec.header_edit import with_reply_to
from penstock.protocols.amqp.codec.ledger import DeliveryLedger
from penstock.protocols.amqp.link import Link

UNREAD_MAX_BYTES: Final[i64] = 64 * 1024 * 1024


@final
class ReplyChannel:
    """The part of a channel that asks and is answered."""

    def __init__(self, link: Link, number: i64, ledger: DeliveryLedger) -> None:
        self.link = link
        self.number: i64 = number
        self.consumer: ReplyConsumer | None = None
        self._ledger = ledger
        self._tag_bytes: bytes = b""

    def consume(self, holder: object, tag: str, no_ack: bool) -> None:
        if not no_ack:
            raise PreconditionFailed("reply consumer cannot acknowledge")
        if self.consumer is not None:
            raise PreconditionFailed("reply consumer already set")
        self._tag_bytes = short_bytes(tag)
        self.consumer = ReplyConsumer(holder, tag, self.link.new_name(REPLY_PREFIX))
        self.link.broker.replies.add(self.consumer)

    def cancel(self, tag: str) -> bool:
        """True when it was the reply consumer that has, or had, this tag."""
        consumer = self.consumer
        if consumer is None or consumer.tag != tag:
            return False
        self.close()
        return True

    def close(self) -> None:
        if self.consumer is not None:
            self.link.broker.replies.remove(self.consumer)
            self.consumer = None

    def name_in(self, messages: list[Message]) -> list[Message]:
        """The messages, with the real name in the requests among them."""
        consumer = self.consumer
        if consumer is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        name = consumer.name.encode()
        named: list[Message] = []
        for message in messages:
            if not message.flags & ASKS_REPLY:
                named.append(message)
                continue
            content = with_reply_to(message.content, name)
            flags = message.flags & ~ASKS_REPLY
            named.append(Message(content, message.address, flags, message.expires_at_ms))
        return named

    def deliver(self, answers: list[Message]) -> None:
        """Encode what came for us in this turn; raises PreconditionFailed when it cannot leave."""
        link = self.link
        for answer in answers:
            if link.session.output_bytes() > UNREAD_MAX_BYTES:
                raise PreconditionFailed(
                    f"reply consumer '{self._tag_bytes[1:].decode()}' leaves more than"
                    f" {UNREAD_MAX_BYTES} bytes unread"
                )
            write_deliveries(
                link.session.out,
                self.number,
                self._tag_bytes,
                self._ledger.next_tag,
                [answer],
                link.decoder.frame_max,
            )
