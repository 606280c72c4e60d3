"""Arguments of streams and their consumers, read: ages, offsets, filters.

In: values as a client gave them.  Out: numbers, or None for what is none;
``broker/rules/arguments`` has the texts of refusals.
"""

import re
from typing import Final

from penstock.core.clock_types import WallMs
from penstock.core.headers import HeaderReader
from penstock.streams.cursor import FIRST, LAST, NEXT, OFFSET, TIME, Start
from penstock.streams.filtering import HeaderFilter, Wanted, header_text

OFFSET_ARGUMENT: Final = "x-stream-offset"
FILTER_ARGUMENT: Final = "x-stream-filter"
TRACKING_ARGUMENT: Final = "x-stream-automatic-offset-tracking"
"""LavinMQ's; its broker keeps a position as well when the offset is void."""
GENERATED_TAGS: Final = "amq.ctag-"
MATCH_ARGUMENT: Final = "x-filter-match-type"
MATCHES: Final = {"all": True, "any": False}
UNFILTERED_ARGUMENT: Final = "x-stream-match-unfiltered"
FILTERS_MAX: Final = 255
SECONDS_DIGITS_MAX: Final = 12

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


def kept_name(tag: str, arguments: dict[str, object]) -> str | None:
    """The name that a consumer's position is kept by: its tag, if it asks for it; "" = it does not.

    None = it asks for it, but its tag is a new one each time.
    """
    is_new = tag.startswith(GENERATED_TAGS)
    if arguments.get(TRACKING_ARGUMENT) in (True, "true"):
        return None if is_new else tag
    return tag if _is_void(arguments) and not is_new else ""


def _is_void(arguments: dict[str, object]) -> bool:
    return OFFSET_ARGUMENT in arguments and arguments[OFFSET_ARGUMENT] is None


def start_of(arguments: dict[str, object], now_ms: WallMs) -> Start | None:
    """Where a consumer with these arguments begins; without one of them with what comes next."""
    if _is_void(arguments):
        return Start(FIRST)
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


def channel_start(text: object, now_ms: WallMs) -> Start | None:
    """Where a channel of NSQ begins: a word, an age, or seconds since 1970; None = it is none."""
    if not isinstance(text, str):
        return None
    if text.isascii() and text.isdigit() and len(text) <= SECONDS_DIGITS_MAX:
        return Start(TIME, int(text) * 1000)
    age = age_ms(text)
    if age is not None:
        return Start(TIME, now_ms - age)
    return Start(_WORDS[text]) if text in _WORDS else None


def filter_of(arguments: dict[str, object]) -> Wanted | None:
    """What a consumer wants; None = all.  A value of another type is no filter, as in RabbitMQ.

    More than ``FILTERS_MAX`` values are no filter either: a block of many messages matches almost
    always, and each value is looked for in each block.
    """
    value = arguments.get(FILTER_ARGUMENT)
    values = value if isinstance(value, list) else [value]
    texts = [one.encode("utf-8", "surrogateescape") for one in values if isinstance(one, str)]
    if not texts or len(texts) > FILTERS_MAX:
        return None
    return Wanted(texts, arguments.get(UNFILTERED_ARGUMENT) is True)


def headers_of(arguments: dict[str, object]) -> list[tuple[str, str]] | None:
    """Headers that a consumer wants, of the tables among its filters; None = one is no text."""
    value = arguments.get(FILTER_ARGUMENT)
    wanted: list[tuple[str, str]] = []
    for table in value if isinstance(value, list) else [value]:
        for name, one in table.items() if isinstance(table, dict) else ():
            text = header_text(one)
            if text is None:
                return None
            wanted.append((name, text))
    return wanted


def header_filter_of(arguments: dict[str, object], reader: HeaderReader) -> HeaderFilter | None:
    """As LavinMQ has it; None = all."""
    wanted = headers_of(arguments)
    if not wanted:
        return None
    return HeaderFilter(reader, wanted, arguments.get(MATCH_ARGUMENT, "all") != "any")
