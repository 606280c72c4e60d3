"""A table of the benchmarks: ratios of rounds, promises judged, faults told, losses found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import TABLES, table_of
from benchmarks.harness import Row, Table, arguments, chosen, losses, run, without_places
from benchmarks.load import wrongs
from benchmarks.page import Column, Promise, Section, page, ratios_of, thousands
from benchmarks.probe import summary
from benchmarks.storage import QUEUE, counted, drain_words, fill_words
from benchmarks.throughput import SCENARIOS
from penstock.cli.bench import bench, plan_from
from penstock.client.plan import LoadPlan

SECTIONS = {
    "": Section(
        "Both",
        (Column("rate", "msg/s", thousands, 1), Column("seconds", "s", thousands, -1)),
        {"": "", "drain": "drained"},
    )
}


def report(*rounds: dict[str, Any], name: str = "row") -> dict[str, Any]:
    return {
        "date": "2000-01-01",
        "time": "00:00 UTC",
        "disk": "ext4",
        "command": "python",
        "rounds": len(rounds),
        "penstock": "1 (compiled), abc",
        "changed": "",
        "cores": "0",
        "priority": "like other work",
        "same_cores": False,
        "machine": {"cores": 2, "cpu": "x", "memory_gb": 1, "kernel": "Linux", "python": "3"},
        "sides": {"penstock": "Penstock", "rabbitmq": "RabbitMQ 3"},
        "rows": {name: {"title": "A row", "section": "", "rounds": list(rounds)}},
    }


def pair(ours: Any, theirs: Any, path: str = "rate") -> dict[str, Any]:
    return {"penstock": {path: ours}, "rabbitmq": {path: theirs}}


def test_a_ratio_is_the_median_of_the_rounds_ratios() -> None:
    text = page(report(pair(300, 100), pair(500, 100), pair(800, 200)), "T", "", SECTIONS)
    assert "| A row | Penstock | 500 [300..800] | – |" in text
    assert "| A row | RabbitMQ 3 | 100 [100..200] | **4.00 [3.00..5.00]** |" in text
    assert "drained" not in text
    assert "Not as it should be" not in text


def test_a_phase_of_a_row_has_a_line() -> None:
    found = {side: {"drain": {"rate": 1000}} for side in ("penstock", "rabbitmq")}
    assert "| A row, drained | Penstock | 1,000 |" in page(report(found), "T", "", SECTIONS)


def test_ratios_are_turned_round_where_less_is_better() -> None:
    assert ratios_of(report(pair(2.0, 8.0, "seconds")), SECTIONS) == {
        "row seconds over RabbitMQ 3": 4.0
    }


@pytest.mark.parametrize(
    "promise, verdict",
    [
        (Promise("p", "row", "rate", least=5, over="rabbitmq"), "5.00 [3.00..7.00], kept"),
        (Promise("p", "row", "rate", least=6, over="rabbitmq"), "5.00 [3.00..7.00], **BROKEN**"),
        (Promise("p", "", "rate", most=700), "500.00 [300.00..700.00], kept"),
        (Promise("p", "row", "rate", most=699), "500.00 [300.00..700.00], **BROKEN**"),
        (Promise("p", "row", "rate", least=1, over="row other"), "not measured"),
        (Promise("p", "row", "rate", least=1, over="row row"), "1.00, kept"),
        (Promise("p", "row", "gone", most=1), "not measured"),
    ],
)
def test_a_promise_is_judged(promise: Promise, verdict: str) -> None:
    rounds = (pair(300, 100), pair(500, 100), pair(700, 100))
    assert f"- p (A row): {verdict}\n" in page(report(*rounds), "T", "", SECTIONS, [promise])


def test_what_went_wrong_is_said() -> None:
    found = {"penstock": {"fill": {"wrong": ["nacked 1"]}}, "rabbitmq": {"error": "it fell"}}
    text = page(report(found), "T", "", SECTIONS)
    assert "- row, round 1: Penstock: fill: nacked 1" in text
    assert "- row, round 1: RabbitMQ 3 failed: it fell" in text


def test_a_run_of_the_generator_is_checked() -> None:
    result = dict.fromkeys(("out_of_order", "redelivered", "foreign", "nacked"), 0)
    result |= {"published": 10, "confirmed": 9, "consumed": 0}
    plan = {"confirm": 5, "count": 11, "publishers": 1}
    assert wrongs(result | {"plan": plan}) == ["confirmed 9 of 10", "published 10 of 11"]
    assert wrongs(result | {"plan": plan | {"confirm": 0, "count": 10}}) == []


def test_a_row_that_lost_more_than_a_twentieth_is_found() -> None:
    before = {"a": 10.0, "b": 10.0, "gone": 1.0}
    assert losses(before, {"a": 9.6, "b": 9.4, "new": 1.0}) == [
        "LOST b: 9.400, 10.000 before (-6.0%)"
    ]


def test_a_result_names_no_place_of_the_machine() -> None:
    words = ["--old", "/home/me", "--nsqd=/opt/nsqd", "--rounds", "2"]
    assert without_places(words) == ["--old", "PLACE", "--nsqd=PLACE", "--rounds", "2"]


class Side:
    """Gives what it is told to, again and again."""

    def __init__(self, key: str, rate: float) -> None:
        self.key = self.label = key
        self.rate = rate

    def __enter__(self) -> Side:  # noqa: PYI034 - as the type says
        return self

    def __exit__(self, *_: object) -> None:
        return


def table(ours: float, *, fails: bool = False) -> Table:
    def measure(side: Side, given: Any) -> dict[str, Any]:
        if fails and side.key == "new":
            raise RuntimeError("it fell")
        return {"rate": side.rate}

    return Table(
        "trial",
        "A trial",
        "says",
        [Row("row", "A row", measure)],
        SECTIONS,
        lambda given, row: [Side("new", ours), Side("old", 100.0)],
    )


def test_a_run_is_written_and_the_next_one_held_against_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.harness.PAUSE_S", 0.0)
    words = ["--broker-cores", "0", "--generator-cores", "0", "--rounds", "2"]
    words += ["--pure", "--out", str(tmp_path)]
    assert run(table(300.0), words) == 0
    ratios = json.loads((tmp_path / "ratios.json").read_text())
    assert ratios == {"trial interpreted": {"row rate over old": 3.0}}
    (file,) = tmp_path.glob("*-trial-interpreted.md")
    assert "--out PLACE" in file.read_text()
    assert run(table(290.0), [*words, "--guard"]) == 0
    assert run(table(250.0), [*words, "--guard"]) == 1
    assert run(table(250.0, fails=True), words) == 1


def test_a_try_writes_nothing(tmp_path: Path) -> None:
    words = ["--try", "--pure", "--out", str(tmp_path), "--generator-cores", "0"]
    assert run(table(1.0), words) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", TABLES)
def test_every_table_shows_figures_of_all_its_rows(name: str) -> None:
    found = table_of(name)
    assert found.name == name
    assert {row.section for row in found.rows} <= set(found.sections)
    needed = ["--old", "/"] if name == "builds" else []
    given = arguments(found, [*needed, "--generator-cores", "0", "--try"])
    assert given.rounds == 1
    assert chosen(found.rows, "") == list(found.rows)
    with pytest.raises(SystemExit, match=r"^0$"):
        arguments(found, ["--help"])


def test_rows_are_chosen_by_how_they_begin() -> None:
    rows = table_of("compare").rows
    assert [row.name for row in chosen(rows, "latency,safe")] == [
        *("latency-1k", "safe-through-1k", "safe-publish-1k"),
    ]
    with pytest.raises(SystemExit, match="auto-ack-16"):
        chosen(rows, "nothing")


def plan_of(words: list[str]) -> LoadPlan:
    return plan_from(bench.make_context("bench", words).params).check()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_scenario_is_a_plan_the_command_accepts(scenario: Any) -> None:
    given = arguments(table_of("compare"), ["--generator-cores", "0"])
    plan = plan_of(scenario.words(given))
    assert plan.count == scenario.count
    assert plan.varied == scenario.name.startswith("varied")
    assert (plan.confirm > 0) == ("safe" in scenario.name)


@pytest.mark.parametrize("lazy", [True, False])
@pytest.mark.parametrize("window", [0, 2000])
def test_a_drain_declares_the_queue_as_the_fill_did(lazy: bool, window: int) -> None:
    filling = plan_of([*fill_words(lazy, 1024, window), *counted(1000)])
    assert (filling.queue, filling.count, filling.confirm) == (QUEUE, 1000, window)
    assert filling.queue_arguments == ({"x-queue-mode": "lazy"} if lazy else {})
    draining = plan_of([*drain_words(lazy), *counted(1000)])
    assert draining.queue_arguments == filling.queue_arguments
    assert draining.durable == filling.durable
    assert (draining.publishers, draining.prefetch, draining.ack_every) == (0, 1000, 100)


def test_percentiles_of_a_probe_are_milliseconds() -> None:
    found = summary([number * 1_000_000 for number in range(1000)])
    assert found == {"p50": 500.0, "p99": 990.0, "p99.9": 999.0, "max": 999.0}
