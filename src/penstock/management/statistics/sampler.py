"""``StatisticsSampler``: reads the counters of all objects once per interval.

In: ``on_loop``, which runs a short function on the data loop, and what to read there (``Reading``).
Out: the tracks of ``Statistics``.  A slice reads at most ``SLICE`` objects, and between two of them
the data loop has its turns; what lies between the first and the last slice of a walk is a fraction
of the interval.  When the broker does not answer, or the walk takes longer than the interval, the
next tick is left out, and its steps are as if nothing had happened.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from penstock.core.counting.histogram import Histogram
from penstock.management.facts.on_loop import SLICE, OnLoop, portions
from penstock.management.facts.sessions import SessionTally
from penstock.management.statistics.completing import Statistics
from penstock.management.statistics.history_file import STEP_S, HistoryFile
from penstock.management.statistics.kinds import CLUSTER, NODE
from penstock.management.statistics.node_facts import NodeFacts
from penstock.management.statistics.reading import Reading

LATE_S: Final = 0.02
"""A walk begins so long after its step does: a clock that wakes us early is still in it."""

T = TypeVar("T")
P = ParamSpec("P")

log = logging.getLogger("penstock.management")


class StatisticsSampler:
    """See the head of this file.

    ``waits``  how long slices waited for the data loop: its lag, as others feel it
    """

    def __init__(
        self,
        statistics: Statistics,
        reading: Reading,
        node: NodeFacts,
        on_loop: OnLoop,
        directory: str = "",
    ) -> None:
        """``directory``: for the file of a week's history; empty: there is none."""
        self._statistics = statistics
        self._kept = [statistics.tracks[kind.name] for kind in (CLUSTER, NODE)]
        names = [f"{kind.name}.{name}" for kind in (CLUSTER, NODE) for name in kind.names]
        self._file = HistoryFile(Path(directory) / "history", names) if directory else None
        self.tracks = statistics.tracks
        self._reading = reading
        self._node = node
        self._on_loop = on_loop
        self.walks = 0
        self.last_walk_s = 0.0
        self.waits = Histogram()

    async def run(self) -> None:
        interval_s = self._statistics.interval_s
        done = 0
        if self._file is not None and self._statistics.mode != "none":
            await asyncio.to_thread(self._restore, self._file, time.time())
        while self._statistics.mode != "none":
            await asyncio.sleep(interval_s - (time.time() - LATE_S) % interval_s)
            step = int(time.time() // interval_s)
            if step == done:
                continue  # two walks in one step would be a rate of two
            done = step
            try:
                await self.walk(time.time())
            except TimeoutError:
                log.warning("no statistics: the broker did not answer in time")
            except Exception:
                log.exception("no statistics this time")

    def _restore(self, file: HistoryFile, now_s: float) -> None:
        """Before the first walk."""
        records = file.read(int(now_s // STEP_S))
        if not records:
            return
        for tracks in self._kept:
            tracks.begin(now_s)
            track = tracks.of(())
            width = len(tracks.kind.names)
            for minute, numbers in records:
                track.restore(tracks.levels, minute * STEP_S, numbers[:width])
            records = [(minute, numbers[width:]) for minute, numbers in records]

    async def _keep(self, minute: int) -> None:
        """On disk, when that minute is over."""
        level = self._kept[0].levels.levels[1]
        if self._file is None or not 0 <= minute < level.slot:
            return
        numbers: list[int] = []
        for tracks in self._kept:
            numbers += tracks.of(()).of_slot(tracks.levels, tracks.levels.levels[1], minute)
        await asyncio.to_thread(self._file.write, minute, numbers)

    async def walk(self, now_s: float) -> None:
        began = time.monotonic()
        minute = self._kept[0].levels.levels[1].slot
        for tracks in self.tracks.values():
            tracks.begin(now_s)
        await self._sessions()
        ready = unacked = 0
        for vhost in await self._on_loop(self._reading.vhost_names):
            lengths = await self._vhost(vhost)
            ready, unacked = ready + lengths[0], unacked + lengths[1]
        counts = await self._on_loop(self._reading.cluster)
        self.tracks["cluster"].record((), (*counts, ready, unacked))
        row = await asyncio.to_thread(self._node.row)
        self.tracks["node"].record((), tuple(_number(row.get(name)) for name in NODE.names))
        for tracks in self.tracks.values():
            tracks.end()
        await self._keep(minute)
        self.last_walk_s = time.monotonic() - began
        self.walks += 1

    async def _timed(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        asked_ns = time.monotonic_ns()

        def run() -> T:
            began_ns.append(time.monotonic_ns())
            return function(*args, **kwargs)

        began_ns: list[int] = []
        found = await self._on_loop(run)
        self.waits.add((began_ns[0] - asked_ns) // 1_000_000, 1)
        return found

    async def _sessions(self) -> None:
        sessions = await self._on_loop(self._reading.sessions)
        self._statistics.socket_count = len(sessions)
        for start in range(0, len(sessions), SLICE):
            some = sessions[start : start + SLICE]
            found = await self._timed(self._reading.channel_numbers, some)
            for portion in portions(found):
                self._record(await self._timed(self._reading.traffic_of, portion))

    def _record(self, tallies: list[SessionTally]) -> None:
        for tally in tallies:
            if tally.is_first:
                self.tracks["connection"].record((tally.name,), tally.octets)
            for number, counts in tally.channels:
                self.tracks["channel"].record((f"{tally.name} ({number})",), counts)

    async def _vhost(self, vhost: str) -> tuple[int, int]:
        """Returns what is ready and unacknowledged in it."""
        ready = unacked = 0
        reading = self._reading
        names = await self._on_loop(reading.queue_names, vhost)
        queues = self.tracks["queue"]
        while names:
            for name, counts in await self._timed(reading.queues, vhost, names):
                queues.record((vhost, name), counts)
                ready += counts[-2]
                unacked += counts[-1]
        names = await self._on_loop(reading.exchange_names, vhost)
        exchanges = self.tracks["exchange"]
        for start in range(0, len(names), SLICE):
            some = names[start : start + SLICE]
            for name, counts in await self._timed(reading.exchanges, vhost, some):
                exchanges.record((vhost, name), counts)
        counts = await self._on_loop(reading.vhost, vhost)
        self.tracks["vhost"].record((vhost,), (*counts, ready, unacked))
        return ready, unacked


def _number(value: object) -> int:
    """0 for what this system does not tell."""
    return value if isinstance(value, int) else 0
