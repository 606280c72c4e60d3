"""``penstock pipeline run``: the pipelines of a file, in one Spark, for as long as they last."""

import contextvars
import json
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    PipelineHost,
    broker_url,
    check_spark_at,
    default_master,
    one_line,
    stop_on_signals,
)
from penstock.cli.pipelines.pipeline_file import PipelineEntry, PipelineFile, read_pipeline_file
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.spark.state.runs import RunRecord

PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 300.0
STEADY_S = 600.0
"""A run that lasted so long before it failed begins the pauses anew."""
DONE, FAILED, STOPPED = "done", "failed", "stopped"

EPILOG = f"""{EXIT_CODES}
\b
Examples:
  penstock pipeline run pipelines.toml
  penstock pipeline run pipelines.toml --dry-run
  penstock pipeline run pipelines.toml --history 20
"""


@click.command(epilog=EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@option("--dry-run", "Check the file and say what each pipeline would do.", is_flag=True)
@option("--history", "Show the last so many runs, and end.", click.IntRange(1), metavar="N")
def run(file: Path, dry_run: bool, history: int | None) -> None:
    """Run the pipelines of a TOML file in one Spark.

    A table [pipeline.NAME] has command = "archive" (or validate, replay, compact) and the options
    of that command as keys.  A pipeline that fails is started again after a pause; when Spark's
    Java dies, the program ends with 1 for its service manager to start it again.
    """
    from penstock.spark.state.runs import RunRecord

    record = RunRecord.of_file(file)
    if history is not None:
        for one in record.last(history):
            click.echo(json.dumps(one))
        return
    given = read_pipeline_file(file)
    if dry_run:
        for entry in given.entries:
            click.echo(f"{entry.name}:")
            with entry.context("--dry-run") as context:
                entry.command.invoke(context)
        return
    with record.alone():
        failed = _run(given, record)
    if failed:
        raise Failure(
            f"failed: {', '.join(failed)}", f"penstock pipeline run {file} --history says why"
        )


def _run(given: PipelineFile, record: "RunRecord") -> list[str]:
    """Until all have ended; returns the names of those that failed for good."""
    from penstock.spark.launcher.session import SharedSpark

    url = broker_url(given.shared.get("url"))
    master = given.shared.get("master") or default_master()
    check_spark_at(url)
    with stop_on_signals() as stopping, SharedSpark(master, url, record.home) as shared:
        lives = [_Life(entry, stopping, record) for entry in given.entries]
        with shared.given():
            threads = [
                threading.Thread(target=contextvars.copy_context().run, args=(life.live,))
                for life in lives
            ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():  # a join without end would hear no signal
                thread.join(1.0)
    return [life.entry.name for life in lives if life.result == FAILED]


@dataclass
class _Life:
    entry: PipelineEntry
    stopping: threading.Event
    record: "RunRecord"
    result: str = DONE
    runs: int = field(default=0)

    def live(self) -> None:
        pause_s = PAUSE_MIN_S
        while True:
            began_s = time.monotonic()
            again = self._once()
            self.runs += 1
            lasted_s = time.monotonic() - began_s
            if self.stopping.is_set() or not again:
                return
            if self.result == DONE:
                assert self.entry.repeat_s is not None
                pause_s, wait_s = PAUSE_MIN_S, max(self.entry.repeat_s - lasted_s, 0)
            else:
                wait_s = PAUSE_MIN_S if lasted_s > STEADY_S else pause_s
                pause_s = min(wait_s * 2, PAUSE_MAX_S)
            if self.stopping.wait(wait_s):
                return

    def _once(self) -> bool:
        from penstock.spark.launcher.failures import JavaDied
        from penstock.spark.launcher.session import LOG_NAME

        around = PipelineHost(self.entry.name, self.stopping, self.record.home / LOG_NAME)
        began, began_s = datetime.now(UTC), time.monotonic()
        error, again = "", self.entry.restarts
        around.say("starts")
        try:
            with self.entry.context(again=self.runs > 0, around=around) as context:
                self.entry.command.invoke(context)
        except Exception as raised:  # noqa: BLE001 - whatever ends a run is on its record
            error = _told(raised)
            if isinstance(raised.__cause__, JavaDied):
                self.stopping.set()
            again = again and not isinstance(raised, click.UsageError)
        else:
            again = self.entry.repeat_s is not None
        stopped = self.stopping.is_set() and not error
        self.result = FAILED if error else STOPPED if stopped else DONE
        seconds = round(time.monotonic() - began_s, 1)
        around.say(f"{self.result}: {error or json.dumps(around.summary, default=str)}")
        self.record.add(self.entry.name, self.result, began, seconds, error, around.summary)
        return again


def _told(error: Exception) -> str:
    if isinstance(error, Failure) and error.fix:
        return f"{one_line(error.message)}; {error.fix}"
    if isinstance(error, click.ClickException):
        return one_line(error.format_message())
    if isinstance(error, PenstockError):
        return one_line(str(error))
    from penstock.spark.launcher.failures import failure_of

    return one_line(f"{type(error).__name__}: {failure_of(error)}")
