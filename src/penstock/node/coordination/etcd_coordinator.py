"""``EtcdCoordinator``: this member's view of a cluster that agrees in etcd.

In: proposals and ticks, from the node's own loop.  Out: events and what became of proposals.  The
talking is done on a thread with an event loop of its own, as management's is (``etcd_http``,
``etcd_lease``, ``etcd_watch``, ``etcd_proposals``); what it has to say it puts into one list, in
order, and calls ``wake``.  The node's loop takes it from there (``tick``, ``take_events``), so
a proposal changes only under its owner's hands, and never before the events that
belong to it are there (O3).

``now_ms`` is CLOCK_BOOTTIME (``etcd_lease.boot_ms``) in everything here: leases are not measured by
clocks that operators set.
"""

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

from penstock.cluster.agreement.coordinator import (
    FAILED,
    UNCERTAIN,
    Coordinator,
    Entry,
    Event,
    Proposal,
)
from penstock.core.clock_types import BootMs
from penstock.core.errors import PenstockError
from penstock.node.coordination.etcd_http import (
    AnswerLost,
    EtcdFailed,
    EtcdHttp,
    EtcdOptions,
    NotReached,
    Row,
)
from penstock.node.coordination.etcd_lease import EtcdLease
from penstock.node.coordination.etcd_names import (
    FORMAT,
    EtcdNames,
    found,
    from_base64,
    get,
    has_revision,
    put,
)
from penstock.node.coordination.etcd_proposals import LEASE_ENDED, EtcdProposals, Outcome
from penstock.node.coordination.etcd_seal import Seal
from penstock.node.coordination.etcd_upgrade import PLAIN, SEALING, seal_records
from penstock.node.coordination.etcd_watch import EtcdWatch, retry_s
from penstock.side_loop import SideLoop

LEAVE_TIMEOUT_S: Final = 1.0
SILENT_S: Final = 1.0
"""Without an answer for so long nothing is proposed any more."""
CLUSTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
ENDPOINT: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):[0-9]{1,5}")

log = logging.getLogger("penstock.etcd")


class EtcdUnavailable(PenstockError):
    """There is no cluster to join, and why, in a sentence."""


class WrongFormat(EtcdFailed):
    """The keys below the prefix are another release's."""


def why_wrong(options: EtcdOptions) -> str:
    """What is wrong with them, in a sentence; "" = nothing."""
    if not options.endpoints:
        return "no endpoint of etcd is given"
    for endpoint in options.endpoints:
        if not ENDPOINT.fullmatch(endpoint):
            return f"{endpoint!r} is no endpoint of etcd; allowed: host:port, such as 10.0.0.1:2379"
    if not CLUSTER_NAME.fullmatch(options.cluster_name):
        return (
            f"{options.cluster_name!r} is no name of a cluster; allowed: up to 64 letters, digits,"
            " dots, dashes and underscores"
        )
    if not 2 <= options.lease_ttl_s <= 60:
        return f"a lease of {options.lease_ttl_s} s is not possible; allowed: 2 to 60 s"
    return ""


async def _for_ever(run: Callable[[], Coroutine[None, None, None]]) -> None:
    """A fault of ours is logged, and costs a second."""
    while True:
        try:
            await run()
        except Exception:
            log.exception("talking to etcd failed")
        await asyncio.sleep(SILENT_S)


