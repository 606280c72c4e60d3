"""A worker's part of writing a table: messages become Parquet files, drafts until published.

In: messages with the columns made of their bodies (``sorting``), how the table's files look
(``Layout``), and a directory for drafts.  Out: one row per finished draft, for the driver to
publish.

A draft is complete and on disk when its row leaves, or all of it is in the store, as an upload to
its final name (``store_file.HELD``).  No reader of the table sees drafts; a task that dies or is
run twice leaves some that no list names, and the driver sweeps them.

Files of a partitioned table lie in directories ``day=2026-11-21/queue=orders``; the columns
made from what is already in the message are left out of the file, as readers of such tables
expect.  An Iceberg table knows a file's partition by its metadata and a column by its number:
there all columns are in the file, each with its number, and the file lies where it was written.
At most ``OPEN_FILES_MAX`` files are open in a worker, at most ``BUFFER_BYTES_MAX`` of
messages wait to be written, whatever the number of partitions.
"""

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from pyspark_penstock.body_columns import FAULT, BodyColumn
from pyspark_penstock.buffered_file import BufferedFile
from pyspark_penstock.direct_file import direct_outlet
from pyspark_penstock.durable import sync
from pyspark_penstock.store_file import HELD, store_outlet

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_COLUMN = "ingest_batch"
TIMES = {"day": 10, "hour": 13, "published_day": 10}
"""Made from a time (UTC): so much of ``2026-11-21T13``."""
DAYS = ("day", "published_day")
TIME_SOURCES = {"day": "enqueued_at", "hour": "enqueued_at", "published_day": "timestamp"}
HOUR_OF_DAY = slice(11, 13)
FIELDS = ("queue", "exchange", "routing_key", "type", "app_id", "content_type")
PARTITION_COLUMNS = (*TIMES, *FIELDS)
NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
STEP_BYTES_MAX = 255
"""What file systems allow one name."""
OPEN_FILES_MAX = 64
ROW_GROUP_BYTES = 16 << 20
"""Twice of it took a twentieth longer: what is written has left the processor's caches."""
BUFFER_BYTES_MAX = 64 << 20
DICTIONARY = (*FIELDS, "incarnation", "content_encoding", "user_id", "reply_to")
"""Columns with few values; a dictionary of bodies would only cost."""
STATISTICS = ("seq_id", "enqueued_at")


@dataclass(frozen=True)
class Layout:
    columns: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    file_bytes_max: int = 128 << 20
    compression: str = "zstd"
    column_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Of an Iceberg table: per column its number and those of its parts, depth first."""
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of the object store that has the table (``store_file``); {} = a directory."""
    decoded: tuple[BodyColumn, ...] = ()
    """Columns made of bodies and headers."""
    with_fault: bool = False
    """There is ``body_fault``, why a body does not fit such columns."""

    @property
    def file_columns(self) -> tuple[str, ...]:
        in_path = () if self.column_ids else self.partition_by
        made = (*(one.name for one in self.decoded), *((FAULT,) if self.with_fault else ()))
        found = (name for name in (*self.columns, *made) if name not in in_path)
        return (*found, BATCH_COLUMN)


class Draft(NamedTuple):
    """A finished file, or (``path`` empty) what a task has counted besides."""

    path: str
    directory: str
    values: str  # JSON list: the partition's values, null for none
    messages: int
    file_bytes: int
    seq_id_min: int
    seq_id_max: int
    holes: int
    faults: int = 0  # messages whose body the layout's columns do not fit
    part: str = ""  # the name of the file's table among those of the pipeline; "" = its first
    left_out: int = 0  # messages that no table takes
    upload: str = ""  # what completes the file (``s3_uploads``); "" = it is complete

    @classmethod
    def figures(cls, holes: int = 0, left_out: int = 0) -> "Draft":
        return cls("", "", "[]", 0, 0, 0, 0, holes, left_out=left_out)


def table_schema(layout: Layout) -> "pa.Schema":
    """Of a file: without the columns in its path, with the numbers that a table has for columns."""
    import pyarrow as pa

    from pyspark_penstock.columns import arrow_schema

    made = {one.name: one.type() for one in layout.decoded} | {BATCH_COLUMN: pa.int64()}
    schema = arrow_schema(layout.file_columns)  # which takes a name that it does not know for text
    schema = pa.schema([(one.name, made.get(one.name, one.type)) for one in schema])
    return with_ids(schema, layout.column_ids) if layout.column_ids else schema


def with_ids(schema: "pa.Schema", ids: Mapping[str, tuple[int, ...]]) -> "pa.Schema":
    """The same columns, with the numbers of ``Layout.column_ids``."""
    import pyarrow as pa

    return pa.schema([_numbered(one, iter(ids[one.name])) for one in schema])


def parts_of(kind: "pa.DataType") -> "tuple[pa.Field, ...]":
    """Key and value of a map, fields of a struct, element of a list."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        return kind.key_field, kind.item_field
    if pa.types.is_struct(kind):
        return tuple(kind.fields)
    return (kind.value_field,) if pa.types.is_list(kind) else ()


def _numbered(column: "pa.Field", numbers: Iterator[int]) -> "pa.Field":
    """The column as Parquet's field ids name it; a number, then those of its parts."""
    import pyarrow as pa

    number, kind = next(numbers), column.type
    parts = [_numbered(part, numbers) for part in parts_of(kind)]
    if pa.types.is_map(kind):
        column = column.with_type(pa.map_(*parts))
    elif parts:
        column = column.with_type(
            pa.struct(parts) if pa.types.is_struct(kind) else pa.list_(*parts)
        )
    return column.with_metadata({"PARQUET:field_id": str(number)})


