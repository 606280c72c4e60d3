"""``ClusterAsk``: one request for a change in a cluster, from the checks to the answer.

In: a function that asks, and hands in what is to be changed.  Out: its answer, once that is true,
or why not; ``Pending`` until then.

    run ─► function ─► draft ─► proposal ─┬─ accepted, done here, known elsewhere ─► its answer
            ▲   │                         ├─ refused: something it rests on has changed ─┐
            │   │                         ├─ uncertain: it may have happened ────────────┤
            │   │                         └─ failed: the coordinator is away ─► Unavailable
            │   └─ nothing is to be changed ─► its answer, when what it saw is known   │
            └──────────────────────────────────────────────────────────────────────────────┘

A function that returns ``Pending`` has a further step (it declares something, and goes on with it;
it asks a master): that is run when what was handed in is there, or when a master has answered.  One
that came to its end is not run again: its answer counts what it deleted, and would not find it a
second time.  The session that holds the ``Pending`` of a request knows of no such steps: it resumes
that when its ticket is done.

Also an answer without a change rests on what is done here, and others may not have done it yet:
a client that is told that a queue is there already must find it everywhere (K8).  An isolated node
answers at once, for it cannot learn what others know.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar, cast, final

from penstock.broker.topology.changes import Ask
from penstock.cluster.agreement.coordinator import (
    ACCEPTED,
    FAILED,
    PENDING,
    REFUSED,
    UNCERTAIN,
    Proposal,
)
from penstock.cluster.agreement.draft import Draft
from penstock.core.clock_types import MonoMs
from penstock.core.errors import NotFound, Unavailable, Undecided
from penstock.core.events.book import Actor
from penstock.core.pending import Pending, Ticket

if TYPE_CHECKING:
    from penstock.cluster.agreement.proposing import ClusterChanges

T = TypeVar("T")

PATIENCE_MS: Final = 20_000
"""For one request, with all that it proposes; clients that wait for less give up first."""
AGAIN_MS: Final = 50
"""What was refused is tried again when there is news, or after so long."""


@final
class ClusterAsk(Ask):
    """See the head of this file."""

    def __init__(self, changes: "ClusterChanges", actor: Actor) -> None:
        super().__init__(changes.book, actor)
        self._changes = changes
        self._function: Callable[[], object] = _nothing
        self._step: Callable[[], object] = _nothing  # of the function, run next
        self._proposal: Proposal | None = None
        self._draft = Draft()
        self._stands: bool = False  # the function came to its end
        self._result: object = None
        self._unsure: bool = False  # something uncertain may have done what it does
        self._round: int = -1  # by the end of which what was accepted is done
        self._since_ms: MonoMs = MonoMs(0)
        self._refused_at: tuple[MonoMs, int] = (MonoMs(0), 0)  # time and revision
        self._seen: int = 0  # revision that an answer without a change rests on
        self._ticket: Ticket | None = None  # done when there is reason to run again
        self._first: bool | None = None

    def run(self, function: Callable[[], T | Pending]) -> T | Pending:
        self._end()
        self._function = self._step = function
        return cast(T | Pending, self._resume())

    def _resume(self) -> object:
        """The answer, or Pending."""
        try:
            outcome = self._next()
        except NotFound:
            if not self._may_have_deleted():
                self._end()
                raise
            outcome = self._result
        except BaseException:
            self._end()
            raise
        if not isinstance(outcome, Pending):
            self._end()
        return outcome

    def _next(self) -> object:
        if not self._has_news():
            return self._later()
        proposal = self._proposal
        if self._seen > 0 or (proposal is not None and self._settled(proposal)):
            return self._result
        return self._later() if self._is_too_soon() else self._try()

    def at_first(self, told: bool) -> bool:
        if self._first is None:
            self._first = told
        return self._first

    def was_accepted_at(self, revision: int) -> bool:
        """Is that the revision of what it waits for?"""
        return self._proposal is not None and self._proposal.revision == revision

    def _may_have_deleted(self) -> bool:
        """It is not known whether it has, but the thing is gone: as it was to be."""
        keys = self._draft.deleted()
        there = self._changes.agreed.revisions
        return self._unsure and self._stands and keys != [] and not there.keys() & set(keys)

    def _end(self) -> None:
        self._function = self._step = _nothing
        self._proposal = None
        self._unsure = self._stands = False
        self._result = None
        self._since_ms = MonoMs(0)
        self._refused_at = (MonoMs(0), 0)
        self._seen = 0
        self._first = None

    # -- waiting -----------------------------------------------------------------------------

    def _later(self) -> Pending:
        """Not to be resumed before there is news."""
        ticket = self._ticket
        if ticket is None or ticket.done:
            ticket = self._ticket = Ticket()
            self._changes.waiting.append(self)
        return Pending(ticket, self._resume)

    def look(self) -> bool:
        """Once a turn: is there reason to run again?"""
        ticket = self._ticket
        if ticket is None or ticket.done:
            return True
        if self._has_news():
            ticket.answer()
        return ticket.done

    def _has_news(self) -> bool:
        changes, proposal = self._changes, self._proposal
        if self._seen > 0:
            return changes.is_known(self._seen) or changes.coordinator.why_not() != ""
        if proposal is None:
            return not self._is_too_soon()
        if proposal.state == ACCEPTED:
            return self._is_done_here() and changes.is_known(proposal.revision)
        if changes.mono_ms - self._since_ms > PATIENCE_MS:
            return True
        if proposal.state == UNCERTAIN:
            return not changes.coordinator.why_not()
        return proposal.state != PENDING

    def _is_too_soon(self) -> bool:
        """To try again what was refused."""
        changes = self._changes
        refused_ms, revision = self._refused_at
        if refused_ms == 0 or revision != changes.agreed.revision:
            return False
        return changes.mono_ms - refused_ms < AGAIN_MS

    def _is_done_here(self) -> bool:
        """What was accepted; that is so when a round has begun and ended."""
        changes = self._changes
        if self._round < 0:
            self._round = changes.agreed.rounds + 1
        if changes.agreed.rounds < self._round:
            changes.await_round()
            return False
        return True

    # -- trying ------------------------------------------------------------------------------

    def _try(self) -> object:
        changes = self._changes
        draft = Draft(self.actor.user)
        try:
            result = changes.fill(draft, self, self._step)
        except Undecided as undecided:
            return Pending(undecided.ticket, self._resume)
        further = result if isinstance(result, Pending) else None
        self._step = self._function if further is None else further.resume
        if draft.is_empty():
            if further is not None:  # it waits for something else
                return Pending(further.ticket, self._resume)
            self._result, self._seen = result, changes.agreed.changed
            return result if self._has_news() else self._later()
        if self._since_ms == 0:
            self._since_ms = changes.mono_ms
        self._draft = draft
        self._stands = further is None and draft.is_whole() and not draft.goes_on
        self._result = result
        self._round = -1
        self._proposal = changes.propose(draft)
        if self._proposal.state == FAILED:
            self._settled(self._proposal)
        return self._later()

    def _settled(self, proposal: Proposal) -> bool:
        """There is news of it: is that all?  False: run the next step; raises Unavailable.

        What was refused, or may have been, is begun again.
        """
        changes = self._changes
        self._proposal = None
        if proposal.state == ACCEPTED:
            self._since_ms = MonoMs(0)
            return self._stands
        if proposal.state == FAILED or changes.mono_ms - self._since_ms > PATIENCE_MS:
            changes.forget(self._draft)
            raise Unavailable(_undecided(proposal.error or changes.coordinator.why_not()))
        if proposal.state == UNCERTAIN:
            self._unsure = True
        else:
            assert proposal.state == REFUSED
            changes.forget(self._draft)
        self._step = self._function
        self._refused_at = (changes.mono_ms, changes.agreed.revision)
        return False


def _nothing() -> None:
    """No request is open."""


def _undecided(why: str) -> str:
    return f"the cluster cannot decide at present: {why or 'others change the same all the time'}"
