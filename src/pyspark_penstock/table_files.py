"""A worker's part of writing a table: messages become Parquet files, drafts until published.

In: claims (``claims``), how the table's files look (``Layout``), and a directory for drafts.
Out: one row per finished draft, for the driver to publish, and one per claim that says how
many positions held no message.

A draft is complete and on disk when its row leaves.  No reader of the table sees drafts; a task
that dies or is run twice leaves some that no list names, and the driver sweeps them.

Files of a partitioned table lie in directories ``day=2026-11-21/queue=orders``; the columns
made from what is already in the message are left out of the file, as readers of such tables
expect.  At most ``OPEN_FILES_MAX`` files are open in a worker, at most ``BUFFER_BYTES_MAX`` of
messages wait to be written and ``READ_AHEAD_BYTES_MAX`` more to be sorted, whatever the number of
partitions.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pyspark_penstock.behind import Behind
from pyspark_penstock.claims import claims_in, holes_in, read_claim
from pyspark_penstock.direct_file import DirectFile, Outlet
from pyspark_penstock.durable import sync

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_penstock.options import Settings

BATCH_COLUMN = "ingest_batch"
TIMES = {"day": 10, "hour": 13}
"""Made from ``enqueued_at`` (UTC): so much of ``2026-11-21T13``."""
FIELDS = ("queue", "exchange", "routing_key", "type", "app_id", "content_type")
PARTITION_COLUMNS = (*TIMES, *FIELDS)
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
STEP_BYTES_MAX = 255
"""What file systems allow one name."""
OPEN_FILES_MAX = 64
ROW_GROUP_BYTES = 16 << 20
"""Twice of it took a twentieth longer: what is written has left the processor's caches."""
BUFFER_BYTES_MAX = 64 << 20
READ_AHEAD_BYTES_MAX = 32 << 20
"""Read, while what came before is being written."""
DICTIONARY = (*FIELDS, "content_encoding", "user_id", "reply_to")
"""Columns with few values; a dictionary of bodies would only cost."""
STATISTICS = ("seq_id", "enqueued_at")


@dataclass(frozen=True)
class Layout:
    """What the files of a table look like."""

    columns: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    file_bytes_max: int = 128 << 20
    compression: str = "zstd"

    @property
    def file_columns(self) -> tuple[str, ...]:
        kept = [name for name in self.columns if name not in self.partition_by]
        return (*kept, BATCH_COLUMN)


class Draft(NamedTuple):
    """A finished file, or (``path`` empty) the end of a claim."""

    path: str
    directory: str
    values: str  # JSON list: the partition's values, null for none
    messages: int
    file_bytes: int
    seq_id_min: int
    seq_id_max: int
    holes: int


def table_schema(layout: Layout) -> "pa.Schema":
    """Of a file; the partition columns are in its path."""
    import pyarrow as pa

    from pyspark_penstock.columns import arrow_schema

    kept = [name for name in layout.columns if name not in layout.partition_by]
    return arrow_schema(kept).append(pa.field(BATCH_COLUMN, pa.int64()))


def writing(
    settings: "Settings", layout: Layout, drafts_dir: str, batch: int
) -> "Callable[[Iterable[tuple[Any, ...]]], Iterator[tuple[Any, ...]]]":
    """The function for ``mapPartitions``: rows of claims in, rows of drafts out.

    (Spark's ``mapInArrow`` would do as well, if it did not insist on pandas.)
    """

    def write(rows: "Iterable[tuple[Any, ...]]") -> "Iterator[tuple[Any, ...]]":
        writer = DraftWriter(layout, Path(drafts_dir), batch)
        ends = []
        with Behind(READ_AHEAD_BYTES_MAX) as behind:
            for claim in claims_in(rows):
                count = 0
                for messages in read_claim(settings, claim):
                    behind.do(messages.nbytes, writer.add, messages)
                    count += messages.num_rows
                holes = holes_in(claim.start, claim.end, count)
                ends.append(Draft("", "", "[]", 0, 0, 0, 0, holes))
            behind.settle()
        return iter([tuple(draft) for draft in (*writer.close(), *ends)])

    return write


