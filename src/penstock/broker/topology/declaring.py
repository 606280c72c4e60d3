"""Changes of the topology that a user asks for, by AMQP or HTTP.

In: a user's rights, a virtual host, and what is to be declared, deleted or bound.  Out: it is done,
or a ``BrokerError`` with RabbitMQ's text and nothing has changed.  Rights are asked in RabbitMQ's
order, and before the virtual host judges the request itself.

``owner`` is the session an exclusive queue belongs to; who speaks for no session passes None, and
finds every exclusive queue locked.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from penstock.broker.rules.judges import READ
from penstock.broker.rules.rights import Rights
from penstock.broker.topology.vhost import Vhost
from penstock.core.errors import AccessRefused, NotImplementedYet, PreconditionFailed
from penstock.core.pending import Pending, then
from penstock.queues.consumers import Consumer
from penstock.queues.queue import Queue
from penstock.routing.exchanges import EXCHANGE_TYPES

Deleted: TypeAlias = tuple[int, list[Consumer]]
"""How many messages went with a queue, and the consumers that lost it."""


def declare_queue(
    vhost: Vhost,
    rights: Rights,
    name: str,
    durable: bool,
    owner: object,
    auto_delete: bool,
    arguments: dict[str, object],
) -> Queue | None:
    """As ``Vhost.declare_queue``, by a user with these rights."""
    if name.startswith("amq.") and name not in vhost.queues:
        raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
    return make_queue(vhost, rights, name, durable, owner, auto_delete, arguments)


def make_queue(
    vhost: Vhost,
    rights: Rights,
    name: str,
    durable: bool,
    owner: object,
    auto_delete: bool,
    arguments: dict[str, object],
) -> Queue | None:
    """As ``declare_queue``, of a name that was not the client's choice."""
    rights.configure("queue", name)
    arguments = vhost.typed(arguments, durable, owner is not None, auto_delete)
    if name not in vhost.queues:
        _may_dead_letter(rights, name, arguments)
    return vhost.declare_queue(name, durable, owner, auto_delete, arguments)


def _may_dead_letter(rights: Rights, queue: str, arguments: dict[str, object]) -> None:
    """Who makes a queue whose messages move on must be able to move them."""
    target = arguments.get("x-dead-letter-exchange")
    if isinstance(target, str):
        rights.read("queue", queue)
        rights.write("exchange", target)


def delete_queue(
    vhost: Vhost, rights: Rights, name: str, owner: object, if_unused: bool, if_empty: bool
) -> Deleted | Pending:
    """A queue that is not there is deleted."""
    rights.configure("queue", name)
    queue = vhost.queues.get(name)
    if queue is None:
        return 0, []
    queue.check_owner(owner)
    again = partial(delete_queue, vhost, rights, name, owner, if_unused, if_empty)
    count = check_deletable(vhost, queue, if_unused, if_empty)
    return then(count, partial(_delete, vhost, queue, again), again)


def _delete(
    vhost: Vhost, queue: Queue, again: Callable[[], Deleted | Pending], count: int
) -> Deleted | Pending:
    """It can go, unless it has gone meanwhile."""
    if vhost.queues.get(queue.name) is not queue:
        return again()
    return count, vhost.delete_queue(queue)


def check_deletable(vhost: Vhost, queue: Queue, if_unused: bool, if_empty: bool) -> int | Pending:
    """How many messages go with it.

    Without a promotable mirror it goes uncounted, but not as an empty one, as in RabbitMQ.
    """
    if queue.is_stream:
        return 0  # as RabbitMQ: neither looked at nor counted
    if queue.is_quorum:
        _check_unconditional(vhost.queue_text(queue.name), if_unused, if_empty)
    if queue.is_forsaken():
        if if_empty:
            raise PreconditionFailed(f"{vhost.queue_text(queue.name)} not empty")
        return 0
    return then(queue.counts(), partial(_check_counts, vhost, queue, if_unused, if_empty))


