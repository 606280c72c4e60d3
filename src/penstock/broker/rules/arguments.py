"""Optional arguments of queues and exchanges: which are known, what they may hold.

Three kinds: supported here; those of queue types that are not built, refused as RabbitMQ refuses
them for a classic queue, so that no client relies on what is not there; and unknown ones, which
RabbitMQ keeps and shows without looking at them, and so do we.  The texts are RabbitMQ's.
"""

from typing import Final

from penstock.broker.rules.erlang_terms import term
from penstock.core.errors import CommandInvalid, NotImplementedYet, PreconditionFailed
from penstock.core.headers import CACHE_TTL_HEADER
from penstock.queues.limits import OVERFLOWS
from penstock.routing.consistent_hash import CONSISTENT_HASH, HASH_HEADER, HASH_PROPERTY
from penstock.routing.exchanges import DELAYED, EXCHANGE_TYPES, inner_type
from penstock.routing.headers import is_integer, type_name
from penstock.routing.once import CACHE_SIZE, ONCE
from penstock.settings.cluster import MASTER_LOCATORS

EXPIRES_MAX_MS: Final = 10 * 365 * 86_400_000
"""Ten years, RabbitMQ's limit."""

PRIORITY_MAX: Final = 255
INSTEAD: Final = {
    "quorum": "omit the argument; a policy with ha-mode mirrors queues",
    "stream": "omit the argument",
}

QUEUE_VERSIONS: Final = (1, 2)
"""Of RabbitMQ's storage of classic queues; here both mean the same."""

OTHER_TYPES_ARGUMENTS: Final = (
    "x-dead-letter-strategy",
    "x-initial-cluster-size",
    "x-max-age",
    "x-max-in-memory-bytes",
    "x-max-in-memory-length",
    "x-queue-leader-locator",
    "x-quorum-initial-group-size",
    "x-stream-max-segment-size-bytes",
)
"""Of quorum queues and streams."""


def check_queue_arguments(arguments: dict[str, object], what: str, exclusive: bool = False) -> None:
    """Raises PreconditionFailed or NotImplementedYet (queue types); ``what`` names the queue."""
    _check_contents(arguments, what)
    if not exclusive:  # such a queue is with its client, whatever is said
        _check_locator(arguments, what)


def _check_locator(arguments: dict[str, object], what: str) -> None:
    key = "x-queue-master-locator"
    locator = arguments.get(key, MASTER_LOCATORS[0])
    if not isinstance(locator, str):
        raise _invalid(key, what, _of_type(locator))
    if locator not in MASTER_LOCATORS:
        raise _invalid(key, what, f'"{term(locator)} invalid queue-master-locator value"')


def _check_contents(arguments: dict[str, object], what: str) -> None:
    for key, lowest in (("x-expires", 1), ("x-message-ttl", 0), ("x-consumer-timeout", 1)):
        if key in arguments:
            _check_duration(key, arguments[key], lowest, what)
    for key in ("x-max-length", "x-max-length-bytes", "x-delivery-limit"):
        if key in arguments:
            _check_number(key, arguments[key], 0, what)
    if "x-max-priority" in arguments:
        top = arguments["x-max-priority"]
        _check_number("x-max-priority", top, 0, what)
        if isinstance(top, int) and top > PRIORITY_MAX:
            raise _invalid("x-max-priority", what, f"{{max_value_exceeded,{top}}}")
    _check_dead_letters(arguments, what)
    if "x-overflow" in arguments:
        overflow = arguments["x-overflow"]
        if not isinstance(overflow, str):
            raise _invalid("x-overflow", what, _of_type(overflow))
        if overflow not in OVERFLOWS:
            raise _invalid("x-overflow", what, "invalid_overflow")
    single = arguments.get("x-single-active-consumer", False)
    if not isinstance(single, bool):
        raise _invalid("x-single-active-consumer", what, _of_type(single))
    once = arguments.get("x-message-deduplication", False)
    if not isinstance(once, bool):
        raise _invalid("x-message-deduplication", what, _of_type(once))
    mode = arguments.get("x-queue-mode", "default")
    if not isinstance(mode, str):
        raise _invalid("x-queue-mode", what, _of_type(mode))
    if mode not in ("default", "lazy"):
        raise _invalid("x-queue-mode", what, f"\"unsupported queue mode '{mode}'\"")
    queue_type = arguments.get("x-queue-type", "classic")
    if queue_type in ("quorum", "stream"):
        raise NotImplementedYet(
            f"{queue_type} queues are not implemented (x-queue-type '{queue_type}' for {what}):"
            f" {INSTEAD[queue_type]}"
        )
    if not isinstance(queue_type, str):
        raise _invalid("x-queue-type", what, _of_type(queue_type))
    if queue_type != "classic":
        raise _invalid("x-queue-type", what, f"\"unsupported queue type '{queue_type}'\"")
    if "x-queue-version" in arguments:
        version = arguments["x-queue-version"]
        _check_number("x-queue-version", version, 0, what)
        if version not in QUEUE_VERSIONS:
            raise _invalid("x-queue-version", what, f"\"unsupported queue version '{version}'\"")
    for key in OTHER_TYPES_ARGUMENTS:
        if key in arguments:
            raise _of_other_type(key, what)


