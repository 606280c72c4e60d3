"""Writing from Spark: rows become messages, exactly once or at least once.

    executor   write    a task's rows ─► a staged set on the broker, on disk ─► its name
    driver     commit   (query, run, batch, sets in partition order) ─► published, once
               abort    sets that were not committed are dropped

Spark may run a task twice, a batch twice, and the driver may die between any two steps.  What is
staged and not committed is not visible; a batch that is committed a second time is a duplicate,
and is not even staged again.  The producer is the query (``sql.streaming.queryId``, kept in the
checkpoint), the run its start (``spark.jobGroup.id``), so an older driver that lives is fenced.
A batch write is a producer of its own, or, with ``txnId``, the one of that name: then the same
write done again publishes nothing.

What ``write`` and ``commit`` know comes from different instances of these classes, in other
processes: they agree by the messages a task returns.

``at-least-once`` publishes in ``write`` and commits nothing.
"""

import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from penstock_ranges.staging import DUPLICATE
from pyspark_penstock.client import ConnectionLost, Fenced, Refused
from pyspark_penstock.durable import local_checkpoint, sync_note
from pyspark_penstock.sink_encoding import Encoder, check_columns
from pyspark_penstock.sink_options import AT_LEAST_ONCE, DROP, FAIL, SinkSettings
from pyspark_penstock.staging_client import Stager, begun, commit, connected

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("pyspark_penstock")

BATCH_KEY = "streaming.sql.batchId"
QUERY_KEY = "sql.streaming.queryId"
RUN_KEY = "spark.jobGroup.id"


@dataclass(frozen=True)
class Staged(WriterCommitMessage):
    """What a task has done: its set, if it needed one, and on whose behalf."""

    producer: str = ""
    run: str = ""
    batch: int = 0
    sets: list[str] = field(default_factory=list)
    home: int = -1  # place of the node that has them, in the URL
    messages: int = 0
    unroutable: int = 0


class Identity(NamedTuple):
    producer: str
    run: str
    batch: int


def check_target(settings: SinkSettings, schema: "StructType") -> None:
    """What can be found out before anything runs: columns, the target, our rights."""
    check_columns(schema, settings)
    if settings.exchange is None:
        return
    with connected(settings) as stager:
        try:
            leads = stager.target(settings.exchange, settings.routing_key or "")
        except Refused as error:
            raise ValueError(f"penstock: {_advised(settings, str(error))}") from None
    if leads or settings.mandatory != FAIL:
        return
    if settings.by == "queue":
        raise ValueError(
            f"penstock: there is no {settings.target} in vhost '{settings.endpoint.vhost}':"
            " declare it first"
        )
    if "routing_key" not in [name.lower() for name in schema.names]:
        raise ValueError(
            f"penstock: messages for {settings.target} with routing key"
            f" '{settings.routing_key or ''}' reach no queue: bind one, or let them be dropped"
            " with mandatory=drop or mandatory=count"
        )


def _advised(settings: SinkSettings, text: str) -> str:
    if settings.by == "topic" and text.startswith("no exchange"):
        return (
            f"there is no {settings.target}: make it first, such as with an NSQ publish or an"
            " exchange of the type x-nsq-topic"
        )
    return text


