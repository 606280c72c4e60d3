"""``SpanBook``: the ways of single messages, noted for OpenTelemetry.

    publish   read from the socket until its queues took it; its route
    queue     taken by a queue until handed to a consumer
    deliver   handed to a consumer until settled; how

A message belongs to a trace when its header ``traceparent`` (W3C Trace Context) says that its
publisher records that: the publisher samples, not the broker.  The book is bounded: spans that do
not fit until ``take`` are counted, and nothing else becomes of them.  Points in time are those of
the loop's turns, in milliseconds.
"""

from typing import Final, NamedTuple, final

from mypy_extensions import i64

PUBLISH: Final = "publish"
QUEUE: Final = "queue"
DELIVER: Final = "deliver"

Facts = tuple[tuple[str, str | int | bool], ...]


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
class SpanBook:
    """Of one node; ``most``: so many are kept between two takes, 0 = spans are not wanted."""

    def __init__(self, most: int = 0) -> None:
        self.on: bool = most > 0
        self.exported_count: i64 = 0
        self.dropped_count: i64 = 0
        self._most: i64 = most
        self._waiting: list[Span] = []

    def has_room(self) -> bool:
        """For one more; False is counted as a span that is dropped."""
        if len(self._waiting) < self._most:
            return True
        self.dropped_count += 1
        return False

    def note(self, span: Span) -> None:
        if self.has_room():
            self._waiting.append(span)

    def take(self) -> list[Span]:
        """All since the last time."""
        spans = self._waiting
        if spans:
            self._waiting = []
        return spans

    def count(self, exported: int, dropped: int) -> None:
        """So many more a receiver took, or was not given."""
        self.exported_count += exported
        self.dropped_count += dropped
