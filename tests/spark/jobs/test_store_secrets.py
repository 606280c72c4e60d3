"""No key of an object store is in what a pipeline says, writes, logs or is started with."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake
from pyiceberg.utils.config import Config

from penstock.cli.main import cli
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore
from tests.spark.spark_tools import (
    archive_environment,
    depth,
    descendants,
    kill_all,
    publish,
    require_spark,
)
from tests.spark.tables.iceberg_tools import Pipeline, messages, table_in

TOKEN = "canary-session-token-77c0"
WRONG = "canary-wrong-secret-3b19"
CANARIES = (ACCESS_KEY, SECRET_KEY, TOKEN, WRONG)
TABLE = "s3://lake/t"
ICEBERG = ("--table", "lake.orders", "--catalog", "prod")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as store:
        yield store


def environment_of(store: ObjectStore, home: Path, secret: str = SECRET_KEY) -> dict[str, str]:
    """Keys as the libraries take them, those of an Iceberg catalog by its configuration."""
    catalog = {
        "URI": f"sqlite:///{home}/catalog.db",
        "S3__ENDPOINT": store.properties["s3.endpoint"],
        "S3__REGION": store.properties["s3.region"],
        "S3__ACCESS_KEY_ID": ACCESS_KEY,
        "S3__SECRET_ACCESS_KEY": secret,
        "S3__SESSION_TOKEN": TOKEN,
    }
    keys = {"AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": TOKEN}
    named = {f"PYICEBERG_CATALOG__PROD__{name}": value for name, value in catalog.items()}
    return store.environment | keys | named | {"XDG_STATE_HOME": str(home / "state")}


def check_files(place: Path) -> None:
    """All that is below it, names as well."""
    for path in place.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        for canary in CANARIES:
            assert canary not in path.name
            assert canary.encode() not in content, path


@pytest.fixture
def tables(store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Delta and an Iceberg table in the store."""
    for name, value in environment_of(store, tmp_path).items():
        monkeypatch.setenv(name, value)
    # It reads the environment once in a process.
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    write_deltalake(TABLE, pa.table({"body": [b"1"]}), mode="append")
    Pipeline(table_in(tmp_path, warehouse="s3://lake/w", catalog="prod")).land(0, messages(1))


VERBS = [
    ["compact", "--table", TABLE],
    ["compact", *ICEBERG],
    ["doctor", "--offline", *ICEBERG],
    ["doctor", "--offline", "--table", TABLE],
    ["outbox", "--from", TABLE, "--to-queue", "q", "--dry-run"],
    ["outbox", *ICEBERG, "--to-queue", "q", "--dry-run"],
    ["replay", "--from", TABLE, "--to-queue", "q", "--dry-run"],
    ["replay", *ICEBERG, "--to-queue", "q", "--dry-run"],
    ["archive", "--queue", "q", "--to", TABLE, "--rest", "s3://lake/rest", "--where", "priority=1"],
    ["archive", "--queue", "q", *ICEBERG, "--warehouse", "s3://lake/w"],
    ["archive", "--queue", "q", "--to", TABLE, "--checkpoint", "s3://lake/c"],
    ["validate", "--queue", "q", "--schema", TABLE, "--good-to", "queue:a", "--bad-to", "queue:b"],
    ["latency", "--out", "s3://lake/report.html"],
    ["flow", "--from-events", "s3://lake/events"],
    ["dlq", "report", "--queue", "q", "--out", "s3://lake/report.html"],
    ["sql", "select 1", "--out", "s3://lake/rows"],
]


@pytest.mark.usefixtures("tables")
@pytest.mark.parametrize("secret", [SECRET_KEY, WRONG])
def test_no_verb_says_or_keeps_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, secret: str
) -> None:
    """Those that end before Spark starts, since no broker answers; also with keys refused."""
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    monkeypatch.setenv("PYICEBERG_CATALOG__PROD__S3__SECRET_ACCESS_KEY", secret)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    monkeypatch.setenv("PENSTOCK_URL", "amqp://127.0.0.1:9")
    for verb in VERBS:
        done = CliRunner().invoke(cli, ["pipeline", *verb])
        assert isinstance(done.exception, SystemExit | None), done.exception
        for canary in CANARIES:
            assert canary not in done.output, verb
    check_files(tmp_path)


@pytest.mark.parametrize("verb", [verb for verb in VERBS if any("s3:" in one for one in verb)])
def test_keys_in_the_url_of_a_table_are_refused_and_not_repeated(verb: list[str]) -> None:
    """pyarrow would take them, and the URL stands in summaries, logs and names of directories."""
    given = [one.replace("s3://", f"s3://{ACCESS_KEY}:{SECRET_KEY}@") for one in verb]
    done = CliRunner().invoke(cli, ["pipeline", *given])
    assert done.exit_code == 2, done.output
    for canary in CANARIES:
        assert canary not in done.output


FILE = """
master = "local[1]"

[pipeline.iceberg]
command = "archive"
queue = "iceberg"
table = "lake.orders"
catalog = "prod"
warehouse = "s3://lake/w"

[pipeline.checked]
command = "validate"
queue = "in"
schema = "id long"
good-to = "queue:out"
bad-to = "queue:out"

[pipeline.again]
command = "replay"
from = "s3://lake/old"
where = "routing_key = 'us'"
to-queue = "again"
restart = "never"

[pipeline.sent]
command = "outbox"
from = "s3://lake/rows"
to-queue = "out"
"""


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_key_is_in_logs_notes_event_log_or_arguments(
    broker: BrokerProcess, store: ObjectStore, tmp_path: Path
) -> None:
    require_spark()
    for queue in ("iceberg", "in", "out", "again"):
        publish(broker.url, queue, [b'{"id": 1}'] * 3)
    (tmp_path / "pipelines.toml").write_text(FILE)
    for name in ("conf", "events", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir {(tmp_path / 'events').as_uri()}\n"
        "spark.eventLog.compress false\n"
    )
    environment = archive_environment() | environment_of(store, tmp_path)
    write_deltalake("s3://lake/rows", pa.table({"n": [1]}), storage_options=environment)
    old = pa.Table.from_batches([messages(*range(6), keys=("us", "eu", None))])
    by_key = ["routing_key"]
    write_deltalake("s3://lake/old", old, partition_by=by_key, storage_options=environment)
    environment |= {"SPARK_CONF_DIR": str(tmp_path / "conf"), "PENSTOCK_URL": broker.url}
    command = [sys.executable, "-m", "penstock", "pipeline", "run", f"{tmp_path}/pipelines.toml"]
    arguments = set()
    with (tmp_path / "said").open("wb") as said:
        run = subprocess.Popen(command, env=environment, stdout=said, stderr=said)
        try:
            while run.poll() is None:
                for pid in descendants(run.pid):
                    with suppress(OSError):
                        arguments.add(Path(f"/proc/{pid}/cmdline").read_bytes())
                time.sleep(0.1)
        finally:
            kill_all(descendants(run.pid))
    assert run.returncode == 0, (tmp_path / "said").read_text()
    assert depth(broker.url, "again") == 3 + 2
    assert list(store.objects.rglob("w/lake/orders/data/*/*/*.parquet"))
    log = b"".join(one.read_bytes() for one in (tmp_path / "events").rglob("*") if one.is_file())
    assert b"SparkListenerEnvironmentUpdate" in log
    assert list(tmp_path.rglob("runs.jsonl"))
    assert any(b"java" in one for one in arguments)
    for canary in CANARIES:
        assert not any(canary.encode() in one for one in arguments)
    check_files(tmp_path)
    check_files(store.objects)
