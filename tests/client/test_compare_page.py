"""The page a comparison writes: ratios of pairs, and nothing wrong left unsaid."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.scenarios import SCENARIOS, chosen
from benchmarks.tables import machine, page
from penstock.cli.bench import bench, plan_from


def result(rate: float, p99_us: float, **fields: Any) -> dict[str, Any]:
    return {
        "publish_rate": rate,
        "consume_rate": rate,
        "latency_us": {"p50": 100.0, "p99": p99_us, "p99.9": 9000.0},
        "published": 10,
        "confirmed": 10,
        "out_of_order": 0,
        "redelivered": 0,
        "foreign": 0,
        "nacked": 0,
        "plan": {"confirm": 0, "count": 0},
        "broker": {"cpu_us_per_message": 2.0, "cpu_cores": 1.0, "rss_peak_mb": 50.0},
        "other_cores": 0.25,
    } | fields


def report() -> dict[str, Any]:
    return {
        "date": "2000-01-01",
        "machine": machine(),
        "command": "python benchmarks/compare.py",
        "rounds": 3,
        "penstock": {"version": "1", "build": "compiled", "commit": "abc", "cores": "core 0"},
        "rabbitmq": {"version": "3", "platform": "Erlang", "cores": "all cores"},
        "generator": {"build": "compiled", "priority": "like other work"},
        "self_test": [{"case": "publish 16 B", "messages_per_s": 1234567.0}],
    }


def test_the_ratio_is_the_median_of_the_pairs_ratios() -> None:
    [scenario] = chosen("auto-ack-1k")
    rounds = [
        (result(300.0, 1.0), result(100.0, 1.0)),
        (result(500.0, 1.0), result(100.0, 1.0)),
        (result(800.0, 1.0), result(200.0, 1.0)),
    ]
    text = page(report(), [scenario], {scenario.name: rounds})
    assert "500 [300..800] | 100 [100..200] | **4.00 [3.00..5.00]** | 500 / 100" in text
    assert "## Latency" not in text
    assert "1,234,567" in text
    assert "Not as it should be" not in text


def test_latency_is_shown_in_milliseconds_per_percentile() -> None:
    [scenario] = chosen("latency-1k")
    text = page(report(), [scenario], {scenario.name: [(result(1, 1500.0), result(1, 3000.0))]})
    assert "p99 | 1.50 | 3.00 | **0.50**" in text
    assert "## Throughput" not in text


def test_what_is_wrong_with_a_run_is_said() -> None:
    [scenario] = chosen("safe-publish")
    lost = result(1.0, 1.0, confirmed=9, out_of_order=4, plan={"confirm": 5, "count": 11})
    text = page(report(), [scenario], {scenario.name: [(result(1.0, 1.0), lost)]})
    assert "RabbitMQ confirmed 9 of 10" in text
    assert "RabbitMQ published 10 of 11" in text
    assert "RabbitMQ out_of_order 4" in text
    assert "Penstock confirmed" not in text


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_scenario_is_a_plan_the_command_accepts(scenario: Any) -> None:
    words = scenario.arguments(seconds=3.0, warmup=1.0)
    plan = plan_from(bench.make_context("bench", words).params).check()
    assert plan.count == scenario.count
    assert plan.varied == scenario.name.startswith("varied")
    assert (plan.confirm > 0) == ("safe" in scenario.name)


def test_a_scenario_nobody_knows_is_refused() -> None:
    with pytest.raises(SystemExit, match="auto-ack-16"):
        chosen("nothing")
