"""The batch reader Spark calls, and how a range of a queue is read.

Who runs what (Spark decides it): ``partitions`` and everything about offsets runs in one
planner process, ``read`` in executor processes that got a pickled copy.  So a reader holds
plain settings; the planner's connections are made when first needed and never travel.
``stream_source`` has the reader of streams.

**What counts as lost data** (``failOnDataLoss``): the queue is another incarnation; the
position lies beyond the queue's head (the broker was restored from older data); or another
reader has acknowledged messages this one has not read (``processedBelow`` says up to where it
was this one, when its checkpoint fell behind what it had done).  Not lost, only counted, are
numbers that are simply missing: expired, purged, consumed before this reader came, or never
given to anybody because the broker was killed.  Not even counted is what a queue skips when another
node becomes its master (``claims.TERM_SHIFT``).  Of a stream it is lost data when retention has
taken what is to be read.

**Fencing.**  The planner holds the queues' leases; their tokens travel with the partitions.  A
newer reader of the same queue makes one invalid, and the older query fails loudly.  A stream has no
leases and no tokens: its offsets mean the same to all readers.
"""

import itertools
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock_ranges.ranges import BROWSE, JOIN, Head
from pyspark_penstock.claims import TERM_SHIFT
from pyspark_penstock.client import ConnectionLost, Gone, RangeClient, Refused
from pyspark_penstock.options import Position, Settings
from pyspark_penstock.planner import Patience, patiently, resolved, subscribe

if TYPE_CHECKING:
    from pyarrow import RecordBatch
    from pyspark.sql.datasource import Filter

UNLIMITED = (1 << 62) - 1
GO_ON = "Start with a new checkpoint, or go on with what is there by option failOnDataLoss=false"

log = logging.getLogger("pyspark_penstock")


class DataLoss(Exception):
    """Messages this reader should have read cannot be read any more."""


class Place(NamedTuple):
    incarnation: str
    seq: int
    holes: int = 0


class RangePartition(InputPartition):
    """Messages ``start <= seq_id < end`` of one incarnation of a queue."""

    def __init__(self, queue: str, incarnation: str, start: int, end: int, token: int) -> None:
        super().__init__((queue, incarnation, start, end, token))
        self.queue = queue
        self.incarnation = incarnation
        self.start = start
        self.end = end
        self.token = token  # 0 = look only


def stretches(start: int, end: int, most: int) -> list[tuple[int, int]]:
    """Where in a range messages may be, as (from, width): one of each master, as these number.

    Where a former master's numbers ended is not known here; ``most``, about as many messages as
    there are in all of the range, stands for it.
    """
    found = []
    while start < end:
        following = ((start >> TERM_SHIFT) + 1) << TERM_SHIFT
        width = min(following, end) - start
        found.append((start, min(width, max(most, 1)) if following <= end else width))
        start = following
    return found


def width_of(whole: RangePartition, most: int) -> int:
    return sum(width for _, width in stretches(whole.start, whole.end, most))