def check_exchange_type(kind: str) -> None:
    """Raises CommandInvalid."""
    if kind == "":
        raise CommandInvalid("invalid exchange type ''")
    if kind not in EXCHANGE_TYPES:
        raise CommandInvalid(f"unknown exchange type '{kind}'")


def check_exchange_arguments(kind: str, arguments: dict[str, object], what: str) -> None:
    """Raises PreconditionFailed."""
    _check_text("alternate-exchange", arguments, what)
    if kind == DELAYED and inner_type(arguments) == "":
        raise PreconditionFailed(
            "Invalid argument, 'x-delayed-type' must be an existing exchange type"
        )
    if ONCE in (kind, inner_type(arguments)):
        _check_cache(arguments)
    if CONSISTENT_HASH in (kind, inner_type(arguments)):
        _check_text(HASH_HEADER, arguments, what)
        _check_text(HASH_PROPERTY, arguments, what)


def _check_cache(arguments: dict[str, object]) -> None:
    for key in (CACHE_SIZE, CACHE_TTL_HEADER):
        value = arguments.get(key, 1 if key == CACHE_TTL_HEADER else None)
        if not is_integer(value) or not isinstance(value, int) or value <= 0:
            raise PreconditionFailed(
                f"Missing or invalid argument, '{key}' must be an integer greater than 0"
            )
    persistence = arguments.get("x-cache-persistence", "memory")
    if persistence == "disk":
        raise NotImplementedYet("x-cache-persistence 'disk'")
    if persistence != "memory":
        raise PreconditionFailed(
            "Invalid argument, 'x-cache-persistence' must be either 'memory' or 'disk'"
        )


def _check_text(key: str, arguments: dict[str, object], what: str) -> None:
    value = arguments.get(key, "")
    if not isinstance(value, str):
        raise PreconditionFailed(f"invalid type '{type_name(value)}' for arg '{key}' in {what}")


def _check_dead_letters(arguments: dict[str, object], what: str) -> None:
    _check_text("x-dead-letter-exchange", arguments, what)
    if "x-dead-letter-routing-key" in arguments:
        key = arguments["x-dead-letter-routing-key"]
        if not isinstance(key, str):
            raise _invalid("x-dead-letter-routing-key", what, _of_type(key))
        if "x-dead-letter-exchange" not in arguments:
            raise _invalid("x-dead-letter-routing-key", what, "routing_key_but_no_dlx_defined")


def consumer_timeout(arguments: dict[str, object], what: str) -> int:
    """How long a consumer of the queue ``what`` may hold a delivery; 0 = as the queue says."""
    if "x-consumer-timeout" not in arguments:
        return 0
    value = arguments["x-consumer-timeout"]
    _check_duration("x-consumer-timeout", value, 1, what)
    assert isinstance(value, int)
    return value


def consumer_priority(arguments: dict[str, object], what: str) -> int:
    """Of a consumer of the queue ``what``; 0 when it has none."""
    value = arguments.get("x-priority", 0)
    return _integer("x-priority", value, what)


def check_consumer_arguments(arguments: dict[str, object], what: str) -> None:
    """What has no effect on a consumer of the queue ``what``; raises PreconditionFailed."""
    if "x-stream-offset" in arguments:
        raise _of_other_type("x-stream-offset", what)
    cancel = arguments.get("x-cancel-on-ha-failover", False)
    if not isinstance(cancel, bool):
        raise _invalid("x-cancel-on-ha-failover", what, _of_type(cancel))


def _integer(key: str, value: object, what: str) -> int:
    if not is_integer(value):
        raise _invalid(key, what, f'"expected integer, got {type_name(value)}"')
    assert isinstance(value, int)
    return value


def _check_number(key: str, value: object, lowest: int, what: str) -> None:
    number = _integer(key, value, what)
    if number < 0:
        raise _invalid(key, what, f"{{value_negative,{number}}}")
    if number < lowest:
        raise _invalid(key, what, f"{{value_zero,{number}}}")


def _check_duration(key: str, value: object, lowest: int, what: str) -> None:
    _check_number(key, value, lowest, what)
    assert isinstance(value, int)
    if value > EXPIRES_MAX_MS:
        raise _invalid(key, what, f"{{value_too_large,{value}}}")


def _of_type(value: object) -> str:
    return f"{{unacceptable_type,{type_name(value)}}}"


def _of_other_type(key: str, what: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{key}' for {what} of queue type rabbit_classic_queue")


def _invalid(key: str, what: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{key}' for {what}: {why}")
