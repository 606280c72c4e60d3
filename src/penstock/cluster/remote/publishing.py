"""How a queue whose master is elsewhere takes messages: the part of ``RemoteQueue`` that publishes.

    publish ─► a number on the frontier ─► Given ─► the master's node
    Safe ◄─ up to where, and what was refused

What is open, sent or held for the next master, is in the frontier's waits, with its messages: so
nothing is remembered twice.  Numbers go over the link counted from the opening of the queue there.
"""

from mypy_extensions import i64

from penstock.cluster.remote.backing import RemoteBacking
from penstock.cluster.remote.peer_client import UNDER_WAY, PeerClient
from penstock.core import queue_requests as q
from penstock.core.confirm_watermark import ConfirmWatermark, PendingConfirm
from penstock.core.credit import NODE, QUEUE, Credit, FlowPeer, cost_of
from penstock.core.message import Message
from penstock.queues.context import QueueContext, QueueIdentity
from penstock.queues.limits import QueueLimits
from penstock.queues.queue import Queue


class RemotePublishing(Queue):
    """See the head of this file."""

    def __init__(self, identity: QueueIdentity, context: QueueContext) -> None:
        backing = RemoteBacking()
        super().__init__(identity, backing, context)
        self.remote = True
        self.reported = backing
        self.reported_unacked: i64 = 0
        self.reported_consumers: i64 = 0
        self.frontier = ConfirmWatermark(context.waits)
        self.way: PeerClient | None = None
        self._no: i64 = 0
        self._given_base: i64 = 0
        self._credit: Credit | None = None
        self._down: str = ""
        self._away_text: str = ""  # the same, where another node may reach the master
        self._nobody = FlowPeer(context.book, NODE, "unknown")
        self._nobody.why = "where its master is, nobody knows at present"

    def unacked_anywhere(self) -> i64:
        return self.reported_unacked

    def consumers_anywhere(self) -> i64:
        return self.reported_consumers

    def why_down(self) -> str:
        return self._down

    def _forget_reports(self) -> None:
        """Who made them is the master no more."""
        self.reported.reported_count = 0
        self.reported.reported_bytes = 0
        self.reported_unacked = 0
        self.reported_consumers = 0

    def _send(self, request: q.QueueRequest) -> None:
        way = self.way
        if way is not None:
            way.send(request)

    def _open_credit(self, receiver: FlowPeer) -> None:
        """From now on that is who takes what is published, or does not."""
        self._close_credit()
        stage = self.flow
        if stage is None:
            stage = FlowPeer(self._context.book, QUEUE, self)
            self.flow = stage
        self._credit = Credit(stage, receiver, UNDER_WAY)
        stage.down = self._credit

    def _close_credit(self) -> None:
        if self._credit is not None:
            self._credit.close()
            self._credit = None

    # -- publishing ------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: i64) -> None:
        self._publish(messages, 0, now_ms)

    def publish_deferred(self, messages: list[Message], until_ms: i64, now_ms: i64) -> None:
        self._publish(messages, until_ms, now_ms)

    def _publish(self, messages: list[Message], until_ms: i64, now_ms: i64) -> None:
        self.published_count += len(messages)
        self.active_at_ms = now_ms
        wait = self.frontier.number(len(messages))
        wait.elsewhere = True
        wait.messages = messages
        wait.until_ms = until_ms
        wait.away_text = self._away_text
        if self.way is not None:
            self._send_given(wait)
        else:
            wait.held = True
            if self._credit is None:
                self._open_credit(self._nobody)
            self._charge(messages)
            self.wake()  # if it is known that there will be none for long, they are refused then

    def _send_given(self, wait: PendingConfirm) -> None:
        way = self.way
        assert way is not None
        self._charge(wait.messages)
        first = wait.first - self._given_base
        way.send(q.Given(self._no, first, wait.until_ms, wait.messages))

    def _charge(self, messages: list[Message]) -> None:
        credit = self._credit
        if credit is None:
            return
        size: i64 = 0
        for message in messages:
            size += len(message.content)
        credit.send(cost_of(len(messages), size))

    def _refuse_unsent(self) -> None:
        """Their publishers are told no; what is nobody's but the broker's own waits on."""
        waits = self.frontier.take_open()
        self._hold_back([wait for wait in waits if wait.resend])
        self.frontier.give_up([wait for wait in waits if not wait.resend])
        self._open_credit(self._nobody)

    def overflowing(self, messages: list[Message]) -> set[int]:
        """That is for the master to say, later."""
        return set()

    def set_limits(self, limits: QueueLimits) -> None:
        self.limits = limits

    def is_crowded(self) -> bool:
        return False

    def is_eased(self) -> bool:
        return True

    def _hold_back(self, waits: list[PendingConfirm]) -> None:
        """They go to the next master."""
        for wait in waits:
            wait.held = True
            self.frontier.number_again(wait)

    def _send_again(self) -> None:
        """What was published meanwhile, and what is nobody's but the broker's own."""
        waits = self.frontier.take_open()
        self._given_base = self.frontier.numbered
        for wait in waits:
            self.frontier.number_again(wait)
            wait.held = False
            self._send_given(wait)

    # -- what only the master can do -------------------------------------------------------

    def open_range_lease(self, token: int = 0) -> int:
        raise self.reported.elsewhere()

    def take_chosen(self, priority: i64, seq_ids: list[int]) -> list[Message]:
        raise self.reported.elsewhere()
