"""The firehose: copies of what is published and delivered, while a virtual host is traced.

In: messages on their way from a publisher to their queues, or from a queue to a consumer of AMQP.
Out: a copy of each to the exchange ``amq.rabbitmq.trace``, with the key ``publish.<exchange>`` or
``deliver.<queue>``, for queues that are bound there; no binding takes the key, no copy is made.
Copies are transient and not traced themselves; a publisher's confirm does not wait for them.

A publish is copied before its queues take the message, so that its delivery cannot be seen first;
in a transaction that is the commit.  Copies that are dear to route come later, in order
(``broker/transfers/traces``).  Replies to ``amq.rabbitmq.reply-to``, dead letters and delayed
messages on their further way are no publishes, and reads by ranges are no deliveries: they are not
copied.

Without tracing, a publish run and a delivery cost one look at ``Vhost.tracing`` each.
"""

from typing import Final, cast

from mypy_extensions import i64

from penstock.broker.rules.access import User
from penstock.broker.transfers.traces import TRACE
from penstock.core.clock_types import WallMs
from penstock.core.message import COPIES, REDELIVERED, Address, Message
from penstock.protocols.amqp.codec.encoder import short_bytes
from penstock.protocols.amqp.codec.header_edit import CC, header_fields, keys_in, names_in
from penstock.protocols.amqp.codec.routing_facts import without_bcc
from penstock.protocols.amqp.codec.traces import Party, delivered_copy, published_copy
from penstock.protocols.amqp.link import Link
from penstock.queues.queue import Queue

KEY_MAX_BYTES: Final = 255


def trace_publishes(
    link: Link,
    channel: i64,
    address: Address,
    copies: list[str],
    messages: list[Message],
    queues: list[Queue],
) -> None:
    """They go to these queues; ``copies`` are the keys from CC and BCC."""
    key = _key("publish.", address.exchange)
    traced = link.broker.traces.begin(link.vhost, key, link.now_ms)
    if traced is None:
        return
    party = _party(link, channel)
    keys = [address.routing_key, *copies]
    names = sorted([queue.name for queue in queues if queue.releases_to is None])
    for message in messages:
        content = message.content
        if message.flags & COPIES != 0:
            content = without_bcc(content)
        copy = published_copy(content, party, address.exchange, keys, names)
        traced.add(_message(copy, key))
    link.broker.traces.publish(traced, link.now_ms)


def trace_deliveries(link: Link, channel: i64, queue: str, messages: list[Message]) -> None:
    key = _key("deliver.", queue)
    traced = link.broker.traces.begin(link.vhost, key, link.now_ms)
    if traced is None:
        return
    party = _party(link, channel)
    for message in messages:
        exchange, first_key = names_in(message.address)
        if exchange == TRACE:
            continue
        keys = [first_key, *keys_in(header_fields(message.content), CC)]
        redelivered = message.flags & REDELIVERED != 0
        copy = delivered_copy(message.content, party, exchange, keys, redelivered)
        traced.add(_message(copy, key))
    link.broker.traces.publish(traced, link.now_ms)


def _key(prefix: str, name: str) -> str:
    """Names may be as long as a key, and then a key with a prefix would be too long."""
    octets = (prefix + name).encode("utf-8", "surrogateescape")
    end = min(len(octets), KEY_MAX_BYTES)
    while end < len(octets) and octets[end] & 0xC0 == 0x80:
        end -= 1  # not within a letter
    return octets[:end].decode("utf-8", "surrogateescape")


def _message(content: bytes, key: str) -> Message:
    return Message(content, short_bytes(TRACE) + short_bytes(key), 0, WallMs(0))


def _party(link: Link, channel: i64) -> Party:
    connection = getattr(link.session.carrier, "name", "")  # none where tests have no sockets
    user = cast(User, link.session.user)
    return Party(
        link.broker.options.node_name, link.vhost.name, connection, int(channel), user.name
    )
