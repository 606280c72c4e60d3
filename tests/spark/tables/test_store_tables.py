"""Plain and Delta tables in an object store: each batch is there once, whatever dies between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from penstock.cli.pipelines.replay import _count
from penstock.spark.jobs.replay import CannotReplay, ReplayJob, _readable, check_replay
from penstock.spark.tables.copies import copy_table
from penstock.spark.tables.landing import Landing
from penstock.spark.tables.parts import publisher_of
from penstock.spark.tables.publishing import FileGone, Landed
from penstock.spark.tables.store import Store, StoreTable
from penstock.spark.tables.store_races import UnsafeStore, check_refusals
from penstock.spark.tables.table import DELTA, PARQUET, OtherTable, data_files
from pyspark_penstock.columns import arrow_schema
from pyspark_penstock.s3_uploads import PART_BYTES
from pyspark_penstock.store_file import BY_URL, path_in, store_outlet, system_of
from pyspark_penstock.table_files import Draft, DraftWriter, Layout, table_schema
from tests.helpers.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore

QUERY = "0f8fad5b-d9cb-469f-a165-70867728950e"
DAY_US = 86_400_000_000
COLUMNS = ("seq_id", "body", "routing_key", "enqueued_at")


class PowerCut(BaseException):
    """Nothing behind it runs."""


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with ObjectStore(tmp_path_factory.mktemp("store")) as store:
        yield store


@pytest.fixture
def store(
    shared_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> ObjectStore:
    for name, value in shared_store.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return shared_store


@pytest.fixture(params=[PARQUET, DELTA])
def pipeline(store: ObjectStore, tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    return Pipeline(f"s3://lake/{tmp_path.name}/t", request.param)


class Pipeline:
    """One run of an archive, as a process after another would have it."""

    def __init__(self, url: str, format_: str) -> None:
        self.table = StoreTable.of(url, format_, ("routing_key",))
        self.layout = Layout(COLUMNS, self.table.partition_by)
        self.landing = Landing(self.table, "/", "q", None)
        self.begin()

    def begin(self) -> None:
        self.table.check(table_schema(self.layout))
        self.publisher = publisher_of(self.table, self.layout, self.landing.name)
        with self.landing.locked(self.publisher):
            self.layout = self.publisher.begin(self.layout)

    def drafts(self, place: str, batch: int) -> list[Draft]:
        rows = [
            {"seq_id": 4 * batch + n, "body": b"x", "routing_key": f"k{n % 2}", "enqueued_at": n}
            for n in range(4)
        ]
        writer = DraftWriter(self.layout, place, batch)
        writer.add(pa.RecordBatch.from_pylist(rows, arrow_schema(COLUMNS)))
        return [*writer.close(), Draft.figures(holes=2)]

    def place(self, batch: int) -> str:
        with self.publisher.drafts_dir(QUERY, batch) as place:
            return place

    def land(self, batch: int) -> Landed:
        landed = self.publisher.landed(QUERY, batch)
        if landed is not None:
            return landed
        with self.publisher.drafts_dir(QUERY, batch) as place:
            return self.publisher.publish(QUERY, batch, self.drafts(place, batch))

    def seq_ids(self) -> list[int]:
        """As a reader finds them: of plain files all that a listing shows."""
        system = system_of(self.table.url)
        tables = [
            parquet.read_table(path_in(file), filesystem=system, partitioning=None)
            for file in self.table.files()
        ]
        return sorted(n for table in tables for n in table["seq_id"].to_pylist())

    def objects(self) -> list[str]:
        """All there are, hidden ones as well."""
        from pyarrow.fs import FileSelector

        selector = FileSelector(path_in(self.table.url), allow_not_found=True, recursive=True)
        found = system_of(self.table.url).get_file_info(selector)
        return [one.path for one in found if one.is_file and one.path.endswith(".parquet")]


def test_batches_land_once_and_no_key_is_shown(
    pipeline: Pipeline, capfd: pytest.CaptureFixture[str]
) -> None:
    landed = pipeline.land(0)
    assert (landed.messages, landed.files, landed.holes) == (4, 2, 2)
    pipeline.land(1)
    pipeline.begin()
    assert pipeline.land(1).before
    assert pipeline.seq_ids() == [*range(8)]
    assert len(pipeline.objects()) == 4, "drafts are gone"
    assert any("routing_key=k0" in name for name in pipeline.objects()) == (
        pipeline.table.format == PARQUET
    )
    told = "".join((*capfd.readouterr(), repr(pipeline.layout), repr(pipeline.table)))
    assert ACCESS_KEY not in told
    assert SECRET_KEY not in told


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_a_driver_that_dies_between_copies_is_finished(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: int
) -> None:
    pipeline = Pipeline(f"s3://lake/{tmp_path.name}/t", PARQUET)
    pipeline.land(0)
    real, done = Store.put, [0]

    def put(self: Store, *given: Any) -> bool:
        if done[0] == copies:
            raise PowerCut
        done[0] += 1
        return real(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "put" if copies < 2 else "settle", put if copies < 2 else cut)
        with pytest.raises(PowerCut):
            pipeline.land(1)
    assert len(pipeline.seq_ids()) == 4 + 2 * copies, "objects appear one after the other"
    pipeline.begin()
    assert pipeline.seq_ids() == [*range(8)]
    assert pipeline.land(1).before
    assert len(pipeline.objects()) == 4


def cut(*_: Any) -> None:
    raise PowerCut


@pytest.mark.long
def test_a_store_that_is_killed_before_the_batch_is_decided_costs_nothing(
    pipeline: Pipeline, store: ObjectStore
) -> None:
    pipeline.land(0)
    drafts = pipeline.drafts(pipeline.place(1), 1)
    store.kill()
    with pytest.raises(OSError):
        pipeline.publisher.publish(QUERY, 1, drafts)
    store.start()
    pipeline.begin()
    pipeline.land(1)
    pipeline.land(2)
    assert pipeline.seq_ids() == [*range(12)]


def test_a_draft_that_is_gone_stops_the_pipeline(store: ObjectStore, tmp_path: Path) -> None:
    pipeline = Pipeline(f"s3://lake/{tmp_path.name}/t", PARQUET)
    drafts = pipeline.drafts(pipeline.place(0), 0)
    assert pipeline.objects() == [], "an upload is not to be seen"
    Store(pipeline.table.url, pipeline.landing.name, holds=True).sweep()
    with pytest.raises(FileGone):
        pipeline.publisher.publish(QUERY, 0, drafts)
    assert pipeline.objects() == []


def test_uploads_of_other_pipelines_are_left_alone(store: ObjectStore, tmp_path: Path) -> None:
    pipeline = Pipeline(f"s3://lake/{tmp_path.name}/t", PARQUET)
    drafts = pipeline.drafts(pipeline.place(0), 0)
    for other in ("other", f"{pipeline.landing.name}-2"):
        Store(pipeline.table.url, other, holds=True).sweep()
    pipeline.publisher.publish(QUERY, 0, drafts)
    assert pipeline.seq_ids() == [*range(4)]


def test_plain_files_of_other_stores_are_copied_to_their_names(
    store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of ``gs://`` and ``abfs://``, which have no uploads that another process completes."""
    monkeypatch.setattr("penstock.spark.tables.store.can_upload", lambda *_: False)
    monkeypatch.setattr("pyspark_penstock.store_file.can_upload", lambda *_: False)
    pipeline = Pipeline(f"s3://lake/{tmp_path.name}/t", PARQUET)
    pipeline.land(0)
    drafts = pipeline.drafts(pipeline.place(1), 1)
    assert len(pipeline.objects()) == 4, "drafts are objects"
    pipeline.publisher.publish(QUERY, 1, drafts)
    assert pipeline.seq_ids() == [*range(8)]


