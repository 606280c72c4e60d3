"""The page a storage run writes: figures beside each other, promises judged, faults told."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.probe import summary
from benchmarks.storage_page import page
from benchmarks.storage_rows import (
    QUEUE,
    ROWS,
    Fill,
    chosen_rows,
    counted,
    drain_words,
    fill_words,
)
from benchmarks.tables import machine
from penstock.cli.bench import bench, plan_from
from penstock.client.plan import LoadPlan


def load(rate: float, count: int, rss_mb: float, **fields: Any) -> dict[str, Any]:
    return {
        "count": count,
        "published": count,
        "consumed": count,
        "confirmed": count,
        "confirm": 2000,
        "publish_rate": rate,
        "consume_rate": rate,
        "counted_rate": rate,
        "disk_per_message": 1100.0,
        "other_cores": 0.25,
        "broker": {"cpu_us_per_message": 2.0},
        "watched": {"rss_peak_mb": rss_mb, "rss_end_mb": rss_mb, "disk_end_mb": 1100.0},
    } | fields


def report(limit_mb: int = 512) -> dict[str, Any]:
    return {
        "date": "2000-01-01",
        "machine": machine(),
        "file_system": "ext4",
        "disk_free_gb": 80,
        "command": "python benchmarks/storage.py",
        "rounds": 1,
        "amounts": {"size": 1024, "window": 2000, "memory_limit_mb": limit_mb},
        "penstock": {"version": "1", "build": "compiled", "commit": "abc", "cores": "cores 0"},
        "rabbitmq": {"version": "3", "platform": "Erlang", "cores": "all cores"},
        "generator": {"build": "compiled", "priority": "like other work"},
    }


def filled(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> str:
    pair = {"penstock": {"fill": ours}, "rabbitmq": {"fill": theirs}}
    return page(report(), chosen_rows(name), {name: [pair]})


def test_a_fill_shows_both_and_their_ratio() -> None:
    ours, theirs = load(300_000.0, 10_000_000, 150.0), load(30_000.0, 1_000_000, 290.0)
    text = filled("fill-lazy-confirm", ours, theirs)
    assert "| lazy | confirmed | 10,000,000 / 1,000,000 | 300,000 | 30,000 | **10.00** |" in text
    assert "150 / 290" in text
    assert "| default | 0.25 |" in text
    assert "messages/s: 10.00, kept\n" in text
    assert "below 200 MB: 150, kept\n" in text
    assert "## Drain" not in text
    assert "Not as it should be" not in text


def test_a_broken_promise_is_called_one() -> None:
    ours, theirs = load(90_000.0, 5000, 513.0), load(30_000.0, 5000, 290.0)
    text = filled("fill-default-publish", ours, theirs)
    assert "publish only" in text
    assert "| 512 MB |" in text
    small = " (with 5,000 messages; promised for 10,000,000)"
    assert f"at least 5 times RabbitMQ's messages/s: 3.00, **BROKEN**{small}" in text
    assert f"resident below 512 MB: 513, **BROKEN**{small}" in text


def test_a_promise_about_time_wants_less() -> None:
    ours = {"count": 1_000_000, "kill": {"seconds": 5.0}, "clean": {"seconds": 0.9}, "stop_s": 1.0}
    theirs = {"count": 1_000_000, "kill": {"seconds": 12.5}, "clean": {"seconds": 4.0}}
    pair = {"penstock": ours, "rabbitmq": theirs}
    text = page(report(), chosen_rows("restart-lazy"), {"restart-lazy": [pair]})
    assert "after kill -9 | 5.00 | 12.50 | **0.40** |" in text
    assert "a third of RabbitMQ's time: 0.40, **BROKEN**" in text
    assert "after a clean stop: below 1 s: 0.90, kept" in text
    assert "1.00 / –" in text


def test_the_disk_is_compared_with_what_lives() -> None:
    ours = {"count": 100, "left": 50, "amplification": 1.25, "settled_s": 3.0}
    pair = {"penstock": ours, "rabbitmq": ours | {"amplification": 2.5}}
    text = page(report(), chosen_rows("space-8k"), {"space-8k": [pair]})
    assert "**1.25 / 2.50**" in text


def test_the_answers_of_the_broker_are_judged_not_the_waits_of_the_probe() -> None:
    def probes(p99_ms: float) -> dict[str, Any]:
        latency = {"p50": 1.0, "p99": 90.0, "p99.9": 95.0, "max": 99.0}
        ping = {"latency_ms": latency, "answer_ms": {"p99": p99_ms, "max": 50.0}}
        return {"get": ping, "through": ping}

    ours = {phase: {"probes": probes(ms)} for phase, ms in (("fill", 5.5), ("drain", 4.5))}
    fill = load(1.0, 10, 1.0) | ours["fill"]
    drain = load(1.0, 10, 1.0) | ours["drain"]
    text = page(
        report(),
        chosen_rows("responsive-lazy"),
        {"responsive-lazy": [{"penstock": {"fill": fill, "drain": drain}}]},
    )
    assert "during fill, lazy: p99 of the answer below 5 ms: 5.50, **BROKEN**" in text
    assert "during drain, lazy: p99 of the answer below 5 ms: 4.50, kept" in text
    assert "| 1.00 | 90.00 | 95.00 | 99.00 | 5.50 | 50.00 | 1 | 0.25 |" in text


def test_what_went_wrong_is_said() -> None:
    lost = load(1.0, 100, 1.0, published=99, confirmed=98, blocked_s=1.5, nacked=1)
    text = filled("fill-lazy-publish", lost, load(1.0, 100, 1.0))
    for fault in ("nacked 1", "confirmed 98 of 99", "99 of 100 messages", "blocked for 1.5 s"):
        assert f"Penstock fill: {fault}" in text or f"were {fault}" in text
    assert "RabbitMQ fill:" not in text


def test_a_run_that_failed_leaves_a_gap_and_a_reason() -> None:
    name = "fill-lazy-confirm"
    pair = {"penstock": {"error": "it fell"}, "rabbitmq": {"fill": load(1.0, 100, 1.0)}}
    text = page(report(), chosen_rows(name), {name: [pair]})
    assert "– / 100 | – | 1 | – |" in text
    assert "messages/s: not measured" in text
    assert f"{name}, round 1: Penstock failed: it fell" in text


def plan_of(words: list[str]) -> LoadPlan:
    return plan_from(bench.make_context("bench", words).params).check()


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("window", [0, 2000])
def test_a_fill_is_a_plan_the_command_accepts(lazy: bool, window: int) -> None:
    plan = plan_of([*fill_words(lazy, 1024, window), *counted(1000)])
    assert (plan.queue, plan.count, plan.confirm, plan.consumers) == (QUEUE, 1000, window, 0)
    assert plan.persistent
    assert plan.durable
    assert plan.queue_arguments == ({"x-queue-mode": "lazy"} if lazy else {})


def test_a_drain_declares_the_queue_as_the_fill_did() -> None:
    filling = plan_of([*fill_words(True, 1024, 0), *counted(1000)])
    draining = plan_of([*drain_words(True), *counted(1000)])
    assert draining.queue_arguments == filling.queue_arguments
    assert draining.durable == filling.durable
    assert (draining.publishers, draining.prefetch, draining.ack_every) == (0, 1000, 100)


def test_rows_are_chosen_by_how_they_begin() -> None:
    assert [row.name for row in chosen_rows("space,fill-lazy")] == [
        *("space-1k", "space-8k"),
        *("fill-lazy-confirm", "fill-lazy-publish"),
    ]
    assert chosen_rows("") == ROWS
    with pytest.raises(SystemExit, match="restart-lazy"):
        chosen_rows("nothing")


def test_the_default_queues_are_filled_under_a_limit() -> None:
    fills = [row for row in ROWS if isinstance(row, Fill)]
    assert {row.limited for row in fills if row.lazy} == {False}
    assert {row.limited for row in fills if not row.lazy} == {True}


def test_percentiles_of_a_probe_are_milliseconds() -> None:
    found = summary([number * 1_000_000 for number in range(1000)])
    assert found == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0, "max": 999.0}
