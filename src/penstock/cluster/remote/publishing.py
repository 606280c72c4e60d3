"""How a queue whose master is elsewhere takes messages: the part of ``RemoteQueue`` that publishes.

    publish ─► a number on the watermark ─► Given ─► the master's node
    Safe ◄─ up to where, and what was refused

What is open, sent or held, is in the watermark's waits, with its messages: so nothing is remembered
twice.  Numbers go over the link counted from the opening of the queue there.

While there is no master, or no connection to its node, what is published is held: it is sent as
soon as there is one, to that master or to the next.  Credit bounds it: beyond that the queue is in
flow, and waits for that node.
"""

from typing import final

from mypy_extensions import i64

from penstock.cluster.remote.master import Master
from penstock.cluster.remote.peer_client import UNDER_WAY, PeerClient
from penstock.core import queue_requests as q
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import ConfirmWatermark, PendingConfirm
from penstock.core.credit import NODE, Credit, FlowPeer, cost_of
from penstock.core.message import Message
from penstock.queues.context import QueueContext
from penstock.queues.queue import Queue


@final
class RemotePublishing:
    """See the head of this file."""

    def __init__(self, queue: Queue, master: Master, context: QueueContext) -> None:
        self.watermark = ConfirmWatermark(context.waits)
        self._queue = queue
        self._master = master
        self._base: i64 = 0  # of the numbers under which messages are sent
        self._credit: Credit | None = None
        why = "where its master is, is not known at present"
        self._no_receiver = FlowPeer(context.book, NODE, "unknown", why)

    # -- credit ----------------------------------------------------------------------------

    def _open_credit(self, receiver: FlowPeer) -> None:
        """From now on that stage takes what is published, or does not."""
        self._credit = self._queue.flow_stage().send_down(receiver, UNDER_WAY)

    def _charge(self, messages: list[Message]) -> None:
        credit = self._credit
        if credit is None:
            return
        size: i64 = 0
        for message in messages:
            size += len(message.content)
        credit.send(cost_of(len(messages), size))

    # -- publishing ------------------------------------------------------------------------

    def publish(self, messages: list[Message], until_ms: WallMs) -> bool:
        """``until_ms``: none is ready before; 0 = at once.  False = they wait for a master."""
        away_text = self._master.away_text
        wait = self.watermark.number(len(messages), away_text, messages, until_ms)
        way = self._master.way
        if self._credit is None:
            self._open_credit(self._no_receiver)
        self._charge(messages)
        self._send(wait)
        return way is not None

    def _send(self, wait: PendingConfirm) -> None:
        """Or hold it, while there is no connection."""
        way = self._master.way
        if way is None or not way.is_connected:
            wait.hold()
            return
        wait.sent()
        first = wait.first - self._base
        way.send(q.Given(self._master.no, first, wait.until_ms, wait.messages))

    def connected(self) -> None:
        """There is a connection to the master's node again."""
        for wait in self.watermark.held():
            self._send(wait)

    def _hold_back(self, waits: list[PendingConfirm]) -> None:
        """They go to the next master."""
        for wait in waits:
            wait.hold()
            self.watermark.number_again(wait)

    # -- what the master says ----------------------------------------------------------------

    def safe(self, upto: i64, refused: list[int]) -> None:
        for number in refused:
            self.watermark.refuse(self._base + number)
        self.watermark.advance(self._base + upto)

    def taken(self, cost: i64) -> None:
        if self._credit is not None:
            self._credit.ack(cost)

    # -- masters come and go -----------------------------------------------------------------

    def follow(self, way: PeerClient) -> None:
        """What was published meanwhile is sent, and what the broker itself publishes."""
        self._open_credit(way.stage)
        waits = self.watermark.take_open()
        self._base = self.watermark.numbered
        for wait in waits:
            self.watermark.number_again(wait)
            self._charge(wait.messages)
            self._send(wait)

    def lose(self) -> None:
        """The master is lost: what was sent is refused, or held for the next one."""
        self._open_credit(self._no_receiver)
        self._hold_back(self.watermark.lose())

    def refuse_unsent(self) -> None:
        """They are refused; what the broker itself publishes waits on."""
        waits = self.watermark.take_open()
        self._hold_back([wait for wait in waits if wait.resend])
        self.watermark.give_up([wait for wait in waits if not wait.resend])
        self._open_credit(self._no_receiver)

    def give_up(self) -> None:
        """There will be no master any more."""
        self.watermark.give_up(self.watermark.take_open())
