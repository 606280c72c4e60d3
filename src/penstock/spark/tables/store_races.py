"""Does an object store refuse to write an object whose name is taken?  Delta's log rests on it.

Of two writers that add the same entry to a log one must fail and take the next number; else the
later one overwrites what the earlier one has landed.  The store is asked by ``If-None-Match: *``,
and one that does not know this header passes over it.  So it is tried, once for each table and
machine: several writers add an entry to an empty table at once, and all entries must be there.
"""

import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier
from typing import TYPE_CHECKING, Final

from penstock.core.errors import PenstockError
from penstock.spark.tables.table import Table
from pyspark_penstock.durable import write_synced
from pyspark_penstock.store_file import path_in, system_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

WRITERS: Final = 4
TRIED: Final = "refuses-taken-names"


class UnsafeStore(PenstockError):
    fix = (
        "land in --format parquet, or in a store that refuses a PUT with If-None-Match: * of a"
        " name that is taken"
    )


def check_refusals(table: Table) -> None:
    """Of a Delta table in a store; raises UnsafeStore."""
    tried = table.home / TRIED
    if tried.exists():
        return
    place = f"{table.uri}/_penstock/tried/{uuid.uuid4().hex}"
    try:
        found = _entries_of_a_race(place)
    finally:
        with suppress(OSError):
            system_of(place).delete_dir(path_in(place))
    if found < WRITERS:
        raise UnsafeStore(
            f"the store of {table.uri} lets writers overwrite each other's entries of a Delta log:"
            f" of {WRITERS} that were written at once {found} were there"
        )
    table.home.mkdir(parents=True, exist_ok=True)
    write_synced(tried, "")


def _entries_of_a_race(place: str) -> int:
    import pyarrow as pa
    from deltalake import DeltaTable, Schema

    DeltaTable.create(place, Schema.from_arrow(pa.schema([("n", pa.int64())])))
    writers = [DeltaTable(place) for _ in range(WRITERS)]
    together = Barrier(WRITERS)

    def write(table: "DeltaTable") -> None:
        together.wait()
        table.create_write_transaction([], "append", table.schema(), [])

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, writers))
    return DeltaTable(place).version()
