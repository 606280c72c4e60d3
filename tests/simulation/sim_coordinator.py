"""One coordinator for all members of a simulation, each with a view of its own of it.

The store is linearizable; what lies between it and a member is not kind.  Requests, answers and
events take their time, by chance; a proposal may overtake another; an answer may be lost, and the
proposal is *uncertain* although it happened, or happens later; a member may be cut off, in both
directions; its lease ends some time after the member has stopped relying on it.  Who was
cut off may have missed the history, and gets the difference.

    store = SimStore(rng)
    one = store.join("a/1")              a SimCoordinator, with its lease and snapshot, at once
    one.cut_off = True                   nothing goes, nothing comes
    one.tick(now_ms)                     moves the whole store to that time

A member that is not ticked keeps no lease alive: so a process is paused, or killed.  All chance
is the generator's that was handed in: the same calls with the same seed do the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random

from penstock.cluster.agreement.coordinator import (
    ACCEPTED,
    FAILED,
    PENDING,
    REFUSED,
    UNCERTAIN,
    Coordinator,
    Entry,
    Event,
    Proposal,
)
from tests.models.model_coordination import ModelCoordination

TTL_MS = 3000
MARGIN_MS = 500
KEEP_ALIVE_MS = TTL_MS // 3
LATE_MS = 500
"""How long an ended lease may still be there."""
ANSWER_MS = 2000
"""Without an answer for so long, a proposal is uncertain."""


class SimStore:
    """``delay_ms``: least and most on the way.  ``loss``: of requests and of answers, 0 to 1.
    ``forgets``: how often the history is gone when a member returns, 0 to 1."""

    def __init__(
        self,
        rng: Random,
        *,
        delay_ms: tuple[int, int] = (0, 20),
        loss: float = 0.0,
        forgets: float = 0.3,
    ) -> None:
        self.rng = rng
        self.delay_ms = delay_ms
        self.loss = loss
        self.forgets = forgets
        self.now_ms = 0
        self.model = ModelCoordination()
        self.members: list[SimCoordinator] = []
        self._ends_ms: dict[int, int] = {}
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def join(self, member: str) -> SimCoordinator:
        handle = SimCoordinator(self, member)
        self.members.append(handle)
        return handle

    def later(self, what: Callable[[], None], after_ms: int = -1) -> None:
        """After some time on the way, or exactly so many milliseconds."""
        delay_ms = self.rng.randint(*self.delay_ms) if after_ms < 0 else after_ms
        self._count += 1
        heapq.heappush(self._due, (self.now_ms + delay_ms, self._count, what))

    def advance(self, now_ms: int) -> None:
        while self._due and self._due[0][0] <= now_ms:
            at_ms, _, what = heapq.heappop(self._due)
            self._end_leases(at_ms)
            what()
        self._end_leases(now_ms)

    def _end_leases(self, now_ms: int) -> None:
        self.now_ms = max(self.now_ms, now_ms)
        for lease, end_ms in sorted(self._ends_ms.items()):
            if end_ms <= now_ms:
                self.end(lease)

    def end(self, lease: int) -> None:
        self._ends_ms.pop(lease, None)
        self.model.end(lease)
        self.tell()

    def grant(self) -> int:
        lease = self.model.grant()
        self.keep_alive(lease)
        return lease

    def keep_alive(self, lease: int) -> bool:
        if lease not in self.model.leases:
            return False
        self._ends_ms[lease] = self.now_ms + TTL_MS + self.rng.randint(0, LATE_MS)
        return True

    def decide(self, lease: int, proposal: Proposal) -> tuple[int, int]:
        """State and revision."""
        if lease not in self.model.leases:
            return FAILED, 0
        if not self.model.holds(proposal.conditions):
            return REFUSED, 0
        revision = self.model.change(lease, proposal.changes)
        self.tell()
        return ACCEPTED, revision

    def tell(self) -> None:
        for member in self.members:
            member.news_come()


class SimCoordinator(Coordinator):
    """One member's view."""

    def __init__(self, store: SimStore, member: str) -> None:
        self.store = store
        self.member = member
        self.lease = store.grant()
        self.lost = ""  # a test says when the store has lost its data
        self.counts = {"uncertain": 0, "differences": 0}
        self._cut_off = False
        self._known = {entry.key: entry.made for entry in store.model.entries()}
        self._entries = store.model.entries()
        self._seen = store.model.revision
        self._visible: list[Event] = []
        self._coming = False
        self._ended = False
        self._asking = False
        self._closed = False
        self._valid_until_ms = store.now_ms + TTL_MS - MARGIN_MS
        self._keep_alive_at_ms = store.now_ms + KEEP_ALIVE_MS

    # -- what the simulation does to it --------------------------------------------------

    @property
    def cut_off(self) -> bool:
        return self._cut_off

    @cut_off.setter
    def cut_off(self, cut_off: bool) -> None:
        returns = self._cut_off and not cut_off
        self._cut_off = cut_off
        if returns:
            if self.store.rng.random() < self.store.forgets:
                self._see_difference()
            self._keep_alive_at_ms = self.store.now_ms
            self.news_come()

    def _arrives(self) -> bool:
        return not self._cut_off and self.store.rng.random() >= self.store.loss

    # -- leases ----------------------------------------------------------------------------

    def lease_valid_until_ms(self) -> int:
        return 0 if self._ended else self._valid_until_ms

    def lease_has_ended(self) -> bool:
        return self._ended

    def new_lease(self) -> None:
        if self._ended and not self._closed and not self._asking:
            self._asking = True
            self._ask()

    def _ask(self) -> None:
        sent_ms = self.store.now_ms

        def arrive() -> None:
            if self._cut_off:
                self.store.later(self._ask, KEEP_ALIVE_MS)
            else:
                self._asking = False
                self._granted(self.store.grant(), sent_ms)

        self.store.later(arrive)

    def _granted(self, lease: int, sent_ms: int) -> None:
        self.lease = lease
        self._ended = False
        self._valid_until_ms = sent_ms + TTL_MS - MARGIN_MS

    def _keep_alive(self) -> None:
        sent_ms, lease = self.store.now_ms, self.lease

        def arrive() -> None:
            if self._arrives():
                lasts = self.store.keep_alive(lease)
                self.store.later(lambda: answer(lasts))

        def answer(lasts: bool) -> None:
            if self._arrives() and lease == self.lease:
                if lasts:
                    until_ms = sent_ms + TTL_MS - MARGIN_MS
                    self._valid_until_ms = max(self._valid_until_ms, until_ms)
                else:
                    self._ended = True

        self.store.later(arrive)

    # -- proposals -------------------------------------------------------------------------

    def hand_on(self, proposal: Proposal) -> None:
        lease = self.lease
        self.store.later(lambda: self._request(lease, proposal))
        self.store.later(lambda: self._unanswered(proposal), ANSWER_MS)

    def _request(self, lease: int, proposal: Proposal) -> None:
        if self._arrives():
            state, revision = self.store.decide(lease, proposal)
            self.store.later(lambda: self._answer(proposal, state, revision))

    def _answer(self, proposal: Proposal, state: int, revision: int) -> None:
        if not self._arrives() or proposal.state != PENDING:
            return
        error = f"the lease of {self.member} has ended" if state == FAILED else ""
        proposal.decide(state, revision, error)
        if state == ACCEPTED:
            self._see_to(revision)

    def _unanswered(self, proposal: Proposal) -> None:
        if proposal.state == PENDING:
            proposal.decide(UNCERTAIN, error="no answer came: it may have happened, or may yet")
            self.counts["uncertain"] += 1

    # -- events ----------------------------------------------------------------------------

    def revision(self) -> int:
        return self._seen

    def why_lost(self) -> str:
        return self.lost

    def snapshot(self) -> list[Entry]:
        return self._entries

    def news_come(self) -> None:
        """They are on the way, all that there is when they arrive."""
        if not self._coming:
            self._coming = True
            self.store.later(self._news)

    def _news(self) -> None:
        self._coming = False
        if not self._cut_off:
            self._see_to(self.store.model.revision)

    def _see_to(self, revision: int) -> None:
        if revision > self._seen:
            self._see(self.store.model.events_between(self._seen, revision), revision)

    def _see_difference(self) -> None:
        model = self.store.model
        if model.revision > self._seen:
            self.counts["differences"] += 1
            self._see(model.difference(self._seen, self._known), model.revision)

    def _see(self, events: list[Event], revision: int) -> None:
        self._seen = revision
        self._visible += events
        for event in events:
            if event.value is None:
                del self._known[event.key]
            elif event.created:
                self._known[event.key] = event.revision

    def take_events(self) -> list[Event]:
        events, self._visible = self._visible, []
        return events

    # -- state -----------------------------------------------------------------------------

    def why_not(self) -> str:
        if self._closed:
            return f"{self.member} has left the cluster"
        if self._ended:
            return f"the lease of {self.member} has ended"
        if self._cut_off:
            return f"{self.member} is cut off from the coordinator"
        return ""

    def tick(self, now_ms: int) -> None:
        self.store.advance(now_ms)
        if not self._ended and not self._closed and now_ms >= self._keep_alive_at_ms:
            self._keep_alive_at_ms = now_ms + KEEP_ALIVE_MS
            self._keep_alive()

    def close(self) -> None:
        """Cut off, the lease ends by itself."""
        lease = self.lease
        if not self._cut_off:
            self.store.later(lambda: self.store.end(lease))
        self._closed = self._ended = True
        if self in self.store.members:
            self.store.members.remove(self)
