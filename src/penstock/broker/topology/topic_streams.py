"""``TopicStream``: the stream of a topic of NSQ whose messages stay.

The stream is bound to the topic's exchange and has its name; it is made for a policy
(``nsq-topic-type``), or declared and bound by a user.  What is published is appended to it, and
nothing is routed to channels.  Each has a position in the log, and takes from there what its
consumers have room for (``queues/stream_feed.py``).  So a message is in a channel while it is in
flight or deferred, one copy is there of what channels have not taken, and a channel that is made
later may begin at any place (``nsq-start``).  Deferred messages stay in the topic's backlog until
their time.  Other queues and exchanges that are bound get what is published, as from any topic.

In a cluster this is refused: a channel reads the log's files, so its queue would have to be on the
node of the stream's master, and to move with it.

Rejected: channels that are readers, with heaps of their own for what is in flight and deferred.  A
queue has these, on disk, with attempts.  With heaps in memory a message that is deferred for an
hour would hold the position back for so long, and a crash would give all of that hour again.
"""

from collections.abc import Callable, Iterable
from typing import final

from penstock.core.errors import NotImplementedYet, PreconditionFailed
from penstock.queues.local import LocalQueue
from penstock.queues.queue import Queue
from penstock.queues.stream import StreamQueue
from penstock.routing.exchanges import Exchange
from penstock.streams.marks import POSITIONS_MAX


def check_alone(in_cluster: bool) -> None:
    if in_cluster:
        raise NotImplementedYet("topics of NSQ that are streams, in a cluster")


@final
class TopicStream:
    """Of one topic; ``log`` None: it is no stream.

    ``start_of``: where a channel with that queue begins (``nsq-start``), "" = that is not said.
    """

    def __init__(self, exchange: Exchange, paused: bool, start_of: Callable[[Queue], str]) -> None:
        self.log: StreamQueue | None = None
        self._exchange = exchange
        self._paused: bool = paused
        self._start_of = start_of

    def check_binding(self, queue: Queue, channels: int, in_cluster: bool) -> None:
        """Of a stream, or of a channel's queue, where there are so many channels.

        Raises NotImplementedYet or PreconditionFailed.
        """
        if queue.is_stream:
            if queue.name != self._exchange.name:
                raise NotImplementedYet("streams as channels of NSQ")
            check_alone(in_cluster)
            if channels > POSITIONS_MAX:
                raise PreconditionFailed(f"a stream has {int(POSITIONS_MAX)} channels at most")
        elif self.log is not None and queue.durable:
            self.log.check_room(queue.name)

    def follow(self, queue: Queue, channels: list[Queue]) -> None:
        """A binding of the queue with the name of the exchange came or went."""
        bound = self._exchange.leads_to(queue)
        if not isinstance(queue, StreamQueue) or bound == (self.log is queue):
            return
        if not bound:
            for channel in channels:
                self.end_feed(channel)
        self.log = queue if bound else None
        for channel in channels:
            self.feed(channel, len(channels) == 1)

    def feed(self, queue: Queue, alone: bool) -> None:
        """A channel, ``alone`` or one of several, takes from the stream if there is one."""
        log = self.log
        if log is not None and isinstance(queue, LocalQueue):
            self._exchange.set_apart(queue, True)
            queue.feed_from(log.feed(queue, self._start_of(queue), alone))
            self._pause(queue)

    def end_feed(self, queue: Queue) -> None:
        """It is no channel any more, or its topic no stream."""
        log = self.log
        if log is not None and isinstance(queue, LocalQueue):
            log.end_feed(queue)
            self._exchange.set_apart(queue, False)
            queue.feed_from(None)

    def pause(self, paused: bool, channels: Iterable[Queue]) -> None:
        """While it is paused, these take nothing."""
        self._paused = paused
        for queue in channels:
            self._pause(queue)

    def _pause(self, queue: Queue) -> None:
        if isinstance(queue, LocalQueue) and queue.feed is not None:
            queue.feed.pause(self._paused)

    def feeds(self, queue: Queue) -> bool:
        """Does the queue take from it, and is nothing routed there?"""
        fed = isinstance(queue, LocalQueue) and queue.feed is not None
        return fed and id(queue) in self._exchange.apart
