"""Optional arguments of queues and exchanges: checks, and the texts of refused declarations.

Three kinds: those that the type of the queue takes; those of other types, refused as RabbitMQ
refuses them, so that no client relies on what is not there; and unknown ones, which RabbitMQ keeps
and shows without looking at them, and so do we.  The texts are RabbitMQ's.
"""

from typing import Final, NamedTuple

from penstock.broker.rules.erlang_terms import term
from penstock.broker.rules.queue_options import (
    ARGUMENTS,
    ARGUMENTS_OF_TYPE,
    EXCHANGE,
    FLAG,
    MILLISECONDS,
    QUEUE_ARGUMENTS,
    Option,
)
from penstock.core.clock_types import WallMs
from penstock.core.errors import CommandInvalid, NotImplementedYet, PreconditionFailed
from penstock.core.headers import CACHE_TTL_HEADER
from penstock.queues.context import (
    CLASSIC,
    LASTING_TYPES,
    QUEUE_TYPES,
    STREAM,
    can_last,
    queue_type,
)
from penstock.queues.queue import Queue
from penstock.queues.stream_start import (
    FILTER_ARGUMENT,
    MATCH_ARGUMENT,
    MATCHES,
    OFFSET_ARGUMENT,
    headers_of,
    start_of,
)
from penstock.routing.consistent_hash import CONSISTENT_HASH, HASH_HEADER, HASH_PROPERTY
from penstock.routing.exchanges import DELAYED, EXCHANGE_TYPES, inner_type
from penstock.routing.headers import is_integer, type_name
from penstock.routing.once import CACHE_SIZE, ONCE
from penstock.routing.recent_history import HISTORY_LENGTH, RECENT_HISTORY
from penstock.storage.definitions.records import VhostMetadata

NOT_OF_STREAMS: Final = ("x-priority", "x-consumer-timeout")
"""Arguments of consumers."""
SEGMENT_BYTES_MAX: Final = 3_000_000_000
FILTER_SIZES: Final = range(16, 256)
UNSAID: Final = (None, "undefined")
"""Values of ``default_queue_type`` that name no type."""


def check_queue_arguments(arguments: dict[str, object], what: str, exclusive: bool = False) -> None:
    """Raises PreconditionFailed; ``what`` names the queue."""
    kind = queue_type(arguments)
    known = ARGUMENTS_OF_TYPE[kind]
    for key, option in known.items():
        if key not in arguments:
            continue
        if exclusive and key == "x-queue-master-locator":
            continue  # such a queue is with its client, whatever is said
        _check_value(option, arguments[key], what)
        if key == "x-dead-letter-routing-key" and "x-dead-letter-exchange" not in arguments:
            raise _invalid(key, what, "routing_key_but_no_dlx_defined")
    for key in QUEUE_ARGUMENTS:
        if key in arguments and key not in known:
            raise _of_other_type(key, what, kind)


class TypeRules(NamedTuple):
    """Of a node's queues.

    ``default_type``: of those whose virtual host names none; "" = classic, and not shown.
    ``relaxed``: a quorum queue may be declared again as a classic one.
    ``newer``: unknown types of exchanges, and missing rights, are refused as by RabbitMQ 4.
    """

    default_type: str = ""
    relaxed: bool = False
    newer: bool = False

    def of_new_vhost(self, metadata: VhostMetadata) -> VhostMetadata:
        """A virtual host keeps the default type that it was made with."""
        kind = metadata.default_queue_type or self.default_type
        return metadata._replace(default_queue_type=kind)


def check_default_type(value: object) -> None:
    """Of a virtual host, as definitions and HTTP bodies have it.

    Raises PreconditionFailed.
    """
    if value in UNSAID:
        return
    if value == "":
        raise PreconditionFailed("default_queue_type must not be an empty string")
    if not isinstance(value, (str, bool)):
        raise PreconditionFailed(f"{term(value)} is not a valid default_queue_type value")
    if value not in QUEUE_TYPES:
        shown = value if isinstance(value, str) else term(value)
        raise PreconditionFailed(f"{shown} is not a valid queue type")


