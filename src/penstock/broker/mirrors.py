"""``Mirrors``: what operators ask of mirrored queues; and what they are told, ``MirrorFacts``.

In: a queue of this node's virtual hosts, wherever its master is.  Out: who has copies of it and how
far they are, or that something was begun: what changes the cluster ends in proposals, so every verb
here may raise ``Unavailable`` (the cluster cannot decide).

``broker.mirrors`` of a node that stands alone is this very class: no queue has mirrors, there is
no other node to hand anything to, and verbs about one queue's mirrors refuse with RabbitMQ's words.
A node of a cluster has a subclass (``cluster/mirrors/mirroring.py``).

What only the master knows (how far each mirror is) is None in the facts of other nodes.  Nothing
here is kept: facts are made when they are asked for.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final, final

from penstock.core.errors import NotFound, PreconditionFailed
from penstock.queues.context import CLASSIC, QUORUM
from penstock.queues.queue import Queue

ALL_KINDS: Final = "all"
KINDS: Final = (ALL_KINDS, CLASSIC, QUORUM)
"""Of queues, for ``rebalance``."""

MASTER: Final = "master"
MIRROR: Final = "mirror"

RUNNING: Final = "running"
SYNCING: Final = "syncing"
DOWN: Final = "down"
WAITING: Final = "waiting"


class NotMirrored(PreconditionFailed):
    """The queue has no mirrors; RabbitMQ's programs say ``not_mirrored``."""


@final
@dataclass(slots=True)
class SyncProgress:
    """Of one mirror that fetches what it lacks."""

    done: int  # messages compared or sent
    total: int  # messages there were and are, about
    sent_bytes: int
    rate: int | None  # messages per second since it began; None = only the master knows
    eta_ms: int  # -1 = not known yet


@final
@dataclass(slots=True)
class CopyFacts:
    """One copy at a member that lives.

    ``synced``: it has everything, as far as this node knows; ``votes``: of a quorum queue, it
    counts for a majority, though it may be fetching what it lacks.
    ``applied`` and ``durable`` are numbers of parcels of this term, ``behind`` how many of the
    master's are not applied; None where only the master knows.
    """

    node: str
    member: str
    role: str  # MASTER or MIRROR
    _: KW_ONLY
    synced: bool
    votes: bool = False
    applied: int | None = None
    durable: int | None = None
    behind: int | None = None
    sync: SyncProgress | None = None


@final
@dataclass(slots=True)
class RingFacts:
    """The circle of the queue's members, from the first to its right neighbour and so on."""

    version: int
    members: list[str]
    dead: list[str]  # of these: their broadcasts are still going round
    left: str = ""  # of this node; "" = it is not in the ring
    right: str = ""
    kept_bytes: int | None = None  # broadcasts that have not come round
    full: bool = False  # this node has caught up with what the others know


@final
@dataclass(slots=True)
class MirrorFacts:
    """``copies``: the master first, then its mirrors, the eldest first; none = the queue is down.

    ``recoverable``: nodes that are not there, and what they had: "synced" or "partial".
    ``members``: of a quorum queue, the nodes with a copy and those that shall have one.
    """

    version: int
    term: int
    copies: list[CopyFacts]
    recoverable: dict[str, str]
    ring: RingFacts | None = None
    mode: str = ""  # of the policy, in words: "exactly 2, automatic"
    state: str = RUNNING  # or SYNCING, DOWN, WAITING
    why: str = ""  # in words, what of it is not as it should be
    members: tuple[str, ...] = ()

    def master(self) -> str:
        """Its node; "" = there is none."""
        for copy in self.copies:
            if copy.role == MASTER:
                return copy.node
        return ""

    def online(self) -> list[str]:
        """Those of ``members`` that run."""
        return [node for node in self.members if node not in self.recoverable]

    def slave_nodes(self) -> list[str]:
        return [copy.node for copy in self.copies if copy.role == MIRROR]

    def synchronised_slave_nodes(self) -> list[str]:
        return [copy.node for copy in self.copies if copy.role == MIRROR and copy.synced]

    def recoverable_slaves(self) -> list[str]:
        """As RabbitMQ has them: each node with a copy but the master, running or not."""
        return [*self.slave_nodes(), *self.recoverable]

    def complete_node(self) -> str:
        """A node that is away and has all messages of a queue without a master, "" = none has."""
        return next((node for node, had in self.recoverable.items() if had == "synced"), "")

    def is_quorum_critical(self, node: str) -> bool:
        """Of a quorum queue: would it lack a majority without that node, or has it just one?"""
        able = [copy.node for copy in self.copies if copy.votes and copy.synced]
        voting = [copy.node for copy in self.copies if copy.votes]
        count = len(voting) + list(self.recoverable.values()).count("synced")
        return bool(self.members) and node in able and len(able) <= count // 2 + 1

    def lacks_leader(self) -> bool:
        """Of a quorum queue."""
        return bool(self.members) and self.master() == ""

    def is_sync_critical(self, node: str) -> bool:
        """Would the queue be down without that node?  RabbitMQ's health check asks the same."""
        return not self.members and self.master() == node and not self.synchronised_slave_nodes()


