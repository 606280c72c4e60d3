"""What AMQP consumers were given and have not settled, as management shows it.

In: a queue on the data loop.  Out: of each channel that consumes from it the oldest open
deliveries, with the time at which the channel would be closed for them.  A channel may have a
hundred thousand open, so only the first some hundred places of its ledger are looked at.
"""

from typing import Final, cast

from penstock.management.facts.sessions import OpenDelivery
from penstock.protocols.amqp.channel import AmqpChannel
from penstock.protocols.amqp.deadlines import timeout_of
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue

PLACES_PER_DELIVERY: Final = 4
"""Of the places that are looked at some are settled, some are another queue's."""


def open_deliveries(queue: Queue, at_most: int) -> list[OpenDelivery]:
    """``SessionInspector.open_deliveries``."""
    channels: dict[int, AmqpChannel] = {}
    for consumer in queue.consumers:
        if isinstance(consumer.holder, AmqpChannel):
            channels[id(consumer.holder)] = consumer.holder
    found: list[OpenDelivery] = []
    for channel in channels.values():
        found += _of_channel(channel, queue, at_most - len(found))
        if len(found) >= at_most:
            break
    return found


def _of_channel(channel: AmqpChannel, queue: Queue, at_most: int) -> list[OpenDelivery]:
    ledger = channel.ledger
    if ledger.open_count == 0:
        return []
    broker = channel.link.broker
    default_ms = broker.consumer_timeout_ms
    to_wall_ms = int(broker.events.now_ms - broker.idleness.now_ms)  # both are the turn's
    last = int(ledger.oldest_tag()) + PLACES_PER_DELIVERY * at_most
    found: list[OpenDelivery] = []
    for tag in ledger.open_tags(min(last, int(ledger.next_tag) - 1)):
        consumer = cast(Consumer, ledger.holder(tag))
        if consumer.queue is not queue:
            continue
        begun_ms = channel.deadlines.begun_ms(tag) + to_wall_ms
        timeout_ms = int(timeout_of(consumer, default_ms))
        due_ms = begun_ms + timeout_ms if timeout_ms > 0 else 0
        found.append(OpenDelivery(ledger.message(tag), consumer.tag, begun_ms, due_ms))
        if len(found) >= at_most:
            break
    return found
