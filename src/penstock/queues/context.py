"""What a queue is made with: its identity, and what all queues of a node share."""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import mypyc_attr

from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.counting.traffic import DropCounters
from penstock.core.credit import FlowBook
from penstock.core.long_work import LongWorks
from penstock.queues.limits import DeadLetterBatch
from penstock.queues.sampling import Sampling

if TYPE_CHECKING:
    from penstock.queues.queue import Queue

CLASSIC: Final = "classic"
QUORUM: Final = "quorum"
STREAM: Final = "stream"
QUEUE_TYPES: Final = (CLASSIC, QUORUM, STREAM)
LASTING_TYPES: Final = (QUORUM, STREAM)
_NO_ARGUMENTS: Final[dict[str, object]] = {}
"""Of all queues that have none."""


def queue_type(arguments: dict[str, object]) -> str:
    """One of ``QUEUE_TYPES``, of arguments that were checked."""
    kind = arguments.get("x-queue-type")
    return kind if isinstance(kind, str) and kind in LASTING_TYPES else CLASSIC


def can_last(durable: bool, exclusive: bool, auto_delete: bool) -> bool:
    """A queue of a type of ``LASTING_TYPES`` is durable, of no connection, and stays."""
    return durable and not exclusive and not auto_delete


@final
@mypyc_attr(acyclic=True)
class QueueIdentity:
    """As declared, by ``user``, "" = it is not known, or the node itself.

    ``incarnation`` tells a queue from an earlier one of its name.
    """

    def __init__(
        self,
        vhost: str,
        name: str,
        incarnation: str,
        durable: bool,
        auto_delete: bool,
        arguments: dict[str, object],
        user: str = "",
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.incarnation = incarnation
        self.durable = durable
        self.auto_delete = auto_delete
        self.arguments = arguments or _NO_ARGUMENTS
        self.user = user


@final
class QueueContext:
    """Of one node.

    ``wakeups``  queues that may have something to deliver, in turn
    ``urgent``   those of them with messages whose time to live is 0: now or never
    ``refills``  queues whose consumers have nearly full windows: their turn may come later
    ``deaths``   messages that died in this turn, to become dead letters
    ``long_works``  what one turn cannot hold
    ``dropped``  counts messages that died and became none
    ``waits``    publishes that other nodes have still to confirm
    """

    def __init__(
        self,
        waits: PendingConfirms,
        book: FlowBook,
        sampling: Sampling,
        long_works: LongWorks | None = None,
    ) -> None:
        self.wakeups: dict[Queue, None] = {}
        self.urgent: dict[Queue, None] = {}
        self.refills: list[Queue] = []
        self.deaths: list[DeadLetterBatch] = []
        self.dropped = DropCounters()
        self.long_works = LongWorks(book) if long_works is None else long_works
        self.waits = waits
        self.book = book
        self.sampling = sampling