class DraftWriter:
    """Sorts messages into the files of their partitions; ``drafts_dir`` is made.

    It is a directory, or with ``layout.store`` a place in that store.
    """

    def __init__(self, layout: Layout, drafts_dir: str, batch: int, part: str = "") -> None:
        self._layout = layout
        self._drafts_dir = drafts_dir
        self._batch = batch
        self._part = part
        self._schema = table_schema(layout)
        self._open: dict[tuple[str | None, ...], _OpenFile] = {}
        self._done: list[Draft] = []
        self._buffered = 0
        if layout.store:
            self._outlet = store_outlet(drafts_dir, layout.store)
        else:
            Path(drafts_dir).mkdir(parents=True, exist_ok=True)
            self._outlet = direct_outlet(Path(drafts_dir))

    def add(self, messages: "pa.RecordBatch") -> None:
        whole_hours = bool(self._layout.column_ids)
        for values, rows in split(messages, self._layout.partition_by, whole_hours=whole_hours):
            self._add(values, self._file_rows(rows))

    def close(self) -> list[Draft]:
        for values in list(self._open):
            self._finish(values)
        self._outlet.settle()
        if not self._layout.store:
            sync(Path(self._drafts_dir))
        return [one._replace(upload=self._outlet.left_over[one.path]) for one in self._done]

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
            sink = self._outlet.file(self._new_name(values))
            file = self._open[values] = _OpenFile(self._schema, self._layout, sink)
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
        path, size = file.close()
        low, high = file.seq_ids
        directory = self._directory(values)
        told = (file.rows, size, low, high, 0, file.faults, self._part)
        self._done.append(Draft(path, directory, json.dumps(values), *told))

    def _new_name(self, values: tuple[str | None, ...]) -> str:
        name = f"{uuid.uuid4().hex}.parquet"
        pipeline = self._layout.store.get(HELD, "")
        if not pipeline:
            return name
        directory = self._directory(values)
        return f"{directory}{'/' if directory else ''}{pipeline}-{self._batch:08d}-{name}"

    def _directory(self, values: tuple[str | None, ...]) -> str:
        in_path = () if self._layout.column_ids else self._layout.partition_by
        return directory_of(in_path, values[: len(in_path)])


@dataclass
class _OpenFile:
    """A Parquet file that is being written, a row group at a time."""

    schema: "pa.Schema"
    layout: Layout
    sink: BufferedFile
    rows: int = 0
    faults: int = 0
    buffered: int = 0
    size: int = 0
    seq_ids: tuple[int, int] = (1 << 62, -1)
    _waiting: list[Any] = field(default_factory=list)
    _writer: Any = None

    def add(self, rows: "pa.RecordBatch") -> int:
        import pyarrow.compute as pc

        if "seq_id" in rows.schema.names:
            found = pc.min_max(rows.column("seq_id")).as_py()
            low, high = self.seq_ids
            self.seq_ids = (min(low, found["min"]), max(high, found["max"]))
        if FAULT in rows.schema.names:
            self.faults += rows.num_rows - rows.column(FAULT).null_count
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
            self.size = self.sink.size
        freed, self.buffered = self.buffered, 0
        return freed

    def close(self) -> tuple[str, int]:
        """Its name, and how large it is; it is on disk when the outlet has settled."""
        self._writer.close()
        self.sink.close()
        return self.sink.path, self.sink.size

    def _open(self) -> None:
        from pyarrow import parquet

        names = set(self.schema.names)
        self._writer = parquet.ParquetWriter(
            self.sink.sink,
            self.schema,
            compression=self.layout.compression,
            use_dictionary=[name for name in DICTIONARY if name in names],
            write_statistics=[name for name in STATISTICS if name in names],
        )


# -- partitions --------------------------------------------------------------------------------


def split(
    rows: "pa.RecordBatch", names: tuple[str, ...], *, whole_hours: bool = False
) -> "Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]":
    """The rows by partition; within one their order is kept.

    ``whole_hours``: the hour is ``2026-11-21T13``, not ``13``.
    """
    parts: list[tuple[tuple[str | None, ...], pa.RecordBatch]] = [((), rows)]
    for name in names:
        parts = [
            ((*values, value), piece)
            for values, part in parts
            for value, piece in _split_by(part, name, whole_hours=whole_hours)
        ]
    return iter(parts)


def _split_by(
    rows: "pa.RecordBatch", name: str, *, whole_hours: bool
) -> "Iterator[tuple[str | None, pa.RecordBatch]]":
    import pyarrow as pa
    import pyarrow.compute as pc

    part = HOUR_OF_DAY if name == "hour" and not whole_hours else slice(TIMES.get(name))
    key = _time_key(rows, name, part) if name in TIMES else rows.column(name)
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


def _time_key(rows: "pa.RecordBatch", name: str, part: slice) -> Any:
    """The day or hour of each row, or one for all: rows of a block are near in time."""
    import pyarrow as pa
    import pyarrow.compute as pc

    times = rows.column(TIME_SOURCES[name]).cast(pa.timestamp("us"))  # UTC, which needs no zones
    if not times.null_count:
        bounds = pc.min_max(times).as_py()
        first, last = (bounds[end].isoformat()[: TIMES[name]] for end in ("min", "max"))
        if first == last:
            return first[part]
    return pc.utf8_slice_codeunits(
        pc.strftime(times, format="%Y-%m-%dT%H"), part.start or 0, part.stop
    )


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