@final
@dataclass(slots=True, repr=False)
class MasterMove:
    """A master that goes from one node to another."""

    vhost: str
    queue: str
    source: str
    target: str

    def __repr__(self) -> str:
        return f"{self.queue} in {self.vhost}: {self.source} to {self.target}"


class Mirrors:
    # -- looking -----------------------------------------------------------------------------

    def mirrored(self) -> list[tuple[str, str]]:
        """Virtual host and name of each queue that has facts."""
        return []

    def facts(self, queue: Queue) -> MirrorFacts | None:
        """None = it is not mirrored."""
        return None

    def changes(self) -> dict[str, int]:
        """What became of copies, by kind of change, as far as it was this node's to count."""
        return {}

    def drained(self) -> list[str]:
        """Nodes that take no masters until they are revived."""
        return []

    def leaving(self, node: str) -> list[tuple[str, str]]:
        """Virtual host and name of each queue whose master is there and could be on another node.

        That is one that runs, takes masters, and has a synchronised mirror, or one that is being
        synchronised.
        """
        return []

    # -- one queue ---------------------------------------------------------------------------

    def sync(self, queue: Queue) -> None:
        """Its mirrors fetch what they lack, whatever the policy says of that.

        Raises NotMirrored.  Where all are synchronised there is nothing to do.
        """
        raise not_mirrored(queue)

    def cancel_sync(self, queue: Queue) -> bool:
        """They stop, and keep what they have; False = no copy was being synchronised."""
        return False

    def hand_over(self, queue: Queue, node: str) -> None:
        """That node's copy becomes master; it has to be synchronised.

        Raises NotMirrored, NotFound for a node without a copy, PreconditionFailed for one that
        lacks messages.
        """
        raise not_mirrored(queue)

    # -- copies of a quorum queue --------------------------------------------------------------

    def copies_wanted(self, queue: Queue) -> tuple[str, ...]:
        """The nodes that have copies, or shall have them; none = no majority confirms it."""
        return ()

    def want_copies(self, queue: Queue, nodes: Sequence[str]) -> None:
        """These, from now on, one change after the other, as soon as a majority has everything.

        Raises NotMirrored, and PreconditionFailed if the leader's node is not among them.
        """
        raise not_mirrored(queue)

    # -- nodes -------------------------------------------------------------------------------

    def rebalance(
        self, vhost_pattern: str, queue_pattern: str, kind: str = ALL_KINDS
    ) -> list[MasterMove]:
        """Masters go from nodes with many to synchronised mirrors on nodes with few.

        Regular expressions, and one of ``KINDS``; only queues that all three cover are counted and
        moved.  Returns what it began; raises PreconditionFailed for what is no expression or kind.
        """
        return []

    def drain(self, node: str) -> None:
        """Its masters go to synchronised mirrors elsewhere, and it takes no new ones.

        Raises NotFound when no such node is in the cluster.
        """

    def revive(self, node: str) -> None:
        """It may have masters again; none comes back by itself.  Raises NotFound."""


def not_mirrored(queue: Queue) -> NotMirrored:
    return NotMirrored(f"queue '{queue.name}' in vhost '{queue.vhost}' is not mirrored")


def is_elected(queue: Queue) -> PreconditionFailed:
    return PreconditionFailed(
        f"a majority elects the leader of queue '{queue.name}' in vhost '{queue.vhost}':"
        " drain its node first"
    )


def no_copy(queue: Queue, node: str) -> NotFound:
    return NotFound(f"queue '{queue.name}' in vhost '{queue.vhost}' has no copy on '{node}'")


def not_synchronised(queue: Queue, node: str) -> PreconditionFailed:
    return PreconditionFailed(
        f"the copy of queue '{queue.name}' in vhost '{queue.vhost}' on '{node}' is not synchronised"
    )
