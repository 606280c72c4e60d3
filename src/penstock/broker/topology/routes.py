"""Where an address leads, what publishing to several queues shares, and when a place is full."""

from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.rules.access import User
from penstock.broker.topology.internal_queues import is_history
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.counting.traffic import ExchangeTraffic
from penstock.core.errors import AccessRefused, NotAllowed, PreconditionFailed
from penstock.core.message import Message, body_size
from penstock.core.steps import STEPS_MAX, steps
from penstock.queues.queue import Queue
from penstock.routing.exchanges import NSQ_TOPIC, Exchange
from penstock.storage.definitions.records import ExchangeRecord

COPY_STEPS: Final[i64] = 16
"""Of each message, and each queue but the first: it may have to be recorded in the journal."""
COPIES_AT_ONCE: Final[i64] = STEPS_MAX // COPY_STEPS


@final
class Route:
    """Where an address leads.

    ``needs_headers``  ask again for each message
    ``refuses``        some queue refuses what is too much for it
    ``traffic``        of the exchange it begins at
    ``topic``          that exchange, if it is one of NSQ's
    """

    def __init__(
        self,
        queues: list[Queue],
        needs_headers: bool,
        traffic: ExchangeTraffic,
        source: Exchange | None = None,
    ) -> None:
        self.queues = queues
        self.needs_headers = needs_headers
        self.traffic = traffic
        self.topic = source if source is not None and source.type == NSQ_TOPIC else None
        self.refuses = any_refuses(queues)


def count_published(topic: Exchange, messages: list[Message]) -> None:
    """A topic knows how much was published to it."""
    size: i64 = 0
    for message in messages:
        size += body_size(message.content)
    topic.count(len(messages), size)


def any_refuses(queues: list[Queue]) -> bool:
    for queue in queues:  # noqa: SIM110 - compiled code has no cheap generators
        if queue.limits.refuses:
            return True
    return False


def waits(queues: list[Queue]) -> bool:
    """Is one of them an internal queue, from which a message is routed once more?"""
    for queue in queues:  # noqa: SIM110 - compiled code has no cheap generators
        if queue.releases_to is not None:
            return True
    return False


def are_histories(queues: list[Queue]) -> bool:
    """What goes to no other queue is unroutable."""
    for queue in queues:  # noqa: SIM110 - compiled code has no cheap generators
        if not is_history(queue.name):
            return False
    return True


def share_contents(taken: list[Message], copies: list[Message]) -> None:
    """What one queue put into the message store the next one finds there."""
    for i in range(len(taken)):
        copies[i].msg_id = taken[i].msg_id


def publish_where_room_is(
    queues: list[Queue], messages: list[Message], now_ms: WallMs, waits: PendingConfirms
) -> set[int]:
    """To each queue what it has room for; the places of those that some queue refused."""
    refused: set[int] = set()
    count_copies(queues, messages)
    for queue in queues:
        over = queue.overflowing(messages) if queue.limits.refuses else set()
        admitted = [one for place, one in enumerate(messages) if place not in over]
        if over:
            queue.refuse([messages[place] for place in sorted(over)])
            refused |= over
        if admitted:
            copies = [message.copy_for_queue() for message in admitted]
            noted = len(waits.noted)
            queue.publish(copies, now_ms)
            share_contents(copies, admitted)
            if over:
                for wait in waits.noted[noted:]:
                    wait.only([place for place in range(len(messages)) if place not in over])
    return refused


def count_copies(queues: list[Queue], messages: list[Message]) -> None:
    """The first queue gets the messages, each other one copies."""
    if len(queues) > 1:
        steps.count(COPY_STEPS * len(messages) * (len(queues) - 1))


def queues_in(found: list[object]) -> list[Queue]:
    return [cast(Queue, queue) for queue in found]


def record_of(exchange: Exchange) -> ExchangeRecord:
    """As the definitions keep it."""
    return ExchangeRecord(
        exchange.vhost,
        exchange.name,
        exchange.type,
        exchange.auto_delete,
        exchange.internal,
        exchange.arguments,
        exchange.user,
    )


def unused(exchange: Exchange) -> bool:
    return exchange.auto_delete and not exchange.has_bindings()


def check_not_default(name: str) -> None:
    if name == "":
        raise AccessRefused("operation not permitted on the default exchange")


def queue_limit_reached(name: str, vhost: str, limit: int) -> PreconditionFailed:
    return PreconditionFailed(
        f"cannot declare queue '{name}': queue limit in vhost '{vhost}' ({limit}) is reached"
    )


def check_node_limit(count: int, limit: int) -> None:
    """Raises NotAllowed when one more connection is too many for the node."""
    if 0 <= limit <= count:
        raise NotAllowed(f"connection refused: node connection limit ({limit}) is reached")


def check_connection_limits(user: User, vhost: str, count: int, limit: int) -> None:
    """Raises NotAllowed when one more connection is too many, for the virtual host or the user."""
    if 0 <= limit <= count:
        raise NotAllowed(
            f"access to vhost '{vhost}' refused for user '{user.name}':"
            f" connection limit ({limit}) is reached"
        )
    allowed = int(user.max_connections)
    if 0 <= allowed <= user.connection_count:
        raise NotAllowed(
            f"connection refused for user '{user.name}':"
            f" user connection limit ({allowed}) is reached"
        )
