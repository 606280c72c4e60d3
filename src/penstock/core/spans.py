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
    """A trace whose spans are kept until that time."""

    def __init__(self, until_ms: WallMs) -> None:
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
        self._followed: dict[str, Followed] = {}

    def wants(self, parent: str) -> bool:
        """A span of that message; False is counted as one that is dropped."""
        if len(self._waiting) < self._most or trace_of(parent) in self._followed:
            return True
        if self._most > 0:
            self.dropped_count += 1
        return False

    def note(self, span: Span) -> None:
        if len(self._waiting) < self._most:
            self._waiting.append(span)
        elif self._most > 0:
            self.dropped_count += 1
        followed = self._followed.get(trace_of(span.parent))
        if followed is not None and len(followed.spans) < SPANS_MAX:
            followed.spans.append(span)

    def take(self, now_ms: WallMs) -> list[Span]:
        """All that are to be exported since the last time; what was followed long enough ends."""
        if self._followed:
            kept = {key: one for key, one in self._followed.items() if one.until_ms > now_ms}
            self._followed = kept
            self.on = self._most > 0 or len(kept) > 0
        spans = self._waiting
        if spans:
            self._waiting = []
        return spans

    def count(self, exported: int, dropped: int) -> None:
        """So many more a receiver took, or was not given."""
        self.exported_count += exported
        self.dropped_count += dropped

    def follow(self, trace: str, now_ms: WallMs) -> None:
        """Keep the spans of that trace from here on; the oldest of too many is forgotten."""
        self._followed.pop(trace, None)
        if len(self._followed) >= FOLLOWED_MAX:
            del self._followed[next(iter(self._followed))]
        self._followed[trace] = Followed(WallMs(now_ms + FOLLOW_MS))
        self.on = True

    def spans_of(self, trace: str) -> list[Span] | None:
        """So far; None: it is not followed, or not any more."""
        followed = self._followed.get(trace)
        return None if followed is None else list(followed.spans)