def with_default_type(
    arguments: dict[str, object], kind: str, durable: bool, exclusive: bool, auto_delete: bool
) -> dict[str, object]:
    """What a queue is declared with where ``kind`` is the default type; "" = none is named.

    A queue that cannot be of that type is a classic one.
    """
    if kind == "" or "x-queue-type" in arguments:
        return arguments
    if not can_last(durable, exclusive, auto_delete):
        kind = CLASSIC
    return {**arguments, "x-queue-type": kind}


def check_properties(
    arguments: dict[str, object], what: str, durable: bool, exclusive: bool, auto_delete: bool
) -> None:
    """What a quorum queue or a stream cannot be, in RabbitMQ's order; raises PreconditionFailed."""
    if queue_type(arguments) in LASTING_TYPES:
        for wrong, name in (
            (auto_delete, "auto-delete"),
            (exclusive, "exclusive-owner"),
            (not durable, "non-durable"),
        ):
            if wrong:
                raise PreconditionFailed(f"invalid property '{name}' for {what}")


def check_stream(arguments: dict[str, object]) -> None:
    """What RabbitMQ finds of a stream's arguments last; raises PreconditionFailed."""
    size = arguments.get("x-stream-max-segment-size-bytes", 0)
    if isinstance(size, int) and size > SEGMENT_BYTES_MAX:
        raise PreconditionFailed("Exceeded max value for x-stream-max-segment-size-bytes")
    filter_size = arguments.get("x-stream-filter-size-bytes", FILTER_SIZES.start)
    if filter_size not in FILTER_SIZES:
        raise PreconditionFailed("Invalid value for x-stream-filter-size-bytes")


def check_without_name(arguments: dict[str, object]) -> None:
    """The name is the server's choice; raises PreconditionFailed."""
    kind = queue_type(arguments)
    if kind in LASTING_TYPES:
        raise PreconditionFailed(
            f"Cannot declare a server-named queue for type rabbit_{kind}_queue"
        )


def _check_value(option: Option, value: object, what: str) -> None:
    key = str(option.argument)
    if option.is_number:
        _check_number(option, value, what)
    elif option.kind == EXCHANGE:
        _check_text(key, value, what)
    elif not isinstance(value, bool if option.kind == FLAG else str):
        raise _invalid(key, what, _of_type(value))
    if not option.is_written(value):
        raise _invalid(key, what, option.refusal)
    if option.words and value not in option.words:
        raise _invalid(key, what, option.refusal.format(value=value, term=term(value)))


def check_exchange_type(kind: str, *, newer: bool) -> None:
    """Raises CommandInvalid, or PreconditionFailed where answers are ``newer``."""
    refusal = PreconditionFailed if newer else CommandInvalid
    if kind == "":
        raise refusal("invalid exchange type ''")
    if kind not in EXCHANGE_TYPES:
        raise refusal(f"unknown exchange type '{kind}'")


def check_exchange_arguments(kind: str, arguments: dict[str, object], what: str) -> None:
    """Raises PreconditionFailed."""
    _check_text("alternate-exchange", arguments.get("alternate-exchange", ""), what)
    if kind == DELAYED and inner_type(arguments) == "":
        raise PreconditionFailed(
            "Invalid argument, 'x-delayed-type' must be an existing exchange type"
        )
    if ONCE in (kind, inner_type(arguments)):
        _check_cache(arguments)
    if kind == RECENT_HISTORY and HISTORY_LENGTH in arguments:
        length = arguments[HISTORY_LENGTH]
        if not is_integer(length) or not isinstance(length, int) or length <= 0:
            shown = "undefined" if length is None else term(length)
            raise PreconditionFailed(
                f"Invalid argument {shown}, '{HISTORY_LENGTH}' must be a positive integer"
            )
    if CONSISTENT_HASH in (kind, inner_type(arguments)):
        for key in (HASH_HEADER, HASH_PROPERTY):
            _check_text(key, arguments.get(key, ""), what)


