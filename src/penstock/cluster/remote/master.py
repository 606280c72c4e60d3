"""``Master``: the master of a remote queue, as that queue knows it.

Numbers of deliveries go over the link counted from ``base``: so what an earlier master delivered
cannot be mistaken for anything of this one.
"""

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from penstock.cluster.remote.peer_client import PeerClient
from penstock.core import queue_requests as q
from penstock.core.errors import BrokerError, NotFound, Unavailable
from penstock.core.message import Message

if TYPE_CHECKING:
    from penstock.cluster.remote.queue import RemoteQueue

BASE_SHIFT: Final[i64] = 40
"""Deliveries of the n-th master a queue follows are numbered from ``n << 40``."""


@final
class Master:
    """Of one queue; ``no`` is the queue's number at the link ``way``, None while there is none."""

    def __init__(self) -> None:
        self.way: PeerClient | None = None
        self.no: i64 = 0
        self.base: i64 = 0
        self.is_open: bool = False  # it has answered as the master
        self.down: str = ""  # why no master is expected
        self.no_mirror: bool = False  # and no copy may take its place
        self.away_text: str = ""  # the same as ``down``, where another node may reach the master

    def open(self, way: PeerClient, queue: "RemoteQueue") -> None:
        self.expect()
        self.no_mirror = False
        self.way = way
        self.no = way.open(queue)
        self.is_open = False
        self.base = ((self.base >> BASE_SHIFT) + 1) << BASE_SHIFT
        way.send(q.Open(self.no, queue.vhost, queue.name))

    def opened(self) -> None:
        self.is_open = True

    def close(self) -> None:
        way = self.way
        if way is not None:
            way.send(q.Close(self.no))
            way.forget(self.no)

    def forget(self) -> None:
        """It has said that it is none."""
        if self.way is not None:
            self.way.forget(self.no)

    def lose(self) -> None:
        self.way = None

    def expect(self) -> None:
        """There is one, or will be soon."""
        self.down = self.away_text = ""

    def give_up(self, why: str, *, no_mirror: bool = False, elsewhere: bool = False) -> None:
        self.down = why
        self.no_mirror = no_mirror
        self.away_text = why if elsewhere else ""

    def send(self, request: q.QueueRequest) -> None:
        way = self.way
        if way is not None:
            way.send(request)

    def refusal(self) -> BrokerError:
        """There is no master for some time: to be raised."""
        return NotFound(self.down) if self.away_text == "" else Unavailable(self.away_text)

    def delivered(self, message: Message) -> bool:
        """Was it this one?"""
        return message.seq_id > self.base
