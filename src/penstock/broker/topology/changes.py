"""``Changes``: the one way by which what is declared becomes true, on one node or in a cluster.

In: a change that was asked for and has passed every check.  Out, on a single node: nothing is
done here; the caller makes it true at once.  In a cluster (``proposes``) it is handed
in here instead, and becomes true when the cluster has agreed (``cluster/agreement/proposing.py``).

    virtual host, administration ─► checks ─┬─ proposes? ─► handed in ─► agreed ─► event ─┐
                                            └─ no ─► done ◄── the same methods ◄──────────┘

So a method that changes something has this shape, and no other code knows of clusters:

    checks, which raise what they always raise
    changes.check_room()             # where something new is kept on disk
    changes.check_memory(arguments)  # and in memory
    if changes.proposes:
        changes.delete(record)       # or ``add_queue`` ...; and return
    else:
        make it true

``propose_put`` is the first and the third step for what is put.

A request runs by an ``Ask``: ``run`` returns the answer, or ``Pending`` while what was handed in is
not decided.  The session holds that and resumes it; the verb is not read again.  A step that rests
on what was handed in before (a binding, of the queue) is given to ``then``.  A request
that came to its end is not done again: its answer stands.  One that was refused, because something
changed meanwhile, is run again from its beginning: so the checks and their errors are those of the
moment in which it becomes true.  A change without a
request (a queue expires, a connection is lost) is handed in all the same, and proposed until it is
known.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.broker.rules.admission import Admission
from penstock.broker.rules.declared_bytes import EACH_BYTES, declared_bytes
from penstock.core.errors import Blocked, Undecided
from penstock.core.events.book import NODE, Actor, EventBook
from penstock.core.pending import Pending
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import (
    BindingRecord,
    PermissionRecord,
    PolicyRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostRecord,
)

if TYPE_CHECKING:
    from penstock.broker.topology.histories import Gathered
    from penstock.broker.topology.vhost import Vhost

T = TypeVar("T")

NO_ROOM: Final = "the disk is full: nothing new can be kept until there is space"
NO_MEMORY: Final = "memory is far over its limit: nothing new can be declared until there is space"
FREE_CHANNELS: Final = 64
FREE_CONSUMERS: Final = 64
"""So many of a connection are let in however much memory is taken: they may drain queues."""

Plain = (
    VhostRecord
    | UserRecord
    | PermissionRecord
    | TopicPermissionRecord
    | PolicyRecord
    | ParameterRecord
)
"""What has no ends and no contents: it is put, or deleted by its name."""


class Ask:
    """Requests of one session, one at a time, and of one actor."""

    def __init__(self, book: EventBook, actor: Actor) -> None:
        self.actor: Final = actor
        self._book: Final = book

    def run(self, function: Callable[[], T | Pending]) -> T | Pending:
        """Its answer, or ``Pending`` until the cluster has decided what it handed in, or a backend
        whether the user may do that.
        """
        try:
            outcome = self._book.act_for(self.actor, function)
        except Undecided as undecided:
            return Pending(undecided.ticket, partial(self.run, function))
        if not isinstance(outcome, Pending):
            return outcome
        return Pending(outcome.ticket, partial(self.run, outcome.resume))


class Changes:
    """On a single node: nothing is handed in.

    ``follows``   queues and exchanges come and go by what the cluster agrees on, only by that
    ``proposes``  and changes are handed in here: not while those that were agreed on are done
    ``gate``      the node's
    ``book``      likewise
    """

    def __init__(self, gate: Admission, book: EventBook) -> None:
        self.follows: bool = False
        self.proposes: bool = False
        self.book: Final = book
        self._gate: Final = gate

    def check_room(self) -> None:
        """Raises Blocked while the disk has no room for new definitions.

        What a cluster has agreed on is kept all the same: the reserve has room for it.
        """
        if self._gate.is_full() and not self.applies():
            raise Blocked(NO_ROOM)

    def propose_put(self, record: Plain) -> bool:
        """False: the caller makes it true at once.  Raises Blocked as ``check_room``."""
        self.check_room()
        if self.proposes:
            self.put(record)
        return self.proposes

    def check_memory(self, arguments: dict[str, object], parts: int = 1) -> None:
        """Raises Blocked while memory is far over its limit; what all agreed on is kept."""
        if not self._takes(parts * declared_bytes(arguments)):
            raise Blocked(NO_MEMORY)

    def check_consumer(self, arguments: dict[str, object], others: int) -> None:
        """As ``check_memory``; ``others`` of its connection."""
        size_bytes = declared_bytes(arguments)
        is_free = others < FREE_CONSUMERS and size_bytes < 2 * EACH_BYTES
        if not self._takes(size_bytes) and not is_free:
            raise Blocked(NO_MEMORY)

    def has_memory_for_channel(self, others: int) -> bool:
        """``others`` of its connection."""
        return self._takes(EACH_BYTES) or others < FREE_CHANNELS

    def _takes(self, size_bytes: int) -> bool:
        return self.applies() or self._gate.alarms.take_declared(size_bytes)

    def applies(self) -> bool:
        """Is it being done what a cluster has agreed on?"""
        return self.follows and not self.proposes

    def ask(self, actor: Actor = NODE) -> Ask:
        return Ask(self.book, actor)

    def at_first(self, told: bool) -> bool:
        """What was true when it was asked for, should it have to be run again."""
        return told

    def homes(self) -> list[str]:
        """Nodes on which a queue that is declared now may be; none = there is one node only."""
        return []

    def prefer(self, node: str) -> None:
        """Where queues that are handed in next are, as if declared there; "" = here."""

    def then(self, go_on: Callable[[], T | Pending]) -> T | Pending:
        """Go on when what was handed in is there."""
        return go_on()

    # -- handed in ---------------------------------------------------------------------------

    def add_exchange(self, exchange: Exchange) -> None:
        raise NotImplementedError

    def put_exchange(self, exchange: Exchange, arguments: dict[str, object]) -> None:
        """It is there, and has other arguments from now on."""
        raise NotImplementedError

    def delete_exchange(self, vhost: "Vhost", exchange: Exchange) -> None:
        raise NotImplementedError

    def add_queue(
        self,
        vhost: "Vhost",
        name: str,
        incarnation: str,
        durable: bool,
        owner: object,
        auto_delete: bool,
        arguments: dict[str, object],
    ) -> None:
        """``owner``: the session of an exclusive queue."""
        raise NotImplementedError

    def pause_queue(self, queue: Queue, paused: bool) -> None:
        raise NotImplementedError

    def delete_queue(self, vhost: "Vhost", queue: Queue) -> None:
        raise NotImplementedError

    def owner_gone(self, owner: object) -> None:
        """A session is over: what it was about to declare for itself is not wanted any more."""

    def bind(self, record: BindingRecord, exchange: Exchange, destination: object) -> None:
        """The exchange has no such binding, and could have it (``Matcher.check``)."""
        raise NotImplementedError

    def ask_histories(self, vhost: str, name: str, gathered: "Gathered") -> None:
        """Read the internal queues of that name on the other nodes."""
        raise NotImplementedError

    def unbind(
        self, vhost: "Vhost", record: BindingRecord, exchange: Exchange, destination: object
    ) -> None:
        """Does nothing when it is not bound."""
        raise NotImplementedError

    def put(self, record: Plain) -> None:
        raise NotImplementedError

    def delete(self, record: Plain) -> None:
        """Known by its names; of a user or a virtual host everything that hangs on it, too."""
        raise NotImplementedError

    def put_limits(self, scope: str, owner: str, limits: dict[str, int]) -> None:
        """In the place of those it had; ``scope`` is "vhost" or "user"."""
        raise NotImplementedError
