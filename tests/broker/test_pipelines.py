"""What pipelines report: who may, what is kept, and when a queue will be empty."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.pipelines import (
    BATCHES_KEPT,
    ENDED_KEPT_MS,
    PIPELINES_MAX,
    SILENT_AFTER_MS,
    SILENT_KEPT_MS,
    PipelineRegistry,
)
from penstock.broker.rules.access import User
from penstock.broker.topology.vhost import Vhost
from penstock.core.errors import AccessRefused, ResourceLocked
from penstock_ranges.reports import Report

START_MS = 1_700_000_000_000


def a_vhost(**queues: tuple[int, int]) -> Vhost:
    """Its queues as (ready, published)."""
    made = {
        name: SimpleNamespace(
            backing=SimpleNamespace(ready_count=lambda ready=ready: ready),
            unacked_count=0,
            statistics=SimpleNamespace(published_count=published),
        )
        for name, (ready, published) in queues.items()
    }
    return cast(Vhost, SimpleNamespace(name="/", queues=made))


def a_user(name: str = "ann", read: str = ".*", write: str = "^$") -> User:
    user = User(name, "", [])
    user.vhosts["/"] = ("", write, read)
    return user


def told(name: str = "lake", **more: Any) -> Report:
    return Report(name=name, **({"state": "running", "queues": ("orders",)} | more))


def the_row(registry: PipelineRegistry, vhost: Vhost, now_ms: int) -> dict[str, Any]:
    (row,) = registry.rows({"/": vhost}, now_ms)
    return row


def test_time_to_drain_is_depth_over_what_goes_out_faster_than_comes_in() -> None:
    registry = PipelineRegistry()
    registry.report(
        told(batch=0, rows=1000, duration_ms=1000), a_user(), a_vhost(orders=(500, 100)), START_MS
    )
    vhost = a_vhost(orders=(500, 1100))
    registry.report(told(batch=1, rows=1000), a_user(), vhost, START_MS + 1000)
    row = the_row(registry, vhost, START_MS + 2000)
    # 2000 rows in the two seconds from the start of batch 0; 1000 publishes in the last two.
    assert (row["rows_per_s"], row["published_per_s"]) == (1000.0, 500.0)
    assert row["depth"] == 500
    assert row["to_drain_s"] == 1.0
    assert (row["batch"], row["batches"], row["rows"]) == (1, 2, 2000)


def test_a_queue_that_fills_faster_is_never_drained() -> None:
    registry = PipelineRegistry()
    registry.report(
        told(batch=0, rows=10, duration_ms=1000), a_user(), a_vhost(orders=(9, 0)), START_MS
    )
    row = the_row(registry, a_vhost(orders=(5000, 50_000)), START_MS + 2000)
    assert row["to_drain_s"] is None


def test_an_empty_queue_is_drained_whatever_the_rates() -> None:
    registry = PipelineRegistry()
    registry.report(told(), a_user(), a_vhost(orders=(0, 0)), START_MS)
    assert the_row(registry, a_vhost(orders=(0, 7)), START_MS)["to_drain_s"] == 0.0


def test_the_last_batches_are_kept_and_a_new_run_begins_anew() -> None:
    registry = PipelineRegistry()
    vhost = a_vhost(orders=(0, 0))
    for number in range(BATCHES_KEPT + 5):
        registry.report(told(run="a", batch=number, rows=1), a_user(), vhost, START_MS + number)
    row = the_row(registry, vhost, START_MS + 100)
    assert [one["batch"] for one in row["last_batches"]] == list(range(5, BATCHES_KEPT + 5))
    registry.report(told(run="b", batch=30, rows=2), a_user(), vhost, START_MS + 200)
    row = the_row(registry, vhost, START_MS + 200)
    assert ([one["batch"] for one in row["last_batches"]], row["rows"]) == ([30], 2)


def test_a_report_that_names_no_run_belongs_to_the_one_under_way() -> None:
    registry = PipelineRegistry()
    vhost = a_vhost(orders=(0, 0))
    registry.report(told(batch=0, rows=1), a_user(), vhost, START_MS)
    registry.report(told(run="a", batch=1, rows=1), a_user(), vhost, START_MS)
    registry.report(told(state="done"), a_user(), vhost, START_MS)
    registry.report(told(run="a", batch=2, rows=1), a_user(), vhost, START_MS)
    row = the_row(registry, vhost, START_MS)
    assert (row["run"], row["rows"], row["batches"]) == ("a", 3, 3)


def test_who_may_neither_read_nor_write_a_queue_may_not_report_on_it() -> None:
    registry = PipelineRegistry()
    stranger = a_user(read="^other$")
    with pytest.raises(AccessRefused, match="orders"):
        registry.report(told(), stranger, a_vhost(), START_MS)
    registry.report(told(), a_user(read="^$", write="orders"), a_vhost(), START_MS)
    assert the_row(registry, a_vhost(), START_MS)["user"] == "ann"


def test_a_name_belongs_to_who_said_it_first() -> None:
    registry = PipelineRegistry()
    registry.report(told(), a_user("ann"), a_vhost(), START_MS)
    with pytest.raises(AccessRefused, match="reported by user 'ann'"):
        registry.report(told(), a_user("bob"), a_vhost(), START_MS)
    registry.report(told(), a_user("bob"), a_vhost(), START_MS + SILENT_KEPT_MS + 1)
    assert the_row(registry, a_vhost(), START_MS + SILENT_KEPT_MS + 1)["user"] == "bob"


def test_what_ended_is_forgotten_after_an_hour_and_what_is_silent_is_said_to_be() -> None:
    registry = PipelineRegistry()
    registry.report(told("ended", state="done"), a_user(), a_vhost(), START_MS)
    registry.report(told("quiet"), a_user(), a_vhost(), START_MS)
    rows = registry.rows({"/": a_vhost()}, START_MS + SILENT_AFTER_MS + 1)
    assert [(row["name"], row["state"]) for row in rows] == [("ended", "done"), ("quiet", "silent")]
    rows = registry.rows({"/": a_vhost()}, START_MS + ENDED_KEPT_MS + 1)
    assert [row["name"] for row in rows] == ["quiet"]


def test_when_it_is_full_those_that_ended_make_room() -> None:
    registry = PipelineRegistry()
    for number in range(PIPELINES_MAX):
        state = "done" if number == 3 else "running"
        registry.report(told(f"p{number}", state=state), a_user(), a_vhost(), START_MS)
    registry.report(told("one more"), a_user(), a_vhost(), START_MS)
    names = {row["name"] for row in registry.rows({"/": a_vhost()}, START_MS)}
    assert "p3" not in names
    assert "one more" in names
    with pytest.raises(ResourceLocked):
        registry.report(told("too many"), a_user(), a_vhost(), START_MS)


def test_when_it_is_full_silent_ones_make_room_too() -> None:
    registry, vhost = PipelineRegistry(), a_vhost(orders=(0, 0))
    for number in range(PIPELINES_MAX):
        registry.report(told(f"p{number}"), a_user(), vhost, START_MS + number)
    late_ms = START_MS + PIPELINES_MAX + SILENT_AFTER_MS + 1
    registry.report(told("new"), a_user(), vhost, late_ms)
    names = {row["name"] for row in registry.rows({"/": vhost}, late_ms)}
    assert len(names) == PIPELINES_MAX
    assert "new" in names
    assert "p0" not in names


def test_rows_of_virtual_hosts_that_were_not_asked_for_are_not_given() -> None:
    registry = PipelineRegistry()
    registry.report(told(), a_user(), a_vhost(), START_MS)
    assert registry.rows({}, START_MS) == []
