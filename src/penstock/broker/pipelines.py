"""``PipelineRegistry``: what pipelines have said of themselves, for operators who ask.

In: reports, one a batch, by users who may read or write the queues they name.  Out: rows: the
last batches, how fast the pipeline drains its queues, how fast they are filled meanwhile, and
when they will be empty.  Nothing here is kept over a restart: the next report brings it back.

    to drain = what is in the queues / (rows a second − publishes a second)

Bounded: ``PIPELINES_MAX`` of a node, ``BATCHES_KEPT`` of each.  One that ended is forgotten after
an hour, one that fell silent after a day; a name belongs to the user who said it first, until
then.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.broker.rules.access import User
from penstock.broker.rules.rights import Rights
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.errors import AccessRefused, ResourceLocked
from penstock_ranges.reports import Report

BATCHES_KEPT: Final = 20
PIPELINES_MAX: Final = 200
ENDED_KEPT_MS: Final = 3_600_000
SILENT_KEPT_MS: Final = 86_400_000
SILENT_AFTER_MS: Final = 60_000
"""Spark says something every ten seconds even when there is nothing to do."""
ENDED: Final = ("done", "failed")

Row = dict[str, object]


class Batch(NamedTuple):
    """``published``: of the pipeline's queues since they were opened, when it was reported."""

    number: int
    rows: int
    duration_ms: int
    at_ms: WallMs
    published: int


class Pipeline:
    """One, by name in a virtual host."""

    def __init__(self, told: Report, user: str, vhost: str, now_ms: WallMs) -> None:
        self.told = told
        self.run = told.run
        self.user = user
        self.vhost = vhost
        self.since_ms = now_ms
        self.at_ms = now_ms
        self.rows = 0
        self.batch_count = 0
        self.batches: deque[Batch] = deque(maxlen=BATCHES_KEPT)

    def hear(self, told: Report, published: int, now_ms: WallMs) -> None:
        """``published``: of its queues since they were opened."""
        self.told = told
        self.run = told.run or self.run
        self.at_ms = now_ms
        if told.batch is not None:
            batch = Batch(told.batch, told.rows, told.duration_ms, now_ms, published)
            self.batches.append(batch)
            self.batch_count += 1
            self.rows += told.rows

    def is_another_run(self, run: str) -> bool:
        """A report that names none belongs to the one under way."""
        return run != "" and self.run not in ("", run)

    def is_over(self, now_ms: WallMs) -> bool:
        kept_ms = ENDED_KEPT_MS if self.told.state in ENDED else SILENT_KEPT_MS
        return now_ms - self.at_ms > kept_ms

    def state(self, now_ms: WallMs) -> str:
        silent = self.told.state not in ENDED and now_ms - self.at_ms > SILENT_AFTER_MS
        return "silent" if silent else self.told.state


class PipelineRegistry:
    """Of one node."""

    def __init__(self) -> None:
        self._pipelines: dict[tuple[str, str], Pipeline] = {}

    def report(self, told: Report, user: User, vhost: Vhost, now_ms: WallMs) -> None:
        """Raises AccessRefused for queues or names of others, ResourceLocked when full."""
        rights = Rights(user, vhost.name)
        for queue in told.queues:
            _check_queue(rights, queue)
        self._forget(now_ms)
        key = (vhost.name, told.name)
        pipeline = self._pipelines.get(key)
        if pipeline is not None and pipeline.user != user.name:
            raise AccessRefused(f"pipeline '{told.name}' is reported by user '{pipeline.user}'")
        if pipeline is None or pipeline.is_another_run(told.run):
            if pipeline is None and len(self._pipelines) >= PIPELINES_MAX:
                self._make_room(now_ms)
            pipeline = self._pipelines[key] = Pipeline(told, user.name, vhost.name, now_ms)
        pipeline.hear(told, _depth_of(vhost, told.queues)[1], now_ms)

    def rows(self, vhosts: Mapping[str, Vhost], now_ms: WallMs) -> list[Row]:
        """Of these virtual hosts, in the order of their names."""
        self._forget(now_ms)
        return [
            _row(pipeline, vhosts[vhost], now_ms)
            for (vhost, _), pipeline in sorted(self._pipelines.items())
            if vhost in vhosts
        ]

    def _forget(self, now_ms: WallMs) -> None:
        for key, pipeline in list(self._pipelines.items()):
            if pipeline.is_over(now_ms):
                del self._pipelines[key]

    def _make_room(self, now_ms: WallMs) -> None:
        """The one that ended longest ago goes, else a silent one; those at work stay."""
        for states in (ENDED, ("silent",)):
            gone = [key for key, one in self._pipelines.items() if one.state(now_ms) in states]
            if gone:
                del self._pipelines[min(gone, key=lambda key: self._pipelines[key].at_ms)]
                return
        raise ResourceLocked(f"{PIPELINES_MAX} pipelines report to this node already")


def _check_queue(rights: Rights, queue: str) -> None:
    """Who may read a queue or write to it may say what becomes of its messages."""
    try:
        rights.read("queue", queue)
    except AccessRefused:
        rights.write("queue", queue)


def _depth_of(vhost: Vhost, queues: tuple[str, ...]) -> tuple[int, int]:
    """(messages in them now, published since they were opened)"""
    depth = published = 0
    for name in queues:
        queue = vhost.queues.get(name)
        if queue is not None:
            depth += int(queue.backing.ready_count() + queue.unacked_count)
            published += int(queue.statistics.published_count)
    return depth, published


def _row(pipeline: Pipeline, vhost: Vhost, now_ms: WallMs) -> Row:
    told = pipeline.told
    depth, published = _depth_of(vhost, told.queues)
    drain, fill = _rates(pipeline, published, now_ms)
    last = pipeline.batches[-1] if pipeline.batches else None
    return {
        "name": told.name,
        "vhost": pipeline.vhost,
        "user": pipeline.user,
        "kind": told.kind,
        "group": told.group,
        "queues": list(told.queues),
        "state": pipeline.state(now_ms),
        "run": pipeline.run,
        "since_ms": pipeline.since_ms,
        "reported_ms": pipeline.at_ms,
        "batch": None if last is None else last.number,
        "batches": pipeline.batch_count,
        "rows": pipeline.rows,
        "lag": told.lag,
        "depth": depth,
        "rows_per_s": None if drain is None else round(drain, 1),
        "published_per_s": None if fill is None else round(fill, 1),
        "to_drain_s": _to_drain(depth, drain, fill),
        "error": told.error,
        "last_batches": [
            {
                "batch": batch.number,
                "rows": batch.rows,
                "duration_ms": batch.duration_ms,
                "reported_ms": batch.at_ms,
            }
            for batch in pipeline.batches
        ],
    }


def _rates(pipeline: Pipeline, published: int, now_ms: WallMs) -> tuple[float | None, float | None]:
    """Rows and publishes a second over the batches that are kept; None: nothing to go by."""
    batches = pipeline.batches
    if not batches:
        return None, None
    first = batches[0]
    span_ms = batches[-1].at_ms - first.at_ms + first.duration_ms
    drain = 1000 * sum(batch.rows for batch in batches) / max(span_ms, 1)
    watched_ms = now_ms - first.at_ms
    if watched_ms < 1000:
        return drain, None
    return drain, 1000 * max(published - first.published, 0) / watched_ms


def _to_drain(depth: int, drain: float | None, fill: float | None) -> float | None:
    """None: never, as things are, or not known."""
    if depth == 0:
        return 0.0
    net = (drain or 0.0) - (fill or 0.0)
    return round(depth / net, 1) if net > 0 else None
