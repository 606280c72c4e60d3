"""Replays without Spark: when a slice is due, and what may be begun or gone on with."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from unittest.mock import MagicMock

import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.core.errors import ResourceLocked
from penstock.spark.jobs import replay
from penstock.spark.jobs.replay import (
    CannotReplay,
    Pace,
    Plan,
    ReplayJob,
    check_replay,
    run_replay,
)
from penstock.spark.state.places import locked
from penstock.spark.tables.table import Table
from pyspark_penstock.sink_options import parse_sink_options


@pytest.fixture
def job(tmp_path: Path) -> ReplayJob:
    parquet.write_table(pa.table({"seq_id": [1]}), tmp_path / "a.parquet")
    return ReplayJob("amqp://x", "local", Table(tmp_path), "again", {"queue": "q"})


def slices(*rows_and_seconds: tuple[int, float]) -> list[dict[str, object]]:
    return [{"first": [], "rows": rows, "at_us": at_s * 1e6} for rows, at_s in rows_and_seconds]


PARTS = slices((10, 1000.0), (20, 1030.0), (5, 1040.0))


@pytest.mark.parametrize(
    "pace, done, due_s",
    [
        ({}, 0, [0, 0, 0]),
        ({"rate": 5.0}, 0, [0, 2, 6]),  # behind what was sent before
        ({"speed": 10.0}, 0, [0, 3, 4]),  # as they came, ten times as fast
        ({"rate": 5.0}, 1, [0, 0, 4]),  # resumed: the clock begins with what is left
        ({"speed": 10.0}, 1, [0, 0, 1]),
    ],
)
def test_a_slice_is_due_by_rate_or_by_speed(
    job: ReplayJob,
    monkeypatch: pytest.MonkeyPatch,
    pace: dict[str, float],
    done: int,
    due_s: list[float],
) -> None:
    monkeypatch.setattr(replay.time, "monotonic", lambda: 500.0)
    paced = Pace(replace(job, **pace), Plan("t", {}, PARTS, done))  # type: ignore[arg-type]
    assert [paced.wait_s(number) for number in range(3)] == pytest.approx(due_s)


def test_a_plan_survives_and_is_held_to(job: ReplayJob) -> None:
    assert check_replay(job) is None
    path = job.home / "plan.json"
    Plan("t", job.choice(), PARTS, 1).write(path)
    with pytest.raises(CannotReplay, match="has sent 1 of 3 slices") as told:
        check_replay(job)
    assert "--resume" in told.value.fix
    resumed = check_replay(replace(job, resume=True))
    assert resumed == Plan("t", job.choice(), PARTS, 1)
    with pytest.raises(CannotReplay, match="another choice"):
        check_replay(replace(job, resume=True, where="true"))
    with pytest.raises(CannotReplay, match="another choice"):
        check_replay(replace(job, resume=True, target={"queue": "other"}))
    for url in ("amqp://y", "amqp://x:5673", "amqp://x/other"):  # it knows nothing of the slices
        with pytest.raises(CannotReplay, match="target or broker"):
            check_replay(replace(job, resume=True, url=url))
    check_replay(replace(job, resume=True, url="amqp://another:user@x/%2f"))
    Plan("t", job.choice(), PARTS, 3).write(path)
    with pytest.raises(CannotReplay, match="is done"):
        check_replay(replace(job, resume=True))
    check_replay(replace(job, name="once-more"))


def test_a_resumed_replay_may_go_at_another_pace(job: ReplayJob) -> None:
    Plan("t", job.choice(), PARTS, 1).write(job.home / "plan.json")
    assert check_replay(replace(job, resume=True, rate=100.0)) is not None


def test_two_that_begin_together_do_not_make_two_plans(
    job: ReplayJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second would send everything once more, under names the broker does not know."""

    def started(*_: object, **__: object) -> None:
        raise AssertionError("a second Spark was started")

    monkeypatch.setattr(replay, "session", started)
    with locked(job.home, "run of it"):  # the first, which is still looking for its slices
        assert check_replay(job) is None
        with pytest.raises(ResourceLocked, match="another run of replay 'again'"):
            run_replay(job, lambda *_: None, threading.Event())


def test_a_run_looks_for_a_plan_again_behind_its_lock(
    job: ReplayJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "session", None)
    Plan("t", job.choice(), PARTS, 1).write(job.home / "plan.json")
    with pytest.raises(CannotReplay, match="has sent 1 of 3 slices"):
        run_replay(job, lambda *_: None, threading.Event())


def test_a_slice_is_written_however_large_its_messages_are(
    job: ReplayJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred thousand of more than 10 KB are beyond what the sink lets one task stage."""
    written = MagicMock()
    monkeypatch.setattr(replay, "RunReports", MagicMock())
    monkeypatch.setattr(replay, "prepared", lambda *_: written)
    sending = replay._Replay(job, Plan("t", {}, PARTS), MagicMock(), lambda *_: None)
    monkeypatch.setattr(sending, "_slice", lambda _: None)
    sending._write(2)
    options = written.write.format().mode().options.call_args.kwargs
    settings = parse_sink_options({"url": "amqp://x"} | options)
    assert (settings.txn_id, settings.routing_key) == ("replay:t:2", "q")
    assert 100_000 * (128 << 20) < settings.stage_max_bytes < 1 << 62
