"""Limits for memory and disk, and the level of the log: until the next start, as in RabbitMQ."""

from collections.abc import Callable, Sequence
from typing import Final

from penstock.client.limits import BadLimit, Limit, WrongCount, disk_limit, memory_limit
from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, UNAVAILABLE, USAGE, Invalid, Refused

LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "none")


def set_vm_memory_high_watermark(call: Call) -> None:
    _set(call, "memory threshold", memory_limit)


def set_disk_free_limit(call: Call) -> None:
    _set(call, "disk free limit", disk_limit)


def _set(call: Call, what: str, limit_of: Callable[[Sequence[str]], Limit]) -> None:
    try:
        limit = limit_of(call.words)
    except BadLimit as error:
        code = USAGE if isinstance(error, WrongCount) else DATA
        raise Invalid(str(error), code) from error
    call.say(f"Setting {what} on {call.node.name} to {limit.to} ...")
    call.do(call.verb, **{limit.kind: limit.text})


def set_log_level(call: Call) -> None:
    (level,) = call.take(1)
    if level not in LOG_LEVELS:
        levels = ", ".join(LOG_LEVELS)
        raise Refused(f"level {level} is not supported. Try one of {levels}", UNAVAILABLE)
    call.say(f'Setting log level to "{level}" ...')
    call.do("set_log_level", level=level)
