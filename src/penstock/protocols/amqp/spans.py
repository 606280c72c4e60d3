"""The spans of messages that belong to a trace: their publish, and what they wait for in queues.

In: what is published and delivered while the broker's ``SpanBook`` is on.  Out: a span of the
publish, with its route, for each message whose header ``traceparent`` has the flag that its
publisher records the trace; at a delivery its queue is asked to watch it (``Sampler.follow``).

A route has no span of its own: it is found once per address and remembered, so that it takes no
time a message could be charged with.  Messages of streams have a span of their publish only: they
wait for no consumer.  While the book is off, a run and a delivery cost one look at ``on`` each.
"""

from penstock.core.clock_types import WallMs
from penstock.core.message import Address, Message
from penstock.core.spans import PUBLISH, Facts, Span
from penstock.protocols.amqp.codec.trace_context import trace_parent
from penstock.protocols.amqp.link import Link
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue

NAMES_MAX = 16
"""Queues that a span names; their number is always there."""


def note_publishes(
    link: Link, address: Address, messages: list[Message], queues: list[Queue], read_ms: WallMs
) -> None:
    """They go to these queues; they were read then."""
    spans = link.broker.queue_context.sampling.spans
    for message in messages:
        parent = trace_parent(message.content)
        if parent != "" and spans.wants(parent):
            names = sorted(queue.name for queue in queues if queue.releases_to is None)
            facts: Facts = (
                ("messaging.rabbitmq.destination.routing_key", address.routing_key),
                ("messaging.message.envelope.size", int(message.size)),
                ("penstock.queues", tuple(names[:NAMES_MAX])),
                ("penstock.queue_count", len(names)),
            )
            times = int(read_ms), int(link.now_ms)
            span = PUBLISH, parent, *times, link.vhost.name, address.exchange
            spans.note(Span(*span, facts))


def follow_deliveries(link: Link, queue: Queue, messages: list[Message], no_ack: bool) -> None:
    """They were just handed to a consumer."""
    if not isinstance(queue, LocalQueue):
        return
    sampling = link.broker.queue_context.sampling
    statistics = queue.statistics
    for message in messages:
        parent = trace_parent(message.content)
        if parent != "" and sampling.spans.wants(parent):
            if statistics.sampler is None:  # there is no event log
                statistics.start_sampling(sampling, queue.vhost, queue.name)
            sampler = statistics.sampler
            assert sampler is not None
            sampler.follow(message, parent, no_ack)
