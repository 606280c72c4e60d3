"""Super streams: a direct exchange and the streams bound to it, which are its *partitions*.

In: a user's rights, a virtual host, names.  Out: exchange, streams and bindings are made or deleted
together, or a ``BrokerError`` with RabbitMQ's text and nothing has changed.

In a cluster they are made and deleted in steps, as one proposal takes few of them.  What could be
refused is judged before the first one.  If the coordinator is lost in between, some are there.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from penstock.broker.rules.rights import Rights
from penstock.broker.topology import declaring
from penstock.broker.topology.vhost import Vhost
from penstock.core.errors import BrokerError, NotFound, PreconditionFailed, Undecided
from penstock.core.pending import Pending
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue

MARK: Final = "x-super-stream"
ORDER: Final = "x-stream-partition-order"
PARTITIONS_MAX: Final = 1000
AT_ONCE: Final = 16
"""Partitions that are bound or deleted in one step."""

Steps = list[Callable[[], None]]


def declare_super_stream(
    vhost: Vhost, rights: Rights, name: str, keys: list[str], arguments: dict[str, object]
) -> Pending | None:
    """A stream ``NAME-KEY`` for each of the keys; the arguments are those of each stream."""
    streams = [f"{name}-{key}" for key in keys]
    taken = [f"an exchange named {name}"] if name in vhost.exchanges else []
    taken += [f"a queue named {stream}" for stream in streams if stream in vhost.queues]
    if vhost.changes.at_first(len(taken) > 0):
        raise PreconditionFailed(f"there is already {taken[0]}")
    for stream in streams:
        rights.configure("queue", stream)
    rights.configure("exchange", name)
    for stream, key in zip(streams, keys, strict=True):
        declaring.may_bind(vhost, rights, "queue", stream, name, key)
    arguments = {"x-queue-type": "stream", "x-queue-leader-locator": "balanced"} | arguments

    def declare(stream: str) -> None:
        """One by one: where the next one is depends on where the others are."""
        declaring.declare_queue(vhost, rights, stream, True, None, False, arguments)

    def bind(at: int) -> None:
        for order in range(at, min(at + AT_ONCE, len(keys))):
            there: dict[str, object] = {ORDER: order}
            declaring.bind_queue(vhost, rights, streams[order], name, keys[order], there, None)

    def declare_exchange() -> None:
        marked: dict[str, object] = {MARK: True}
        declaring.declare_exchange(vhost, rights, name, "direct", True, False, False, marked)

    places = range(0, len(keys), AT_ONCE)
    steps: Steps = [partial(declare, stream) for stream in streams]
    steps += [declare_exchange, *(partial(bind, at) for at in places)]
    try:
        return _one_by_one(vhost, steps)
    except (BrokerError, Undecided):
        if not vhost.changes.proposes:
            for stream in filter(vhost.queues.__contains__, streams):
                vhost.delete_queue(vhost.queues[stream])
            vhost.delete_exchange(name, False)
        raise


def _one_by_one(vhost: Vhost, steps: Steps) -> Pending | None:
    """Each when what the one before it has handed in is there."""
    steps[0]()
    return vhost.changes.then(partial(_one_by_one, vhost, steps[1:])) if steps[1:] else None


def partitions_of(vhost: Vhost, name: str) -> list[Queue]:
    """The streams bound to the exchange of that name; raises NotFound."""
    exchange = vhost.exchanges.get(name)
    if exchange is None:
        raise NotFound(f"no super stream '{name}' in vhost '{vhost.name}'")
    bound = [one.destination for one in exchange.bindings()]
    streams = [queue for queue in bound if isinstance(queue, Queue) and queue.is_stream]
    return list(dict.fromkeys(streams))


def delete_super_stream(
    vhost: Vhost, rights: Rights, name: str, cancelled: Callable[[list[Consumer]], None]
) -> Pending | None:
    """Partitions and exchange; ``cancelled`` gets the consumers that lost one."""
    partitions = partitions_of(vhost, name)
    for queue in partitions:
        rights.configure("queue", queue.name)
    rights.configure("exchange", name)

    def delete(at: int) -> None:
        for queue in partitions[at : at + AT_ONCE]:
            if vhost.queues.get(queue.name) is queue:
                cancelled(vhost.delete_queue(queue))

    steps: Steps = [partial(delete, at) for at in range(0, len(partitions), AT_ONCE)]
    steps.append(partial(declaring.delete_exchange, vhost, rights, name, False))
    return _one_by_one(vhost, steps)
