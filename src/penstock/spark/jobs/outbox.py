"""A growing table to an exchange or queue: each new row is a message, exactly once, in order.

In: an ``OutboxJob``.  Out: a ``Sent``.  New files (``additions``) are cut into *slices* of at most
``SLICE_ROWS_MAX`` rows; each slice is one batch of the sink's producer of this outbox, so it is
published whole or not at all, and once, however often it is tried.  Its place has::

    plan.json   which slices follow, and where in the table the outbox is behind them; synced
                before the first of them is sent
    sent        how many slices were sent, ever: the number of the next one's batch
    lock

Sending slice n, and what a crash leaves:

    1  rows are read, encoded and staged on the broker     an uncommitted set; the broker drops it
    2  the broker commits batch n of the producer          *published*
    3  note n + 1 in ``sent``                              1 and 2 again: the broker knows batch n,
                                                           and publishes nothing

Needs neither Spark nor Java: rows are read with pyarrow, from directories and object stores.
"""

import base64
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import PenstockError
from penstock.spark.progress import RunReports
from penstock.spark.state.places import locked
from penstock.spark.tables.additions import NewFile, additions, opened, types_of
from penstock.spark.tables.landing import LakeTable
from pyspark_penstock.durable import write_synced
from pyspark_penstock.sink_encoding import COLUMNS, check_columns
from pyspark_penstock.sink_options import SinkSettings, parse_sink_options

if TYPE_CHECKING:
    import pyarrow as pa

SLICE_ROWS_MAX: Final = 50_000
READ_ROWS: Final = 4096
EARLIEST, LATEST = "earliest", "latest"
NUMBERS: Final = ("priority", "expiration", "delay_ms")
PLAN, SENT = "plan.json", "sent"


class OtherOutbox(PenstockError):
    """Its place was begun with another table, target or choice of columns."""

    fix = "give the options it was begun with, or another --name"


class WrongRows(PenstockError):
    fix = "choose columns by --properties, or correct the table"


@dataclass(frozen=True)
class OutboxJob:
    """``properties``: of a message, by the column that has it."""

    url: str
    table: LakeTable
    target: Mapping[str, str]  # options of the sink
    home: Path
    name: str
    properties: Mapping[str, str] = field(default_factory=dict)
    begin: str = EARLIEST
    skip_changes: bool = False
    every_s: float | None = None

    def choice(self) -> dict[str, Any]:
        """What must be the same when it goes on."""
        return {
            "table": str(self.table),
            "target": dict(self.target),
            "properties": dict(self.properties),
        }

    def settings(self) -> SinkSettings:
        return parse_sink_options({**self.target, "url": self.url, "stageMaxBytes": "1000000GiB"})


@dataclass
class Sent:
    messages: int = 0
    slices: int = 0

    def add(self, messages: int) -> None:
        self.messages += messages
        self.slices += 1


@dataclass(frozen=True)
class Slice:
    """Pieces of files: path, values that the file has not, first row, end."""

    rows: int
    pieces: list[tuple[str, dict[str, str | None], int, int]]


@dataclass(frozen=True)
class Plan:
    """``base``: how many slices were sent before; ``after``: the position behind all of these."""

    txn: str
    choice: dict[str, Any]
    base: int = 0
    begun: bool = False  # ``after`` says where; else nothing was looked at yet
    after: Any = None
    slices: list[Slice] = field(default_factory=list)

    @classmethod
    def of(cls, job: OutboxJob) -> "Plan":
        """The one that is kept, or a new one; raises OtherOutbox."""
        try:
            kept = json.loads((job.home / PLAN).read_text())
        except FileNotFoundError:
            return cls(uuid.uuid4().hex, job.choice())
        plan = cls(**kept | {"slices": [Slice(**one) for one in kept["slices"]]})
        if plan.choice != job.choice():
            raise OtherOutbox(f"outbox '{job.name}' was begun with {json.dumps(plan.choice)}")
        return plan

    def kept(self, home: Path) -> "Plan":
        write_synced(home / PLAN, json.dumps(asdict(self)))
        return self


def sent_by(home: Path) -> int:
    try:
        return int((home / SENT).read_text())
    except FileNotFoundError:
        return 0


def run_outbox(
    job: OutboxJob, on_slice: Callable[[int, int], None], stopping: threading.Event
) -> Sent:
    """Until all is sent that is there, or with ``every_s`` until ``stopping`` is set.

    Raises OtherOutbox, WrongRows, CannotFollow, and what the broker refuses.
    """
    with locked(job.home, f"run of outbox '{job.name}'"):
        outbox = _Outbox(job, on_slice, stopping)
        with outbox.reports:
            while outbox.look_and_send() and job.every_s is not None:
                if stopping.wait(job.every_s):
                    break
        return outbox.done


