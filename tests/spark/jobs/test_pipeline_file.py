"""``penstock pipeline run``: its file, and how it starts pipelines again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pyspark  # noqa: F401
import pytest
from click.testing import CliRunner

from penstock.cli.failure import Failure
from penstock.cli.main import cli
from penstock.cli.pipelines import pipeline_file, run
from penstock.cli.pipelines.common import PipelineHost, at_work, say_summary
from penstock.cli.pipelines.pipeline_file import PipelineEntry, read_pipeline_file
from penstock.core.errors import PenstockError, ResourceLocked
from penstock.spark.launcher.failures import JavaDied
from penstock.spark.state import runs
from penstock.spark.state.runs import RunRecord
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.live_broker import REPOSITORY
from tests.spark.spark_tools import (
    archive_environment,
    depth,
    descendants,
    publish,
    require_spark,
    table_rows,
)

GOOD = """
url = "amqp://u:p@h:5673/v"

[pipeline.orders]
command = "archive"
queues = ["orders", "returns"]
to = "/lake/orders"
every = "30s"
max-file-mb = 64
raw-properties = true
take-over = true

[pipeline.small-files]
command = "compact"
table = "/lake/orders"
every = "24h"
restart = "never"
"""


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "pipelines.toml"
    file.write_text(text)
    return file


def test_a_table_becomes_the_options_of_its_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = read_pipeline_file(written(tmp_path, GOOD))
    assert read.shared == {"url": "amqp://u:p@h:5673/v"}
    orders, compact = read.entries
    told = orders.context().params
    assert told["url"] == "amqp://u:p@h:5673/v"
    assert (told["queues"], told["every_s"], told["max_file_mb"]) == ("orders,returns", 30.0, 64)
    assert told["raw_properties"] is told["take_over"] is True
    assert told["output"] == "json"
    assert not orders.context(again=True).params["take_over"]
    assert (orders.repeat_s, orders.restarts) == (None, True)
    assert compact.context().params["given"] == "/lake/orders"
    assert (compact.repeat_s, compact.restarts) == (86400.0, False)
    assert capsys.readouterr().err == "", "its password was on no command line"


def test_the_file_of_the_guide_is_one(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "guide" / "pipelines.md").read_text()
    lines = page.partition("    url = ")[2].partition("\n- ")[0]
    read = read_pipeline_file(written(tmp_path, textwrap.dedent(f"    url = {lines}")))
    assert [entry.name for entry in read.entries] == ["orders", "small-files", "checked"]


@pytest.mark.parametrize(
    "text, told",
    [
        ("[pipeline.a]\ncommand = 'archive'\nqueu = 'q'", "unknown key 'queu'"),
        ("[pipeline.a]\ncommand = 'archive'\nurl = 'x'", "url belongs to the top"),
        ("[pipeline.a]\ncommand = 'archive'\nonce = true", "unknown key 'once'"),
        ("[pipeline.a]\ncommand = 'archive'\nevery = 'soon'", r"\[pipeline.a\] .*not a time"),
        ("[pipeline.a]\ncommand = 'archive'\nqueue = {}", "queue must be a string"),
        ("[pipeline.a]\ncommand = 'compact'", r"\[pipeline.a\] Missing option '--table'"),
        ("[pipeline.a]\ncommand = 'compact'\ntable='t'\nevery='x'", "not a time"),
        ("[pipeline.a]\ncommand = 'serve'", "command must be one of archive, validate"),
        ("[pipeline.a]\nrestart = 'later'\ncommand = 'compact'", "restart must be one of always"),
        ("pipeline = 3", "no table"),
        ("url = 3\n[pipeline.a]\ncommand = 'compact'\ntable='t'", "url must be a string"),
        ("speed = 'x'\n[pipeline.a]\ncommand = 'compact'\ntable='t'", "unknown key 'speed'"),
        ("[pipeline.a", "pipelines.toml: "),
    ],
)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(click.UsageError, match=told):
        read_pipeline_file(written(tmp_path, text))


class Runs:
    """A command whose calls end as the test says; ``calls`` has what each was given."""

    def __init__(self, *ends: BaseException | None) -> None:
        self.ends = list(ends)
        self.calls: list[dict[str, Any]] = []

    def entry(self, repeat_s: float | None = None, *, restarts: bool = True) -> PipelineEntry:
        @click.command()
        @click.option("--take-over", is_flag=True)
        @click.option("--output")
        def call(**told: Any) -> None:
            self.calls.append(told)
            end = self.ends.pop(0)
            if end is not None:
                raise end
            say_summary({"messages": 3})

        return PipelineEntry("orders", call, ("--take-over",), {}, repeat_s, restarts)


@pytest.fixture
def record(tmp_path: Path) -> RunRecord:
    record = RunRecord(tmp_path / "record")
    with record.alone():
        return record


def lived(
    entry: PipelineEntry, record: RunRecord, pauses: int = 9
) -> tuple[run._Life, list[float]]:
    """One life, and its pauses; it is stopped in the last of so many."""
    stopping = threading.Event()
    waited: list[float] = []

    def wait(pause_s: float | None = None) -> bool:
        waited.append(pause_s or 0)
        if len(waited) == pauses:
            stopping.set()
        return stopping.is_set()

    stopping.wait = wait  # type: ignore[method-assign, assignment]
    life = run._Life(entry, stopping, record)
    life.live()
    return life, waited


def test_a_pipeline_that_fails_is_started_again_without_force(record: RunRecord) -> None:
    calls = Runs(Failure("no queue", "declare it"), OSError("disk"), None)
    life, waited = lived(calls.entry(), record)
    assert (life.result, waited) == ("done", [1, 2])
    assert [call["take_over"] for call in calls.calls] == [True, False, False]
    told = record.last(9)
    assert [one["result"] for one in told] == ["failed", "failed", "done"]
    assert told[0]["error"] == "no queue; declare it"
    assert told[1]["error"] == "OSError: disk"
    assert told[2]["figures"] == {"messages": 3}


def test_pauses_grow_to_five_minutes(record: RunRecord) -> None:
    life, waited = lived(Runs(*[Failure("away")] * 12).entry(), record, pauses=11)
    assert waited == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert life.result == "failed"


@pytest.mark.parametrize("restarts, end", [(False, Failure("x")), (True, click.UsageError("x"))])
def test_what_is_not_to_be_started_again_stays_failed(
    record: RunRecord, restarts: bool, end: Exception
) -> None:
    life, waited = lived(Runs(end).entry(restarts=restarts), record)
    assert (life.result, waited) == ("failed", [])


def test_a_repeated_one_runs_each_so_often(record: RunRecord) -> None:
    life, waited = lived(Runs(None, Failure("x"), None, None).entry(60.0), record, pauses=4)
    assert waited == [pytest.approx(60, abs=1), 1, *[pytest.approx(60, abs=1)] * 2]
    assert life.runs == 4


def test_the_end_of_java_ends_the_program(record: RunRecord) -> None:
    """Of the others in this Spark as well: a service manager starts all of them again."""
    died = Failure("Java died")
    died.__cause__ = JavaDied("Java died")
    life, _ = lived(Runs(died).entry(), record)
    assert life.stopping.is_set()
    assert life.result == run.FAILED


def test_an_error_names_the_log_of_the_spark_they_share(tmp_path: Path) -> None:
    around = PipelineHost("n", threading.Event(), tmp_path / "shared.log")
    common = SimpleNamespace(output="json")
    with (
        click.Context(click.Command("x"), obj=around),
        pytest.raises(Failure) as caught,
        at_work(common, tmp_path / "home", None),  # type: ignore[arg-type]
    ):
        raise PenstockError("odd")
    assert str(around.log) in caught.value.fix


def test_the_record_is_bounded_and_survives_a_cut_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "KEPT", 2)
    record = RunRecord(tmp_path)
    (tmp_path / "runs.jsonl").write_text('{"n": 1}\n{"n": 2}\n{"n": 3}\n{"n"')
    with record.alone():
        assert record.last(9) == [{"n": 3}]
        with pytest.raises(ResourceLocked), record.alone():
            pass


def test_history_and_dry_run_start_no_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file = written(tmp_path, GOOD)
    record = RunRecord.of_file(file)
    with record.alone():
        (record.home / "runs.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    done = CliRunner().invoke(cli, ["pipeline", "run", str(file), "--history", "1"])
    assert (done.exit_code, json.loads(done.output)) == (0, {"n": 2})
    wrong = written(tmp_path, GOOD.replace("max-file-mb", "max-file-gb"))
    done = CliRunner().invoke(cli, ["pipeline", "run", str(wrong), "--dry-run"])
    assert done.exit_code == 2
    assert "[pipeline.orders] unknown key 'max-file-gb'" in done.output


def test_a_command_of_the_file_is_one_that_says_a_summary() -> None:
    around = PipelineHost("n", threading.Event(), Path("shared.log"))
    with click.Context(click.Command("x"), obj=around):
        say_summary({"messages": 1})
    assert around.summary == {"messages": 1}
    assert set(pipeline_file.COMMANDS) <= set(pipeline_file.Pipelines.entries)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_several_pipelines_share_one_spark(broker: BrokerProcess, tmp_path: Path) -> None:
    require_spark()
    publish(broker.url, "one", [b"%d" % n for n in range(20)])
    publish(broker.url, "two", [b"%d" % n for n in range(30)])
    publish(broker.url, "in", [b'{"id": 1}', b"no JSON"])
    for queue in ("clean", "quarantine"):
        publish(broker.url, queue, [])
    file = written(
        tmp_path,
        f"""
