"""``RemoteHistory``: the history of an exchange as another node has it, read to its end.

    Open, Ask ─► the other node          a slice ─► ``Gathered``, and Ask again; none ─► Close

It reads on when the client that asked for the binding is gone: it ends by itself.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.topology.histories import Gathered
from penstock.cluster.remote.peer_client import PeerClient
from penstock.core import queue_requests as q
from penstock.core.clock_types import WallMs

QUESTION: Final[i64] = 1
"""Its only one: an answer is awaited before it is asked again."""


@final
class RemoteHistory:
    """At the node behind ``way``, called ``name``."""

    def __init__(self, way: PeerClient, vhost: str, name: str, gathered: Gathered) -> None:
        self._way = way
        self._gathered = gathered
        self._no: i64 = way.open(self)
        gathered.await_queue()
        way.send(q.Open(self._no, vhost, name))
        self._ask()

    def _ask(self) -> None:
        self._way.send(q.Ask(self._no, QUESTION, q.READ, 0))

    def hear(self, answer: q.QueueRequest, now_ms: WallMs) -> None:
        if isinstance(answer, q.Answered) and answer.messages:
            self._gathered.take(answer.messages)
            self._ask()
        elif isinstance(answer, q.Answered):
            self._way.send(q.Close(self._no))
            self._end()
        elif isinstance(answer, q.Gone):
            self._end()  # it has no such exchange any more

    def _end(self) -> None:
        self._way.forget(self._no)
        self._gathered.queue_ended()

    def connected(self) -> None:
        """What was asked was kept by the link: nothing is to be sent again."""

    def lost_way(self) -> None:
        """Its node is gone: without what it has."""
        self._gathered.queue_ended()
