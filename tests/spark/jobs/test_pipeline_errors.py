"""What a user is told of Spark's pages: the innermost cause, and whether trying again helps."""

from __future__ import annotations

import json
import sys
import threading
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import click
import pyspark  # noqa: F401
import pytest
from click.testing import CliRunner

from penstock.cli.failure import Failure
from penstock.cli.pipelines import common
from penstock.cli.pipelines.archive import archive
from penstock.cli.pipelines.common import Teller, failing_well, say_failure, say_summary
from penstock.core.errors import ResourceLocked
from penstock.spark.jobs import query_run, validating
from penstock.spark.jobs.archive import ArchiveJob
from penstock.spark.jobs.query_run import QueryRun
from penstock.spark.jobs.validating import PublishTarget, Validated, ValidateJob
from penstock.spark.launcher import session
from penstock.spark.launcher.failures import (
    HOPELESS,
    IN_COMMANDS,
    BrokerUnreachable,
    DataLost,
    JavaDied,
    PipelineFailed,
    failure_of,
    is_hopeless,
)
from penstock.spark.tables.table import Table
from penstock_ranges import frames
from pyspark_penstock import client, planner
from pyspark_penstock.client import ConnectionLost, Locked, NotPenstock
from pyspark_penstock.options import KNOWN
from pyspark_penstock.planner import advised
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
            "pyspark_penstock.source.DataLoss: queue 'q' is gone.  Start with a new checkpoint",
            DataLost,
            "queue 'q' is gone.",
            True,
        ),
        (
            "pyspark_penstock.client.ConnectionLost: cannot connect",
            BrokerUnreachable,
            "cannot connect",
            False,
        ),
        (
            "penstock.spark.tables.publishing.NotShared: not there",
            PipelineFailed,
            "not there",
            True,
        ),
        ("nothing that names itself", PipelineFailed, PAGES.splitlines()[0], False),
    ],
)
def test_the_cause_is_found(cause: str, kind: type, text: str, hopeless: bool) -> None:
    error = RuntimeError(PAGES.format(cause=cause))
    found = failure_of(error)
    assert (type(found), str(found), is_hopeless(error)) == (kind, text, hopeless)


def test_the_last_error_of_a_chain_has_the_cure_in_words_of_the_command() -> None:
    refused = Locked(frames.LOCKED, "queue 'q' is being read by another pipeline")
    chain = (
        f"pyspark_penstock.client.Locked: {refused}\n\n"
        "During handling of the above exception, another exception occurred:\n\n"
        f"pyspark_penstock.client.Locked: {advised(refused)}"
    )
    found = failure_of(RuntimeError(PAGES.format(cause=chain)))
    assert str(found) == "queue 'q' is being read by another pipeline"
    assert found.fix == "stop that one, or take it over by --take-over"


def test_every_option_that_a_cure_names_is_one_of_source_and_commands() -> None:
    commands = {name for option in archive.params for name in option.opts}
    for name in planner.OPTIONS:
        assert name in KNOWN
        assert IN_COMMANDS[name] in commands
    for _, _, cure in planner.CURES:
        assert cure.format_map(IN_COMMANDS)
        assert planner.without_cure(f"text; {cure.format_map(planner.IN_PROGRAMS)}")[0] == "text"


def test_a_worker_that_was_killed_is_named() -> None:
    pages = "[STREAM_FAILED] Query [id = 1] terminated with exception: SQLSTATE: XXKST\n"
    pages += "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: x\n"
    pages += "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly\n"
    assert str(failure_of(RuntimeError(pages))) == "Python worker exited unexpectedly"


def test_a_second_pipeline_on_a_table_is_not_sent_to_sparks_log(tmp_path: Path) -> None:
    with pytest.raises(Failure) as caught, failing_well(tmp_path / "log"):
        raise ResourceLocked("another pipeline is landing this queue in t")
    assert caught.value.fix == "stop that one, or wait for its end"


def test_a_refusal_that_has_its_cure_already_says_it_once() -> None:
    refused = advised(client.Refused(frames.NOT_FOUND, "no queue 'q' in vhost '/'"))
    with pytest.raises(Failure) as caught, common.asking_broker():
        raise refused
    assert caught.value.message == "no queue 'q' in vhost '/'"
    assert caught.value.fix.startswith("declare it first")


def test_a_port_of_another_protocol_is_told_from_a_broker_that_is_away() -> None:
    with pytest.raises(Failure) as caught, common.asking_broker():
        raise NotPenstock("the broker at 127.0.0.1:4150 sent reply 0, not 80")
    assert "AMQP port" in caught.value.fix
    assert caught.value.exit_code == 1


