"""The readers Spark calls: positions in queues, and the promise to lose and repeat nothing.

Who runs what (Spark decides it): ``partitions`` and everything about offsets runs in one
planner process, ``read`` in executor processes that got a pickled copy.  So a reader holds
plain settings; the planner's connections are made when first needed and never travel.

An offset names each queue's *incarnation* beside the position, because the numbers start anew
when a queue is deleted and declared again; ``holes`` counts the numbers up to there that had no
message when they were planned::

    {"v": 1, "q": {"orders": {"inc": "9f3c…", "seq": 123456, "holes": 0}}}

A queue the offset does not name was added to the subscription since: it begins as a new one does.

**When messages are acknowledged.**  Spark calls ``commit(end)`` for a batch only when the next
batch has been planned, so never for the last one; but it asks ``latestOffset(start)`` only
when everything below ``start`` is in its commit log.  Both acknowledge; doing so twice is
harmless.

**Where a stream begins** is asked by ``initialOffset``, whose answer Spark does not store, so it
must be the same after a crash.  ``earliest`` is: until batch 0 is committed nothing is
acknowledged.  Other positions are kept by the broker (``Planner.first_position``), which also
leaves what they skip where it is until something beyond is acknowledged.

**What counts as lost data** (``failOnDataLoss``): the queue is another incarnation; the
position lies beyond the queue's head (the broker was restored from older data); or another
reader has acknowledged messages this one has not read (``processedBelow`` says up to where it
was this one, when its checkpoint fell behind what it had done).  Not lost, only counted, are
numbers that are simply missing: expired, purged, consumed before this reader came, or never
given to anybody because the broker was killed.  Not even counted is what a queue skips when another
node becomes its master (``claims.TERM_SHIFT``).  Of a stream it is lost data when retention has
taken what is to be read.

**Limits** of a batch are shared by the queues: each gets an equal part, and what one does not use
is dealt out again.

**Fencing.**  The planner holds the queues' leases; their tokens travel with the partitions.  A
newer reader of the same queue makes one invalid, and the older query fails loudly.  A stream has no
leases and no tokens: its offsets mean the same to all readers.
"""

