"""The spans of messages that belong to a trace: their publish, and what they wait for in queues.

In: what is published and delivered while the broker's ``SpanBook`` is on.  Out: a span of the
publish, with its route, for each message whose header ``traceparent`` has the flag that its
publisher records the trace; at a delivery its queue is asked to watch it (``Sampler.follow``).

A route has no span of its own: it is found once per address and remembered, so that it takes no
time a message could be charged with.  A message of a stream is watched at each of its consumers.
While the book is off, a run and a delivery cost one look at ``on`` each.
"""

from penstock.core.clock_types import WallMs
from penstock.core.counting.spans import PUBLISH, Facts, Span
from penstock.core.message import SAMPLED, Address, Message
from penstock.protocols.amqp.codec.trace_context import trace_parent
from penstock.protocols.amqp.link import Link
from penstock.queues.allocator import Delivery
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.queues.stream import StreamQueue

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


def follow_deliveries(link: Link, queue: Queue, delivery: Delivery) -> None:
    """It was just made; what of it is kept until it is settled is not kept anywhere else yet."""
    if not isinstance(queue, (LocalQueue, StreamQueue)):
        return
    sampling = link.broker.queue_context.sampling
    statistics = queue.statistics
    for place, message in enumerate(delivery.messages):
        parent = trace_parent(message.content)
        if parent != "" and sampling.spans.wants(parent):
            if statistics.sampler is None:  # there is no event log
                statistics.start_sampling(sampling, queue.vhost, queue.name, queue.is_stream)
            sampler = statistics.sampler
            assert sampler is not None
            kept = delivery.kept
            if queue.is_stream and kept[place] is message and message.flags & SAMPLED == 0:
                kept[place] = message.separated()  # other consumers get the same object
            sampler.follow(kept[place], parent, delivery.consumer.no_ack)
