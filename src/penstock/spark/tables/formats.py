"""The formats of tables, and what lands batches in each.

A format's module is imported when a table has it: ``deltalake`` and ``pyiceberg`` take long.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.spark.tables.landing import LakeTable, Publisher
from penstock.spark.tables.publishing import ParquetPublisher
from penstock.spark.tables.table import DELTA, ICEBERG, PARQUET
from pyspark_penstock.table_files import Layout, table_schema


def _parquet(table: Any, _layout: Layout, name: str) -> Publisher:
    return ParquetPublisher(table, name)


def _delta(table: Any, layout: Layout, name: str) -> Publisher:
    from penstock.spark.tables.delta import DeltaPublisher

    return DeltaPublisher(table, table_schema(layout), name)


def _iceberg(table: Any, _layout: Layout, _name: str) -> Publisher:
    from penstock.spark.tables.iceberg import IcebergPublisher

    return IcebergPublisher(table)


PUBLISHERS: Final[Mapping[str, Callable[[Any, Layout, str], Publisher]]] = {
    PARQUET: _parquet,
    DELTA: _delta,
    ICEBERG: _iceberg,
}
"""By ``table.format``; the table is one of that format's kind."""


def publisher_of(table: LakeTable, layout: Layout, name: str) -> Publisher:
    return PUBLISHERS[table.format](table, layout, name)
