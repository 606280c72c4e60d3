"""Limits for memory and disk, and the level of the log: until the next start, as in RabbitMQ."""

from typing import Final

from penstock.core.capacity import parse_number, parse_size
from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, UNAVAILABLE, Invalid, Refused

MEMORY_PATH: Final = "/api/penstock/vm-memory-high-watermark"
DISK_PATH: Final = "/api/penstock/disk-free-limit"
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical", "none")
BAD: Final = "Bad argument."


def _arguments(call: Call, word: str, without: str) -> tuple[str, str]:
    """Which kind of limit, and its text: ``word`` and a text, or a text alone."""
    wanted = 2 if call.words[:1] == [word] else 1
    words = call.take(wanted)
    return (word if wanted == 2 else without), words[-1]


def set_vm_memory_high_watermark(call: Call) -> None:
    kind, text = _arguments(call, "absolute", "fraction")
    if kind == "absolute":
        _check_size(text)
        to = f"{text} bytes"
    else:
        fraction = parse_number(text.removeprefix("-"))
        if fraction is None:
            raise Invalid(BAD, DATA)
        if fraction > 1 or text.startswith("-"):
            raise Invalid(
                "Bad argument: The threshold should be a fraction between 0.0 and 1.0", DATA
            )
        to = text
    call.say(f"Setting memory threshold on {call.node.name} to {to} ...")
    call.node.put(MEMORY_PATH, {kind: text})


def _check_size(text: str) -> None:
    if parse_size(text) is not None:
        return
    rest = text.lstrip("0123456789")
    if rest == text:
        raise Invalid(BAD, DATA)
    if rest.startswith("."):
        raise Invalid("Bad argument: The threshold should be an integer.", DATA)
    raise Invalid("Bad argument: Invalid units.", DATA)


def set_disk_free_limit(call: Call) -> None:
    kind, text = _arguments(call, "mem_relative", "absolute")
    if kind == "mem_relative":
        if parse_number(text) is None:
            raise Invalid(BAD, DATA)
        to = f"{text} times the total RAM"
    else:
        if parse_size(text) is None:
            raise Invalid(BAD, DATA)
        to = f"{text} bytes"
    call.say(f"Setting disk free limit on {call.node.name} to {to} ...")
    call.node.put(DISK_PATH, {kind: text})


def set_log_level(call: Call) -> None:
    (level,) = call.take(1)
    if level not in LOG_LEVELS:
        levels = ", ".join(LOG_LEVELS)
        raise Refused(f"level {level} is not supported. Try one of {levels}", UNAVAILABLE)
    call.say(f'Setting log level to "{level}" ...')
    call.node.put("/api/penstock/log-level", {"level": level})
