"""Super streams: a direct exchange and the streams bound to it, which are its *partitions*.

In: a user's rights, a virtual host, names.  Out: exchange, streams and bindings are made or deleted
together, or a ``BrokerError`` with RabbitMQ's text and nothing has changed.
"""

from typing import Final

from penstock.broker.rules.rights import Rights
from penstock.broker.topology import declaring
from penstock.broker.topology.vhost import Vhost
from penstock.core.errors import (
    BrokerError,
    NotFound,
    NotImplementedYet,
    PreconditionFailed,
)
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue

MARK: Final = "x-super-stream"
ORDER: Final = "x-stream-partition-order"
PARTITIONS_MAX: Final = 1000


def declare_super_stream(
    vhost: Vhost, rights: Rights, name: str, keys: list[str], arguments: dict[str, object]
) -> None:
    """A stream ``NAME-KEY`` for each of the keys; the arguments are those of each stream."""
    if vhost.changes.proposes:
        raise NotImplementedYet("super streams of a cluster: declare streams, and bind them")
    streams = [f"{name}-{key}" for key in keys]
    if name in vhost.exchanges:
        raise PreconditionFailed(f"there is already an exchange named {name}")
    for stream in streams:
        if stream in vhost.queues:
            raise PreconditionFailed(f"there is already a queue named {stream}")
    arguments = {"x-queue-type": "stream", "x-queue-leader-locator": "balanced"} | arguments
    try:
        for stream in streams:
            declaring.declare_queue(vhost, rights, stream, True, None, False, arguments)
        marked: dict[str, object] = {MARK: True}
        declaring.declare_exchange(vhost, rights, name, "direct", True, False, False, marked)
        for order, stream in enumerate(streams):
            declaring.bind_queue(vhost, rights, stream, name, keys[order], {ORDER: order}, None)
    except BrokerError:
        for stream in filter(vhost.queues.__contains__, streams):
            vhost.delete_queue(vhost.queues[stream])
        vhost.delete_exchange(name, False)
        raise


def partitions_of(vhost: Vhost, name: str) -> list[Queue]:
    """The streams bound to the exchange of that name; raises NotFound."""
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        raise NotFound(f"no super stream '{name}' in vhost '{vhost.name}'")
    bound = [one.destination for one in exchange.bindings()]
    return [queue for queue in bound if isinstance(queue, Queue) and queue.is_stream]


def delete_super_stream(vhost: Vhost, rights: Rights, name: str) -> list[Consumer]:
    """Exchange and partitions; returns the consumers that lost one."""
    partitions = partitions_of(vhost, name)
    for queue in partitions:
        rights.configure("queue", queue.name)
    declaring.delete_exchange(vhost, rights, name, False)
    consumers: list[Consumer] = []
    for queue in dict.fromkeys(partitions):
        consumers += vhost.delete_queue(queue)
    return consumers