class _Outbox:
    def __init__(
        self, job: OutboxJob, on_slice: Callable[[int, int], None], stopping: threading.Event
    ) -> None:
        self.done = Sent()
        self._job = job
        self._on_slice = on_slice
        self._stopping = stopping
        self._settings = job.settings()
        self._plan = Plan.of(job)
        self._run = uuid.uuid4().hex
        queues = [job.target["queue"]] if "queue" in job.target else []
        self.reports = RunReports(job.url, self._run, f"outbox {job.name}", "outbox", queues)

    def look_and_send(self) -> bool:
        """What an earlier run had planned, then what is new; False = it was stopped on the way."""
        if not self._send_planned(sent_by(self._job.home)):
            return False
        sent = sent_by(self._job.home)
        self._plan = planned(self._job, self._plan, sent)
        return self._send_planned(sent)

    def _send_planned(self, sent: int) -> bool:
        left = self._plan.slices[sent - self._plan.base :]
        types = types_of(self._job.table) if left else {}
        for number, one in enumerate(left, sent):
            if self._stopping.is_set():
                return False
            began_s = time.monotonic()
            self._send(number, one, types)
            write_synced(self._job.home / SENT, str(number + 1))
            self.done.add(one.rows)
            self._on_slice(number, one.rows)
            self.reports.batch(number, one.rows, time.monotonic() - began_s)
        return True

    def _send(self, number: int, one: Slice, types: "dict[str, pa.DataType]") -> None:
        from pyspark.sql.pandas.types import from_arrow_schema

        from pyspark_penstock.sink import Identity, write_once

        def messages() -> "Iterator[pa.RecordBatch]":
            for rows in rows_of(self._job.table, one, types):
                found = as_messages(rows, self._job)
                check_columns(from_arrow_schema(found.schema), self._settings)
                yield found

        who = Identity(f"txn:outbox:{self._plan.txn}", self._run, number)
        try:
            write_once(self._settings, who, messages())
        except ValueError as error:
            raise WrongRows(f"{self._job.table}: {error}") from error


def waiting(job: OutboxJob) -> tuple[int, int]:
    """How many files and rows it would send now; changes nothing."""
    plan, sent = Plan.of(job), sent_by(job.home)
    slices = plan.slices[sent - plan.base :]
    if not slices and (plan.begun or job.begin == EARLIEST):
        found = additions(job.table, plan.after, skip_changes=job.skip_changes)
        slices = [*sliced(job.table, found.files)]
    files = {path for one in slices for path, *_ in one.pieces}
    return len(files), sum(one.rows for one in slices)


def planned(job: OutboxJob, plan: Plan, sent: int) -> Plan:
    """What follows the last one, kept; the same one if nothing has come."""
    if not plan.begun and job.begin == LATEST:
        found = additions(job.table, None, skip_changes=True)
        return Plan(plan.txn, plan.choice, sent, True, found.position).kept(job.home)
    found = additions(job.table, plan.after, skip_changes=job.skip_changes)
    if plan.begun and found.position == plan.after:
        return plan
    slices = [*sliced(job.table, found.files)]
    return Plan(plan.txn, plan.choice, sent, True, found.position, slices).kept(job.home)


def sliced(table: LakeTable, files: list[NewFile]) -> Iterator[Slice]:
    pieces: list[tuple[str, dict[str, str | None], int, int]] = []
    rows = 0
    for one in files:
        count = rows_in(table, one.path)
        at = 0
        while at < count:
            end = min(count, at + SLICE_ROWS_MAX - rows)
            pieces.append((one.path, one.values, at, end))
            rows += end - at
            at = end
            if rows == SLICE_ROWS_MAX:
                yield Slice(rows, pieces)
                pieces, rows = [], 0
    if pieces:
        yield Slice(rows, pieces)


def rows_in(table: LakeTable, path: str) -> int:
    """Raises WrongRows for what is no whole Parquet file: it would be left out for ever."""
    import pyarrow as pa

    try:
        with opened(table, path) as file:
            return int(file.metadata.num_rows)
    except pa.ArrowInvalid as error:
        raise WrongRows(f"{path} is no whole Parquet file: {error}") from error


def rows_of(
    table: LakeTable, one: Slice, types: "Mapping[str, pa.DataType]"
) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    for path, values, first, end in one.pieces:
        with opened(table, path) as file:
            for rows in _rows(file, first, end):
                columns = dict(zip(rows.schema.names, rows.columns, strict=True))
                for name, text in values.items():
                    column = pa.array([text] * rows.num_rows, pa.string())
                    columns[name] = column.cast(types.get(name, pa.string()))
                yield pa.RecordBatch.from_pydict(columns)


def _rows(file: Any, first: int, end: int) -> "Iterator[pa.RecordBatch]":
    at = 0
    for group in range(file.num_row_groups):
        count = file.metadata.row_group(group).num_rows
        if at + count <= first or at >= end:
            at += count
            continue
        for rows in file.iter_batches(READ_ROWS, row_groups=[group]):
            low, high = max(first - at, 0), min(end - at, rows.num_rows)
            if low < high:
                yield rows.slice(low, high - low)
            at += rows.num_rows


def as_messages(rows: "pa.RecordBatch", job: OutboxJob) -> "pa.RecordBatch":
    """A row with a column ``body`` is a message as the sink takes it; any other is JSON."""
    import pyarrow as pa

    given = dict(zip(rows.schema.names, rows.columns, strict=True))
    if "body" in given:
        found = {name: given[name] for name in COLUMNS if name in given and name != "exchange"}
        if "properties_raw" in found:
            found = {n: found[n] for n in ("body", "routing_key", "properties_raw") if n in found}
    else:
        found = {"body": pa.array([*_as_json(rows)], pa.binary())}
        found["content_type"] = pa.array(["application/json"] * rows.num_rows)
    if "queue" in job.target or "routingKey" in job.target:
        found.pop("routing_key", None)
    for name, column in job.properties.items():
        if column not in given:
            raise WrongRows(f"{job.table} has no column {column}")
        whole = given[column]
        found[name] = whole if name in (*NUMBERS, "timestamp") else whole.cast(pa.string())
    return pa.RecordBatch.from_pydict(found)


def _as_json(rows: "pa.RecordBatch") -> Iterator[bytes]:
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        text = json.dumps(row, default=_plain, ensure_ascii=False, separators=(",", ":"))
        yield text.encode()


def _plain(value: Any) -> Any:
    """What JSON has no word for: times as ISO 8601 in UTC, octets in base64, decimals as text."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
