"""What a user is told of Spark's pages: the innermost cause, and whether trying again helps."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pyspark  # noqa: F401
import pytest

from penstock.cli.failure import Failure
from penstock.cli.pipelines.common import failing_well, say_failure
from penstock.spark import pipeline, validating
from penstock.spark.archive import ArchiveJob
from penstock.spark.pipeline import (
    BrokerUnreachable,
    PipelineFailed,
    QueryRun,
    failure_of,
    is_hopeless,
)
from penstock.spark.table import Table
from penstock.spark.validating import Target, Validated, ValidateJob
from pyspark_penstock.client import ConnectionLost
from pyspark_penstock.table_files import Layout

PAGES = """[STREAM_FAILED] Query terminated: [FOREACH_BATCH_USER_FUNCTION_ERROR] Reason:
Traceback (most recent call last):
  File "/x/archive.py", line 1, in _land
py4j.protocol.Py4JJavaError: An error occurred while calling o57.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/table_files.py", line 2, in flush
{cause}
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    "cause, kind, text, hopeless",
    [
        (
            "OSError: [Errno 28] No space left on device",
            PipelineFailed,
            "OSError: [Errno 28] No space left on device",
            False,
        ),
        (
            "pyspark_penstock.source.DataLoss: queue 'q' has lost data",
            PipelineFailed,
            "queue 'q' has lost data",
            True,
        ),
        (
            "pyspark_penstock.client.ConnectionLost: cannot connect",
            BrokerUnreachable,
            "cannot connect",
            False,
        ),
        ("penstock.spark.publishing.NotShared: not there", PipelineFailed, "not there", True),
        ("nothing that names itself", PipelineFailed, PAGES.splitlines()[0], False),
    ],
)
def test_the_cause_is_found(cause: str, kind: type, text: str, hopeless: bool) -> None:
    error = RuntimeError(PAGES.format(cause=cause))
    found = failure_of(error)
    assert (type(found), str(found), is_hopeless(error)) == (kind, text, hopeless)


class _Session:
    def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    "raised, told",
    [
        (ConnectionLost("the broker is gone"), BrokerUnreachable),
        (BrokenPipeError("nobody reads our output"), BrokenPipeError),
        (ConnectionResetError("as the gateway says it"), PipelineFailed),
    ],
)
def test_who_went_away_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raised: Exception, told: type[Exception]
) -> None:
    """The broker, the reader of our output and Spark's Java are all lost connections."""
    monkeypatch.setattr(pipeline, "local_session", lambda *_, **__: _Session())
    with pytest.raises(told) as caught, pipeline.session("n", "local", "amqp://x", tmp_path):
        raise raised
    assert type(caught.value) is told


def test_each_failure_of_an_endless_pipeline_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after so many that the pause would no longer fit into a number."""
    stopping = threading.Event()
    monkeypatch.setattr(stopping, "wait", lambda _: len(heard) == 2000)
    heard: list[float] = []
    run = QueryRun(
        lambda: None,  # type: ignore[arg-type, return-value]
        stopping,
        lambda failure, pause_s: heard.append(pause_s),
        endless=True,
    )
    monkeypatch.setattr(run, "_attempt", lambda: RuntimeError("OSError: disk full"))
    run.until_done()
    assert heard[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert heard[-1] == 30


def test_an_error_is_one_line_a_terminal_can_show(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = "bad \x1b]0;owned\x07 row\nerror: all is well"
    with pytest.raises(Failure) as caught, failing_well(tmp_path / "log"):
        raise PipelineFailed(hostile)
    say_failure(PipelineFailed(hostile), 30.0)
    clean = r"bad \u{1b}]0;owned\u{7} row error: all is well"
    assert caught.value.message == clean
    assert capsys.readouterr().err == f"failed, starting again in 30 s: {clean}\n"


def test_only_the_first_start_of_a_run_takes_a_queue_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A query that is started again must not take it back from who has it since."""
    forced: list[bool] = []

    def start(_spark: object, job: ValidateJob, _schema: object) -> Any:
        forced.append(job.take_over)

    def attempt(run: QueryRun) -> Exception | None:
        run._start()
        return RuntimeError("OSError: away") if len(forced) < 3 else None

    monkeypatch.setattr(validating, "start", start)
    monkeypatch.setattr(validating, "END_PATIENCE_S", 0)
    monkeypatch.setattr(validating, "report_progress", lambda *_, **__: nullcontext())
    monkeypatch.setattr(pipeline, "PAUSE_MIN_S", 0)
    monkeypatch.setattr(QueryRun, "_attempt", attempt)
    target = Target("", "q")
    job = ValidateJob("amqp://x", "in", {}, target, target, tmp_path, 1, None, "local", True)
    heard: list[str] = []
    validating._run(
        MagicMock(), job, Validated(), lambda _: None, threading.Event(),
        lambda failure, _: heard.append(str(failure)),
    )  # fmt: skip
    assert (forced, heard) == ([True, False, False], ["OSError: away"] * 2)

    table = Table(tmp_path / "t", "parquet", ())
    archive = ArchiveJob(
        "amqp://x", "/", {"queue": "q"}, "q", ("q",), table, Layout(("body",), (), 1, "zstd"),
        None, 1, 1, None, "local", take_over=True,
    )  # fmt: skip
    assert [archive.source_options(n)["takeOver"] for n in (0, 1)] == ["true", "false"]
