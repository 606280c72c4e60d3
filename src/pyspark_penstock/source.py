"""The readers Spark calls: positions in a queue, and the promise to lose and repeat nothing.

Who runs what (Spark decides it): ``partitions`` and everything about offsets runs in one
planner process, ``read`` in executor processes that got a pickled copy.  So a reader holds
plain settings; the planner's connection is made when first needed and never travels.

An offset names the queue's *incarnation* beside the position, because the numbers start anew
when a queue is deleted and declared again::

    {"v": 1, "q": {"orders": {"inc": "9f3c…", "seq": 123456}}}

**When messages are acknowledged.**  Spark calls ``commit(end)`` for a batch only when the next
batch has been planned, so never for the last one; but it asks ``latestOffset(start)`` only
when everything below ``start`` is in its commit log.  Both acknowledge; doing so twice is
harmless.  Until batch 0 is committed nothing is acknowledged, so ``initialOffset``, which
Spark does not store, is the same after a crash: the lowest message of the queue.

**What counts as lost data** (``failOnDataLoss``): the queue is another incarnation; the
position lies beyond the queue's head (the broker was restored from older data); or another
reader has acknowledged messages this one has not read (``processedBelow`` says up to where it
was this one, when its checkpoint fell behind what it had done).  Not lost, only counted in the log,
are numbers that are simply missing: expired, purged, consumed before this reader came, or
never given to anybody because the broker was killed.

**Fencing.**  The planner holds the queue's lease; its token travels with the partitions.  A
newer reader of the same queue makes it invalid, and the older query fails loudly.
"""

import itertools
import logging
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_penstock import client
from pyspark_penstock.claims import (
    SAMPLE_BYTES,
    SAMPLE_MESSAGES,
    Claim,
    claim_batch,
    estimated_end,
    pieces_of,
)
from pyspark_penstock.client import ConnectionLost, Head, Planned, RangeClient, Refused
from pyspark_penstock.options import Settings

if TYPE_CHECKING:
    from pyarrow import RecordBatch

LOCK_PATIENCE_S = 15.0
"""A killed pipeline's connections take a moment to be noticed as gone."""
RETRY_PAUSE_S = 0.2
UNLIMITED = (1 << 63) - 1

T = TypeVar("T")
log = logging.getLogger("pyspark_penstock")


class DataLoss(Exception):
    """Messages this reader should have read cannot be read any more."""


class RangePartition(InputPartition):
    """Messages ``start <= seq_id < end`` of one incarnation of the queue."""

    def __init__(self, incarnation: str, start: int, end: int, token: int) -> None:
        super().__init__((incarnation, start, end, token))
        self.incarnation = incarnation
        self.start = start
        self.end = end
        self.token = token  # 0 = look only


