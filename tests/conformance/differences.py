"""Where Penstock answers otherwise than RabbitMQ 3.10.8, on purpose, and why.

This is the one list of such places.  An entry takes one line of the recorded transcript and
says what stands there instead.  The tests hold it to both sides: the recording must contain
the line, and Penstock must answer exactly what the entry says, so an entry that is no longer
true fails.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """``theirs`` becomes ``ours`` (none, one or more lines), for each case named.

    ``rest``: the conversation takes another course from there on, so ``ours`` stands for
    everything that follows.
    """

    cases: tuple[str, ...]
    reason: str
    theirs: str
    ours: tuple[str, ...] = ()
    rest: bool = False


DIFFERENCES: tuple[Difference, ...] = ()


def expected(case: str, recorded: Iterable[str]) -> list[str]:
    """What Penstock must answer: the recording, with the differences of this case applied."""
    lines = list(recorded)
    for difference in DIFFERENCES:
        if case in difference.cases:
            lines = _apply(difference, case, lines)
    return lines


def _apply(difference: Difference, case: str, lines: list[str]) -> list[str]:
    if difference.theirs not in lines:
        raise AssertionError(
            f"{case}: the recording has no line {difference.theirs!r} to differ from"
        )
    if difference.rest:
        return lines[: lines.index(difference.theirs)] + list(difference.ours)
    told: list[str] = []
    for line in lines:
        told.extend(difference.ours if line == difference.theirs else [line])
    return told
