"""``PeerClient``: what this node says to another one about queues whose masters are there.

    RemoteQueue ─► requests ─► the link        the link ─► answers ─► RemoteQueue, by ``no``

The link carries what is in ``requests`` in order, once, and gives what comes back to ``hear``; it
exists as long as both members live.  When the other one is gone, ``lost`` leaves its queues without
a master until they are told the next one (``RemoteQueue.follow``).

Credit: so much of what is published may be under way to the other node, for each queue.  What is
not acknowledged blocks the queue (it is *in flow*, and waits for the node), and it its publishers.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.credit import NODE, CreditSpec, FlowBook, FlowPeer
from penstock.core.queue_requests import QueueRequest
from penstock.queues.consumers import Consumer

if TYPE_CHECKING:
    from penstock.cluster.remote.queue import RemoteQueue
    from penstock.cluster.remote.remote_history import RemoteHistory

UNDER_WAY: Final = CreditSpec(4000, 800)
"""Messages, or KiB, of one queue."""
TAKES: Final = "what was published waits to be taken by that node"
BROKEN: Final = "the link to that node is broken: what is published waits for it"


@final
class PeerClient:
    """Of one link."""

    def __init__(self, book: FlowBook, node: str) -> None:
        self.node = node
        self.alive: bool = True
        self.is_connected: bool = True
        self.requests: list[QueueRequest] = []
        self.cancelled: list[Consumer] = []  # to be told so
        self.stage = FlowPeer(book, NODE, node, TAKES)
        self._queues: dict[int, RemoteQueue | RemoteHistory] = {}
        self._last_no: i64 = 0

    def connection_is(self, is_connected: bool) -> None:
        """Once a turn: is there a connection to the other node?"""
        if is_connected == self.is_connected:
            return
        self.is_connected = is_connected
        self.stage.explain(TAKES if is_connected else BROKEN)
        if is_connected:
            for queue in self._queues.values():
                queue.connected()

    def open(self, queue: "RemoteQueue | RemoteHistory") -> i64:
        self._last_no += 1
        self._queues[int(self._last_no)] = queue
        return self._last_no

    def forget(self, no: i64) -> None:
        self._queues.pop(int(no), None)

    def send(self, request: QueueRequest) -> None:
        if self.alive:
            self.requests.append(request)

    def take_requests(self) -> list[QueueRequest]:
        requests = self.requests
        self.requests = []
        return requests

    def take_cancelled(self) -> list[Consumer]:
        cancelled = self.cancelled
        self.cancelled = []
        return cancelled

    def hear(self, answers: list[QueueRequest], now_ms: WallMs) -> None:
        for answer in answers:
            queue = self._queues.get(int(answer.no))
            if queue is not None:  # else it was closed meanwhile
                queue.hear(answer, now_ms)

    def lost(self) -> None:
        """The other member is gone for good."""
        self.alive = False
        self.requests = []
        queues = list(self._queues.values())
        self._queues = {}
        for queue in queues:
            queue.lost_way()