def test_a_table_of_another_shape_is_refused_without_notes_of_this_machine(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.land(0)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    pipeline.table.check(table_schema(pipeline.layout))
    other = StoreTable.of(pipeline.table.url, pipeline.table.format, ())
    with pytest.raises(OtherTable):
        other.check(table_schema(Layout(("seq_id",))))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "third"))
    if pipeline.table.format == DELTA:
        with pytest.raises(OtherTable, match="is a Delta table"):
            StoreTable.of(pipeline.table.url, PARQUET, ()).check(table_schema(Layout(COLUMNS)))


def test_a_delta_table_is_compacted_and_no_key_is_shown(store: ObjectStore, tmp_path: Path) -> None:
    from click.testing import CliRunner
    from deltalake import DeltaTable, write_deltalake

    from penstock.cli.main import cli

    url = f"s3://lake/{tmp_path.name}/small"
    for number in range(5):
        write_deltalake(url, pa.table({"n": [number]}), mode="append")
    for more in (["--dry-run"], [], ["--vacuum-hours", "168"]):
        done = CliRunner().invoke(cli, ["pipeline", "compact", "--table", url, *more])
        assert done.exit_code == 0, done.output
        assert SECRET_KEY not in done.output
        assert ACCESS_KEY not in done.output
    assert len(DeltaTable(url).file_uris()) == 1
    assert sorted(DeltaTable(url).to_pyarrow_table()["n"].to_pylist()) == [*range(5)]
    for place in tmp_path.rglob("*"):
        if place.is_file():
            assert SECRET_KEY.encode() not in place.read_bytes(), place


