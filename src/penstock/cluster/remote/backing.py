"""``RemoteBacking``: the backing of a queue whose messages rest on another node.

It holds nothing but what the master's node last said of it, for those who count messages.  Nothing
is ever fetched here: ``RemoteQueue`` has what arrives.  A request to look at its messages,
or to choose some, is told on which node that is possible (``QueueElsewhere``).
"""

from typing import final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.remote.master import Master
from penstock.core.errors import NoMaster, QueueElsewhere
from penstock.core.queue_requests import State


@final
class RemoteBacking(BackingQueue):
    """See the head of this file."""

    def __init__(self, master: Master) -> None:
        self.reported_count: i64 = 0
        self.reported_bytes: i64 = 0
        self.reported_unacked: i64 = 0
        self.reported_consumers: i64 = 0
        self._master = master

    def elsewhere(self) -> QueueElsewhere:
        """To be raised."""
        way = self._master.way
        if way is None:
            why = self._master.down or "this queue has no master at present: it waits for its next"
            return NoMaster(why)
        return QueueElsewhere(
            f"the master of this queue is on another node: ask '{way.node}' to look at or choose"
            " its messages"
        )

    def take(self, state: State) -> None:
        self.reported_count = state.ready_count
        self.reported_bytes = state.ready_bytes
        self.reported_unacked = state.unacked_count
        self.reported_consumers = state.consumer_count

    def left(self, count: i64) -> None:
        """So many are ready after one was got."""
        self.reported_count = count

    def forget(self) -> None:
        """The node that reported is the master no more."""
        self.reported_count = 0
        self.reported_bytes = 0
        self.reported_unacked = 0
        self.reported_consumers = 0

    # -- what is known --------------------------------------------------------------------

    def ready_count(self) -> i64:
        return self.reported_count

    def ready_bytes(self) -> i64:
        return self.reported_bytes

    def why_stopped(self) -> str:
        return ""

    def set_reader(self, reader: object) -> None:
        """Nothing arrives from a disk."""

    def check(self) -> None:
        assert self.reported_count >= 0

    # -- what cannot be here --------------------------------------------------------------

    def positions(self) -> VariableQueue:
        raise self.elsewhere()