class _Writing:
    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def _write(self, who: Identity, batches: "Iterator[pa.RecordBatch]") -> Staged:
        encoder = Encoder(self._settings)
        messages: Iterator[bytes] = (piece for batch in batches for piece in encoder.encode(batch))
        first = next(messages, None)
        if first is None:
            return Staged(*who)  # no rows, no set
        messages = chain([first], messages)
        if self._settings.delivery == AT_LEAST_ONCE:
            with connected(self._settings) as stager:
                stager.publish(messages)
            return Staged(*who, messages=encoder.messages, unroutable=stager.unroutable)
        sets, home = self._staged(who, messages, encoder)
        return Staged(*who, sets, home, encoder.messages)

    def _staged(
        self, who: Identity, messages: Iterator[bytes], encoder: Encoder
    ) -> tuple[list[str], int]:
        """The name of the set, and its home; none where the batch is committed already."""
        stager, name, home = begun(self._settings, *who)
        with stager:
            if not name:
                return [], -1
            stager.stage(messages)
            stager.end(encoder.messages)
        return [name], home

    def _commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        settings = self._settings
        told = [one for one in messages if isinstance(one, Staged)]
        if not told:
            return
        unroutable = sum(one.unroutable for one in told)
        if settings.delivery != AT_LEAST_ONCE:
            first = told[0]
            sets = [name for one in told for name in one.sets]
            home = self._home(told)
            done = commit(settings, first.producer, first.run, first.batch, sets, home)
            unroutable = done.unroutable
            if done.outcome == DUPLICATE:
                log.warning(
                    "batch %d of %s had been committed before, and is published once",
                    first.batch,
                    first.producer,
                )
        if unroutable and settings.mandatory != DROP:
            log.warning("%d messages reached no queue and were dropped", unroutable)

    def _home(self, told: list[Staged]) -> int:
        """Of all sets; -1 = there are none.  One node commits, and it has its own sets only."""
        homes = sorted({one.home for one in told if one.sets})
        if len(homes) > 1:
            nodes = self._settings.endpoint.nodes()
            raise RuntimeError(
                f"penstock: batch {told[0].batch} was staged at"
                f" {' and '.join(str(nodes[home]) for home in homes)}, because the queue's master"
                " moved or a node was away meanwhile; nothing of it is published, and it is staged"
                " again when the query is started again"
            )
        return homes[0] if homes else -1

    def _abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        """The broker keeps what was committed; what it does not hear of goes with its time."""
        nodes = self._settings.endpoint.nodes()
        told = [one for one in messages if isinstance(one, Staged) and one.sets]
        for home in sorted({one.home for one in told}):
            sets = [name for one in told if one.home == home for name in one.sets]
            try:
                with Stager(self._settings, nodes[home]) as stager:
                    stager.abort(sets)
            except (ConnectionLost, Refused, Fenced) as error:
                log.warning("%d staged sets are left to their time to live: %s", len(sets), error)


def write_once(settings: SinkSettings, who: Identity, batches: "Iterator[pa.RecordBatch]") -> None:
    """Without a Spark: the rows as one batch of a producer, which the broker publishes once."""
    writing = _Writing(settings)
    writing._commit([writing._write(who, batches)])  # noqa: SLF001 - of this module


class BatchWriter(_Writing, DataSourceArrowWriter):
    """``df.write``; made in the planner, and carried to the tasks."""

    def __init__(self, settings: SinkSettings, schema: "StructType") -> None:
        super().__init__(settings)
        check_target(settings, schema)
        own = uuid.uuid4().hex
        producer = f"txn:{settings.txn_id}" if settings.txn_id else f"write:{own}"
        self._who = Identity(producer, own, 0)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return self._write(self._who, iterator)

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        self._commit(messages)

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        self._abort(messages)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """``df.writeStream``; Spark makes one for each batch."""

    def __init__(self, settings: SinkSettings, schema: "StructType") -> None:
        super().__init__(settings)
        check_target(settings, schema)

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return self._write(_identity(), iterator)

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        """The broker is to know a batch by its number, so what that number means is kept first."""
        checkpoint = local_checkpoint(self._settings.checkpoint)
        if checkpoint is not None and self._settings.delivery != AT_LEAST_ONCE:
            sync_note(checkpoint, batchId)
        self._commit(messages)

    def abort(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        self._abort(messages)


def _identity() -> Identity:
    """Of the task that runs here."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise RuntimeError("penstock: a stream is written by tasks of Spark only")
    found = [context.getLocalProperty(key) for key in (QUERY_KEY, RUN_KEY, BATCH_KEY)]
    if not all(found):
        raise RuntimeError(f"penstock: Spark did not say which query and batch this is: {found}")
    return Identity(str(found[0]), str(found[1]), int(str(found[2])))
