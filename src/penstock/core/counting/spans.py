"""``SpanBook``: the ways of single messages, noted for OpenTelemetry and for operators.

    publish   read from the socket until its queues took it; its route
    queue     taken by a queue until handed to a consumer
    deliver   handed to a consumer until settled; how

A message belongs to a trace when its header ``traceparent`` (W3C Trace Context) says that its
publisher records that: the publisher samples, not the broker.  The book is bounded: spans that do
not fit until ``take`` are counted, and nothing else becomes of them.  ``follow`` keeps those of one
trace here as well.  Points in time are those of the loop's turns, in milliseconds.
"""

from typing import Final, NamedTuple, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs

PUBLISH: Final = "publish"
QUEUE: Final = "queue"
DELIVER: Final = "deliver"

FOLLOWED_MAX: Final = 16
"""Traces of all users.  Of too many, the oldest of the user who follows most is forgotten."""
SPANS_MAX: Final = 200
"""Of one trace that is followed."""
FOLLOW_MS: Final = 600_000

Facts = tuple[tuple[str, str | int | bool | tuple[str, ...]], ...]


class Span(NamedTuple):
    """``parent``: the text of ``traceparent``; ``name``: of the exchange or the queue."""

    step: str
    parent: str
    start_ms: int
    end_ms: int
    vhost: str
    name: str
    facts: Facts


def trace_of(parent: str) -> str:
    """The 32 digits of the trace in a ``traceparent``."""
    return parent[3:35]


@final
class Followed:
    """A trace whose spans are kept for a user until that time."""

    def __init__(self, trace: str, user: str, until_ms: WallMs) -> None:
        self.trace: Final = trace
        self.user: Final = user
        self.until_ms: WallMs = until_ms
        self.spans: list[Span] = []


@final
class SpanBook:
    """Of one node; ``on``: spans are wanted.  ``most``: so many are exported between two takes."""

    def __init__(self, most: int = 0) -> None:
        self.on: bool = most > 0
        self.exported_count: i64 = 0
        self.dropped_count: i64 = 0
        self._most: i64 = most
        self._waiting: list[Span] = []
        self._followed: list[Followed] = []  # the oldest first
        self._traces: frozenset[str] = frozenset()  # of these

    def wants(self, parent: str) -> bool:
        """A span of that message; False is counted as one that is dropped."""
        if len(self._waiting) < self._most or trace_of(parent) in self._traces:
            return True
        if self._most > 0:
            self.dropped_count += 1
        return False

    def note(self, span: Span) -> None:
        if len(self._waiting) < self._most:
            self._waiting.append(span)
        elif self._most > 0:
            self.dropped_count += 1
        trace = trace_of(span.parent)
        if trace in self._traces:
            for one in self._followed:
                if one.trace == trace and len(one.spans) < SPANS_MAX:
                    one.spans.append(span)

    def take(self, now_ms: WallMs) -> list[Span]:
        """All that are to be exported since the last time; what was followed long enough ends."""
        if self._followed:
            self._keep([one for one in self._followed if one.until_ms > now_ms])
        spans = self._waiting
        if spans:
            self._waiting = []
        return spans

    def count(self, exported: int, dropped: int) -> None:
        """So many more a receiver took, or was not given."""
        self.exported_count += exported
        self.dropped_count += dropped

    def follow(self, trace: str, user: str, now_ms: WallMs) -> None:
        """Keep the spans of that trace for that user from here on."""
        kept = [one for one in self._followed if one.trace != trace or one.user != user]
        kept.append(Followed(trace, user, WallMs(now_ms + FOLLOW_MS)))
        if len(kept) > FOLLOWED_MAX:
            counts: dict[str, int] = {}
            for one in kept:
                counts[one.user] = counts.get(one.user, 0) + 1
            most = max(counts.values())
            loser = user
            if counts[user] < most or most == 1:
                loser = next(one.user for one in kept if counts[one.user] == most)
            kept.remove(next(one for one in kept if one.user == loser))
        self._keep(kept)

    def _keep(self, followed: list[Followed]) -> None:
        self._followed = followed
        self._traces = frozenset([one.trace for one in followed])
        self.on = self._most > 0 or len(followed) > 0

    def spans_of(self, trace: str, user: str) -> list[Span] | None:
        """So far, for that user or else another one; None: it is not followed, or not any more."""
        found = [one for one in self._followed if one.trace == trace]
        own = [one for one in found if one.user == user] or found
        return list(own[0].spans) if own else None
