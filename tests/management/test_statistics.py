"""Rings against a list of everything, and rates and samples against those of the real RabbitMQ."""

from __future__ import annotations

import random
from typing import Any

from penstock.management.statistics.completing import Statistics, asked_now
from penstock.management.statistics.kinds import CLUSTER, QUEUE, CountersSnapshot
from penstock.management.statistics.rings import Tracks
from penstock.settings.settings import load_settings

KEY = ("/", "q")
NEWEST_S = 1_795_194_735
AS_RABBITMQ = {
    # Captured from 3.10.8: a queue's detail page asked for the last minute.
    "ack": (3154, [3154, 1764, 373], 407.0, 52.56666666666667, 278.0),
    "deliver": (3318, [3318, 1856, 391], 428.0769230769231, 55.3, 292.4),
    "publish": (3220, [3220, 1801, 380], 415.46153846153845, 53.666666666666664, 283.8),
    "redeliver": (98, [98, 55, 11], 12.615384615384615, 1.6333333333333333, 8.6),
}


def counts(**named: int) -> tuple[int, ...]:
    return tuple(named.get(name, 0) for name in QUEUE.names)


def completed(statistics: Statistics, numbers: tuple[int, ...], **groups: tuple[int, int]) -> Any:
    tally = CountersSnapshot("queue", KEY, QUEUE.counters, numbers)
    row: dict[str, Any] = {"message_stats": tally}
    ready, unacked = numbers[-2:]
    row.update(messages=ready + unacked, messages_ready=ready, messages_unacknowledged=unacked)
    token = asked_now.set(groups)
    statistics.complete([row])
    asked_now.reset(token)
    return row


def test_a_queue_is_shown_as_rabbitmq_shows_it() -> None:
    statistics = Statistics()
    tracks = statistics.tracks["queue"]
    for back in (2, 1, 0):
        tracks.begin(NEWEST_S - 5 * back + 1.7)
        tracks.record(
            KEY, counts(**{name: seen[back] for name, (_, seen, *_) in AS_RABBITMQ.items()})
        )
        tracks.end()
    last = counts(**{name: now for name, (now, *_) in AS_RABBITMQ.items()})
    stats = completed(statistics, last, msg_rates=(60, 5))["message_stats"]
    for name, (now, seen, avg, avg_rate, rate) in AS_RABBITMQ.items():
        samples = seen + [0] * 10
        assert stats[name] == now
        assert stats[f"{name}_details"] == {
            "rate": rate,
            "avg": avg,
            "avg_rate": avg_rate,
            "samples": [
                {"sample": value, "timestamp": (NEWEST_S - 5 * back) * 1000}
                for back, value in enumerate(samples)
            ],
        }
    assert (stats["deliver_get"], stats["deliver_get_details"]) == (3318, stats["deliver_details"])


def test_samples_are_there_only_when_asked_for_and_by_group() -> None:
    statistics = Statistics()
    tracks = statistics.tracks["queue"]
    tracks.begin(NEWEST_S - 5)
    for at, ready in ((0, 10), (5, 40)):
        tracks.begin(NEWEST_S + at)
        tracks.record(KEY, counts(publish=ready, messages_ready=ready, messages_unacknowledged=3))
    numbers = counts(publish=40, messages_ready=40, messages_unacknowledged=3)
    row = completed(statistics, numbers, lengths=(10, 5))
    assert row["message_stats"]["publish_details"] == {"rate": 6.0}
    details = row["messages_details"]
    assert [one["sample"] for one in details["samples"]] == [43, 13, 0]
    assert (details["avg"], details["avg_rate"], details["rate"]) == (56 / 3, 4.3, 6.0)


def test_who_never_did_anything_has_no_message_stats_and_no_ring() -> None:
    statistics = Statistics()
    tracks = statistics.tracks["queue"]
    tracks.begin(NEWEST_S)
    tracks.record(KEY, counts())
    assert tracks.by_key == {}
    row = completed(statistics, counts(), lengths=(10, 5))
    assert "message_stats" not in row
    assert row["messages_details"]["rate"] == 0.0
    assert [one["sample"] for one in row["messages_details"]["samples"]] == [0, 0, 0]


def test_without_rates_there_are_counts_alone() -> None:
    row = completed(
        Statistics(load_settings(None, {}, {"rates_mode": "none"})),
        counts(publish=5, messages_ready=5),
    )
    assert row["message_stats"]["publish"] == 5
    assert not [name for name in (*row, *row["message_stats"]) if name.endswith("_details")]


