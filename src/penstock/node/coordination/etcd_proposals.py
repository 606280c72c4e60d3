"""Proposals as transactions of etcd, each of which is known to have happened or not.

In: conditions, changes and the lease of a member.  Out: what became of them (``Outcome``).

Every transaction also writes a *slot*, a key of this member bound to its lease, with a number
of its own, on condition that the slot is as this member knows it.  That settles three things:

- A transaction takes effect only while the lease lasts (O1): a slot cannot be bound to one that
  has ended.
- A lost answer is looked for (O5).  A second transaction voids the slot, on the same condition:
  of the two only one can ever happen.  Voided: the first has not happened and never will, and
  is tried again.  Not voided: the slot says that it has happened, and at which revision.
- The watch hears of every accepted proposal, also of one that changes nothing; it is told
  accepted when the watch has come to its revision (O3).

A slot is used again when its transaction is decided; one that could not be decided is left to
the lease.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Final

from penstock.cluster.agreement.coordinator import (
    ACCEPTED,
    FAILED,
    REFUSED,
    UNCERTAIN,
    Change,
    Condition,
)
from penstock.node.coordination.etcd_http import (
    ENDED,
    AnswerLost,
    EtcdFailed,
    EtcdHttp,
    EtcdRefusal,
    NotReached,
    Row,
)
from penstock.node.coordination.etcd_names import (
    EtcdNames,
    found,
    from_base64,
    get,
    has_revision,
    number,
    put,
    revision_of,
)
from penstock.node.coordination.etcd_watch import EtcdWatch, retry_s

SLOTS: Final = 64
"""So many proposals are at etcd at once; others wait here."""
PATIENCE_S: Final = 5.0
"""Behind the first try for so long it is tried again, or looked for."""
BEHIND_S: Final = 1.0
"""A watch that is further behind than this follows the wrong endpoint."""
LEASE_ENDED: Final = "the lease of this member has ended"

Outcome = tuple[int, int, str]
"""State, revision, error."""

log = logging.getLogger("penstock.etcd")


class Slot:
    """``revision``: at which this member wrote it last; 0 = never."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.revision = 0

    def written(self, revision: int) -> None:
        self.revision = revision


class EtcdProposals:
    def __init__(self, http: EtcdHttp, names: EtcdNames, watch: EtcdWatch) -> None:
        self._http = http
        self._names = names
        self._watch = watch
        self._room = asyncio.Semaphore(SLOTS)
        self._lease = 0
        self._free: list[Slot] = []
        self._places = count()
        self._numbers = count(1)
        self._behind: list[tuple[int, int, asyncio.Future[None]]] = []

    async def decide(
        self, lease: int, conditions: Sequence[Condition], changes: Sequence[Change]
    ) -> Outcome:
        async with self._room:
            if self._http.failed_for_s() > PATIENCE_S:  # while it waited for room
                return FAILED, 0, f"etcd was not reached: {self._http.failing}"
            slot = self._take(lease)
            transaction = _Transaction(self._http, self._names, lease, slot)
            transaction.ask(conditions, changes)
            try:
                outcome = await transaction.run(self._numbers)
            except EtcdRefusal as refusal:
                ended = refusal.code == ENDED
                outcome = FAILED, 0, LEASE_ENDED if ended else f"etcd refused it: {refusal}"
            except NotReached as error:
                outcome = FAILED, 0, f"etcd was not reached: {error}"
            if outcome[0] != UNCERTAIN and lease == self._lease:
                self._free.append(slot)
        if outcome[0] == ACCEPTED and not await self._heard(outcome[1]):
            return UNCERTAIN, 0, "it was accepted, but etcd does not tell what happened before it"
        return outcome

    def _take(self, lease: int) -> Slot:
        if lease != self._lease:
            self._lease = lease
            self._free = []
        if self._free:
            return self._free.pop()
        return Slot(self._names.slot(lease, next(self._places)))

    # -- waiting for the watch -----------------------------------------------------------

    async def _heard(self, revision: int) -> bool:
        """Wait until the watch has told everything up to there."""
        deadline_s = time.monotonic() + PATIENCE_S
        while self._watch.known.revision < revision:
            if time.monotonic() > deadline_s:
                return False
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heappush(self._behind, (revision, next(self._numbers), future))
            done, _ = await asyncio.wait([future], timeout=BEHIND_S)
            if not done:
                log.debug("the watch is behind, at %d", self._watch.known.revision)
                self._watch.restart()
        return True

    def heard(self, revision: int) -> None:
        """The watch has."""
        behind = self._behind
        while behind and behind[0][0] <= revision:
            _, _, future = heappop(behind)
            if not future.done():
                future.set_result(None)


class _Transaction:
    """One proposal, until it is known what became of it."""

    def __init__(self, http: EtcdHttp, names: EtcdNames, lease: int, slot: Slot) -> None:
        self._http = http
        self._names = names
        self._lease = lease
        self._slot = slot
        self._deadline_s = time.monotonic() + PATIENCE_S
        self._conditions: list[Row] = []
        self._changes: list[Row] = []

    def ask(self, conditions: Sequence[Condition], changes: Sequence[Change]) -> None:
        self._conditions = self._names.conditions(conditions)
        self._changes = self._names.changes(changes, self._lease)

    async def run(self, numbers: "count[int]") -> Outcome:
        """Raises NotReached and EtcdRefusal: it has not happened, and will not."""
        for failures in count():
            name = str(next(numbers))
            try:
                return await self._try(name)
            except NotReached:
                if self._is_late():
                    raise
            except AnswerLost as error:
                outcome = await self._resolve(name, str(error))
                if outcome is not None:
                    return outcome
                if self._is_late():
                    return FAILED, 0, f"etcd has not done it: {error}"
            await asyncio.sleep(retry_s(failures))
        raise AssertionError

    def _is_late(self) -> bool:
        return time.monotonic() > self._deadline_s

    async def _try(self, name: str) -> Outcome:
        answer = await self._write(self._conditions, self._changes, name)
        if answer.get("succeeded"):
            return self._accepted(revision_of(answer))
        there = found(answer)
        revision = 0 if there is None else number(there, "mod_revision")
        if revision == self._slot.revision:
            return REFUSED, 0, ""
        # Our slot, and not as we left it: the lease has taken it along.
        return FAILED, 0, LEASE_ENDED

    async def _write(self, conditions: list[Row], changes: list[Row], name: str) -> Row:
        slot = self._slot
        body = {
            "compare": [*conditions, has_revision(slot.key, slot.revision)],
            "success": [*changes, put(slot.key, name, self._lease)],
            "failure": [get(slot.key)],
        }
        return await self._http.call("kv/txn", body)

    def _accepted(self, revision: int) -> Outcome:
        self._slot.written(revision)
        return ACCEPTED, revision, ""

    async def _resolve(self, name: str, why: str) -> Outcome | None:
        """What became of it; None: nothing, and nothing will."""
        for failures in count():
            if self._is_late():
                break
            try:
                answer = await self._write([], [], f"not {name}")
            except EtcdRefusal:
                break  # the lease has ended, and the slot with it
            except EtcdFailed:
                await asyncio.sleep(retry_s(failures))
                continue
            if answer.get("succeeded"):
                self._slot.written(revision_of(answer))
                return None
            there = found(answer)
            if there is None:
                break
            self._slot.written(number(there, "mod_revision"))
            happened = from_base64(there["value"]) == name
            return (ACCEPTED, self._slot.revision, "") if happened else None
        return UNCERTAIN, 0, f"the answer of etcd got lost ({why}): it may have happened"