class DraftWriter:
    """Sorts messages into the files of their partitions."""

    def __init__(self, layout: Layout, drafts_dir: Path, batch: int) -> None:
        self._layout = layout
        self._drafts_dir = drafts_dir
        self._batch = batch
        self._schema = table_schema(layout)
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._done: list[Draft] = []
        self._buffered = 0
        self._outlet = Outlet()
        drafts_dir.mkdir(parents=True, exist_ok=True)

    def add(self, messages: "pa.RecordBatch") -> None:
        for values, rows in split(messages, self._layout.partition_by):
            self._add(values, self._file_rows(rows))

    def close(self) -> list[Draft]:
        for values in list(self._open):
            self._finish(values)
        self._outlet.settle()
        sync(self._drafts_dir)
        return self._done

    def _file_rows(self, rows: "pa.RecordBatch") -> "pa.RecordBatch":
        import pyarrow as pa

        number = pa.repeat(pa.scalar(self._batch, pa.int64()), rows.num_rows)
        columns = [rows.column(name) for name in self._layout.file_columns[:-1]]
        return pa.RecordBatch.from_arrays([*columns, number], schema=self._schema)

    def _add(self, values: tuple[str | None, ...], rows: "pa.RecordBatch") -> None:
        file = self._open.get(values)
        if file is None:
            if len(self._open) >= OPEN_FILES_MAX:
                self._finish(max(self._open, key=lambda key: self._open[key].size))
            path = self._drafts_dir / f"{uuid.uuid4().hex}.parquet"
            file = self._open[values] = _OpenFile(path, self._schema, self._layout, self._outlet)
        self._buffered += file.add(rows)
        if file.buffered >= min(ROW_GROUP_BYTES, self._layout.file_bytes_max):
            self._buffered -= file.flush()
        while self._buffered > BUFFER_BYTES_MAX:
            fullest = max(self._open.values(), key=lambda other: other.buffered)
            self._buffered -= fullest.flush()
        if file.size >= self._layout.file_bytes_max:
            self._finish(values)

    def _finish(self, values: tuple[str | None, ...]) -> None:
        file = self._open.pop(values)
        self._buffered -= file.flush()
        size = file.close()
        low, high = file.seq_ids
        directory = directory_of(self._layout.partition_by, values)
        self._done.append(
            Draft(str(file.path), directory, json.dumps(values), file.rows, size, low, high, 0)
        )


@dataclass
class _OpenFile:
    """A Parquet file that is being written, a row group at a time."""

    path: Path
    schema: "pa.Schema"
    layout: Layout
    outlet: Outlet
    rows: int = 0
    buffered: int = 0
    size: int = 0
    seq_ids: tuple[int, int] = (1 << 62, -1)
    _waiting: list[Any] = field(default_factory=list)
    _writer: Any = None
    _sink: Any = None

    def add(self, rows: "pa.RecordBatch") -> int:
        import pyarrow.compute as pc

        if "seq_id" in rows.schema.names:
            found = pc.min_max(rows.column("seq_id")).as_py()
            low, high = self.seq_ids
            self.seq_ids = (min(low, found["min"]), max(high, found["max"]))
        self._waiting.append(rows)
        self.rows += rows.num_rows
        size: int = rows.nbytes
        self.buffered += size
        return size

    def flush(self) -> int:
        """What waits becomes a row group; returns how many bytes no longer wait."""
        import pyarrow as pa

        if self._waiting:
            if self._writer is None:
                self._open()
            self._writer.write_table(pa.Table.from_batches(self._waiting))
            self._waiting = []
            self._sink.pause()
            self.size = self._sink.size
        freed, self.buffered = self.buffered, 0
        return freed

    def close(self) -> int:
        """How large it is; it is on disk when the outlet has settled."""
        self._writer.close()
        self._sink.close()
        size: int = self._sink.size
        return size

    def _open(self) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        names = set(self.schema.names)
        self._sink = DirectFile(self.path, self.outlet)
        self._writer = parquet.ParquetWriter(
            pa.PythonFile(self._sink, "w"),
            self.schema,
            compression=self.layout.compression,
            use_dictionary=[name for name in DICTIONARY if name in names],
            write_statistics=[name for name in STATISTICS if name in names],
        )


# -- partitions --------------------------------------------------------------------------------


def split(
    rows: "pa.RecordBatch", names: tuple[str, ...]
) -> "Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]":
    """The rows by partition; within one their order is kept."""
    parts: list[tuple[tuple[str | None, ...], pa.RecordBatch]] = [((), rows)]
    for name in names:
        parts = [
            ((*values, value), piece)
            for values, part in parts
            for value, piece in _split_by(part, name)
        ]
    return iter(parts)


def _split_by(rows: "pa.RecordBatch", name: str) -> "Iterator[tuple[str | None, pa.RecordBatch]]":
    import pyarrow as pa
    import pyarrow.compute as pc

    key = _time_key(rows, name) if name in TIMES else rows.column(name)
    if isinstance(key, str):
        yield key, rows
        return
    values = pc.unique(key).to_pylist()
    if len(values) == 1:
        yield values[0], rows
        return
    for value in values:
        wanted = pc.is_null(key) if value is None else pc.equal(key, pa.scalar(value, key.type))
        yield value, rows.filter(pc.fill_null(wanted, fill_value=False))


def _time_key(rows: "pa.RecordBatch", name: str) -> Any:
    """The day or hour of each row, or one for all: rows of a block are near in time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = rows.column("enqueued_at").cast(pa.timestamp("us"))  # UTC, which needs no zones
    bounds = pc.min_max(times).as_py()
    first, last = (bounds[end].isoformat()[: TIMES[name]] for end in ("min", "max"))
    if first == last:
        return first if name == "day" else first[-2:]
    return pc.strftime(times, format="%Y-%m-%d" if name == "day" else "%H")


def directory_of(names: tuple[str, ...], values: tuple[str | None, ...]) -> str:
    """``day=2026-11-21/queue=orders``, or nothing.  Empty text counts as null, as in Hive."""
    steps = [
        f"{name}={quote(value, safe='') if value else NULL_DIRECTORY}"
        for name, value in zip(names, values, strict=True)
    ]
    for step in steps:
        if len(step) > STEP_BYTES_MAX:
            raise ValueError(f"no directory of a table can be named {step}: it is too long")
    return "/".join(steps)