import itertools
import logging
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock_ranges.ranges import BROWSE, JOIN, Head
from pyspark_penstock.claims import TERM_SHIFT, Claim, claim_batch, holes_in, pieces_of
from pyspark_penstock.client import ConnectionLost, Gone, RangeClient, Refused
from pyspark_penstock.options import Position, Settings
from pyspark_penstock.planner import (
    Patience,
    Planner,
    patiently,
    resolved,
    subscribe,
    wait_for_any,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch

UNLIMITED = (1 << 62) - 1
GO_ON = "Start with a new checkpoint, or go on with what is there by option failOnDataLoss=false"

log = logging.getLogger("pyspark_penstock")


class DataLoss(Exception):
    """Messages this reader should have read cannot be read any more."""


class Place(NamedTuple):
    """A position in one queue, as offsets say it."""

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
    builder = BatchBuilder(queue, settings.columns)
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


class BatchReader(DataSourceReader):
    """Looks at queues and leaves them as they are: nothing is acknowledged, no lease is taken."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ready = 0  # messages in the longest of the queues

    def partitions(self) -> list[InputPartition]:
        """Called at every planning of the same DataFrame, so it only asks for the bounds."""
        queues = subscribe(self._settings, make=False)
        _check_positions(self._settings, queues)
        self._ready = 0
        ranges = [patiently(self._settings, partial(self._bounds, queue)) for queue in queues]
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


def _check_positions(settings: Settings, queues: list[str]) -> None:
    """Names in positions, where only the broker knows what is read."""
    given = (settings.starting.seq_ids, settings.ending.seq_ids, settings.processed_below)
    for queue in itertools.chain(*given):
        if queue not in queues:
            raise ValueError(
                f"penstock: an option gives a position in queue '{queue}', but "
                f"{settings.subscription} is read, which is {' and '.join(queues)}"
            )


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues to their ends and acknowledges what Spark has committed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._planners: dict[str, Planner] = {}
        self._stop_at: dict[str, int] | None = None  # set by AvailableNow
        self._holes: dict[str, int] = {}  # up to the end of the last planned batch
        self._turns = 0

    def planners(self) -> dict[str, Planner]:
        """By queue, in the order of the subscription, which is made when first needed."""
        if not self._planners:
            queues = subscribe(self._settings, make=True)
            _check_positions(self._settings, queues)
            self._planners = {queue: Planner(self._settings, queue) for queue in queues}
        return self._planners

    # -- offsets ---------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return _offset({queue: self._first(one) for queue, one in self.planners().items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._settings.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._stop_at = {queue: one.head().next_seq for queue, one in self.planners().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        places = self._places(start)
        for queue, place in places.items():
            planner = self._planners[queue]
            head = planner.last_head
            if head is not None and place.seq > head.floor:
                planner.ack(place.seq, later=True)
        ends = self._plan(places, limit)
        if ends == places:
            for queue, place in places.items():
                if self._planners[queue].leaves_some:  # now there is time, and this may be the end
                    self._planners[queue].ack(place.seq)
        if ends == places and self._stop_at is None:
            # Nothing there: a long look here spares Spark eighty short ones a second.
            wait_for_any(list(self._planners.values()), self._settings.poll_timeout_ms)
            for planner in self._planners.values():
                planner.head()
            ends = self._plan(places, limit)
        return start if ends == places else _offset(ends)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        heads = {
            queue: Place(one.incarnation, one.last_head.next_seq, self._holes.get(queue, 0))
            for queue, one in self._planners.items()
            if one.last_head is not None
        }
        return _offset(heads) if heads else None

    # -- reading ---------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if start == end:
            return []
        ranges: list[RangePartition] = []
        known = self._parsed(start)
        for queue, stop in self._parsed(end).items():
            planner = self._planners[queue]
            head = planner.head()
            if stop.incarnation != planner.incarnation or stop.seq > head.next_seq:
                what = f"a planned batch ends at {stop.seq} of an earlier life of the queue"
                self._lost(queue, what)
                continue
            at = self._place(planner, known).seq
            ranges.append(RangePartition(queue, stop.incarnation, at, stop.seq, planner.token))
        pieces = self._settings.min_partitions
        most = self._settings.max_messages_per_trigger  # the same after a restart
        if self._settings.claims:
            pieces = pieces_of(sum(width_of(whole, most) for whole in ranges), pieces)
        return cut_all(ranges, pieces, most)

    def read(self, partition: InputPartition) -> "Iterator[RecordBatch]":
        assert isinstance(partition, RangePartition)
        if self._settings.claims:
            return iter([claim_batch(Claim(*partition.value))])
        return read_range(self._settings, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Must not fail: the batch *is* committed.  The next ``latestOffset`` acks again."""
        try:
            for queue, place in self._parsed(end).items():
                planner = self._planners[queue]
                if place.incarnation == planner.incarnation:
                    planner.ack(place.seq, later=True)
        except (ConnectionLost, Refused, DataLoss) as error:
            log.warning("acknowledging up to %s is put off: %s", end, error)

    def stop(self) -> None:
        """Called when the JVM dies.  A query that is stopped kills this process instead: see
        ``planner.give_back``, without which the leases run out by themselves.
        """
        for planner in self._planners.values():
            planner.close()

    # -- positions -------------------------------------------------------------------------

    def _first(self, planner: Planner) -> Place:
        """Where a new query begins in this queue."""
        head = planner.head()
        position = planner.first_position(head)
        wanted = self._settings.starting.seq_ids.get(planner.queue, position)
        if self._settings.subscription.is_stream:
            position = max(position, head.floor)  # where an earlier run began may be gone
        if position != wanted:
            if self._settings.fail_on_data_loss:
                planner.forget_position()
            self._lost(
                planner.queue,
                f"startingOffsets is {wanted}, it holds {head.floor} to {head.next_seq - 1}",
            )
        return Place(planner.incarnation, position)

    def _parsed(self, offset: dict[str, Any]) -> dict[str, Place]:
        """What an offset says of the queues that are read."""
        found = offset.get("q", {})
        planners = self.planners()
        stranger = next((queue for queue in found if queue not in planners), None)
        if offset.get("v") != 1 or not found or stranger is not None:
            raise ValueError(
                f"the checkpoint holds {offset}, which is no position in "
                f"{self._settings.subscription}; was it written for another queue?"
            )
        return {
            queue: Place(found[queue]["inc"], found[queue]["seq"], found[queue].get("holes", 0))
            for queue in planners
            if queue in found
        }

    def _places(self, offset: dict[str, Any]) -> dict[str, Place]:
        """Where reading goes on in each queue; raises DataLoss when that is not where it should."""
        known = self._parsed(offset)
        return {queue: self._place(one, known) for queue, one in self.planners().items()}

    def _place(self, planner: Planner, known: Mapping[str, Place]) -> Place:
        place = known.get(planner.queue)
        if place is not None:
            return self._judged(planner, place, planner.head())
        log.info("queue '%s' was added to this query", planner.queue)
        return self._first(planner)

    def _judged(self, planner: Planner, place: Place, head: Head) -> Place:
        queue, seq = planner.queue, place.seq
        if place.incarnation != planner.incarnation:
            what = "it was deleted and declared again since the checkpoint was written"
        elif seq > head.next_seq:
            what = f"the checkpoint is at {seq}, the queue only reaches {head.next_seq}"
        elif seq < head.acked and head.acked > self._settings.processed_below.get(queue, 0):
            what = f"another reader has acknowledged {seq} to {head.acked - 1}"
        elif seq < head.floor and self._settings.subscription.is_stream:
            what = f"retention has taken {seq} to {head.floor - 1}"
        else:
            return place
        self._lost(queue, what)
        return Place(planner.incarnation, head.floor, place.holes)

    def _lost(self, queue: str, what: str) -> None:
        text = f"queue '{queue}' has lost data for this query: {what}"
        if self._settings.fail_on_data_loss:
            raise DataLoss(f"{text}.  {GO_ON}")
        log.warning("%s; going on with what is there", text)

    # -- the next batch --------------------------------------------------------------------

    def _plan(self, places: Mapping[str, Place], limit: ReadLimit) -> dict[str, Place]:
        """Where it ends in each queue."""
        settings = self._settings
        if isinstance(limit, ReadMaxRows):
            budget = _Budget(limit.max_rows, settings.max_bytes_per_trigger)
        elif isinstance(limit, ReadAllAvailable):
            budget = _Budget(UNLIMITED, UNLIMITED)
        else:
            raise TypeError(f"Spark asked for {limit}, which this source does not offer")
        ends = dict(places)
        hungry = self._rotated([queue for queue in places if self._stop(queue) > places[queue].seq])
        while hungry and budget.messages > 0 and budget.size > 0:
            share = budget.share(len(hungry))
            hungry = [
                queue
                for queue in hungry
                if budget.messages > 0 and self._extend(ends, queue, share, budget)
            ]
        self._tell_holes(places, ends)
        return ends

    def _extend(
        self, ends: dict[str, Place], queue: str, share: tuple[int, int], budget: "_Budget"
    ) -> bool:
        """Up to so much more of this queue; is it worth asking again?"""
        place, stop = ends[queue], self._stop(queue)
        planned = self._planners[queue].plan(place.seq, stop, *share)
        if planned.end == place.seq or not budget.take(planned.messages, planned.content_bytes):
            return False
        holes = place.holes + holes_in(place.seq, planned.end, planned.messages)
        ends[queue] = Place(self._planners[queue].incarnation, planned.end, holes)
        return planned.end < stop

    def _stop(self, queue: str) -> int:
        if self._stop_at is not None:
            return self._stop_at[queue]
        head = self._planners[queue].last_head
        return 0 if head is None else head.next_seq

    def _rotated(self, queues: list[str]) -> list[str]:
        """Another one first each time, where there is less than one message for each."""
        self._turns += 1
        at = self._turns % len(queues) if queues else 0
        return queues[at:] + queues[:at]

    def _tell_holes(self, places: Mapping[str, Place], ends: Mapping[str, Place]) -> None:
        for queue, end in ends.items():
            count = end.holes - places[queue].holes
            self._holes[queue] = end.holes
            if count:
                log.info(
                    "queue '%s' has %d numbers without a message from %d to %d (expired, purged, "
                    "consumed or never filled), %d so far",
                    *(queue, count, places[queue].seq, end.seq - 1, end.holes),
                )


class _Budget:
    """What is left for a batch."""

    def __init__(self, messages: int, size: int) -> None:
        self.messages = messages
        self.size = size
        self._empty = True

    def share(self, queues: int) -> tuple[int, int]:
        """For each of so many."""
        return max(self.messages // queues, 1), max(self.size // queues, 1)

    def take(self, messages: int, size: int) -> bool:
        """A message that is too large alone is only taken when it is the first of the batch."""
        if size > self.size and not self._empty:
            return False
        self._empty = False
        self.messages -= messages
        self.size -= size
        return True


def _offset(places: Mapping[str, Place]) -> dict[str, Any]:
    queues = {
        queue: {"inc": place.incarnation, "seq": place.seq, "holes": place.holes}
        for queue, place in places.items()
    }
    return {"v": 1, "q": queues}
