"""The requests and answers between two nodes about queues whose master is on one of them.

    to the master's node      Open, Close, Given, Subscribe, Window, Unsubscribe, Settle, Ask
    back                      Gone, Safe, Taken, Delivered, Cancelled, Answered, State

Values only: ``cluster`` makes and interprets them, ``protocols.peers`` writes and reads them, and
neither knows the other.  ``no`` is the number under which a node has opened a queue at another one;
it is never used again between the same two.  Publishes, deliveries and questions of one such
opening are numbered from 1.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core import errors as kinds
from penstock.core.clock_types import WallMs
from penstock.core.message import Message

ACK: Final = 0
REJECT: Final = 1
REQUEUE: Final = 2
GIVE_BACK: Final = 3
"""Kinds of ``Settle``."""

GET: Final = 0
COUNTS: Final = 2
PURGE: Final = 3
READ: Final = 4
EMPTY: Final = 5
FACTS: Final = 6
"""What is asked; ``READ``: the next messages of a history, none = that was all; ``FACTS``: one
message whose content is JSON, what the management shows of a stream."""

NO_ACK: Final = 4
"""Flag of ``Ask``."""

ANY_WINDOW: Final[i64] = -1
ERRORS: Final[dict[str, type[kinds.BrokerError]]] = {
    one.__name__: one
    for one in (
        kinds.BrokerError,
        kinds.NotFound,
        kinds.AccessRefused,
        kinds.ResourceLocked,
        kinds.PreconditionFailed,
        kinds.NotAllowed,
        kinds.CommandInvalid,
        kinds.NotImplementedYet,
    )
}
"""By the names under which they travel."""


class QueueRequest:
    """Anything of the lists above."""

    def __init__(self, no: i64) -> None:
        self.no: i64 = no


@final
class Open(QueueRequest):
    """From now on ``no`` means that queue."""

    def __init__(self, no: i64, vhost: str, name: str) -> None:
        super().__init__(no)
        self.vhost = vhost
        self.name = name


@final
class Close(QueueRequest):
    """Consumers go, and what they hold is put back."""


@final
class Given(QueueRequest):
    """Messages for the queue; ``until_ms``: not delivered before, 0 = at once."""

    def __init__(self, no: i64, first: i64, until_ms: WallMs, messages: list[Message]) -> None:
        super().__init__(no)
        self.first: i64 = first
        self.until_ms: WallMs = until_ms
        self.messages = messages


@final
class Subscribe(QueueRequest):
    """A consumer; ``question`` is answered (0 = only if it is refused: ``Cancelled``)."""

    def __init__(
        self,
        no: i64,
        consumer: i64,
        question: i64,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        priority: i64,
        window: i64,
        arguments: dict[str, object],
    ) -> None:
        super().__init__(no)
        self.consumer: i64 = consumer
        self.question: i64 = question
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.priority: i64 = priority
        self.window: i64 = window
        self.arguments = arguments


@final
class Window(QueueRequest):
    """It may hold so many, and so much of what was sent to it has been handed on."""

    def __init__(self, no: i64, consumer: i64, window: i64, taken_bytes: i64) -> None:
        super().__init__(no)
        self.consumer: i64 = consumer
        self.window: i64 = window
        self.taken_bytes: i64 = taken_bytes


@final
class Unsubscribe(QueueRequest):
    """What it holds stays with it until settled."""

    def __init__(self, no: i64, consumer: i64) -> None:
        super().__init__(no)
        self.consumer: i64 = consumer


@final
class Settle(QueueRequest):
    """Deliveries to one consumer (0 = got), by their numbers: first and last of each run."""

    def __init__(
        self, no: i64, consumer: i64, kind: i64, delay_ms: i64, runs: list[tuple[int, int]]
    ) -> None:
        super().__init__(no)
        self.consumer: i64 = consumer
        self.kind: i64 = kind
        self.delay_ms: i64 = delay_ms
        self.runs = runs


@final
class Ask(QueueRequest):
    """Answered by ``Answered`` with the same ``question``."""

    def __init__(self, no: i64, question: i64, verb: i64, flags: i64) -> None:
        super().__init__(no)
        self.question: i64 = question
        self.verb: i64 = verb
        self.flags: i64 = flags


# -- back ----------------------------------------------------------------------------------


@final
class Gone(QueueRequest):
    """There is no such queue, or its master is elsewhere."""


@final
class Safe(QueueRequest):
    """Publishes up to there are safe, but those that were refused."""

    def __init__(self, no: i64, upto: i64, refused: list[int]) -> None:
        super().__init__(no)
        self.upto: i64 = upto
        self.refused = refused


@final
class Taken(QueueRequest):
    """Publishes of that cost are dealt with: so much more may be sent."""

    def __init__(self, no: i64, cost: i64) -> None:
        super().__init__(no)
        self.cost: i64 = cost


@final
class Delivered(QueueRequest):
    """Messages for a consumer, numbered from ``first`` on unless it acknowledges nothing."""

    def __init__(
        self, no: i64, consumer: i64, first: i64, again_count: i64, messages: list[Message]
    ) -> None:
        super().__init__(no)
        self.consumer: i64 = consumer
        self.first: i64 = first
        self.again_count: i64 = again_count
        self.messages = messages


@final
class Cancelled(QueueRequest):
    """The consumer is none any more."""

    def __init__(self, no: i64, consumer: i64) -> None:
        super().__init__(no)
        self.consumer: i64 = consumer


@final
class Answered(QueueRequest):
    """``error``: its kind, "" = none; what was got is delivery ``first``."""

    def __init__(
        self,
        no: i64,
        question: i64,
        error: str,
        text: str,
        value: i64,
        first: i64,
        messages: list[Message],
    ) -> None:
        super().__init__(no)
        self.question: i64 = question
        self.error = error
        self.text = text
        self.value: i64 = value
        self.first: i64 = first
        self.messages = messages


@final
class State(QueueRequest):
    """How the queue is at its master, for management."""

    def __init__(
        self, no: i64, ready_count: i64, ready_bytes: i64, unacked_count: i64, consumer_count: i64
    ) -> None:
        super().__init__(no)
        self.ready_count: i64 = ready_count
        self.ready_bytes: i64 = ready_bytes
        self.unacked_count: i64 = unacked_count
        self.consumer_count: i64 = consumer_count


def in_runs(numbers: list[int]) -> list[tuple[int, int]]:
    """First and last of each run, in the order given."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] + 1 == number:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs
