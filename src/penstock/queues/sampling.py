"""``Sampler``: the times of a few messages of one queue, for the event log and for traces.

    deliver ─► take    one message in ``every``: published, enqueued, delivered
    settle  ─► done    ... and acknowledged, rejected or given back: noted in the event book

A sampled message is marked in its flags, so settling looks at nothing but flags while some are
open and at nothing at all while none is.  Each says for how many messages it stands (those since
the one before), so percentiles can be weighed.  The collector of the queues' rates says how many
there may be (``begin``); a queue that suddenly is faster halves its share by itself.

What stays open for ``OPEN_MAX_MS`` is noted as that, and forgotten.  A message of a trace
(``core/counting/spans.py``) is watched in the same way, whether it is a sample or not (``follow``).
"""

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.counting.histogram import Histogram
from penstock.core.counting.spans import DELIVER, QUEUE, Facts, Span, SpanBook
from penstock.core.events.book import EventBook
from penstock.core.message import REDELIVERED, SAMPLED, Message

OPEN_MAX: Final = 64
"""Of one queue; a consumer that holds more for long has its story told by these."""
FOLLOWED_OPEN_MAX: Final = 256
"""Of one queue, with those of traces."""
NO_SAMPLE: Final[i64] = -1
OPEN_MAX_MS: Final[i64] = 60_000

ACKED: Final = "acked"
AUTO: Final = "auto"
"""No acknowledgement is due: delivering was the end."""
REJECTED: Final = "rejected"
RETURNED: Final = "returned"
"""Given back, or taken back when its deadline had passed: it will be delivered again."""
OPEN: Final = "open"

PublishTimes = Callable[[Message], tuple[int, int]]
"""When its publisher says a message was published and how exactly, both in ms; (0, 0): unsaid."""


def no_times(_message: Message) -> tuple[int, int]:
    return 0, 0


@final
class Sampling:
    """What all samplers of a node share.

    ``left``    so many may be taken until the next interval
    ``quota``   so many a queue may take in one that ``begin`` has not begun yet
    """

    def __init__(
        self, book: EventBook, publish_times: PublishTimes, spans: SpanBook | None = None
    ) -> None:
        self.book = book
        self.publish_times = publish_times
        self.spans = SpanBook() if spans is None else spans
        self.times = Histogram()  # from queue to acknowledgement, or to a consumer that owes none
        self.left: i64 = 0
        self.quota: i64 = 1

    def begin_interval(self, node_quota: i64, queue_quota: i64) -> None:
        """So many may be taken in it of the node, and of each queue."""
        self.left = node_quota
        self.quota = queue_quota

    def took_one(self) -> None:
        self.left -= 1


@final
class Timing:
    """An open one; ``parent``: the ``traceparent`` of its message, "" = it is in no trace."""

    def __init__(
        self, message: Message, weight: i64, published: tuple[int, int], delivered_ms: WallMs
    ) -> None:
        self.message = message
        self.weight: i64 = weight
        self.published = published
        self.delivered_ms: WallMs = delivered_ms
        self.redelivered: bool = message.flags & REDELIVERED != 0
        self.parent: str = ""

    def follow(self, parent: str) -> None:
        self.parent = parent