class EtcdCoordinator(Coordinator):
    """``start`` before anything else.  ``wake``: there is something to take; from the thread."""

    def __init__(self, options: EtcdOptions, wake: Callable[[], None] = lambda: None) -> None:
        why = why_wrong(options)
        if why:
            raise EtcdUnavailable(why)
        self.options = options
        self._wake = wake
        self._news: deque[Event | tuple[Proposal, Outcome]] = deque()
        self._events: list[Event] = []
        self._entries: list[Entry] = []
        self._closed = False
        self._patience_s = 0.0
        self._side = SideLoop("etcd", self._serve)
        self._deciding: set[asyncio.Task[None]] = set()
        self._http: EtcdHttp
        self._watch: EtcdWatch
        self._lease: EtcdLease
        self._proposals: EtcdProposals

    # -- life ----------------------------------------------------------------------------

    def look(self) -> None:
        """Before the files of this node are opened, which may convert them.

        Raises ``EtcdUnavailable`` if this release cannot use the records; ``start`` finds out
        whether etcd answers.
        """
        with suppress(EtcdFailed):
            try:
                asyncio.run(self._look())
            except WrongFormat as error:
                raise self._unusable(error) from error

    async def _look(self) -> None:
        http = EtcdHttp(self.options, lambda: None)
        names = EtcdNames(self.options.cluster_name, Seal(self.options.secret))
        try:
            answer = await http.call("kv/txn", {"success": [get(names.format_key)]})
            self._version_of(names, found(answer))
        finally:
            await http.close()

    def _unusable(self, error: EtcdFailed) -> EtcdUnavailable:
        return EtcdUnavailable(
            f"etcd at {', '.join(self.options.endpoints)} cannot be used: {error}"
        )

    def start(self, patience_s: float = 10.0) -> None:
        """Join; raises ``EtcdUnavailable`` when that is not possible within this time."""
        self._patience_s = patience_s
        try:
            self._side.start()
        except EtcdFailed as error:
            raise self._unusable(error) from error

    def close(self) -> None:
        self._closed = True
        self._side.stop()

    async def _serve(self) -> None:
        seal = Seal(self.options.secret)
        names = EtcdNames(self.options.cluster_name, seal)
        running: list[asyncio.Task[None]] = []
        http: EtcdHttp | None = None
        try:
            self._http = http = EtcdHttp(self.options, self._doubt)
            self._watch = EtcdWatch(http, names, self._told)
            self._lease = EtcdLease(http, names, self._lease_changed, self._watch.check)
            self._proposals = EtcdProposals(http, names, self._watch)
            await self._join(names, seal)
            loops = (self._watch.run, self._lease.run)
            running = [asyncio.create_task(_for_ever(run)) for run in loops]
            self._side.ready()
            await self._side.stopping.wait()
        finally:
            for task in (*running, *self._deciding):
                task.cancel()
            if http is not None:
                await self._leave()
                await http.close()

    async def _join(self, names: EtcdNames, seal: Seal) -> None:
        """Snapshot and lease; a fault that may pass is waited for."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._patience_s
        failures = 0
        while True:
            try:
                await self._check_format(names, seal)
                self._entries = await self._watch.begin()
                await self._lease.grant()
            except EtcdFailed as error:
                passing = isinstance(error, NotReached | AnswerLost)
                if not passing or loop.time() > deadline_s:
                    raise
            else:
                return
            failures += 1
            await asyncio.sleep(retry_s(failures))

    async def _check_format(self, names: EtcdNames, seal: Seal) -> None:
        """The first member of a cluster writes it, the others must know it."""
        key = names.format_key
        answer = await self._http.call(
            "kv/txn",
            {
                "compare": [has_revision(key, 0)],
                "success": [put(key, FORMAT)],
                "failure": [get(key)],
            },
        )
        there = found(answer)
        version = self._version_of(names, None if answer.get("succeeded") else there)
        if version != FORMAT and there is not None:
            await seal_records(self._http, names, seal, there)

    def _version_of(self, names: EtcdNames, row: Row | None) -> str:
        """By the row of ``format``; raises WrongFormat if these options cannot use it."""
        version = FORMAT if row is None else from_base64(row.get("value", ""))
        if version in (PLAIN, SEALING):
            if not self.options.seal_records:
                raise WrongFormat(
                    f"the records below {names.root} have no checksums, as release 0.1 wrote them:"
                    " stop all nodes, and start one with cluster_etcd_seal_records = true"
                )
        elif version != FORMAT:
            raise WrongFormat(
                f"{names.root} has format {version!r}, this release reads {FORMAT!r}:"
                " another release uses this cluster name"
            )
        return version

    async def _leave(self) -> None:
        with suppress(EtcdFailed, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._lease.give_back()

    # -- from the thread -----------------------------------------------------------------

    def _doubt(self) -> None:
        self._watch.restart()

    def _told(self, events: list[Event], revision: int) -> None:
        self._news.extend(events)
        self._proposals.heard(revision)
        if events:
            self._wake()

    def _lease_changed(self) -> None:
        if not self._lease.lease:
            self._watch.restart()  # else news of its end may be late
        self._wake()

    async def _decide(self, proposal: Proposal, lease: int) -> None:
        outcome: Outcome = UNCERTAIN, 0, "this member left before it was known"
        try:
            outcome = await self._decided(proposal, lease)
        finally:
            self._news.append((proposal, outcome))
            self._wake()

    async def _decided(self, proposal: Proposal, lease: int) -> Outcome:
        if lease != self._lease.lease:
            return FAILED, 0, LEASE_ENDED
        outcome = await self._proposals.decide(lease, proposal.conditions, proposal.changes)
        if outcome[2] == LEASE_ENDED:
            with suppress(EtcdFailed):
                await self._watch.check()  # as the lease does
                if lease == self._lease.lease:
                    self._lease.has_ended()
        return outcome

    def _begin(self, proposal: Proposal, lease: int) -> None:
        task = asyncio.get_running_loop().create_task(self._decide(proposal, lease))
        self._deciding.add(task)
        task.add_done_callback(self._deciding.discard)

    # -- from the node's loop --------------------------------------------------------------

    def snapshot(self) -> list[Entry]:
        return self._entries

    def why_lost(self) -> str:
        return self._watch.known.lost

    def hand_on(self, proposal: Proposal) -> None:
        self._side.call(self._begin, proposal, self._lease.lease)

    def has_news(self) -> bool:
        return len(self._news) > 0 or len(self._events) > 0

    def take_events(self) -> list[Event]:
        self._hear()
        events, self._events = self._events, []
        return events

    def _hear(self) -> None:
        news = self._news
        while news:
            item = news.popleft()
            if isinstance(item, Event):
                self._events.append(item)
            else:
                proposal, outcome = item
                proposal.decide(*outcome)

    def tick(self, now_ms: BootMs) -> None:
        self._lease.turned(now_ms)
        self._hear()

    def lease_valid_until_ms(self) -> BootMs:
        return BootMs(0) if self._closed else self._lease.valid_until_ms

    def lease_has_ended(self) -> bool:
        return self._closed or self._lease.lease == 0

    def new_lease(self) -> None:
        if self.lease_has_ended() and not self._closed:
            self._side.call(self._lease.want)

    def why_not(self) -> str:
        if self._closed:
            return "this member has left the cluster"
        if self.why_lost():
            at = ", ".join(self.options.endpoints)
            return f"etcd at {at} cannot be used: {self.why_lost()}"
        silent_s = self._http.failed_for_s()
        if silent_s > SILENT_S:
            at = ", ".join(self.options.endpoints)
            return f"etcd at {at} has not answered for {silent_s:.0f} s: {self._http.failing}"
        return "" if self._lease.lease else LEASE_ENDED
