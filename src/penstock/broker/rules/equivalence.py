"""Declaring again what exists: it must be the same, or RabbitMQ's words say what is not.

Of the optional arguments only known ones are compared.  Integers of all widths and times are the
same kind, and so are texts and byte arrays; an integer is no float: 10 is not 10.0.
"""

from collections.abc import Iterable
from typing import Final

from penstock.broker.rules.queue_options import ARGUMENTS_OF_TYPE
from penstock.core.errors import PreconditionFailed
from penstock.queues.context import CLASSIC, queue_type
from penstock.queues.queue import Queue
from penstock.queues.refusals import locked
from penstock.queues.stream_start import age_ms
from penstock.routing.exchanges import Exchange
from penstock.routing.headers import as_bytes, term, type_name

MISSING: Final[object] = object()
"""Stands for an argument that was not given."""

COMPARED_EXCHANGE_ARGUMENTS: Final = (
    "alternate-exchange",
    "x-delayed-type",
    "x-cache-size",
    "x-cache-ttl",
)

RELAXED_ARGUMENTS: Final = (
    "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-expires", "x-max-length",
    "x-max-length-bytes", "x-single-active-consumer", "x-message-ttl",
)  # fmt: skip


def check_same_queue(
    queue: Queue,
    durable: bool,
    owner: object,
    auto_delete: bool,
    arguments: dict[str, object],
    *,
    relaxed: bool = False,
) -> None:
    """Raises ResourceLocked or PreconditionFailed.

    ``relaxed``: a quorum queue may be declared as a classic one; ``RELAXED_ARGUMENTS`` count.
    """
    what = f"queue '{queue.name}' in vhost '{queue.vhost}'"
    if relaxed and queue.is_quorum and arguments.get("x-queue-type", CLASSIC) == CLASSIC:
        check_same_arguments(RELAXED_ARGUMENTS, what, arguments, queue.arguments)
        return
    queue.check_owner(owner)
    if owner is not None and queue.owner is None:
        raise locked(queue.name, queue.vhost)
    check_equivalent("durable", what, durable, queue.durable)
    check_equivalent("auto_delete", what, auto_delete, queue.auto_delete)
    known = ARGUMENTS_OF_TYPE[queue_type(queue.arguments)]
    check_same_arguments(known, what, arguments, queue.arguments)


def check_same_exchange(
    exchange: Exchange,
    what: str,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, object],
) -> None:
    """Raises PreconditionFailed."""
    check_equivalent("type", what, _type(kind), _type(exchange.type))
    check_equivalent("durable", what, durable, exchange.durable)
    check_equivalent("auto_delete", what, auto_delete, exchange.auto_delete)
    check_equivalent("internal", what, internal, exchange.internal)
    check_same_arguments(COMPARED_EXCHANGE_ARGUMENTS, what, arguments, exchange.arguments)


def _type(kind: str) -> str:
    """As Erlang writes a name: in quotes when it has more than letters."""
    return kind if kind.isalpha() else f"'{kind}'"


def check_same_arguments(
    keys: Iterable[str], what: str, received: dict[str, object], current: dict[str, object]
) -> None:
    for key in keys:
        one, other = received.get(key, MISSING), current.get(key, MISSING)
        if key == "x-queue-type" and (isinstance(one, str) or isinstance(other, str)):
            one, other = (CLASSIC if kind is MISSING else kind for kind in (one, other))
        if key == "x-max-age" and MISSING not in (one, other):
            one, other = age_ms(one), age_ms(other)
        check_equivalent(key, what, one, other)


def check_equivalent(key: str, what: str, received: object, current: object) -> None:
    """Raises PreconditionFailed unless both are the same; ``MISSING`` marks an absent one."""
    if _is_same(received, current):
        return
    if received is MISSING or current is MISSING:
        texts = [_value_of_type(received), _value_of_type(current)]
    else:
        texts = ["none" if one is None else f"'{_plain(one)}'" for one in (received, current)]
    raise PreconditionFailed(
        f"inequivalent arg '{key}' for {what}: received {texts[0]} but current is {texts[1]}"
    )


def _is_same(one: object, other: object) -> bool:
    if isinstance(one, (str, bytes)) and isinstance(other, (str, bytes)):
        return as_bytes(one) == as_bytes(other)
    return _kind(one) is _kind(other) and one == other


def _kind(value: object) -> object:
    return int if isinstance(value, int) and not isinstance(value, bool) else type(value)


def _value_of_type(value: object) -> str:
    if value is MISSING:
        return "none"
    return f"the value '{_plain(value)}' of type '{type_name(value)}'"


def _plain(value: object) -> str:
    """As RabbitMQ prints it: a byte array like a text."""
    if isinstance(value, (str, bytes)):
        return as_bytes(value).decode("utf-8", "replace")
    return term(value)