@final
class Sampler:
    """Of one queue; ``of_stream``: its consumers may read what is old, which is no delay."""

    def __init__(self, shared: Sampling, vhost: str, name: str, of_stream: bool = False) -> None:
        self.due: i64 = 1  # when so many were delivered
        self.open: dict[Message, Timing] = {}
        self._shared = shared
        self._vhost = vhost
        self._name = name
        self._of_stream: bool = of_stream
        self._every: i64 = 1
        self._quota: i64 = shared.quota  # in this interval
        self._taken: i64 = 0
        self._counted: i64 = 0  # delivered when the last one was taken

    def begin(self, delivered: i64, expected: i64, quota: i64) -> None:
        """An interval in which so many deliveries are expected, and ``quota`` samples wanted."""
        self._every = 1 if expected <= quota else expected // quota
        self._quota = quota
        self._taken = 0
        if self._counted > delivered:
            self._counted = delivered
        if self.due > delivered + self._every:
            self.due = delivered + self._every

    def take(self, message: Message, delivered: i64, no_ack: bool) -> None:
        """``message`` is the sample; so many of the queue were delivered by now."""
        weight = delivered - self._counted
        self.due = delivered + self._every
        if self._shared.left <= 0 or message.flags & SAMPLED or not self._has_room(OPEN_MAX):
            return
        self._shared.took_one()
        self._counted = delivered
        self._taken += 1
        if self._taken >= self._quota:
            self._taken = 0
            self._every *= 2
        book = self._shared.book
        published = self._shared.publish_times(message)
        timing = Timing(message, weight, published, book.now_ms)
        if no_ack:
            self._note(timing, AUTO)
        else:
            self._open(timing)

    def follow(self, message: Message, parent: str, no_ack: bool) -> None:
        """It was just handed out, and belongs to a trace."""
        spans, now_ms = self._shared.spans, self._shared.book.now_ms
        timing = self.open.get(message)
        if timing is None:
            if not self._has_room(FOLLOWED_OPEN_MAX):
                spans.count(0, 1)
                return
            timing = Timing(message, NO_SAMPLE, (0, 0), now_ms)
        timing.follow(parent)
        since_ms = int(message.enqueued_at_ms) if message.enqueued_at_ms > 0 else int(now_ms)
        facts: Facts = (
            ("penstock.redelivered", timing.redelivered),
            ("penstock.seq_id", int(message.seq_id)),
        )
        queue = QUEUE, parent, since_ms, int(now_ms), self._vhost, self._name
        spans.note(Span(*queue, facts))
        if no_ack:
            self._note(timing, AUTO)
        else:
            self._open(timing)

    def _open(self, timing: Timing) -> None:
        message = timing.message
        message.flags |= SAMPLED
        self.open[message] = timing

    def done(self, messages: list[Message], outcome: str) -> None:
        """Their consumer has settled these; called while some are open."""
        for message in messages:
            if _unmark(message):
                timing = self.open.pop(message, None)
                if timing is not None:
                    self._note(timing, outcome)

    def _has_room(self, most: int) -> bool:
        if len(self.open) < most:
            return True
        self.tell_old()
        return len(self.open) < most

    def tell_old(self) -> None:
        """Note those that are open for long; also what a message that is gone has left."""
        now_ms = self._shared.book.now_ms
        kept: dict[Message, Timing] = {}
        for timing in self.open.values():
            if 0 <= now_ms - timing.delivered_ms < OPEN_MAX_MS:
                kept[timing.message] = timing
            else:
                _unmark(timing.message)
                self._note(timing, OPEN)
        self.open = kept

    def _note(self, timing: Timing, outcome: str) -> None:
        message = timing.message
        book = self._shared.book
        if timing.parent != "":
            times = int(timing.delivered_ms), int(book.now_ms)
            facts: Facts = (("penstock.outcome", outcome),)
            delivered = DELIVER, timing.parent, *times, self._vhost, self._name
            self._shared.spans.note(Span(*delivered, facts))
        if timing.weight == NO_SAMPLE:
            return
        published_ms, precision_ms = timing.published
        if (outcome == ACKED or outcome == AUTO) and not self._of_stream:
            self._shared.times.add(book.now_ms - message.enqueued_at_ms, 1)
        settled = None if outcome == OPEN or outcome == AUTO else int(book.now_ms)
        book.note(
            "timing",
            (
                self._vhost,
                self._name,
                int(message.seq_id),
                int(timing.weight),
                published_ms if published_ms > 0 else None,
                precision_ms if published_ms > 0 else None,
                int(message.enqueued_at_ms) if message.enqueued_at_ms > 0 else None,
                int(timing.delivered_ms),
                settled,
                outcome,
                timing.redelivered,
            ),
        )


def _unmark(message: Message) -> bool:
    """Was it a sample until now?"""
    was_sampled = message.flags & SAMPLED != 0
    message.flags &= ~SAMPLED
    return was_sampled
