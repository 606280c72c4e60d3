"""Rates, averages and samples for rows that carry a ``CountersSnapshot``, in RabbitMQ's shape.

    "publish": 3220                                   the counter, as it is now
    "publish_details": {"rate": 283.8}                over the last interval
    ... with "avg", "avg_rate" and "samples"          when the request asks for them

The average is that of the samples, ``avg_rate`` what lies between the oldest and the newest of
them; the newest sample comes first.  An object that never did anything has no ``message_stats``.
"""

import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Final, cast

from penstock.management.facts.rows import Row
from penstock.management.statistics.kinds import (
    CHURN,
    CLUSTER,
    DELIVERIES,
    KINDS,
    LENGTHS,
    NODE,
    OCTETS,
    SUMS,
    VHOST,
    CountersSnapshot,
    Key,
    ObjectKind,
)
from penstock.management.statistics.rings import Levels, Sample, Track, Tracks
from penstock.settings.settings import Settings

ASKED_MAX: Final = 1000
ASKED_AGAIN_S: Final = 1.0
"""Who asks sooner is told the rates of before."""
DETAILS: Final = {
    name: f"{name}_details" for kind in KINDS.values() for name in (*kind.names, *SUMS)
}
NO_RATES: Final[dict[str, float]] = {}
PUBLISHING: Final = ("publish", "confirm", "return_unroutable", "drop_unroutable")
CONSUMING: Final = (*DELIVERIES, "get_empty", "redeliver", "ack")
GROUPS: Final = ("lengths", "msg_rates", "data_rates", "node_stats")
AGE_MAX_S: Final = 366 * 24 * 3600
Asked = Mapping[str, tuple[int, int]]
"""By group: (age, increment)."""
NOTHING: Final[Asked] = {}
asked_now: ContextVar[Asked] = ContextVar("asked_now", default=NOTHING)


