"""What changes in etcd, as events of the coordinator: a snapshot first, then a stream.

In: the names and the way to etcd.  Out, to ``on_events``: batches of events and the revision that
is complete with them, in order, each change once.  A stream that breaks, or whose endpoint was
given up, begins again behind what was told, if etcd still has that (``check``).
When etcd has compacted the events between, the watch reads a new snapshot, and ``KnownKeys`` makes
the events that lead to it.

etcd never splits a revision over two answers of a stream that did not ask for fragments, so
what an answer's last event has is complete.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.cluster.agreement.coordinator import Entry, Event
from penstock.cluster.agreement.known_keys import FOUNDED, KnownKeys
from penstock.node.coordination.etcd_http import AnswerLost, EtcdFailed, EtcdHttp, EtcdRefusal, Row
from penstock.node.coordination.etcd_names import EtcdNames, number, revision_of
from penstock.node.coordination.etcd_seal import WrongSeal

PAGE: Final = 500
RETRY_S: Final = 0.05
RETRY_MAX_S: Final = 1.0
OUT_OF_RANGE: Final = 11
"""gRPC's code for a revision that is compacted."""

LASTED_S: Final = 1.0
"""A stream that lasted so long was a good one."""

log = logging.getLogger("penstock.etcd")
_chance = secrets.SystemRandom()


class Compacted(EtcdFailed):
    """The history between what was told and what is there is gone."""


def retry_s(failures: int) -> float:
    """Before the next try: longer each time, and not all at once."""
    return min(RETRY_MAX_S, RETRY_S * 2.0 ** min(failures, 8)) * _chance.uniform(0.5, 1.0)


class DataLost(EtcdFailed):
    """etcd does not have what it told before."""


class EtcdWatch:
    """``known.revision``: everything up to it was told."""

    def __init__(
        self, http: EtcdHttp, names: EtcdNames, on_events: Callable[[list[Event], int], None]
    ) -> None:
        self.known = KnownKeys([], 0)
        self.differences = 0
        self._http = http
        self._names = names
        self._on_events = on_events
        self._stream: asyncio.Task[None] | None = None
        self._is_open = False  # it has asked for what comes next
        self._failures = 0

    async def begin(self) -> list[Entry]:
        """The first snapshot; ``run`` goes on behind it."""
        entries, revision = await self._read_all()
        self.known = KnownKeys(entries, revision)
        return entries

    async def check(self) -> None:
        """Ask etcd whether it still has what was told; raises ``DataLost``, and as ``call``."""
        if not self.known.lost:
            known = self.known.state()  # the stream may tell more before the answer is here
            answer = await self._http.call("kv/range", self._names.one_key(FOUNDED))
            kvs = answer.get("kvs", [])
            with self._distrust():
                founded = self._names.entry(kvs[0]).value if kvs else None
            self.known.look(founded, revision_of(answer), known)
        self._stop_if_lost()

    @contextmanager
    def _distrust(self) -> Iterator[None]:
        """Of a record without a valid checksum: nothing of it is told, nor anything behind it."""
        try:
            yield
        except WrongSeal as error:
            self.known.distrust(str(error))
            log.critical("etcd at %s: %s", self._http.endpoint, error)
            raise

    def _stop_if_lost(self) -> None:
        if self.known.lost:
            raise DataLost(self.known.lost)

    async def run(self) -> None:
        while not self.known.lost:
            began_s = time.monotonic()
            self._stream = asyncio.create_task(self._follow())
            try:
                await asyncio.wait([self._stream])
                await self._judge(self._stream)
            finally:
                self._stream.cancel()
            if time.monotonic() - began_s > LASTED_S:
                self._failures = 0
            await asyncio.sleep(retry_s(self._failures))
            self._failures += 1

    def restart(self) -> None:
        """The stream begins again, at the endpoint that is now in use.

        A way that was cut leaves a connection on which nothing comes for a long time, or ever.
        """
        if self._stream is not None and self._is_open:
            self._stream.cancel()

    async def _follow(self) -> None:
        await self.check()
        self._is_open = True
        try:
            await self._http.stream("watch", self._names.watch(self.known.revision), self._row)
        finally:
            self._is_open = False

    async def _judge(self, stream: "asyncio.Task[None]") -> None:
        error = None if stream.cancelled() else stream.exception()
        if isinstance(error, Compacted):
            try:
                await self._tell_difference()
            except EtcdFailed as failure:
                log.info("reading all keys of etcd failed: %s", failure)
        elif error is not None and not isinstance(error, EtcdFailed):
            log.error("following etcd failed", exc_info=error)
        elif isinstance(error, EtcdRefusal):
            self._http.forget_login()

    def _row(self, row: Row) -> None:
        result = row.get("result", {})
        if result.get("canceled"):
            if number(result, "compact_revision"):
                raise Compacted("etcd has compacted its history")
            raise AnswerLost(result.get("cancel_reason") or "etcd ended the watch")
        rows = result.get("events")
        if not rows:
            return
        self._failures = 0
        with self._distrust():
            events = [event for event in map(self._names.event, rows) if event is not None]
        revision = number(rows[-1]["kv"], "mod_revision")
        self.known.told(events, revision)
        self._stop_if_lost()
        self._on_events(events, revision)

    async def _tell_difference(self) -> None:
        entries, revision = await self._read_all()
        events = self.known.difference(entries, revision)
        self._stop_if_lost()
        self.differences += 1
        self._on_events(events, revision)

    async def _read_all(self) -> tuple[list[Entry], int]:
        """All keys, at one revision."""
        entries: list[Entry] = []
        revision = 0
        while True:
            behind = entries[-1].key if entries else ""
            page = self._names.all_keys(behind, revision, PAGE)
            try:
                answer = await self._http.call("kv/range", page)
            except EtcdRefusal as refusal:
                if refusal.code != OUT_OF_RANGE or not entries:
                    raise
                entries, revision = [], 0  # compacted while we read: from the start
                continue
            revision = revision or revision_of(answer)
            with self._distrust():
                entries += [self._names.entry(kv) for kv in answer.get("kvs", [])]
            if not answer.get("more"):
                entries.sort(key=lambda entry: (entry.made, entry.key))
                return entries, revision
