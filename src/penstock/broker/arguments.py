"""Optional arguments of queues and exchanges: which are known, what they may hold.

Three kinds: supported here; known to RabbitMQ but not built yet, which are refused so
that nobody relies on what is not there; and unknown ones, which RabbitMQ keeps and
shows without looking at them, and so do we.  The texts are RabbitMQ's.
"""

from typing import Final

from penstock.core.errors import NotImplementedYet, PreconditionFailed

EXPIRES_MAX_MS: Final = 2**32 - 1

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
    if mode == "lazy":
        raise NotImplementedYet(f"x-queue-mode 'lazy' for {what}")
    if mode != "default":
        raise _invalid("x-queue-mode", what, f"invalid_queue_mode,{_erlang(mode)}")
    queue_type = arguments.get("x-queue-type", "classic")
    if queue_type in ("quorum", "stream"):
        raise NotImplementedYet(f"x-queue-type '{queue_type}' for {what}")
    if queue_type != "classic":
        raise PreconditionFailed(
            f"invalid arg 'x-queue-type' for {what}: \"unsupported queue type '{queue_type}'\""
        )


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
        raise _invalid(key, what, f"unacceptable_type,{_erlang_type(value)}")
    if value < 0:
        raise _invalid(key, what, f"value_negative,{value}")
    if value < lowest:
        raise _invalid(key, what, f"value_zero,{value}")
    if value > EXPIRES_MAX_MS:
        raise _invalid(key, what, f"value_too_big,{value}")


def _invalid(key: str, what: str, term: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg '{key}' for {what}: {{{term}}}")


def _value_of_type(value: object, missing: object) -> str:
    if value is missing:
        return "none"
    return f"the value '{_plain(value)}' of type '{_erlang_type(value)}'"


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _erlang(value: object) -> str:
    return f'<<"{value}">>' if isinstance(value, str) else _plain(value)


def _erlang_type(value: object) -> str:
    """RabbitMQ's name of the table type a value most likely came in."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    if isinstance(value, float):
        return "double"
    if isinstance(value, list):
        return "array"
    if isinstance(value, dict):
        return "table"
    return "void" if value is None else "longstr"
