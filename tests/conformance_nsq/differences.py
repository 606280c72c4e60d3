"""Where Penstock answers otherwise than nsqd 1.3.0, on purpose, and why.

The one list of such places, as ``tests/conformance/differences.py`` is for RabbitMQ.  An entry
names a case and the lines of its record, one after the other, that read otherwise here.  The tests
hold it to both sides: the record must contain the lines, and Penstock must answer exactly what the
entry says, so an entry that is no longer true fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RECORDED_ON = "2026-11-27"
"""The last day on which all records were compared with nsqd 1.3.0 and were the same."""


@dataclass(frozen=True)
class Change:
    """In ``case`` the first lines that are ``theirs`` become ``ours``."""

    case: str
    theirs: tuple[str, ...]
    ours: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """One reason, and every place where it shows."""

    reason: str
    changes: tuple[Change, ...]


_CLOSED = "A < closed"
_JSON = "application/json; charset=utf-8 | nsq; version=1.0"
_NO_TOPIC = "stats <t>: none"
_EMPTY_TOPIC = "stats <t>: depth=0 backend_depth=0 message_count=0 message_bytes=0 paused=False"


def _no_topic(case: str) -> Change:
    return Change(f"publish.{case}", (_EMPTY_TOPIC,), (_NO_TOPIC,))


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "An MPUB is exactly as long as it says. nsqd reads on behind it where its parts are "
        "longer, and takes what is left for the next command where they are shorter.",
        (
            Change(
                "publish.wrong_counts_of_batches",
                ("A < silence",),
                ("A < error E_BAD_MESSAGE MPUB failed to read message(1) body size", _CLOSED),
            ),
        ),
    ),
    Difference(
        "A publish that is refused makes no topic.",
        (
            _no_topic("wrong_sizes_of_batches"),
            _no_topic("wrong_counts_of_batches"),
            _no_topic("wrong_messages_of_batches"),
            _no_topic("half_a_publish"),
        ),
    ),
    Difference(
        "There is no `mem-queue-size`: how much of a queue is in memory follows from how much "
        "memory there is, for all queues together. A small queue is in memory as a whole, until a "
        "restart; then it is read when it is wanted.",
        (
            Change(
                "http.configuration",
                (
                    "http > GET /config/mem_queue_size",
                    f"http < 200 OK [{_JSON}] 10000",
                ),
                (
                    "http > GET /config/mem_queue_size",
                    f'http < 400 Bad Request [{_JSON}] {{"message": "INVALID_OPTION"}}',
                ),
            ),
            Change(
                "manage.beyond_its_memory_a_channel_keeps_everything",
                ("stats <t>/c: depth=10 backend_depth=7 message_count=10",),
                ("stats <t>/c: depth=10 backend_depth=0 message_count=10",),
            ),
        ),
    ),
    Difference(
        "A deferral is kept wherever the message is. nsqd loses it when its memory is full: the "
        "fourth of four deferred messages came at once.",
        (
            Change(
                "manage.what_is_deferred_is_beyond_memory_too",
                (
                    "A < message <id 1> attempts=1 b'4'",
                    "# the first came at once",
                    "A < message <id 2> attempts=1 b'1'",
                    "A < message <id 3> attempts=1 b'2'",
                    "A < message <id 4> attempts=1 b'3'",
                ),
                (
                    "A < message <id 1> attempts=1 b'1'",
                    "# the first came later",
                    "A < message <id 2> attempts=1 b'2'",
                    "A < message <id 3> attempts=1 b'3'",
                    "A < message <id 4> attempts=1 b'4'",
                ),
            ),
        ),
    ),
)


def changed_cases() -> set[str]:
    return {change.case for difference in DIFFERENCES for change in difference.changes}


def expected(case: str, recorded: Iterable[str]) -> list[str]:
    """What Penstock must answer: the record, with the changes of this case applied."""
    lines = list(recorded)
    for difference in DIFFERENCES:
        for change in difference.changes:
            if change.case == case:
                lines = _apply(change, lines)
    return lines


def _apply(change: Change, lines: list[str]) -> list[str]:
    at = _place(change.theirs, lines)
    if at < 0:
        raise AssertionError(f"{change.case}: the record has no lines {change.theirs!r}")
    return [*lines[:at], *change.ours, *lines[at + len(change.theirs) :]]


def _place(wanted: Sequence[str], lines: Sequence[str]) -> int:
    """Where these lines stand, one after the other; -1: nowhere."""
    size = len(wanted)
    return next((at for at in range(len(lines)) if tuple(lines[at : at + size]) == wanted), -1)