url = "{broker.url}"
master = "local[2]"
[pipeline.one]
command = "archive"
queue = "one"
to = "{tmp_path}/one"
[pipeline.two]
command = "archive"
queue = "two"
to = "{tmp_path}/two"
every = "1s"
[pipeline.checked]
command = "validate"
queue = "in"
schema = "id long not null"
good-to = "queue:clean"
bad-to = "queue:quarantine"
checkpoint = "{tmp_path}/checked"
[pipeline.wrong]
command = "archive"
queue = "nowhere"
to = "{tmp_path}/wrong"
restart = "never"
""",
    )
    environment = archive_environment() | {"XDG_STATE_HOME": str(tmp_path / "state")}
    command = [sys.executable, "-m", "penstock", "pipeline", "run", str(file)]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as program:
        deadline = time.monotonic() + 500
        while time.monotonic() < deadline and (
            len(table_rows(tmp_path / "two", "body")) < 30
            or len(table_rows(tmp_path / "one", "body")) < 20
            or depth(broker.url, "clean") < 1
        ):
            assert program.poll() is None, program.communicate()
            time.sleep(0.5)
        javas = [pid for pid in descendants(program.pid) if name_of(pid) == "java"]
        program.send_signal(signal.SIGTERM)
        _, said = program.communicate(timeout=120)
    assert len(javas) == 1, "one Spark"
    assert program.returncode == 1, "one of them failed"
    assert "failed: wrong" in said
    shown = subprocess.run(
        [*command, "--history", "9"], env=environment, capture_output=True, text=True, check=True
    )
    told = {one["pipeline"]: one for one in map(json.loads, shown.stdout.splitlines())}
    assert told["two"]["result"] == "stopped"
    assert told["two"]["figures"]["messages"] == 30
    assert told["one"]["figures"]["left_in_queue"] == 0
    assert "no queue 'nowhere'" in told["wrong"]["error"]
    assert depth(broker.url, "quarantine") == 1
    assert depth(broker.url, "one") == depth(broker.url, "two") == 0


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
