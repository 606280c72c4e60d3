"""Streams on Spark 4.0 and 4.1, which ask for the newest offset without a place and a limit.

These versions say once where a query is: before they ask anything of a query that goes on, they
plan an empty batch at the newest offset of its checkpoint.  ``LimitedStreamReader`` remembers that
place, and then the end of each batch that it answered.  Spark asks again only when that batch is in
its commit log, so the place is what ``StreamReader.latestOffset`` is asked with by newer ones.

They know no ``Trigger.AvailableNow`` of a source in Python: such a run asks for one offset, so it
reads one batch, which has at most ``maxMessagesPerTrigger`` messages, and must not wait for more.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pyspark_penstock.options import Settings
from pyspark_penstock.stream_source import StreamReader

if TYPE_CHECKING:
    from pyarrow import RecordBatch


class LimitedStreamReader(DataSourceStreamReader):
    """A stream reader whose batches have the limits of the options."""

    def __init__(self, settings: Settings) -> None:
        """Raises ValueError for least sizes of batches."""
        if settings.min_messages_per_trigger or settings.min_bytes_per_trigger:
            raise ValueError(
                "penstock: options 'minMessagesPerTrigger' and 'minBytesPerTrigger' need Spark 4.2"
                " or newer: older ones do not say that a run takes what is there and ends"
            )
        self._reader = StreamReader(settings)
        self._at: dict[str, Any] | None = None  # the end of the last batch

    def initialOffset(self) -> dict[str, Any]:
        return self._reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        start = self._reader.initialOffset() if self._at is None else self._at
        self._at = self._reader.latestOffset(start, self._reader.getDefaultReadLimit())
        return self._at

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if self._at is None:
            self._at = end
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        return self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._reader.commit(end)

    def stop(self) -> None:
        self._reader.stop()