def cut(whole: RangePartition, pieces: int, most: int = UNLIMITED) -> list[RangePartition]:
    """The range in at most so many pieces of equal width, none empty; ``most``: see stretches."""
    width = width_of(whole, most)
    pieces = min(pieces, width)
    if not pieces:
        return []
    places = iter([width * piece // pieces for piece in range(1, pieces)])
    place, before = next(places, width), 0
    edges = [whole.start]
    for start, wide in stretches(whole.start, whole.end, most):
        while place < before + wide:
            edges.append(start + place - before)
            place = next(places, width)
        before += wide
    return [
        RangePartition(whole.queue, whole.incarnation, a, b, whole.token)
        for a, b in itertools.pairwise([*edges, whole.end])
    ]


def cut_all(ranges: list[RangePartition], pieces: int, most: int) -> list[InputPartition]:
    """At least so many pieces of all, each queue by its width and at least one."""
    widths = [width_of(whole, most) for whole in ranges]
    total = max(sum(widths), 1)
    found: list[InputPartition] = []
    for whole, width in zip(ranges, widths, strict=True):
        found += cut(whole, max(-(-pieces * width // total), 1), most)
    return found


def read_range(settings: Settings, partition: RangePartition) -> "Iterator[RecordBatch]":
    """All messages of the range; a broken line is mended behind the last message passed on."""
    from pyspark_penstock.columns import BatchBuilder

    queue = partition.queue
    builder = BatchBuilder(queue, settings.columns, partition.incarnation, settings.headers)
    mode = JOIN if partition.token else BROWSE
    with_body = "body" in settings.columns
    at, end = partition.start, partition.end
    gone = False
    patience = Patience(settings)
    while at < end:
        try:
            with RangeClient(settings.endpoint, queue, mode, partition.token) as reader:
                if reader.opened.incarnation != partition.incarnation:
                    raise DataLoss(
                        f"queue '{queue}' was deleted and declared again while it was read"
                    )
                if gone:
                    head = reader.opened.head
                    at, end, gone = max(at, head.floor), min(end, head.next_seq), False
                for block in reader.blocks(at, end, settings.fetch_bytes, with_body=with_body):
                    if block.count:
                        yield builder.batch(block)
                    at = block.next_start
                    patience.renew()
        except Gone as error:
            if settings.fail_on_data_loss:
                raise DataLoss(f"{error}.  {GO_ON}") from error
            log.warning("%s; going on with what is there", error)
            gone = True
        except (ConnectionLost, Refused) as error:
            patience.use(error)


class Narrowing:
    """The part of the queues that conditions of a query leave, by queue and by ``seq_id``.

    Spark checks every row again, so a condition that is not known here costs reading, no more.
    Times narrow nothing: a clock may have gone back, and a search by time would pass over rows.
    """

    # Spark refuses a source that has pushFilters while its setting is off; it looks at this.
    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", iter))

    def __init__(self) -> None:
        self.queues: frozenset[str] | None = None  # None = all
        self.low, self.high = 0, UNLIMITED

    def __call__(self, filters: "list[Filter]") -> "Iterator[Filter]":
        for one in filters:
            self._narrow(type(one).__name__, getattr(one, "attribute", ()), one)
            yield one

    def has(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def _narrow(self, kind: str, column: tuple[str, ...], one: Any) -> None:
        values = tuple(one.value) if kind == "In" else (getattr(one, "value", None),)
        if column == ("queue",) and kind in ("EqualTo", "In"):
            named = frozenset(values)
            self.queues = named if self.queues is None else self.queues & named
        if column != ("seq_id",) or not all(isinstance(value, int) for value in values):
            return
        if kind in ("EqualTo", "In", "GreaterThan", "GreaterThanOrEqual"):
            self.low = max(self.low, min(values) + (kind == "GreaterThan"))
        if kind in ("EqualTo", "In", "LessThan", "LessThanOrEqual"):
            self.high = min(self.high, max(values) + (kind != "LessThan"))


class BatchReader(DataSourceReader):
    """Looks at queues and leaves them as they are: nothing is acknowledged, no lease is taken."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ready = 0  # messages in the longest of the queues
        self._wanted = Narrowing()
        self.pushFilters = self._wanted  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        """Called at every planning of the same DataFrame, so it only asks for the bounds."""
        queues = subscribe(self._settings, make=False)
        check_positions(self._settings, queues)
        self._ready = 0
        wanted = filter(self._wanted.has, queues)
        ranges = [patiently(self._settings, partial(self._bounds, queue)) for queue in wanted]
        return cut_all(ranges, self._settings.min_partitions, self._ready)

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        if not isinstance(partition, RangePartition):
            return iter(())  # Spark's stand-in for "no partitions"
        return read_range(self._settings, partition)

    def _bounds(self, queue: str) -> RangePartition:
        settings = self._settings
        with RangeClient(settings.endpoint, queue, BROWSE) as looker:
            incarnation, head, _ = looker.opened
            start = _bound(looker, queue, settings.starting, head.floor)
            end = _bound(looker, queue, settings.ending, head.next_seq)
        self._check(queue, start, end, head)
        self._ready = max(self._ready, head.ready)
        start = max(start, self._wanted.low)
        end = max(min(end, self._wanted.high), start)
        return RangePartition(queue, incarnation, start, end, 0)

    def _check(self, queue: str, start: int, end: int, head: Head) -> None:
        if not self._settings.fail_on_data_loss:
            return
        bounds = f"queue '{queue}' holds {head.floor} to {head.next_seq - 1} now"
        if start < head.floor or start > head.next_seq:
            raise DataLoss(f"startingOffsets {start} is outside the queue: {bounds}")
        if end > head.next_seq:
            raise DataLoss(f"endingOffsets {end} is beyond the queue: {bounds}")


def _bound(line: RangeClient, queue: str, position: Position, natural: int) -> int:
    if position.timestamp_ms is not None:
        return resolved(line, position, line.opened.head)
    return position.seq_ids.get(queue, natural)


def check_positions(settings: Settings, queues: list[str]) -> None:
    """Names in positions, where only the broker knows what is read."""
    given = (settings.starting.seq_ids, settings.ending.seq_ids, settings.processed_below)
    for queue in () if settings.subscription.is_pattern else itertools.chain(*given):
        if queue not in queues:
            raise ValueError(
                f"penstock: an option gives a position in queue '{queue}', but "
                f"{settings.subscription} is read, which is {' and '.join(queues)}"
            )
