"""``EmbeddedCoordinator``: a member's handle on a store of this process.

In: proposals and time, of one member.  Out: what the store decided, at once and on disk, and the
events.  Several members may share a store; each has a lease and a place in the history of its own.

The promises are those of ``coordinator.py``.  There is no way between member and store that could
break, so nothing is ever uncertain but what a failing disk leaves so, and the lease's
end is known on the same clock: no margin is needed.
"""

from typing import Final, final

from penstock.cluster.agreement.coordinator import (
    ACCEPTED,
    FAILED,
    REFUSED,
    UNCERTAIN,
    Coordinator,
    Entry,
    Event,
    Proposal,
)
from penstock.cluster.agreement.known_keys import KnownKeys
from penstock.storage.definitions.coordination import NO_LEASE, CoordinationStore, HistoryForgotten

TTL_MS: Final = 3000
KEEP_ALIVE_PARTS: Final = 3
"""A lease is kept alive at this part of its time, so two chances may be missed."""


@final
class EmbeddedCoordinator(Coordinator):
    """``member``: its name, for people."""

    def __init__(
        self, store: CoordinationStore, member: str, now_ms: int, ttl_ms: int = TTL_MS
    ) -> None:
        self.member = member
        self._store = store
        self._ttl_ms = ttl_ms
        self._lease = 0
        self._valid_until_ms = 0
        self._keep_alive_at_ms = 0
        self._now_ms = now_ms
        self._closed = False
        self._disk_error = ""
        self._entries = [Entry(*row) for row in store.entries()]
        self._known = KnownKeys(self._entries, store.revision)
        self.new_lease()

    # -- leases --------------------------------------------------------------------------

    def why_lost(self) -> str:
        return self._known.lost

    def new_lease(self) -> None:
        if self._lease or self._closed or self._disk_error:
            return
        try:
            self._lease = self._store.grant(self._ttl_ms, self._now_ms)
            self._store.commit()
        except OSError as error:
            self._fail(error)
            return
        self._rely_on_it()

    def _rely_on_it(self) -> None:
        self._valid_until_ms = self._now_ms + self._ttl_ms
        self._keep_alive_at_ms = self._now_ms + self._ttl_ms // KEEP_ALIVE_PARTS

    def lease_valid_until_ms(self) -> int:
        return self._valid_until_ms if self._lease else 0

    def lease_has_ended(self) -> bool:
        return self._lease == 0

    def tick(self, now_ms: int) -> None:
        """Keeps this member's lease alive, and ends leases that were not kept alive."""
        self._now_ms = now_ms
        if self._closed or self._disk_error:
            return
        try:
            self._store.end_overdue(now_ms)
            self._store.commit()
        except OSError as error:
            self._fail(error)
            return
        if self._lease and now_ms >= self._keep_alive_at_ms:
            if self._store.keep_alive(self._lease, now_ms):
                self._rely_on_it()
            else:
                self._lease = 0

    def close(self) -> None:
        if not self._closed and not self._disk_error:
            try:
                self._store.end_lease(self._lease)
                self._store.commit()
            except OSError as error:
                self._fail(error)
        self._closed = True
        self._lease = 0

    # -- proposals -----------------------------------------------------------------------

    def hand_on(self, proposal: Proposal) -> None:
        try:
            self._decide(proposal)
        except OSError as error:
            self._fail(error)
            proposal.decide(UNCERTAIN, error=self._disk_error)

    def _decide(self, proposal: Proposal) -> None:
        revision = self._store.transact(
            self._lease,
            [(one.key, one.revision) for one in proposal.conditions],
            [(one.key, one.value, one.leased, one.below) for one in proposal.changes],
        )
        self._store.commit()
        if revision == NO_LEASE:
            self._lease = 0
            proposal.decide(FAILED, error=self.why_not())
        elif revision > 0:
            proposal.decide(ACCEPTED, revision)
        else:
            proposal.decide(REFUSED)

    def _fail(self, error: OSError) -> None:
        self._disk_error = f"the coordinator's file cannot be written: {error}"
        self._lease = 0

    def why_not(self) -> str:
        if self._disk_error:
            return self._disk_error
        if self._closed:
            return f"{self.member} has left the cluster"
        if self._lease == 0:
            return f"the lease of {self.member} has ended"
        return ""

    # -- events --------------------------------------------------------------------------

    def snapshot(self) -> list[Entry]:
        return self._entries

    def take_events(self) -> list[Event]:
        store, known = self._store, self._known
        if self._disk_error or store.revision <= known.revision:
            return []
        try:
            return self._events_above(known.revision)
        except HistoryForgotten:
            return known.difference([Entry(*row) for row in store.entries()], store.revision)
        except OSError as error:
            self._fail(error)
            return []

    def _events_above(self, revision: int) -> list[Event]:
        events = [Event(*row) for row in self._store.history(revision)]
        self._known.told(events, self._store.revision)
        return events
