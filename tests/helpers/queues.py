"""A queue without a broker."""

from __future__ import annotations

from penstock.backing.interface import BackingQueue
from penstock.core.confirm_watermark import PendingConfirms
from penstock.core.credit import FlowBook
from penstock.core.events.book import EventBook
from penstock.queues.context import QueueContext, QueueIdentity
from penstock.queues.local import LocalQueue
from penstock.queues.sampling import Sampling, no_times


def new_context(book: FlowBook | None = None) -> QueueContext:
    sampling = Sampling(EventBook(), no_times)
    return QueueContext(PendingConfirms(), book or FlowBook(), sampling)


def identity(
    name: str = "q",
    *,
    durable: bool = False,
    incarnation: str = "life",
    arguments: dict[str, object] | None = None,
) -> QueueIdentity:
    return QueueIdentity("/", name, incarnation, durable, False, arguments or {})


def local_queue(
    backing: BackingQueue,
    context: QueueContext | None = None,
    *,
    name: str = "q",
    incarnation: str = "life",
) -> LocalQueue:
    who = identity(name, incarnation=incarnation)
    return LocalQueue(who, backing, context or new_context())
