"""``ServedCoordinator``: a member's view of a store that another process of this machine holds.

In: what the line to that process brings (``store_service.py`` has the messages), proposals, time.
Out: bytes for it, events, and what became of proposals.

When the connection breaks, proposals without an answer are uncertain; with the next connection the
member goes on where it was, with the same lease if that lasts.  All processes of a machine read
the same clock, so the lease needs no margin: it is counted from when the request was made.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

from penstock.cluster.agreement.coordinator import (
    FAILED,
    UNCERTAIN,
    Change,
    Condition,
    Coordinator,
    Entry,
    Event,
    Proposal,
)
from penstock.cluster.agreement.known_keys import KnownKeys
from penstock.cluster.agreement.store_service import LineReader, Message, to_line
from penstock.core.clock_types import BootMs
from penstock.core.errors import PenstockError

KEEP_ALIVE_PARTS: Final = 3


class StoreUnavailable(PenstockError):
    """No process serves the store."""


class StoreLine:
    """Connections to the process that holds the store; after one that broke there is another."""

    def start(self, has_begun: Callable[[BootMs], bool], patience_s: float) -> bool:
        """Connect, and wait until it has begun at a time; False: it has not."""
        raise NotImplementedError

    def has_news(self) -> bool:
        """``news`` has something to give."""
        raise NotImplementedError

    def news(self) -> Iterable[bytes | str | None]:
        """Bytes; why the connection broke; None for a new one, which is written to from then on."""
        raise NotImplementedError

    def write(self, data: bytes) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


@final
class ServedCoordinator(Coordinator):
    """``member``: its name, for operators.  ``start`` before anything else."""

    def __init__(self, member: str, line: StoreLine, now_ms: BootMs) -> None:
        self.member = member
        self._line = line
        self._now_ms = now_ms
        self._lines = LineReader()
        self._away = "it has not answered yet"
        self._closed = False
        self._entries: list[Entry] | None = None
        self._known = KnownKeys([], 0)
        self._events: list[Event] = []
        self._count = 0
        self._asked: dict[int, Proposal] = {}
        self._ttl_ms = 0
        self._lease = 0
        self._granting = False
        self._valid_until_ms = BootMs(0)
        self._keep_at_ms = BootMs(0)
        self._sent_ms: deque[BootMs] = deque()
        """When each request about the lease was made that is not answered."""

    @property
    def is_ready(self) -> bool:
        """There are a snapshot and a lease."""
        return self._entries is not None and self._lease > 0

    # -- the connection ------------------------------------------------------------------

    def start(self, patience_s: float = 10.0) -> None:
        """Raises ``StoreUnavailable``."""
        if not self._line.start(self._has_begun, patience_s):
            why = self.why_not()
            self.close()
            raise StoreUnavailable(why)

    def _has_begun(self, now_ms: BootMs) -> bool:
        self.tick(now_ms)
        return self.is_ready

    def _look(self) -> None:
        for news in self._line.news():
            if news is None:
                self.connected()
            elif isinstance(news, str):
                self.disconnected(news)
            else:
                self.receive(news)

    def connected(self) -> None:
        self._away = ""
        self._lines = LineReader()
        above = None if self._entries is None else self._known.revision
        self._line.write(to_line({"hello": self.member, "above": above}))
        self._keep_at_ms = self._now_ms
        if self._lease == 0 and (self._entries is None or self._granting):
            self._ask_for_lease()

    def disconnected(self, why: str) -> None:
        self._away = why
        self._sent_ms.clear()
        for proposal in self._asked.values():
            proposal.decide(UNCERTAIN, error=f"the answer got lost: {why}")
        self._asked = {}

    def receive(self, data: bytes) -> None:
        for message in self._lines.take(data):
            self._hear(message)

    def _hear(self, message: Message) -> None:
        if "events" in message:
            self._hear_events(message)
        elif "n" in message:
            self._decided(message)
        elif "kept" in message:
            self._kept(message)
        elif "granted" in message:
            self._granting = False
            self._lease = message["granted"]
            self._rely(self._sent_ms.popleft())
        elif "snapshot" in message:
            self._entries = [Entry(*row) for row in message["snapshot"]]
            self._known = KnownKeys(self._entries, message["revision"])
            self._ttl_ms = message["ttl_ms"]
        elif "at" in message:
            self._known.look(message["founded"], message["at"])
        elif "difference" in message:
            entries = [Entry(*row) for row in message["difference"]]
            self._events += self._known.difference(entries, message["revision"])

    # -- events --------------------------------------------------------------------------

    def _hear_events(self, message: Message) -> None:
        if self._known.lost:
            return
        events = [Event(*row) for row in message["events"]]
        self._known.told(events, message["revision"])
        self._events += events

    def snapshot(self) -> list[Entry]:
        return self._entries or []

    def why_lost(self) -> str:
        return self._known.lost

    def has_news(self) -> bool:
        return len(self._events) > 0 or self._line.has_news()

    def take_events(self) -> list[Event]:
        self._look()
        events, self._events = self._events, []
        return events

    # -- proposals -----------------------------------------------------------------------

    def propose(self, conditions: Sequence[Condition], changes: Sequence[Change]) -> Proposal:
        self._look()
        return super().propose(conditions, changes)

    def hand_on(self, proposal: Proposal) -> None:
        self._count += 1
        self._asked[self._count] = proposal
        asked: dict[str, Any] = {"n": self._count, "lease": self._lease}
        asked |= {"if": proposal.conditions, "do": proposal.changes}
        self._line.write(to_line(asked))

    def _decided(self, message: Message) -> None:
        state = message["state"]
        error = f"the lease of {self.member} has ended" if state == FAILED else ""
        self._asked.pop(message["n"]).decide(state, message["revision"], error)

    # -- the lease -----------------------------------------------------------------------

    def tick(self, now_ms: BootMs) -> None:
        self._look()
        self._now_ms = now_ms
        if self._lease and not self._away and now_ms >= self._keep_at_ms:
            self._keep_at_ms = BootMs(now_ms + self._ttl_ms // KEEP_ALIVE_PARTS)
            self._sent_ms.append(now_ms)
            self._line.write(to_line({"keep": self._lease}))

    def _kept(self, message: Message) -> None:
        sent_ms = self._sent_ms.popleft()
        if message["lease"] != self._lease:
            return
        if message["kept"]:
            self._rely(sent_ms)
        else:
            self._lease = 0

    def _rely(self, sent_ms: BootMs) -> None:
        self._valid_until_ms = BootMs(sent_ms + self._ttl_ms)

    def new_lease(self) -> None:
        if self._lease == 0 and not self._closed and not self._granting:
            self._granting = True
            if not self._away:
                self._ask_for_lease()

    def _ask_for_lease(self) -> None:
        self._granting = True
        self._sent_ms.append(self._now_ms)
        self._line.write(to_line({"grant": True}))

    def lease_valid_until_ms(self) -> BootMs:
        return self._valid_until_ms if self._lease else BootMs(0)

    def lease_has_ended(self) -> bool:
        return self._lease == 0

    def why_not(self) -> str:
        if self._closed:
            return f"{self.member} has left the cluster"
        if self._known.lost:
            return f"the coordinator's store cannot be used: {self._known.lost}"
        if self._away:
            return f"the process that holds the coordinator's store cannot be reached: {self._away}"
        if self._lease == 0:
            return f"the lease of {self.member} has ended"
        return ""

    def close(self) -> None:
        if self._lease and not self._away:
            self._line.write(to_line({"end": self._lease}))
        self._closed = True
        self._lease = 0
        self._line.close()
        self._look()
