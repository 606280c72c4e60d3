"""Limits for memory and disk as rabbitmqctl's words say them: until the next start, as there."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.core.capacity import MEM_RELATIVE, parse_number, parse_size

ABSOLUTE: Final = "absolute"
BAD: Final = "Bad argument"


class BadLimit(ValueError):
    """Its text says why, in rabbitmqctl's words."""


class WrongCount(BadLimit):
    """Too few words, or too many."""


class Limit(NamedTuple):
    kind: str
    """``fraction``, ``absolute`` or ``mem_relative``."""
    text: str
    to: str
    """The limit in a sentence."""


def memory_limit(words: Sequence[str]) -> Limit:
    """``0.4``, or ``absolute 2GB``; raises BadLimit."""
    kind, text = _split(words, ABSOLUTE, "fraction")
    if kind == ABSOLUTE:
        _check_threshold(text)
        return Limit(kind, text, f"{text} bytes")
    fraction = parse_number(text.removeprefix("-"))
    if fraction is None:
        raise BadLimit(f"{BAD}.")
    if fraction > 1 or text.startswith("-"):
        raise BadLimit(f"{BAD}: The threshold should be a fraction between 0.0 and 1.0")
    return Limit(kind, text, text)


def disk_limit(words: Sequence[str]) -> Limit:
    """``2GB``, or ``mem_relative 1.0``; raises BadLimit."""
    kind, text = _split(words, MEM_RELATIVE, ABSOLUTE)
    is_share = kind == MEM_RELATIVE
    if (parse_number(text) if is_share else parse_size(text)) is None:
        raise BadLimit(f"{BAD}.")
    return Limit(kind, text, f"{text} times the total RAM" if is_share else f"{text} bytes")


def _split(words: Sequence[str], word: str, without: str) -> tuple[str, str]:
    """Which kind of limit, and its text: ``word`` and a text, or a text alone."""
    wanted = 2 if list(words[:1]) == [word] else 1
    if len(words) != wanted:
        raise WrongCount(f"{'not enough' if len(words) < wanted else 'too many'} arguments.")
    return (word if wanted == 2 else without), words[-1]


def _check_threshold(text: str) -> None:
    if parse_size(text) is not None:
        return
    rest = text.lstrip("0123456789")
    if rest == text:
        raise BadLimit(f"{BAD}.")
    if rest.startswith("."):
        raise BadLimit(f"{BAD}: The threshold should be an integer.")
    raise BadLimit(f"{BAD}: Invalid units.")
