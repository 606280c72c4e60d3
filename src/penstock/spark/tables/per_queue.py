"""A table for each queue: ``--to lake/{queue}``, for queues that are named or found by a pattern.

One query reads them all; each batch goes into the tables of the queues that it has messages of, and
then a *ledger* notes that it has landed: the notes of ``publishing``, without files.  A crash in
between is found by each table's own note of the batch, as where messages are sorted (``parts``)::

    lake/_penstock/<pipeline>/checkpoint, lock, landed, spark.log     the pipeline and the ledger
    lake/orders.eu/…                                                  a table as any other

Each table is locked, recovered and made anew for each batch: there may be a thousand.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.core.errors import PenstockError
from penstock.spark.state import notes
from penstock.spark.tables.landing import LakeTable, Landing
from penstock.spark.tables.parts import TABLE, OpenBatch, Target
from penstock.spark.tables.publishing import Landed, ParquetPublisher
from penstock.spark.tables.table import Table
from pyspark_penstock.table_files import Draft, Layout

if TYPE_CHECKING:
    import pyarrow as pa

QUEUE: Final = "{queue}"


class OneTableForTwo(PenstockError):
    """Names of queues that differ in letters which a name of a table cannot have."""

    fix = "archive one of them by a pipeline of its own"


@dataclass(frozen=True)
class TablePerQueue:
    """What the tables have in common; ``of`` is that of one queue, ``root`` has the ledger."""

    text: str
    root: Path
    format: str
    partition_by: tuple[str, ...]
    of: Callable[[str], LakeTable]

    def __str__(self) -> str:
        return self.text

    @property
    def name(self) -> str:
        return self.text

    @property
    def home(self) -> Path:
        return Table(self.root).home

    def check(self, schema: "pa.Schema") -> None:
        """Each table is when a batch has messages for it."""

    def files(self) -> list[str]:
        return []


class QueueTables:
    """The ledger, and for each batch the tables of its queues."""

    def __init__(
        self,
        family: TablePerQueue,
        layout: Layout,
        landing: Landing,
        landing_in: Callable[[LakeTable], Landing],
    ) -> None:
        ledger = ParquetPublisher(Table(family.root), landing.name)
        self.main = Target(TABLE, None, layout, landing, ledger)
        self._family = family
        self._landing_in = landing_in

    @contextmanager
    def begun(self) -> "Iterator[QueueTables]":
        with self.main.landing.locked(self.main.publisher):
            yield self

    @contextmanager
    def batch(self, query_id: str, batch: int) -> Iterator[OpenBatch]:
        with ExitStack() as stack:
            tables = {queue: self._family.of(queue) for queue in self._moved(batch)}
            _check_names(tables)
            targets = {queue: self._begun(queue, tables[queue], stack) for queue in tables}
            parts = tuple(
                stack.enter_context(one.part(query_id, batch, queue))
                for queue, one in targets.items()
            )
            yield OpenBatch(parts, partial(self._publish, [*targets.values()], query_id, batch))

    def _begun(self, queue: str, table: LakeTable, stack: ExitStack) -> Target:
        """Raises OtherTable, ResourceLocked."""
        layout = replace(self.main.layout, partition_by=table.partition_by)
        target = Target.of(queue, None, layout, self._landing_in(table), None)
        stack.enter_context(target.landing.locked(target.publisher))
        return target.begun()

    def _moved(self, batch: int) -> list[str]:
        checkpoint = self.main.landing.checkpoint
        ends = notes.planned_places(checkpoint, batch)
        before = notes.planned_places(checkpoint, batch - 1)
        return [queue for queue, end in ends.items() if before.get(queue) != end]

    def _publish(
        self, targets: list[Target], query_id: str, batch: int, drafts: list[Draft]
    ) -> tuple[Landed, Counter[str]]:
        for one in targets:
            one.publish(query_id, batch, drafts)
        counted = [draft._replace(path="") for draft in drafts]
        landed = self.main.publisher.publish(query_id, batch, counted)
        return landed._replace(files=sum(1 for draft in drafts if draft.path)), Counter()


def _check_names(tables: dict[str, LakeTable]) -> None:
    found: dict[str, str] = {}
    for queue, table in tables.items():
        other = found.setdefault(str(table), queue)
        if other != queue:
            raise OneTableForTwo(f"queues '{other}' and '{queue}' would both be in {table}")