def cut(incarnation: str, start: int, end: int, pieces: int, token: int) -> list[RangePartition]:
    """The range in at most so many pieces of equal width, none empty."""
    width = max(end - start, 0)
    pieces = min(pieces, width)
    edges = [start + width * place // pieces for place in range(pieces + 1)] if pieces else []
    return [RangePartition(incarnation, a, b, token) for a, b in itertools.pairwise(edges)]


def read_range(settings: Settings, partition: RangePartition) -> "Iterator[RecordBatch]":
    """All messages of the range; a broken line is mended behind the last message passed on."""
    from pyspark_penstock.columns import BatchBuilder

    builder = BatchBuilder(settings.queue, settings.columns)
    mode = client.JOIN if partition.token else client.BROWSE
    with_body = "body" in settings.columns
    at = partition.start
    patience = _Patience(settings)
    while at < partition.end:
        try:
            with RangeClient(settings.endpoint, settings.queue, mode, partition.token) as reader:
                if reader.opened.incarnation != partition.incarnation:
                    raise DataLoss(
                        f"queue '{settings.queue}' was deleted and declared again while it was read"
                    )
                for block in reader.blocks(
                    at, partition.end, settings.fetch_bytes, with_body=with_body
                ):
                    if block.count:
                        yield builder.batch(block)
                    at = block.next_start
                    patience.renew()
        except ConnectionLost as error:
            patience.use(error)


class BatchReader(DataSourceReader):
    """Looks at the queue and leaves it as it is: nothing is acknowledged, no lease is taken."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def partitions(self) -> list[InputPartition]:
        """Called at every planning of the same DataFrame, so it only asks for the bounds."""
        settings = self._settings
        with RangeClient(settings.endpoint, settings.queue, client.BROWSE) as looker:
            incarnation, head, _ = looker.opened
        start = head.floor if settings.starting is None else settings.starting
        end = head.next_seq if settings.ending is None else settings.ending
        self._check(start, end, head)
        return [*cut(incarnation, start, end, settings.min_partitions, 0)]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in for "no partitions"
        return read_range(self._settings, partition)

    def _check(self, start: int, end: int, head: Head) -> None:
        if not self._settings.fail_on_data_loss:
            return
        bounds = f"it holds {head.floor} to {head.next_seq - 1} now"
        if start < head.floor or start > head.next_seq:
            raise DataLoss(f"startingOffsets {start} is outside the queue: {bounds}")
        if end > head.next_seq:
            raise DataLoss(f"endingOffsets {end} is beyond the queue: {bounds}")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the queue to its end and acknowledges what Spark has committed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._planner = Planner(settings)
        self._stop_at: int | None = None  # set by AvailableNow

    # -- offsets ---------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        head = self._planner.head()
        return self._offset(self._planner.incarnation, head.floor)

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._settings.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._stop_at = self._planner.head().next_seq

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        head = self._planner.head()
        position = self._position(start, head)
        if position > head.floor:
            self._planner.ack(position)
        stop_at = head.next_seq if self._stop_at is None else self._stop_at
        end = self._plan(position, stop_at, limit)
        if end == position and self._stop_at is None:
            # Nothing there: a long look here spares Spark eighty short ones a second.
            head = self._planner.head(head.next_seq, self._settings.poll_timeout_ms)
            end = self._plan(position, head.next_seq, limit)
        return start if end == position else self._offset(self._planner.incarnation, end)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        head = self._planner.last_head
        return None if head is None else self._offset(self._planner.incarnation, head.next_seq)

    # -- reading ---------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        head = self._planner.head()
        incarnation, stop = self._parsed(end)
        if incarnation != self._planner.incarnation or stop > head.next_seq:
            self._lost(f"a planned batch ends at {stop} of an earlier life of the queue")
            return []
        position = self._position(start, head)
        pieces = self._settings.min_partitions
        if self._settings.claims:
            pieces = pieces_of(stop - position, pieces)
        return [*cut(incarnation, position, stop, pieces, self._planner.token)]

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        assert isinstance(partition, RangePartition)
        if self._settings.claims:
            return iter([claim_batch(Claim(self._settings.queue, *partition.value))])
        return read_range(self._settings, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Must not fail: the batch *is* committed.  The next ``latestOffset`` acks again."""
        try:
            incarnation, position = self._parsed(end)
            if incarnation == self._planner.incarnation:
                self._planner.ack(position)
        except (ConnectionLost, Refused, DataLoss) as error:
            log.warning("acknowledging up to %s is put off: %s", end, error)

    def stop(self) -> None:
        """Called when the JVM dies.  A query that is stopped kills this process instead: see
        ``client.give_back``, without which the lease runs out by itself.
        """
        self._planner.close()

    # -- positions -------------------------------------------------------------------------

    def _offset(self, incarnation: str, seq: int) -> dict[str, Any]:
        return {"v": 1, "q": {self._settings.queue: {"inc": incarnation, "seq": seq}}}

    def _parsed(self, offset: dict[str, Any]) -> tuple[str, int]:
        place = offset.get("q", {}).get(self._settings.queue)
        if offset.get("v") != 1 or place is None:
            raise ValueError(
                f"the checkpoint holds {offset}, which is no position in queue "
                f"'{self._settings.queue}'; was it written for another queue?"
            )
        return place["inc"], place["seq"]

    def _position(self, offset: dict[str, Any], head: Head) -> int:
        """Where reading goes on; raises DataLoss when that is not where it should."""
        incarnation, seq = self._parsed(offset)
        if incarnation != self._planner.incarnation:
            self._lost("it was deleted and declared again since the checkpoint was written")
        elif seq > head.next_seq:
            self._lost(f"the checkpoint is at {seq}, the queue only reaches {head.next_seq}")
        elif seq < head.acked and head.acked > self._settings.processed_below:
            self._lost(f"another reader has acknowledged {seq} to {head.acked - 1}")
        else:
            if seq < head.floor:
                log.info(
                    "queue '%s' has nothing from %d to %d (expired, purged, consumed or "
                    "never filled)",
                    self._settings.queue,
                    seq,
                    head.floor - 1,
                )
            return seq
        return head.floor

    def _lost(self, what: str) -> None:
        text = f"queue '{self._settings.queue}' has lost data for this query: {what}"
        if self._settings.fail_on_data_loss:
            raise DataLoss(
                f"{text}.  Start with a new checkpoint, or go on with what is there by "
                "option failOnDataLoss=false"
            )
        log.warning("%s; going on with what is there", text)

    def _plan(self, position: int, stop_at: int, limit: ReadLimit) -> int:
        settings = self._settings
        if position >= stop_at:
            return position
        if isinstance(limit, ReadMaxRows) and settings.claims:
            look = self._planner.look(position, stop_at, limit.max_rows)
            return estimated_end(look, stop_at, limit.max_rows, settings.max_bytes_per_trigger)
        if isinstance(limit, ReadMaxRows):
            return self._planner.plan(
                position, stop_at, limit.max_rows, settings.max_bytes_per_trigger
            )
        if isinstance(limit, ReadAllAvailable):
            return self._planner.plan(position, stop_at, UNLIMITED, UNLIMITED)
        raise ValueError(f"Spark asked for {limit}, which this source does not offer")


class Planner:
    """The planner's connection: holds the lease, comes back after a broken line."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: RangeClient | None = None
        self.token = 0
        self.incarnation = ""
        self.last_head: Head | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    def head(self, start: int = 0, timeout_ms: int = 0) -> Head:
        self.last_head = self._call(lambda c: c.wait(start, timeout_ms))
        return self.last_head

    def plan(self, start: int, end: int, max_messages: int, max_bytes: int) -> int:
        return self._call(lambda c: c.plan(start, end, max_messages, max_bytes)).end

    def look(self, start: int, end: int, max_messages: int) -> Planned:
        """At the first messages only."""
        sample = min(max_messages, SAMPLE_MESSAGES)
        return self._call(lambda c: c.plan(start, end, sample, SAMPLE_BYTES))

    def ack(self, upto: int) -> int:
        return self._call(lambda c: c.ack(upto))

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _call(self, request: Callable[[RangeClient], T]) -> T:
        """All requests may be repeated, so a broken line only costs time."""
        patience = _Patience(self._settings)
        while True:
            try:
                return request(self._connected())
            except ConnectionLost as error:
                self._drop()
                patience.use(error)
            except Refused as error:
                self._drop()
                if error.code == client.LEASE_GONE:
                    self.token = 0
                elif error.code == client.LOCKED:
                    patience.use_for_lock(error)
                else:
                    raise

    def _connected(self) -> RangeClient:
        if self._client is None:
            settings = self._settings
            # Force only the first time: whoever was forced out must not force its way back.
            force = settings.take_over and self.incarnation == ""
            self._client = RangeClient(
                settings.endpoint, settings.queue, client.READ, self.token, force=force
            )
            self.incarnation = self._client.opened.incarnation
            self.token = self._client.opened.token
        return self._client

    def _drop(self) -> None:
        if self._client is not None:
            self._client.abandon()
            self._client = None


class _Patience:
    """How long to try again before giving up; success ends the count."""

    def __init__(self, settings: Settings) -> None:
        self._limit_s = settings.reconnect_timeout_ms / 1000
        self._failing_since_s: float | None = None

    def renew(self) -> None:
        self._failing_since_s = None

    def use(self, error: Exception) -> None:
        """Wait a little, or raise the error when it has lasted too long."""
        self._use(error, self._limit_s)

    def use_for_lock(self, error: Exception) -> None:
        self._use(error, LOCK_PATIENCE_S)

    def _use(self, error: Exception, limit_s: float) -> None:
        now_s = time.monotonic()
        if self._failing_since_s is None:
            self._failing_since_s = now_s
        if now_s - self._failing_since_s >= limit_s:
            raise error
        time.sleep(RETRY_PAUSE_S)
