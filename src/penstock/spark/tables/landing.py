"""The place of one archive in a table: its lock, its drafts, and Spark's notes about it.

A table is a directory of data files.  What an archive has to remember lies beside them::

    _penstock/table.json                 what the table is (``table``)
    _penstock/orders/checkpoint          Spark's notes: what was planned, what is committed
    _penstock/orders/staging             files that are being written
    _penstock/orders/landed              which batches have landed (``publishing``)
    _penstock/orders/lock                held by the one pipeline that may land here
    _penstock/orders/spark.log           what Spark has to say

Readers of tables skip names that begin with an underscore.  An Iceberg table, and one in an object
store, have these on this machine (``iceberg``, ``store``).

Spark calls with a batch, and calls again with the same batch when it is not sure the first
call succeeded.  The range of messages of batch n is fixed by Spark's note of n and the queue's
sequence ids, so a second attempt would write the same rows; that a batch lands once is the
matter of ``publishing``, ``delta`` and ``iceberg``.  Only when it has landed does Spark write its
commit log, and only after that does the source acknowledge the messages.

Spark does not sync its notes.  After a power cut its last commit may be missing although the
batch has landed and its messages are gone (``landed_below`` tells the source that this is
no loss), and its last note of either kind may be half written (``notes.mend``).
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.spark.state import notes
from penstock.spark.state.places import alone, file_name_of
from penstock.spark.tables.publishing import Landed

if TYPE_CHECKING:
    import pyarrow as pa

    from pyspark_penstock.table_files import Draft, Layout


class LakeTable(Protocol):
    """A table of one of the formats; its text names it to people."""

    @property
    def name(self) -> str: ...

    @property
    def format(self) -> str: ...

    @property
    def partition_by(self) -> tuple[str, ...]: ...

    @property
    def home(self) -> Path: ...

    def check(self, schema: "pa.Schema") -> None: ...

    def files(self) -> list[str]: ...


class Publisher(Protocol):
    """Makes drafts part of a table; see ``publishing``, ``delta`` and ``iceberg``.

    ``begin`` makes the table and returns how its files are written; ``drafts_dir`` is a place for
    the drafts of one call.
    """

    def recover(self) -> None: ...

    def begin(self, layout: "Layout") -> "Layout": ...

    def landed(self, query_id: str, batch: int) -> Landed | None: ...

    def drafts_dir(self, query_id: str, batch: int) -> AbstractContextManager[str]: ...

    def publish(self, query_id: str, batch: int, drafts: "list[Draft]") -> Landed: ...


class Landing:
    """The place where one archive's batches land; ``subject`` names what it reads."""

    def __init__(self, table: LakeTable, vhost: str, subject: str, checkpoint: Path | None) -> None:
        self.table = table
        self.name = file_name_of(vhost, subject)
        self.home = table.home / self.name
        self.checkpoint = checkpoint or self.home / "checkpoint"

    @contextmanager
    def locked(self, publisher: Publisher) -> Iterator[None]:
        refusal = f"another pipeline is landing this queue in {self.table}"
        with alone(self.home / "lock", refusal):
            publisher.recover()  # which sweeps what an earlier run was writing when it died
            notes.mend(self.checkpoint)
            yield

    def landed_below(self, publisher: Publisher) -> dict[str, int]:
        """Per queue: every message below is in the table, as far as the last batch tells."""
        last = notes.last_planned(self.checkpoint)
        if last is None or publisher.landed(notes.query_id(self.checkpoint), last) is None:
            return {}
        return notes.planned_ends(self.checkpoint, last)

    def landed_places(self, publisher: Publisher) -> dict[str, tuple[str, int]]:
        last = notes.last_planned(self.checkpoint)
        for batch in () if last is None else (last, last - 1):
            query_id = notes.query_id(self.checkpoint)
            if batch >= 0 and publisher.landed(query_id, batch) is not None:
                return notes.planned_places(self.checkpoint, batch)
        return {}
