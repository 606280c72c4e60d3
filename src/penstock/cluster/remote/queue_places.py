"""The master of a queue has moved: another object takes the place of the one that was known here.

    here ─► elsewhere    a ``Queue`` goes, a ``RemoteQueue`` comes
    elsewhere ─► here    the other way round

Names, bindings and what waits for the queue go over at once, in one turn.  Its messages do not:
they are the business of mirrors.  Deliveries that were not settled are the new master's: settling
them at the old object only lets go of their windows, because it counts as deleted.

Out: the consumers that lost it, for their sessions: each is subscribed anew under the same tag
(``Subscriber.queue_moved``), or cancelled if it asked for that (``x-cancel-on-ha-failover``).
"""

from penstock.broker.broker import Broker
from penstock.cluster.remote.queue import RemoteQueue, wants_cancel
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm
from penstock.core.errors import PreconditionFailed
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.routing.exchanges import NSQ_TOPIC


def inaccessible(queue: Queue, home: str) -> str:
    """In RabbitMQ's words; it has none for other queues, which it deletes when their node goes."""
    kind = "durable queue" if queue.durable else "queue"
    text = f"{kind} '{queue.name}' in vhost '{queue.vhost}'"
    return f"home node '{home}' of {text} is down or inaccessible"


def take_place(broker: Broker, old: Queue, new: Queue, now_ms: WallMs) -> list[Consumer]:
    """From now on ``new`` is the queue of that name; returns the consumers of ``old``."""
    vhost = broker.vhosts[old.vhost]
    assert vhost.queues.get(old.name) is old, "it takes a place that is not taken"
    assert new.name == old.name, "it takes the place of a queue of its name"
    new.succeed(old)
    vhost.queues[old.name] = new
    for exchange in vhost.sources.of(old):
        bindings = exchange.unbind_destination(old)
        for binding in bindings:
            exchange.bind(new, binding.routing_key, binding.arguments)
        if bindings and exchange.type == NSQ_TOPIC:
            vhost.topics.binding_changed(exchange, old)
            vhost.topics.binding_changed(exchange, new)
    vhost.forget_routes()
    consumers = old.retire()
    if isinstance(old, RemoteQueue):
        for wait in old.take_unsent():
            _carry(broker, new, wait, now_ms)
    vhost.touch(new)
    new.wake()
    return consumers


def _carry(broker: Broker, queue: Queue, wait: PendingConfirm, now_ms: WallMs) -> None:
    """What is still to be published is published here, and its wait ends when that is safe."""
    journal = broker.engine.journal
    before = journal.position
    messages = [message.copy_for_queue() for message in wait.messages]
    for message in messages:
        message.msg_id = 0  # another queue may have let go of the content in the store
    if wait.until_ms > 0:
        queue.publish_deferred(messages, wait.until_ms, now_ms)
    else:
        queue.publish(messages, now_ms)
    after = journal.position
    waits = broker.waits.take()
    broker.dead_letters.carry(after if after != before else 0, queue, waits, wait)


def subscribe_anew(consumer: Consumer, queue: Queue) -> Consumer:
    """The same subscription at the queue that took the place of its own.

    What it holds of the old one stays with the old consumer.  Raises BrokerError.
    """
    anew = consumer.anew()
    if wants_cancel(consumer, queue):
        raise PreconditionFailed("it asked to be cancelled")
    if isinstance(queue, RemoteQueue):
        queue.adopt_consumer(anew)
    else:
        queue.add_consumer(anew)
    return anew
