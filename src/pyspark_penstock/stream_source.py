"""The stream reader Spark calls: positions in queues, and the promise to lose and repeat nothing.

An offset names each queue's *incarnation* beside the position, because the numbers start anew
when a queue is deleted and declared again; ``holes`` counts the numbers up to there that had no
message when they were planned::

    {"v": 1, "q": {"orders": {"inc": "9f3c…", "seq": 123456, "holes": 0}}}

A queue the offset does not name was added to the subscription since: it begins as a new one does,
and at its beginning where that would be its end.  A pattern is asked for its queues again with the
next batch; one that is in the offset and gone is lost data.

**When messages are acknowledged.**  Spark calls ``commit(end)`` for a batch only when the next
batch has been planned, so never for the last one; but it asks ``latestOffset(start)`` only
when everything below ``start`` is in its commit log.  Both acknowledge; doing so twice is
harmless.

**Where a stream begins** is asked by ``initialOffset``, whose answer Spark does not store, so it
must be the same after a crash.  ``earliest`` is: until batch 0 is committed nothing is
acknowledged.  Other positions are kept by the broker (``Planner.first_position``), which also
leaves what they skip where it is until something beyond is acknowledged.

**Limits** of a batch are shared by the queues: each gets an equal part, and what one does not use
is dealt out again.  With ``minMessagesPerTrigger`` or ``minBytesPerTrigger`` a smaller batch waits,
up to ``maxTriggerDelay`` from when there was something; a run of AvailableNow takes what there is.
"""

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock_ranges.ranges import Head
from pyspark_penstock.claims import Claim, claim_batch, holes_in, pieces_of
from pyspark_penstock.client import ConnectionLost, Refused
from pyspark_penstock.options import Settings
from pyspark_penstock.planner import Planner, subscribe, wait_for_any
from pyspark_penstock.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark_penstock.source import (
    GO_ON,
    UNLIMITED,
    DataLoss,
    Place,
    RangePartition,
    check_positions,
    cut_all,
    log,
    read_range,
    width_of,
)

if TYPE_CHECKING:
    from pyarrow import RecordBatch


LOOK_EVERY_S = 5.0
"""For the queues of a pattern, at most: each look is a connection, and a line in the log."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads queues to their ends and acknowledges what Spark has committed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._planners: dict[str, Planner] = {}
        self._looked_s: float | None = None  # for queues, on the monotonic clock
        self._stop_at: dict[str, int] | None = None  # set by AvailableNow
        self._holes: dict[str, int] = {}  # up to the end of the last planned batch
        self._turns = 0
        self._waits_since_s: float | None = None  # for more messages, on the monotonic clock

    def planners(self) -> dict[str, Planner]:
        """By queue, in the order of the subscription, which is made when first needed."""
        if self._looked_s is None:
            check_positions(self._settings, self._look())
        return self._planners

    def _look(self) -> list[str]:
        """For the queues that are meant; a planner stays as long as its queue."""
        queues = subscribe(self._settings, make=True)
        self._looked_s = time.monotonic()
        for gone in self._planners.keys() - {*queues}:
            self._planners.pop(gone).close()
        self._planners = {
            queue: self._planners.get(queue) or Planner(self._settings, queue) for queue in queues
        }
        return queues

    def _look_again(self) -> None:
        """A pattern may mean other queues now; a run of AvailableNow keeps those it began with."""
        if not self._settings.subscription.is_pattern or self._stop_at is not None:
            return
        if self._looked_s is None or time.monotonic() - self._looked_s >= LOOK_EVERY_S:
            self._look()

    # -- offsets ---------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return _offset({queue: self._first(one) for queue, one in self.planners().items()})

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._settings.max_messages_per_trigger)

    def prepareForTriggerAvailableNow(self) -> None:
        self._stop_at = {queue: one.head().next_seq for queue, one in self.planners().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        self._look_again()
        places = self._places(start)
        for queue, place in places.items():
            planner = self._planners[queue]
            head = planner.last_head
            if head is not None and place.seq > head.floor:
                planner.ack(place.seq, later=True)
        ends, budget = self._plan(places, limit)
        if ends == places:
            for queue, place in places.items():
                if self._planners[queue].leaves_some:  # now there is time, and this may be the end
                    self._planners[queue].ack(place.seq)
        if ends == places and self._stop_at is None:
            # Nothing there: a long look here spares Spark eighty short ones a second.
            wait_for_any(list(self._planners.values()), self._settings.poll_timeout_ms)
            for planner in self._planners.values():
                planner.head()
            ends, budget = self._plan(places, limit)
        if ends == places or self._is_little(budget, limit):
            return start
        self._tell_holes(places, ends)
        return _offset(ends)

    def _is_little(self, budget: "_Budget", limit: ReadLimit) -> bool:
        """More is worth the wait, of which a part is over when this returns."""
        settings = self._settings
        now_s = time.monotonic()
        since_s = now_s if self._waits_since_s is None else self._waits_since_s
        if (
            self._stop_at is not None
            or isinstance(limit, ReadAllAvailable)
            or settings.is_enough(budget.taken_messages, budget.taken_bytes)
            or now_s - since_s >= settings.max_trigger_delay_ms / 1000
        ):
            self._waits_since_s = None
            return False
        self._waits_since_s = since_s
        time.sleep(settings.poll_timeout_ms / 1000)
        return True

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

    def _first(self, planner: Planner, *, added: bool = False) -> Place:
        """Where a new query begins in this queue, or one that goes on and gets it."""
        head = planner.head()
        position = planner.first_position(head, added=added)
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
        found = offset.get("q", {})
        planners = self.planners()
        meant = self._settings.subscription
        strange = [queue for queue in found if queue not in planners]
        if meant.is_pattern:
            for queue in [one for one in strange if meant.may_read(one)]:
                strange.remove(queue)
                self._lost(queue, "there is no such queue any more")
        if offset.get("v") != 1 or strange or not (found or meant.is_pattern):
            raise ValueError(
                f"the checkpoint holds {offset}, which is no position in "
                f"{meant}; was it written for another queue?"
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
        return self._first(planner, added=True)

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

    def _plan(
        self, places: Mapping[str, Place], limit: ReadLimit
    ) -> "tuple[dict[str, Place], _Budget]":
        """Where it ends in each queue, and what it takes."""
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
        return ends, budget

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
    def __init__(self, messages: int, size: int) -> None:
        self.messages = messages
        self.size = size
        self.taken_messages = 0
        self.taken_bytes = 0
        self._empty = True

    def share(self, queues: int) -> tuple[int, int]:
        return max(self.messages // queues, 1), max(self.size // queues, 1)

    def take(self, messages: int, size: int) -> bool:
        """A message that is too large alone is only taken when it is the first of the batch."""
        if size > self.size and not self._empty:
            return False
        self._empty = False
        self.messages -= messages
        self.size -= size
        self.taken_messages += messages
        self.taken_bytes += size
        return True


def _offset(places: Mapping[str, Place]) -> dict[str, Any]:
    queues = {
        queue: {"inc": place.incarnation, "seq": place.seq, "holes": place.holes}
        for queue, place in places.items()
    }
    return {"v": 1, "q": queues}