def test_the_row_of_a_node_that_did_nothing_counts_from_zero() -> None:
    """The end of the first minute makes a track in which nothing was recorded."""
    statistics = Statistics()
    for tracks in (None, statistics.tracks["cluster"]):
        if tracks is not None:
            tracks.begin(NEWEST_S)
            tracks.of(())
        row: dict[str, Any] = {}
        statistics.node(row)
        assert row["connection_created"] == row["queue_deleted"] == 0
        assert row["channel_closed_details"] == {"rate": 0.0}


class Naive:
    """Everything that was ever recorded; samples are looked up."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, tuple[int, ...]]] = []

    def at(self, until_s: float, place: int) -> int:
        """The last value of a step that ends before ``until_s``."""
        value = 0
        for at_s, numbers in self.seen:
            if at_s < until_s:
                value = numbers[place]
        return value


def test_rings_say_what_a_list_of_everything_says() -> None:
    chance = random.Random(7)
    for _ in range(30):
        tracks = Tracks(CLUSTER, 5.0)
        naive = Naive()
        now_s = float(NEWEST_S)
        numbers = [0] * len(CLUSTER.names)
        ready_at = CLUSTER.names.index("messages_ready")
        for _ in range(chance.randrange(2, 60)):
            # Now and then a tick is missing, or some hours are.
            now_s += chance.choice((5, 5, 5, 5, 10, 300, 4000))
            numbers[0] += chance.choice((0, 0, 1, 1000))
            numbers[ready_at] = chance.choice((0, 7, 70_000_000_000))
            tracks.begin(now_s)
            tracks.record((), tuple(numbers))
            tracks.end()
            naive.seen.append((now_s, tuple(numbers)))
        track = tracks.by_key.get(())
        if track is None:
            assert not any(numbers)
            continue
        for age_s, step_s in ((60, 5), (600, 5), (3600, 60), (28_800, 600), (86_400, 1800)):
            level = tracks.levels.level_for(age_s)
            for at_ms, value in track.samples(tracks.levels, 0, age_s, step_s):
                assert value == naive.at(at_ms / 1000 + level.step_s, 0)
            lengths = track.samples(tracks.levels, ready_at, age_s, step_s)
            recorded = {int(at_s // level.step_s) for at_s, _ in naive.seen}
            for at_ms, value in lengths:
                if at_ms // 1000 // level.step_s in recorded:
                    assert value == naive.at(at_ms / 1000 + level.step_s, ready_at)
        assert len({len(column) for column in track.columns.values()}) == 1


def test_an_object_of_the_same_name_begins_anew() -> None:
    tracks = Tracks(QUEUE, 5.0)
    for at, published in ((0, 100), (5, 30)):
        tracks.begin(NEWEST_S + at)
        tracks.record(KEY, counts(publish=published))
    assert tracks.by_key[KEY].rates(tracks.levels)["publish"] == 6.0


def test_rings_go_with_their_object_and_after_an_idle_hour() -> None:
    tracks = Tracks(QUEUE, 5.0)
    tracks.begin(NEWEST_S)
    tracks.record(KEY, counts(publish=9, messages_ready=9))
    tracks.record(("/", "other"), counts(publish=9))
    tracks.end()
    for minute in range(1, 65):
        tracks.begin(NEWEST_S + 60 * minute)
        tracks.record(KEY, counts(publish=9, messages_ready=9))
        tracks.end()
    assert set(tracks.by_key) == {KEY}
    track = tracks.by_key[KEY]
    assert track.columns == {}
    ready = QUEUE.names.index("messages_ready")
    assert {value for _, value in track.samples(tracks.levels, ready, 600, 5)} == {9}
    tracks.begin(NEWEST_S + 4000)
    tracks.record(KEY, counts(publish=10, messages_ready=10))
    assert [value for _, value in track.samples(tracks.levels, ready, 5, 5)] == [10, 9]
    assert track.rates(tracks.levels)["publish"] == 0.2


def test_a_reset_forgets_the_past_and_no_count() -> None:
    statistics = Statistics()
    tracks = statistics.tracks["queue"]
    for at, published in ((0, 10), (5, 30), (10, 60)):
        tracks.begin(NEWEST_S + at)
        tracks.record(KEY, counts(publish=published, messages_ready=4))
        if at == 5:
            statistics.reset()
    row = completed(statistics, counts(publish=60, messages_ready=4), msg_rates=(10, 5))
    details = row["message_stats"]["publish_details"]
    assert [one["sample"] for one in details["samples"]] == [60, 30, 30]
    assert (details["rate"], row["messages_ready_details"]["rate"]) == (6.0, 0.0)
