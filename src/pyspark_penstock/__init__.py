"""The Spark data source ``penstock``: a queue as a DataFrame, batch or stream.

Spark finds it by itself: it imports every top-level module named ``pyspark_*`` and registers
its ``DefaultSource``.  That happens in sessions that have nothing to do with Penstock, so this
file imports little and never fails.  The package needs pyspark, pyarrow, the standard library,
and of Penstock only ``penstock_ranges``, so that a cluster gets both as one small archive::

    options     what the user may say, checked before anything runs
    client      the range protocol of the broker, blocking, over one socket
    properties  AMQP content header and field tables, read only
    columns     blocks of messages become Arrow record batches
    planner     one queue of a query: its lease, and what helps against refusals
    source      the batch reader that Spark calls
    stream_source the stream reader; older_spark and read_limits are for Spark 4.0 and 4.1
    claims      a stream whose rows are leave to read ranges, for workers that read themselves
    table_files such workers' part of writing a table
    sorting     which messages go into which files
    body_columns, avro_bodies
                columns of bodies and of headers, for such a table
    buffered_file its files, written behind it out of two buffers: direct_file into a directory
                past the page cache, store_file into an object store
    durable     files and their names on the disk, before anything is acknowledged
    behind      work in a thread behind its caller
    sink_options, sink_encoding, staging_client, sink
                the same for writing
    raw_properties  property bytes sent again as published, with other headers

Usage: ``spark.read.format("penstock").option("queue", "orders").load()``.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from pyspark_penstock.options import Settings

__all__ = ["DefaultSource", "is_spark"]


class DefaultSource(DataSource):
    """What ``format("penstock")`` means."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> "StructType":
        from pyspark_penstock.claims import claim_schema
        from pyspark_penstock.columns import spark_schema

        settings = self._reading()
        return (
            claim_schema() if settings.claims else spark_schema(settings.columns, settings.headers)
        )

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from pyspark_penstock.source import BatchReader

        settings = self._reading()
        settings.check_for_batch()
        self._check_schema(schema)
        return BatchReader(settings)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from pyspark_penstock.older_spark import LimitedStreamReader
        from pyspark_penstock.stream_source import StreamReader

        settings = self._reading()
        settings.check_for_stream()
        self._check_schema(schema)
        return StreamReader(settings) if is_spark(4, 2) else LimitedStreamReader(settings)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        _needs_arrow_writers()
        from pyspark_penstock.sink import BatchWriter
        from pyspark_penstock.sink_options import parse_sink_options

        if overwrite:
            raise ValueError(
                "penstock: mode('overwrite') cannot be: messages are added; use mode('append')"
            )
        return BatchWriter(parse_sink_options(self._given), schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        _needs_arrow_writers()
        from pyspark_penstock.sink import StreamWriter
        from pyspark_penstock.sink_options import parse_sink_options

        if overwrite:
            raise ValueError(
                "penstock: outputMode('complete') cannot be: messages are added, and none is taken"
                " back; use outputMode('append') (of an aggregate: with a watermark), or"
                " foreachBatch and option txnId"
            )
        settings = parse_sink_options(self._given)
        settings.check_for_stream()
        return StreamWriter(settings, schema)

    def _reading(self) -> "Settings":
        from pyspark_penstock.options import parse_options

        if any(name.lower().startswith("option.") for name in self._given):  # only of a table
            raise ValueError(
                "penstock: a queue cannot be a table of SQL: Spark gives this source no option of a"
                " table when it is read; use CREATE TEMPORARY VIEW ... USING penstock OPTIONS (...)"
            )
        return parse_options(self._given)

    def _check_schema(self, schema: "StructType") -> None:
        if schema != self.schema():
            raise ValueError(
                "penstock: the schema is fixed, do not give one; choose with option 'columns' "
                f"among {', '.join(self.schema().names)}"
            )


def is_spark(major: int, minor: int) -> bool:
    """That version, or a newer one."""
    from pyspark import __version__ as there

    return tuple(map(int, there.split(".")[:2])) >= (major, minor)


def _needs_arrow_writers() -> None:
    """Older versions would end in an ImportError of theirs."""
    if not is_spark(4, 1):
        from pyspark import __version__ as there

        raise RuntimeError(
            "penstock: messages are written with Spark 4.1 or newer (writers get no Arrow batches"
            f" before), and this is {there}; pip install 'pyspark>=4.2,<5'"
        )
