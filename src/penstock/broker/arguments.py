"""Optional arguments of queues and exchanges: which are known, what they may hold.

Three kinds: supported here; known to RabbitMQ but not built yet, which are refused so
that nobody relies on what is not there; and unknown ones, which RabbitMQ keeps and
shows without looking at them, and so do we.  The texts are RabbitMQ's.
"""

from typing import Final

from penstock.core.errors import NotImplementedYet, PreconditionFailed
from penstock.routing.headers import type_name

EXPIRES_MAX_MS: Final = 10 * 365 * 86_400_000
"""Ten years, RabbitMQ's limit."""

NOT_BUILT_QUEUE_ARGUMENTS: Final = (
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-max-priority",
    "x-single-active-consumer",
)
COMPARED_QUEUE_ARGUMENTS: Final = (
    "x-expires",
    "x-message-ttl",
    *NOT_BUILT_QUEUE_ARGUMENTS,
    "x-queue-mode",
    "x-queue-type",
)
NOT_BUILT_EXCHANGE_ARGUMENTS: Final = ("alternate-exchange",)
NOT_BUILT_CONSUMER_ARGUMENTS: Final = ("x-priority", "x-consumer-timeout")


def check_queue_arguments(arguments: dict[str, object], what: str) -> None:
    """Raises PreconditionFailed or NotImplementedYet; ``what`` names the queue."""
    refuse_not_built(arguments, NOT_BUILT_QUEUE_ARGUMENTS, what)
    for key, lowest in (("x-expires", 1), ("x-message-ttl", 0)):
        if key in arguments:
            _check_duration(key, arguments[key], lowest, what)
    mode = arguments.get("x-queue-mode", "default")
    if not isinstance(mode, str):
        raise _invalid("x-queue-mode", what, f"{{unacceptable_type,{type_name(mode)}}}")
    if mode not in ("default", "lazy"):
        raise _invalid("x-queue-mode", what, f"\"unsupported queue mode '{mode}'\"")
    queue_type = arguments.get("x-queue-type", "classic")
    if queue_type in ("quorum", "stream"):
        raise NotImplementedYet(f"x-queue-type '{queue_type}' for {what}")
    if queue_type != "classic":
        raise _invalid("x-queue-type", what, f"\"unsupported queue type '{queue_type}'\"")


def refuse_not_built(arguments: dict[str, object], keys: tuple[str, ...], what: str) -> None:
    for key in keys:
        if key in arguments:
            raise NotImplementedYet(f"argument '{key}' for {what}")


def check_equivalent(
    key: str, what: str, received: object, current: object, missing: object
) -> None:
    """Raises PreconditionFailed unless both are the same; ``missing`` marks an absent one."""
    if received == current and isinstance(received, bool) == isinstance(current, bool):
        return
    if received is missing or current is missing:
        texts = [_value_of_type(received, missing), _value_of_type(current, missing)]
    else:
        texts = [f"'{_plain(received)}'", f"'{_plain(current)}'"]
    raise PreconditionFailed(
        f"inequivalent arg '{key}' for {what}: received {texts[0]} but current is {texts[1]}"
    )


def _check_duration(key: str, value: object, lowest: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(key, what, f'"expected integer, got {type_name(value)}"')
    if value < 0:
        raise _invalid(key, what, f"{{value_negative,{value}}}")
    if value < lowest:
        raise _invalid(key, what, f"{{value_zero,{value}}}")
    if value > EXPIRES_MAX_MS:
        raise _invalid(key, what, f"{{value_too_large,{value}}}")


def _invalid(key: str, what: str, term: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{key}' for {what}: {term}")


def _value_of_type(value: object, missing: object) -> str:
    if value is missing:
        return "none"
    return f"the value '{_plain(value)}' of type '{type_name(value)}'"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