def check_local_binding(destination: object, routing_key: str) -> None:
    """Of an ``x-local-random`` exchange; raises PreconditionFailed."""
    if routing_key != "":
        raise PreconditionFailed(f"Non empty binding '{routing_key}' key not permitted")
    if not isinstance(destination, Queue):
        raise PreconditionFailed("Destination not found")
    kind = queue_type(destination.arguments)
    if kind != CLASSIC:
        raise PreconditionFailed(f"Queue type rabbit_{kind}_queue not valid for this exchange type")


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


def _check_text(key: str, value: object, what: str) -> None:
    if not isinstance(value, str):
        raise PreconditionFailed(f"invalid type '{type_name(value)}' for arg '{key}' in {what}")


def consumer_timeout(arguments: dict[str, object], what: str) -> int:
    """How long a consumer of the queue ``what`` may hold a delivery; 0 = as the queue says."""
    if "x-consumer-timeout" not in arguments:
        return 0
    return _check_number(ARGUMENTS["x-consumer-timeout"], arguments["x-consumer-timeout"], what)


def consumer_priority(arguments: dict[str, object], what: str) -> int:
    """Of a consumer of the queue ``what``; 0 when it has none."""
    value = arguments.get("x-priority", 0)
    return _integer("x-priority", value, what)


def check_consumer_arguments(arguments: dict[str, object], what: str, kind: str) -> None:
    """Those of a consumer of the queue ``what`` of that type; raises PreconditionFailed."""
    for key in NOT_OF_STREAMS if kind == STREAM else (OFFSET_ARGUMENT,):
        if key in arguments:
            raise _of_other_type(key, what, kind)
    if kind == STREAM and start_of(arguments, WallMs(0)) is None:
        value = arguments[OFFSET_ARGUMENT]
        shown = f"{{invalid_stream_offset_arg,{{{type_name(value)},{term(value)}}}}}"
        raise _invalid(OFFSET_ARGUMENT, what, shown)
    wanted = arguments.get(FILTER_ARGUMENT)
    if kind == STREAM and isinstance(wanted, list):
        for value in wanted:
            if not isinstance(value, (str, dict)):
                raise _invalid(FILTER_ARGUMENT, what, _of_type(value))
    if kind == STREAM and headers_of(arguments) is None:
        raise _invalid(FILTER_ARGUMENT, what, "{unacceptable_type,table}")
    if kind == STREAM and arguments.get(MATCH_ARGUMENT, "all") not in MATCHES:
        raise _invalid(MATCH_ARGUMENT, what, "invalid_match_type")
    cancel = arguments.get("x-cancel-on-ha-failover", False)
    if not isinstance(cancel, bool):
        raise _invalid("x-cancel-on-ha-failover", what, _of_type(cancel))


def _integer(key: str, value: object, what: str) -> int:
    if not is_integer(value):
        raise _invalid(key, what, f'"expected integer, got {type_name(value)}"')
    assert isinstance(value, int)
    return value


def _check_number(option: Option, value: object, what: str) -> int:
    key = str(option.argument)
    number = _integer(key, value, what)
    if number < min(option.lowest, 0):
        raise _invalid(key, what, f"{{value_negative,{number}}}")
    if number < option.lowest:
        raise _invalid(key, what, f"{{value_zero,{number}}}")
    if option.highest is not None and number > option.highest:
        fault = "value_too_large" if option.kind == MILLISECONDS else "max_value_exceeded"
        raise _invalid(key, what, f"{{{fault},{number}}}")
    return number


def _of_type(value: object) -> str:
    return f"{{unacceptable_type,{type_name(value)}}}"


def _of_other_type(key: str, what: str, kind: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{key}' for {what} of queue type rabbit_{kind}_queue")


def _invalid(key: str, what: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{key}' for {what}: {why}")
