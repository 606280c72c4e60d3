"""What a user is told of Spark's pages: the innermost cause, and whether trying again helps."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'penstock[spark]'")

from penstock.cli.failure import Failure
from penstock.cli.pipelines.common import failing_well, say_failure
from penstock.spark import pipeline
from penstock.spark.pipeline import (
    BrokerUnreachable,
    PipelineFailed,
    QueryRun,
    failure_of,
    is_hopeless,
)
from pyspark_penstock.client import ConnectionLost

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
