"""``bench_core`` for cachegrind: so many rounds of a load, with the event log, samples or neither.

    python -m benchmarks.core_count auto-ack events 60

It prints how many messages that were.  Time goes by the messages, ``NS_PER_MESSAGE`` each, or what
is done four times a second would be counted as if the broker were as slow as it is here.  Once in
five seconds of that time the samples of queue, exchanges and virtual host are taken.
"""

from __future__ import annotations

import sys
import time
from typing import cast

from benchmarks import bench_core
from penstock.management.facts.sessions import SessionInspector
from penstock.management.statistics.completing import Statistics
from penstock.management.statistics.reading import Reading

NS_PER_MESSAGE = 4000
START_NS = 1_700_000_000 * 10**9
FEW, MANY = 10, 60
INTERVAL_S = 5


class MessageClock:
    """Stands in for ``time`` in ``bench_core``; ends the run after so many rounds."""

    process_time = staticmethod(time.process_time)

    def __init__(self, rounds: int) -> None:
        self._left = rounds + 1
        self.benches: list[bench_core.Bench] = []

    def monotonic(self) -> float:
        self._left -= 1
        return 0.0 if self._left >= 0 else 1e9

    def time_ns(self) -> int:
        return START_NS + self.messages() * NS_PER_MESSAGE

    def messages(self) -> int:
        queues = [one.broker.vhosts["/"].queues.get("q") for one in self.benches]
        return sum(int(queue.statistics.delivered_count) for queue in queues if queue is not None)


class Walker:
    """Reads and records as the sampler does, here and now."""

    def __init__(self, clock: MessageClock) -> None:
        self._clock = clock
        self.tracks = Statistics().tracks
        self._slot = 0

    def look(self, bench: bench_core.Bench) -> None:
        slot = self._clock.time_ns() // 10**9 // INTERVAL_S
        if slot == self._slot:
            return
        self._slot = slot
        reading = Reading(bench.broker, cast(SessionInspector, None))
        for tracks in self.tracks.values():
            tracks.begin(slot * INTERVAL_S)
        names = reading.queue_names("/")
        while names:
            for name, counts in reading.queues("/", names):
                self.tracks["queue"].record(("/", name), counts)
        for name, counts in reading.exchanges("/", reading.exchange_names("/")):
            self.tracks["exchange"].record(("/", name), counts)
        self.tracks["vhost"].record(("/",), (*reading.vhost("/"), 0, 0))
        self.tracks["cluster"].record((), (*reading.cluster(), 0, 0))


def main() -> None:
    row, part, rounds = sys.argv[1:]
    clock = MessageClock(int(rounds))
    walker = Walker(clock) if part == "samples" else None

    class NotedBench(bench_core.Bench):
        def __init__(self, directory: str, credit: bool, events: bool) -> None:
            super().__init__(directory, credit, events)
            clock.benches.append(self)

        def take_turn(self) -> None:
            super().take_turn()
            if walker is not None:
                walker.look(self)

    vars(bench_core).update(time=clock, Bench=NotedBench)
    bench_core.run(16, False, row == "auto-ack", False, 1.0, events=part == "events")
    print(clock.messages())


if __name__ == "__main__":
    main()