class Statistics:
    """What the sampler has found so far, and rows completed by it.

    ``mode``: ``basic``, or ``none``: then rows have counts only.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.interval_s, self.mode = 5.0, "basic"
        if settings is not None:
            self.interval_s = settings.collect_statistics_interval_ms / 1000
            self.mode = settings.rates_mode
        self.socket_count = 0
        self._asked: dict[Key, tuple[float, dict[str, int], dict[str, float]]] = {}
        self.tracks = {name: Tracks(kind, self.interval_s) for name, kind in KINDS.items()}

    def is_sampled(self) -> bool:
        """The sampler has walked at least once."""
        return self.tracks[CLUSTER.name].levels.levels[0].slot >= 0

    def reset(self) -> None:
        """Forget the past; counts stay, and rates begin with the next two samples."""
        for tracks in self.tracks.values():
            tracks.forget()

    # -- rows ------------------------------------------------------------------------------

    def complete(self, found: object) -> None:
        """A row or a list of rows that has just come from the data loop."""
        if isinstance(found, dict):
            self._complete(found)
        elif isinstance(found, list) and found and isinstance(found[0], dict):
            for row in found:
                self._complete(row)

    def _complete(self, row: Row) -> None:
        if "deliveries" in row:
            for one in cast(list[Row], row["deliveries"]):
                one["stats"] = self._since_asked(cast(CountersSnapshot, one["stats"]))
        tally = row.get("message_stats")
        if not isinstance(tally, CountersSnapshot):
            tally = row.pop("octets", None)
            if isinstance(tally, CountersSnapshot):
                self._add_octets(row, tally)
            return
        self._add_lengths(row, tally)
        if tally.kind == "vhost":
            self._add_octets(row, tally)
        stats = self._message_stats(tally)
        if stats:
            row["message_stats"] = stats
        else:
            del row["message_stats"]

    def _message_stats(self, tally: CountersSnapshot) -> Row:
        counts = {key: cast(int, value) for key, value in tally.items() if key not in OCTETS}
        if not any(counts.values()):
            return {}
        if tally.kind == "channel":
            for family in (PUBLISHING, CONSUMING):
                if not any(counts.get(name) for name in family):
                    counts = {name: one for name, one in counts.items() if name not in family}
        if "deliver" in counts:
            counts["deliver_get"] = sum(counts.get(name, 0) for name in DELIVERIES)
        if not counts.get("dead_lettered", 1):
            del counts["dead_lettered"]  # RabbitMQ's rows have none
        return self.with_details(KINDS[tally.kind], tally.key, counts, "msg_rates")

    def _add_lengths(self, row: Row, tally: CountersSnapshot) -> None:
        kind = KINDS[tally.kind]
        if kind is VHOST:
            track = self.tracks[kind.name].by_key.get(tally.key)
            if track is not None and any(track.counts):
                ready, unacked = track.counts[-2:]
                row.update(
                    messages=ready + unacked, messages_ready=ready, messages_unacknowledged=unacked
                )
        if kind.gauges == LENGTHS and "messages" in row:
            lengths = {name: cast(int, row[name]) for name in ("messages", *LENGTHS)}
            row.update(self.with_details(kind, tally.key, lengths, "lengths"))

    def _add_octets(self, row: Row, tally: CountersSnapshot) -> None:
        octets = {name: cast(int, tally[name]) for name in OCTETS}
        if tally.kind == "vhost" and not any(octets.values()):
            return
        row.update(self.with_details(KINDS[tally.kind], tally.key, octets, "data_rates"))

    def _since_asked(self, tally: CountersSnapshot) -> Row:
        """With rates over the time since the last request: of these nothing is sampled."""
        now_s = time.monotonic()
        counts = {name: cast(int, count) for name, count in tally.items()}
        counts["deliver_get"] = sum(counts.get(name, 0) for name in DELIVERIES)
        before_s, before, rates = self._asked.pop(tally.key, (now_s, counts, {}))
        passed_s = now_s - before_s
        if passed_s >= ASKED_AGAIN_S:
            rates = {name: max(counts[name] - before[name], 0) / passed_s for name in counts}
            before_s, before = now_s, counts
        self._asked[tally.key] = before_s, before, rates
        if len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]
        row: Row = dict(counts)
        for name in counts:
            row[f"{name}_details"] = {"rate": rates.get(name, 0.0)}
        return row

    # -- details ---------------------------------------------------------------------------

    def with_details(self, kind: ObjectKind, key: Key, counts: dict[str, int], group: str) -> Row:
        """These counts, and what is known of each over time."""
        row: Row = dict(counts)
        if self.mode == "none":
            return row
        tracks = self.tracks[kind.name]
        track = tracks.by_key.get(key)
        rates = NO_RATES if track is None else track.rates(tracks.levels)
        for name in counts:
            row[DETAILS[name]] = {"rate": rates.get(name, 0.0)}
        wish = asked_now.get().get(group)
        if wish is not None and tracks.levels.levels[0].slot >= 0:
            for name, count in counts.items():
                samples = _samples(tracks.levels, track, name, count, wish)
                cast(Row, row[DETAILS[name]]).update(averages(samples))
        return row

    # -- the node --------------------------------------------------------------------------

    def overview(self, counts: dict[str, int], lengths: dict[str, int]) -> dict[str, Row]:
        """``message_stats``, ``churn_rates`` and ``queue_totals`` of ``/api/overview``."""
        traffic = {name: counts[name] for name in CLUSTER.counters if name not in CHURN}
        traffic["deliver_get"] = sum(traffic[name] for name in DELIVERIES)
        churn = {name: counts[name] for name in CHURN}
        return {
            "message_stats": self.with_details(CLUSTER, (), traffic, "msg_rates"),
            "churn_rates": self.with_details(CLUSTER, (), churn, "msg_rates"),
            "queue_totals": self.with_details(CLUSTER, (), lengths, "lengths"),
        }

    def over_vhosts(self, tallies: Sequence[CountersSnapshot]) -> Row:
        """``message_stats`` of an overview for who sees only these virtual hosts."""
        row: Row = {}
        for tally in tallies:
            for name, value in self._message_stats(tally).items():
                if isinstance(value, dict):
                    was = cast(Row, row.setdefault(name, {"rate": 0.0}))
                    was["rate"] = cast(float, was["rate"]) + cast(float, value["rate"])
                else:
                    row[name] = cast(int, row.get(name, 0)) + cast(int, value)
        return row

    def node(self, row: Row) -> None:
        """Add to a node's row what was found at the last walk, and the details."""
        row["rates_mode"] = self.mode
        if self.mode != "none":
            row["sockets_used"] = self.socket_count
        numbers = {name: row[name] for name in NODE.names if isinstance(row.get(name), int)}
        row.update(self.with_details(NODE, (), cast(dict[str, int], numbers), "node_stats"))
        if self.mode != "none":
            track = self.tracks[CLUSTER.name].by_key.get(())
            counts = track.counts if track is not None else ()
            named = dict.fromkeys(CLUSTER.names, 0) | dict(zip(CLUSTER.names, counts, strict=False))
            churn = {name: named[name] for name in CHURN}
            row.update(self.with_details(CLUSTER, (), churn, "node_stats"))


def averages(samples: Sequence[Sample]) -> Row:
    (newest_ms, newest), (oldest_ms, oldest) = samples[0], samples[-1]
    span_s = (newest_ms - oldest_ms) / 1000
    return {
        "avg": sum(value for _, value in samples) / len(samples),
        "avg_rate": (newest - oldest) / span_s if span_s else 0.0,
        "samples": [{"sample": value, "timestamp": at_ms} for at_ms, value in samples],
    }


def _samples(
    levels: Levels, track: Track | None, name: str, now: int, wish: tuple[int, int]
) -> list[Sample]:
    names = levels.kind.names
    places = [names.index(part) for part in SUMS.get(name, (name,))]
    if track is None:  # it stands where it always stood
        return [(at_ms, now) for at_ms, _ in Track().samples(levels, places[0], *wish)]
    return _sum([track.samples(levels, place, *wish) for place in places])


def _sum(series: list[list[Sample]]) -> list[Sample]:
    if len(series) == 1:
        return series[0]
    return [
        (column[0][0], sum(value for _, value in column)) for column in zip(*series, strict=True)
    ]


def read_asked(query: Mapping[str, str]) -> Asked:
    """What is no time is passed over, as RabbitMQ does."""
    found: dict[str, tuple[int, int]] = {}
    for group in GROUPS:
        age, step = _seconds(query.get(f"{group}_age")), _seconds(query.get(f"{group}_incr"))
        if age and step:
            found[group] = (age, step)
    return found or NOTHING


def _seconds(text: str | None) -> int:
    """0 = none."""
    try:
        number = int(text or "")
    except ValueError:
        return 0
    return number if 0 < number <= AGE_MAX_S else 0