@pytest.mark.parametrize("name", HOPELESS)
def test_a_hopeless_error_is_one_that_exists(name: str) -> None:
    """They are found in the text of Spark's errors, so no import notices a class that moved."""
    module, _, kind = name.rpartition(".")
    assert issubclass(getattr(import_module(module), kind), Exception)


@pytest.mark.parametrize(
    "raised, told",
    [
        (ConnectionLost("the broker is gone"), BrokerUnreachable),
        (BrokenPipeError("nobody reads our output"), BrokenPipeError),
        (ConnectionResetError("as the gateway says it"), JavaDied),
    ],
)
def test_who_went_away_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raised: Exception, told: type[Exception]
) -> None:
    """The broker, the reader of our output and Spark's Java are all lost connections."""
    monkeypatch.setattr(session, "local_session", lambda *_, **__: MagicMock())
    with pytest.raises(told) as caught, session.session("n", "local", "amqp://x", tmp_path):
        raise raised
    assert type(caught.value) is told


def test_each_failure_of_an_endless_pipeline_is_heard_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after so many that the pause would no longer fit into a number."""
    stopping = threading.Event()
    monkeypatch.setattr(stopping, "wait", lambda _: len(heard) == 2000)
    heard: list[float] = []
    run = QueryRun(
        lambda _: None,  # type: ignore[arg-type, return-value]
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


def test_lost_data_names_the_option_and_the_checkpoint(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    with pytest.raises(Failure) as caught, failing_well(tmp_path / "log", checkpoint):
        raise DataLost("queue 'q' has lost data.")
    assert "--accept-data-loss" in caught.value.fix
    assert str(checkpoint) in caught.value.fix


def test_a_summary_is_json_for_programs_and_lines_for_people(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = {"queue": "q\x1b[2J", "left_in_queue": 3, "windows": [1, 2], "to": None}
    say_summary(summary)
    assert json.loads(capsys.readouterr().out) == summary
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    say_summary(summary)
    assert capsys.readouterr().out == "queue          q\\u{1b}[2J\nleft in queue  3\n"


def test_only_the_first_start_of_a_run_takes_a_queue_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A query that is started again must not take it back from who has it since."""
    forced: list[bool] = []

    def start(_spark: object, job: ValidateJob, _schema: object) -> Any:
        forced.append(job.take_over)

    def attempt(run: QueryRun) -> Exception | None:
        run._start(run.restarts)
        return RuntimeError("OSError: away") if len(forced) < 3 else None

    monkeypatch.setattr(validating, "start", start)
    monkeypatch.setattr(validating, "END_PATIENCE_S", 0)
    monkeypatch.setattr(validating, "report_progress", lambda *_, **__: nullcontext())
    monkeypatch.setattr(query_run, "PAUSE_MIN_S", 0)
    monkeypatch.setattr(QueryRun, "_attempt", attempt)
    target = PublishTarget("", "q")
    job = ValidateJob(
        "amqp://x",
        {"queue": "in"},
        "in",
        ("in",),
        {},
        target,
        target,
        tmp_path,
        1,
        None,
        "local",
        True,
    )
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


def test_the_bar_counts_from_the_first_batch_and_says_how_long_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(common, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    teller = Teller("text", 1000)
    now_s[0] = 15.0  # Spark has started
    teller.batch("", 100)
    now_s[0] = 16.0
    teller.batch("", 200)
    drawn = capsys.readouterr().err.split("\r")[1:]
    assert "/s" not in drawn[0]
    assert "300 of 1000  200/s  4 s left" in drawn[1]  # 3.5 s


def test_the_user_is_told_that_spark_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "local_session", lambda *_, **__: MagicMock())
    with session.session("n", "local[3]", "amqp://x", tmp_path):
        pass
    assert capsys.readouterr().err.startswith("starting Spark on local[3]")


@pytest.mark.parametrize("cores, master", [(1, "local[2]"), (6, "local[6]"), (64, "local[8]")])
def test_spark_has_the_cores_of_the_machine_within_bounds(
    cores: int, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    @common.common_options()
    def show(told: common.Common) -> None:
        click.echo(told.master)

    monkeypatch.setattr(common.os, "sched_getaffinity", lambda _: set(range(cores)))
    assert CliRunner().invoke(show).output.strip() == master
    assert CliRunner().invoke(show, ["--master", "local[1]"]).output.strip() == "local[1]"
