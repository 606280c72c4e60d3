"""``CommonMetadata``: one node's copy of the cluster's metadata, and its part in their changes.

    join(...)            before anything is served: the first node founds the cluster with what
                         its own definitions hold; every other one takes what is agreed on, and
                         loses what it had alone
    turn(mono_ms)        once a turn: apply the coordinator's events, propose local changes
    is_ready             joined: from now on clients may come

How a cluster is founded and joined is in ``joining``.  From then on the node remembers up to which
revision its definitions are the cluster's: an older coordinator is not believed.
"""

from collections.abc import Sequence
from typing import Final, final

from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.broker.vhost_removal import CloseSome
from penstock.cluster.agreement.agreed import Agreed
from penstock.cluster.agreement.applying import Applier, MakeQueue, make_here
from penstock.cluster.agreement.coordinator import ACCEPTED, CHANGED, Coordinator, Event, Proposal
from penstock.cluster.agreement.joining import Joining, history_lost
from penstock.cluster.agreement.proposing import ALONE, ClusterChanges, Surroundings
from penstock.core.clock_types import MonoMs
from penstock.queues.consumers import Consumer
from penstock.storage.definitions.followed import follow

CATCH_UP_MS: Final = 200
"""News mostly comes by itself: this long at least from one inquiry to the next."""


@final
class CommonMetadata:
    """``changes`` is what the broker hands in to, once it has joined."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        home: str,
        member: str,
        segment_entries: int,
        close_some: CloseSome,
        make_queue: MakeQueue = make_here,
        agreed: Agreed | None = None,
        surroundings: Surroundings = ALONE,
    ) -> None:
        """``broker``: opened, with its messages; ``segment_entries`` of virtual hosts to come.

        ``agreed``: empty, and known to the surroundings.
        """
        self.agreed = agreed or Agreed()
        self.changes = ClusterChanges(broker, coordinator, self.agreed, home, member, surroundings)
        broker.join(self.changes)
        admin = Administration(broker, segment_entries)
        self.applier = Applier(broker, self.changes, admin, close_some, make_queue)
        self.is_ready: bool = False
        self.is_begun: bool = False  # what was agreed on when we came is done
        self._barrier: Proposal | None = None
        self._round: int = -1
        self._wanted: int = 0  # revision that another node asks for
        self._caught_up_ms = MonoMs(0)
        self._broker = broker
        self._coordinator = coordinator
        self._home = home
        self._joining = Joining(broker, coordinator, home, member)
        self._changed: int = 0  # of the newest change that nodes keep
        self._remembered: int = 0

    def turn(self, mono_ms: MonoMs, events: Sequence[Event]) -> bool:
        """True when there is more to do at once.

        Raises ``HistoryLost``: the node ends, and keeps all it has.
        """
        self.check_history()
        self.changes.begin_turn(mono_ms)
        if not self.is_begun:
            self._join(events)
            return False
        if not self.is_ready or self._wanted > self.agreed.revision:
            self._catch_up(mono_ms)
        self.applier.take(events)
        for event in events:
            if event.key == CHANGED:
                self._changed = event.revision
        more = self.applier.run()
        if not more:
            if self._changed > self._remembered:
                self._remember(self._changed)
            self.changes.work()
            self.changes.look()
        return more

    def check_history(self) -> None:
        """Raises ``HistoryLost`` when the coordinator has not what it told before."""
        why = self._coordinator.why_lost()
        if why:
            raise history_lost(why)

    def heard(self, revision: int) -> None:
        """What is not the applier's has been done up to there, too."""
        self.agreed.done(revision)

    def has(self, revision: int) -> bool:
        """Is everything up to that revision done here?  Some other node wants to know."""
        if self.agreed.revision >= revision:
            return True
        self._wanted = max(self._wanted, revision)
        return False

    def _catch_up(self, mono_ms: MonoMs) -> None:
        """To the revision of a proposal that changes nothing: all before it has come then.

        A snapshot does not say how new it is, if what was last done was to delete; neither do
        the events of a coordinator that had been cut off.
        """
        barrier = self._barrier
        if barrier is None:
            if mono_ms - self._caught_up_ms >= CATCH_UP_MS and not self._coordinator.why_not():
                self._barrier = self._coordinator.propose([], [])
                self._round = -1
        elif barrier.state != ACCEPTED:
            if barrier.done:
                self._barrier = None
        elif self._round < 0:
            self._round = self.agreed.rounds + 1
        elif self.agreed.rounds >= self._round:
            self.agreed.done_without_change(barrier.revision)
            self._caught_up_ms = mono_ms
            self._barrier = None
            self.is_ready = self.is_ready or self.changes.job_count() == 0

    def why_not_ready(self) -> str:
        """What is still waited for, where the coordinator answers."""
        if not self.is_begun:
            return self._joining.why_waiting()
        jobs = self.changes.job_count()
        if jobs > 0:
            return f"{jobs} queues of this node that are not durable are not deleted yet"
        return f"what was agreed on behind revision {self.agreed.revision} has not come yet"

    def take_lost(self) -> list[Consumer]:
        """Consumers whose queue has gone."""
        return self.applier.take_lost()

    # -- joining ---------------------------------------------------------------------------

    def _join(self, events: Sequence[Event]) -> None:
        entries = self._joining.turn(events)
        if entries is not None:
            self.applier.begin(entries, self._joining.keeps_copies)
            self._changed = self._joining.changed()
            self._remember(self._changed)
            self.is_begun = True
            self._end_transient()

    def _remember(self, revision: int) -> None:
        """In the transaction of what was done up to there."""
        if not self._joining.keeps_copies:
            follow(self._broker.definitions.change, self._joining.founding, revision)
        self._remembered = revision

    def _end_transient(self) -> None:
        """Queues that were ours and not to outlive our last process, as RabbitMQ does it."""
        for meta in self.agreed.queues.values():
            if meta.home != self._home or meta.durable or meta.owner != "":
                continue
            vhost = self._broker.vhosts[meta.vhost]
            queue = vhost.queues[meta.name]
            if self.changes.is_master(queue):
                self.changes.delete_queue(vhost, queue)
