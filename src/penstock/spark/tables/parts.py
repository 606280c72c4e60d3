"""The tables of one archive: that of its messages, and where others go.

``--where`` chooses messages for the table, ``--rest`` is the table of those it does not choose, and
``--quarantine`` that of messages whose body does not fit the columns.  With ``--merge-on`` the
table proper has a row per key (``merging``); the others are always added to.  A batch lands in the
others first and in the table last, so what the table has is everywhere; a crash in between is
found by each table's own note of the batch (``publishing``, ``delta``, ``iceberg``), and the next
call lands what is missing.

For that a batch must be sorted twice alike.  How it is sorted stands in a note beside the
checkpoint; a pipeline that sorts otherwise does not begin while a planned batch has not landed.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from penstock.core.errors import PenstockError
from penstock.spark.state import notes
from penstock.spark.tables.conditions import parse_condition
from penstock.spark.tables.landing import LakeTable, Landing, Publisher
from penstock.spark.tables.merging import BATCH_BYTES_MAX, Merge, check_merge, merging_publisher
from penstock.spark.tables.publishing import Landed, ParquetPublisher
from penstock.spark.tables.table import DELTA, ICEBERG
from pyspark_penstock.body_columns import FAULT, NOT_DECODED, BodyDecoding
from pyspark_penstock.durable import write_synced
from pyspark_penstock.sorting import Part
from pyspark_penstock.table_files import Draft, Layout, table_schema

if TYPE_CHECKING:
    from pyarrow.compute import Expression

TABLE: Final = ""
REST: Final = "rest"
QUARANTINE: Final = "quarantine"
COLUMNS: Final = "columns"
SORTING: Final = "sorting.json"


class SortedOtherwise(PenstockError):
    """A planned batch may be in some of its tables, and would be sorted otherwise."""

    fix = "run it once as before, then with the new options"


@dataclass(frozen=True)
class Sorting:
    decoding: BodyDecoding = NOT_DECODED
    where: str = ""  # "" = the table takes every message
    rest: LakeTable | None = None  # of messages that ``where`` does not choose; None = of no table
    quarantine: LakeTable | None = None  # of messages whose body does not fit ``decoding``
    merge_on: tuple[str, ...] = ()  # columns of which the table has each value once; () = appends
    delete_where: str = ""  # which messages remove the row of their key

    @property
    def batch_bytes_max(self) -> int:
        return BATCH_BYTES_MAX if self.merge_on else sys.maxsize

    def note(self) -> dict[str, str]:
        """What decides which table gets a message; {} = there is one."""
        beside = {REST: self.rest, QUARANTINE: self.quarantine, "where": self.where or None}
        given = {name: str(one) for name, one in beside.items() if one is not None}
        return given | ({COLUMNS: str(self.decoding)} if given else {})

    def targets(
        self, layout: Layout, table: LakeTable, landing_in: Callable[[LakeTable], Landing]
    ) -> "tuple[Target, ...]":
        """The tables in the order in which a message is offered to them.

        ``layout``: of the ``table``.  Raises OtherTable, WrongCondition, CannotMerge.
        """
        from pyarrow import compute as pc

        everything = table_schema(replace(layout, partition_by=()))
        where, deletes = (
            parse_condition(text, everything) if text else None
            for text in (self.where, self.delete_where)
        )
        merge = Merge(self.merge_on, deletes) if self.merge_on else None
        if merge is not None:
            required = {one.name for one in self.decoding.columns if one.required}
            check_merge(table, merge, frozenset(required if self.quarantine else ()))
        faulty = replace(layout, decoded=())
        offered = (
            (QUARANTINE, pc.field(FAULT).is_valid(), faulty, self.quarantine),
            (TABLE, where, layout, table),
            (REST, None, layout, self.rest),
        )
        return tuple(
            Target.of(
                name,
                takes,
                replace(of_table, partition_by=table.partition_by),
                landing_in(table),
                merge if name == TABLE else None,
            )
            for name, takes, of_table, table in offered
            if table is not None
        )


ONE_TABLE: Final = Sorting()


def publisher_of(table: Any, layout: Layout, name: str) -> Publisher:
    """A format's module is imported when a table has it: deltalake and pyiceberg take long."""
    if table.format == DELTA:
        from penstock.spark.tables.delta import DeltaPublisher

        return DeltaPublisher(table, table_schema(layout), name)
    if table.format == ICEBERG:
        from penstock.spark.tables.iceberg import IcebergPublisher

        return IcebergPublisher(table)
    return ParquetPublisher(table, name)


