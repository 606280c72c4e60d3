"""Arguments of streams and their consumers, read: ages, offsets, filters.

In: values as a client gave them.  Out: numbers, or None for what is none;
``broker/rules/arguments`` has the texts of refusals.
"""

import re
from typing import Final

from penstock.core.clock_types import WallMs
from penstock.streams.cursor import FIRST, LAST, NEXT, OFFSET, TIME, Start
from penstock.streams.filtering import Wanted

OFFSET_ARGUMENT: Final = "x-stream-offset"
FILTER_ARGUMENT: Final = "x-stream-filter"
UNFILTERED_ARGUMENT: Final = "x-stream-match-unfiltered"

_DAY_MS: Final = 86_400_000
_UNITS_MS: Final = {
    "Y": 365 * _DAY_MS,
    "M": 30 * _DAY_MS,
    "D": _DAY_MS,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
}
_AGE: Final = re.compile(r"([1-9][0-9]{0,8})([YMDhms])", re.ASCII)
_WORDS: Final = {"first": FIRST, "last": LAST, "next": NEXT}


def age_ms(value: object) -> int | None:
    """``7D``, ``12h`` ... in milliseconds."""
    found = _AGE.fullmatch(value) if isinstance(value, str) else None
    return None if found is None else int(found[1]) * _UNITS_MS[found[2]]


def start_of(arguments: dict[str, object], now_ms: WallMs) -> Start | None:
    """Where a consumer with these arguments begins; without one of them with what comes next."""
    value = arguments.get(OFFSET_ARGUMENT, "next")
    kind = type(value)
    if isinstance(value, str) and value in _WORDS:
        return Start(_WORDS[value])
    if isinstance(value, bool):
        return None
    if isinstance(value, int):  # of a class of its own it is a time, in seconds
        return Start(OFFSET, value) if kind is int else Start(TIME, int(value) * 1000)
    age = age_ms(value)
    return None if age is None else Start(TIME, now_ms - age)


def filter_of(arguments: dict[str, object]) -> Wanted | None:
    """What a consumer wants; None = all.  A value of another type is no filter, as in RabbitMQ."""
    value = arguments.get(FILTER_ARGUMENT)
    values = value if isinstance(value, list) else [value]
    texts = [one.encode("utf-8", "surrogateescape") for one in values if isinstance(one, str)]
    if not texts:
        return None
    return Wanted(texts, arguments.get(UNFILTERED_ARGUMENT) is True)