def test_the_doctor_looks_at_tables_in_a_store(
    pipeline: Pipeline, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from click.testing import CliRunner

    from penstock.cli.main import cli
    from penstock.spark.reports import doctor

    def findings(code: int = 0, url: str = pipeline.table.url) -> list[str]:
        done = CliRunner().invoke(cli, ["pipeline", "doctor", "--offline", "--table", url])
        assert done.exit_code == code, done.output
        assert SECRET_KEY not in done.output
        return [line for line in done.output.splitlines() if not line.startswith("{")]

    assert "there is no table" in findings(1, f"{pipeline.table.url}/none")[0]
    pipeline.land(0)
    assert findings() == []
    monkeypatch.setattr(doctor, "SMALL_FILES", 1)
    delta = pipeline.table.format == DELTA
    small, cure = findings()
    assert "2 files are small" in small
    assert f"compact --table {pipeline.table}" in cure if delta else "--format delta" in cure
    monkeypatch.setattr(doctor, "SMALL_FILES", 100)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert "no pipeline of this machine" in findings()[0]
    if delta:
        (store.objects.parent / path_in(pipeline.table.files()[0])).unlink()
        assert any("it is not there" in line for line in findings(1))
        log = store.objects / tmp_path.name / "t" / "_delta_log" / f"{0:020}.json"
        log.write_text("{".ljust(log.stat().st_size))
        told = findings(1)
        assert any("the log of Delta cannot be read" in line for line in told), told


def test_the_doctor_says_that_a_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from penstock.cli.main import cli

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = CliRunner().invoke(cli, ["pipeline", "doctor", "--offline", "--table", "s3://lake/t"])
    assert done.exit_code == 1
    assert "AWS_ENDPOINT_URL" in done.output


def test_plain_files_in_a_store_are_left_alone(store: ObjectStore, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from penstock.cli.main import cli

    url = f"s3://lake/{tmp_path.name}/plain"
    parquet.write_table(
        pa.table({"n": [1]}), path_in(f"{url}/a.parquet"), filesystem=system_of(url)
    )
    done = CliRunner().invoke(cli, ["pipeline", "compact", "--table", url])
    assert done.exit_code == 1
    assert "is in an object store, which exchanges no directories" in done.output


@pytest.mark.parametrize("bounded", [False, True])
def test_files_are_copied_for_a_replay(pipeline: Pipeline, tmp_path: Path, bounded: bool) -> None:
    """Files of other times are left where they are, but for the first."""
    # nanio takes a signature of names with % for a wrong one; Delta's have none.
    key, step = ("ü/%", "%C3%BC%2F%25") if pipeline.table.format == DELTA else ("eu", "eu")
    for batch in range(3):  # messages of batch n came n days later
        rows = [
            {"seq_id": 4 * batch + n, "routing_key": one, "enqueued_at": DAY_US * batch + n}
            for n, one in enumerate((key, None))
        ]
        with pipeline.publisher.drafts_dir(QUERY, batch) as place:
            writer = DraftWriter(pipeline.layout, place, batch)
            writer.add(pa.RecordBatch.from_pylist(rows, arrow_schema(COLUMNS)))
            pipeline.publisher.publish(QUERY, batch, writer.close())
    since = datetime.fromtimestamp(86400 * 2, UTC) if bounded else None
    place = tmp_path / "r" / "files"
    place.mkdir(parents=True)
    (place / "of-another-choice.parquet").touch()
    copy_table(pipeline.table, place, since, None, print)
    files = list(data_files(place))
    assert len(files) == (3 if bounded else 6)
    assert {file.parent.name for file in files} == {
        f"routing_key={step}", "routing_key=__HIVE_DEFAULT_PARTITION__",
    }  # fmt: skip
    found = [n for file in files for n in parquet.read_table(file)["seq_id"].to_pylist()]
    assert {8, 9} <= {*found} if bounded else sorted(found) == [0, 1, 4, 5, 8, 9]
    job = ReplayJob("amqp://x", "local[1]", pipeline.table, "r", {"queue": "q"}, since=since)
    assert _count(job) == (2 if bounded else 6)
    with pytest.raises(CannotReplay, match="the workers of yarn do not see them"):
        _readable(replace(job, master="yarn"), "files", anew=True)


def test_a_store_where_writers_overwrite_entries_of_a_log_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with ObjectStore(tmp_path / "store", careless=True) as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(UnsafeStore, match="lets writers overwrite each other's entries"):
            Pipeline("s3://lake/orders", DELTA)
        assert not [path for path in store.objects.rglob("*") if path.is_file()]
        plain = Pipeline("s3://lake/plain", PARQUET)
        assert plain.land(0).messages == 4


def test_a_store_is_tried_once_for_each_table(store: ObjectStore, tmp_path: Path) -> None:
    Pipeline(f"s3://lake/{tmp_path.name}/t", DELTA)
    store.kill()
    try:
        check_refusals(StoreTable.of(f"s3://lake/{tmp_path.name}/t", DELTA, ()))
    finally:
        store.start()


def test_a_store_that_is_away_stops_a_replay(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.land(0)
    job = ReplayJob("amqp://x", "local[1]", pipeline.table, "r", {"queue": "q"})
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(CannotReplay, match=pipeline.table.url) as refused:
        check_replay(job)
    assert "AWS_ENDPOINT_URL" in refused.value.fix
    assert "wrong" not in str(refused.value)


@pytest.mark.parametrize("by", ["environment", "pyiceberg"])
def test_objects_that_take_turns_have_what_was_written(
    store: ObjectStore, tmp_path: Path, by: str
) -> None:
    """Pieces smaller than a part of an upload, and larger ones, whole parts and none."""
    url = f"s3://lake/{tmp_path.name}"
    outlet = store_outlet(url, BY_URL if by == "environment" else store.properties)
    files = [outlet.file(name) for name in "abcd"]
    wanted = [b""] * len(files)
    turns = [(0, 10), (1, PART_BYTES + 5), (0, 2 * PART_BYTES), (2, PART_BYTES), (0, 1)]
    for turn, (number, size) in enumerate(turns):
        data = bytes([turn + 1]) * size
        files[number].write(data)
        wanted[number] += data
    for file in files:
        file.close()
    outlet.settle()
    found = [system_of(url).open_input_stream(path_in(file.path)).read() for file in files]
    assert [len(one) for one in found] == [len(one) for one in wanted]
    assert found == wanted


def test_a_store_that_dies_under_a_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ObjectStore(tmp_path / "store") as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
        outlet = store_outlet("s3://lake/t", BY_URL)
        file = outlet.file("a")
        file.write(bytes(PART_BYTES))
        outlet.settle()
        store.kill()
        file.write(bytes(PART_BYTES - 1))
        file.close()
        with pytest.raises(OSError, match="was not written: the store did not answer"):
            outlet.settle()