class OpenBatch(NamedTuple):
    """A batch between its claims and its tables: where drafts go, and what publishes them."""

    parts: tuple[Part, ...]
    publish: Callable[[list[Draft]], tuple[Landed, Counter[str]]]
    """Returns what went into the table, and how many messages elsewhere."""


class Tables(Protocol):
    """The tables of an archive.  ``main`` has a batch when, and only when, all of them have it."""

    @property
    def main(self) -> "Target": ...

    def begun(self) -> "AbstractContextManager[Tables]": ...

    def batch(self, query_id: str, batch: int) -> AbstractContextManager[OpenBatch]: ...


@dataclass(frozen=True)
class Target:
    name: str
    takes: "Expression | None"
    layout: Layout
    landing: Landing
    publisher: Publisher

    @classmethod
    def of(
        cls,
        name: str,
        takes: "Expression | None",
        layout: Layout,
        landing: Landing,
        merge: Merge | None,
    ) -> "Target":
        """Raises OtherTable."""
        table = landing.table
        table.check(table_schema(layout))
        publisher = publisher_of(table, layout, landing.name)
        if merge is not None:
            publisher = merging_publisher(publisher, table, merge, landing.home)
        return cls(name, takes, layout, landing, publisher)

    def begun(self) -> "Target":
        """Its table is made; it must be locked."""
        return replace(self, layout=self.publisher.begin(self.layout))

    @contextmanager
    def part(self, query_id: str, batch: int, queue: str = "") -> Iterator[Part]:
        with self.publisher.drafts_dir(query_id, batch) as place:
            yield Part(self.name, self.takes, self.layout, place, queue)

    def publish(self, query_id: str, batch: int, drafts: list[Draft]) -> int:
        """Its own of them, once; returns how many messages they have."""
        files = [draft for draft in drafts if draft.path and draft.part == self.name]
        if files and self.publisher.landed(query_id, batch) is None:
            self.publisher.publish(query_id, batch, files)
        return sum(draft.messages for draft in files)


@dataclass(frozen=True)
class SortedTables:
    targets: tuple[Target, ...]
    sorting: Mapping[str, str]  # how messages are sorted; {} = there is one table

    @property
    def main(self) -> Target:
        return next(one for one in self.targets if one.name == TABLE)

    @contextmanager
    def begun(self) -> "Iterator[SortedTables]":
        with ExitStack() as stack:
            for target in self.targets:
                stack.enter_context(target.landing.locked(target.publisher))
            _agree(self.main, dict(self.sorting))
            yield replace(self, targets=tuple(one.begun() for one in self.targets))

    @contextmanager
    def batch(self, query_id: str, batch: int) -> Iterator[OpenBatch]:
        with ExitStack() as stack:
            found = tuple(stack.enter_context(one.part(query_id, batch)) for one in self.targets)
            yield OpenBatch(found, partial(self._publish, query_id, batch))

    def _publish(
        self, query_id: str, batch: int, drafts: list[Draft]
    ) -> tuple[Landed, Counter[str]]:
        elsewhere: Counter[str] = Counter(left_out=sum(draft.left_out for draft in drafts))
        for one in self.targets:
            if one.name != TABLE:
                elsewhere[one.name] += one.publish(query_id, batch, drafts)
        of_table = [draft for draft in drafts if not draft.path or draft.part == TABLE]
        return self.main.publisher.publish(query_id, batch, of_table), elsewhere


def _agree(main: Target, sorting: dict[str, str]) -> None:
    note, landing = main.landing.home / SORTING, main.landing
    before: dict[str, str] = json.loads(note.read_text()) if note.exists() else {}
    if before == sorting:
        return
    last = notes.last_planned(landing.checkpoint)
    if (
        before.keys() & {REST, QUARANTINE}  # one table alone lands a batch whole or not at all
        and last is not None
        and main.publisher.landed(notes.query_id(landing.checkpoint), last) is None
    ):
        kept = " ".join(f"--{name} {value}" for name, value in before.items() if name != COLUMNS)
        raise SortedOtherwise(
            f"batch {last} of {landing.table} has not landed, and was planned with {kept}"
        )
    write_synced(note, json.dumps(sorting))