def _check_counts(
    vhost: Vhost, queue: Queue, if_unused: bool, if_empty: bool, counts: tuple[int, int]
) -> int:
    ready, consumers = counts
    if if_empty and ready > 0:
        raise PreconditionFailed(f"{vhost.queue_text(queue.name)} not empty")
    if if_unused and consumers > 0:
        raise PreconditionFailed(f"{vhost.queue_text(queue.name)} in use")
    return ready


def _check_unconditional(what: str, if_unused: bool, if_empty: bool) -> None:
    for given, name in ((if_unused, "if-unused"), (if_empty, "if-empty")):
        if given:
            raise NotImplementedYet(
                f"cannot delete {what}. queue.delete operations with {name} flag set are not"
                " supported by quorum queues"
            )


def declare_exchange(
    vhost: Vhost,
    rights: Rights,
    name: str,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, object],
) -> None:
    """Create, or check that the existing one is the same."""
    _may_declare_exchange(vhost, rights, name, kind, arguments)
    vhost.declare_exchange(name, kind, durable, auto_delete, internal, arguments)


def _may_declare_exchange(
    vhost: Vhost, rights: Rights, name: str, kind: str, arguments: dict[str, object]
) -> None:
    """A type or name that no user may declare is not refused here."""
    if name == "" or kind not in EXCHANGE_TYPES:
        return
    rights.configure("exchange", name)
    target = arguments.get("alternate-exchange")
    if name not in vhost.exchanges and isinstance(target, str):
        rights.read("exchange", name)
        rights.write("exchange", target)


def delete_exchange(vhost: Vhost, rights: Rights, name: str, if_unused: bool) -> None:
    if name != "" and not name.startswith("amq."):  # those are refused to all users
        rights.configure("exchange", name)
    vhost.delete_exchange(name, if_unused)


# -- bindings ------------------------------------------------------------------------------


def may_bind(
    vhost: Vhost, rights: Rights, kind: str, destination: str, source: str, routing_key: str
) -> None:
    """``kind`` of the destination is queue or exchange; for unbinding, too."""
    rights.bind(kind, destination, source)
    rights.topic(READ, vhost.exchanges.get(source), routing_key)


def bind_queue(
    vhost: Vhost,
    rights: Rights,
    name: str,
    source: str,
    routing_key: str,
    arguments: dict[str, object],
    owner: object,
) -> Pending | None:
    """``Pending``: the queue gets what other nodes have for it."""
    may_bind(vhost, rights, "queue", name, source, routing_key)
    vhost.exchange(source)  # missing both, the exchange is the one to be told
    queue = vhost.queue(name)
    queue.check_owner(owner)
    return vhost.bind_queue(queue, source, routing_key, arguments)


def unbind_queue(
    vhost: Vhost,
    rights: Rights,
    name: str,
    source: str,
    routing_key: str,
    arguments: dict[str, object],
    owner: object,
) -> None:
    """What is not bound is unbound already, also from another connection's queue."""
    may_bind(vhost, rights, "queue", name, source, routing_key)
    queue = vhost.queues.get(name)
    if queue is None:
        return
    exchange = vhost.exchanges.get(source)
    if exchange is not None and exchange.find(queue, routing_key, arguments) is not None:
        queue.check_owner(owner)
    vhost.unbind_queue(queue, source, routing_key, arguments)


def bind_exchange(
    vhost: Vhost,
    rights: Rights,
    destination: str,
    source: str,
    routing_key: str,
    arguments: dict[str, object],
) -> Pending | None:
    may_bind(vhost, rights, "exchange", destination, source, routing_key)
    return vhost.bind_exchange(destination, source, routing_key, arguments)


def unbind_exchange(
    vhost: Vhost,
    rights: Rights,
    destination: str,
    source: str,
    routing_key: str,
    arguments: dict[str, object],
) -> None:
    may_bind(vhost, rights, "exchange", destination, source, routing_key)
    vhost.unbind_exchange(destination, source, routing_key, arguments)
