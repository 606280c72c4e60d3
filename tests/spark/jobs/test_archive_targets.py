"""Archives into an object store, and into a table with a row per key, killed on the way."""

from __future__ import annotations

import json
import os
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.helpers.object_store import ObjectStore
from tests.spark.spark_tools import (
    archive_environment,
    descendants,
    kill_all,
    pipeline_command,
    publish,
    require_spark,
)

if TYPE_CHECKING:
    import pyarrow as pa

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]
MESSAGES = 2000
KILLS = int(os.environ.get("PENSTOCK_KILLS", "2"))


@pytest.fixture(autouse=True)
def _spark_is_here() -> None:
    require_spark()


def run_with_kills(command: list[str], environment: dict[str, str], kills: int) -> dict[str, Any]:
    """Each of the first runs is killed with all that it started, some seconds into its batches."""
    for number in range(kills):
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            for _ in range(1 + number):
                run.stdout.readline()
            time.sleep(0.1 * number)
            kill_all(descendants(run.pid))
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@pytest.mark.parametrize("format_", ["parquet", "delta"])
def test_a_store_has_each_message_once(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    from pyarrow import parquet

    from penstock.spark.tables.store import StoreTable
    from pyspark_penstock.store_file import path_in, system_of

    publish(broker.url, format_, [b"%d" % n for n in range(MESSAGES)])
    with ObjectStore(tmp_path / "store") as store:
        environment = archive_environment() | store.environment
        environment["XDG_STATE_HOME"] = str(tmp_path / "state")
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        url = f"s3://lake/{format_}/t"
        command = pipeline_command(
            "archive", broker.url, "--queue", format_, "--to", url, "--format", format_,
            "--max-messages", "200",
        )  # fmt: skip
        assert run_with_kills(command, environment, KILLS)["left_in_queue"] == 0
        table = StoreTable.of(url, format_, ())
        system = system_of(url)
        bodies = [
            int(body)
            for file in table.files()
            for body in parquet.read_table(path_in(file), filesystem=system)["body"].to_pylist()
        ]
    assert sorted(bodies) == [*range(MESSAGES)]


@pytest.mark.parametrize("format_", ["delta", "iceberg", "delta in an object store"])
def test_a_table_with_a_row_per_key_is_what_a_dictionary_would_be(
    broker: BrokerProcess, tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, model = [], dict[int, int]()
    for n in range(MESSAGES):
        key, gone = n % 37, n % 5 == 0
        events.append(json.dumps({"op": "d" if gone else "u", "id": key, "n": n}).encode())
        model.pop(key, None)
        if not gone:
            model[key] = n
    queue = f"changes-{format_.replace(' ', '-')}"
    publish(broker.url, queue, events)
    environment = archive_environment() | {"XDG_STATE_HOME": str(tmp_path / "state")}
    lake = str(tmp_path)
    with ExitStack() as stack:
        if format_ == "delta in an object store":
            lake = "s3://lake/merged"
            store = stack.enter_context(ObjectStore(tmp_path / "store"))
            environment |= store.environment
            for name, value in store.environment.items():
                monkeypatch.setenv(name, value)
        rows = _merged(broker, queue, lake, environment, tmp_path, format_)
    found = rows.select(["id", "n"]).to_pylist()
    assert len(found) == len(model)
    assert {row["id"]: row["n"] for row in found} == model


def _merged(
    broker: BrokerProcess,
    queue: str,
    lake: str,
    environment: dict[str, str],
    tmp_path: Path,
    format_: str,
) -> pa.Table:
    """The table that an archive under kills has made of the queue."""
    where = ["--to", f"{lake}/t", "--format", "delta", "--quarantine", f"{lake}/bad"]
    uri = f"sqlite:///{tmp_path}/catalog.db"
    if format_ == "iceberg":
        where = ["--table", "lake.t", "--quarantine", "lake.bad", "--catalog-uri", uri]
        where += ["--warehouse", str(tmp_path / "w")]
    command = pipeline_command(
        "archive", broker.url, "--queue", queue, *where, "--max-messages", "200",
        "--columns", "id long not null, n long, op string",
        "--merge-on", "id", "--delete-where", "op = 'd'",
    )  # fmt: skip
    assert run_with_kills(command, environment, KILLS)["left_in_queue"] == 0
    if format_ == "iceberg":
        from pyiceberg.catalog import load_catalog

        return load_catalog("default", uri=uri).load_table("lake.t").scan().to_arrow()
    from deltalake import DeltaTable

    return DeltaTable(f"{lake}/t").to_pyarrow_table()
