"""Penstock's own families: metrics that RabbitMQ does not have.

In: the numbers of the node and of its queues.  Out: pieces of the page, a family or two each.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, cast

from penstock.core.letters import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from penstock.management.facts.rows import Row
from penstock.management.metrics.families import HISTOGRAM, Family, Number, labels
from penstock.management.metrics.gathering import (
    OWN_AT,
    STATES,
    STATES_AT,
    STREAM_AT,
    Columns,
    Gathering,
    NodeNumbers,
    collections,
)
from penstock.queues.context import STREAM as STREAM_TYPE

STATE_NAMES: Final = (*(name for name, _ in STATES), "delta")
VQ_MESSAGES: Final = Family(
    "penstock_vq_messages",
    "Ready messages by where they rest: alpha in memory, beta partly, delta on disk only",
)
QUEUE_OWN: Final = (
    Family("penstock_queue_inflight", "Messages out with a deadline"),
    Family("penstock_queue_deferred", "Messages that wait for their time"),
    Family("penstock_queue_flow_seconds_total", "Seconds in which a queue was in flow"),
)
STREAM: Final = (
    Family("penstock_stream_bytes", "Bytes in the files of a stream"),
    Family("penstock_stream_files", "Files of a stream"),
    Family(
        "penstock_stream_lag_messages",
        "Messages that the consumer furthest behind has not got or not settled",
    ),
    Family(
        "penstock_stream_lag_seconds",
        "How much older than the newest message is the last one that it got",
    ),
)
LAGS: Final = 2
"""Of the last ones the largest number counts."""
SHOVELS: Final = {
    kind: Family(f"rabbitmq_shovel_{kind}", f"Number of {kind} shovels")
    for kind in ("dynamic", "static")
}
FEDERATION_LINKS: Final = Family("rabbitmq_federation_links", "Number of federation links")
"""Of RabbitMQ's plug-ins for shovels and federation."""
EXPIRY: Final = Family(
    "penstock_certificate_expiry_timestamp_seconds",
    "When the first certificate of a listener's file expires, in seconds since 1970",
)
AUDIT_DROPPED: Final = Family(
    "penstock_audit_records_dropped_total", "Records of the audit trail that the disk did not take"
)
ASKED: Final = Family(
    "penstock_auth_backend_requests_total",
    "Requests of backends of users to their servers: questions about users, or for keys of tokens",
)
REASONS: Final = {
    "expired": EXPIRED,
    "rejected": REJECTED,
    "too_many": MAXLEN,
    "tried_too_often": DELIVERY_LIMIT,
}
STAGES: Final = ("connection", "channel", "queue")


def alone(name: str, text: str, value: Number) -> str:
    """A family without labels; one whose name ends in ``_total`` is a counter."""
    return Family(f"penstock_{name}", text).alone(value)


def by(name: str, text: str, label: str, values: Iterable[tuple[str, Number]]) -> str:
    samples = [(labels(**{label: key}), value) for key, value in values]
    return Family(f"penstock_{name}", text).labelled(samples)


def node_pieces(node: NodeNumbers, gathering: Gathering) -> Iterator[str]:
    yield from _flow(node.flow)
    yield from _storage(node.storage)
    yield from _pipelines(node.pipelines)
    yield from _times(node, gathering)
    died = [(key, node.dropped[key] + node.buried[key]) for key in REASONS]
    yield by(
        "messages_died_total",
        "Messages that were over before a consumer had them, dead-lettered or not",
        "reason",
        [(REASONS[key], count) for key, count in died],
    )
    counted = [(family, node.shovels[kind]) for kind, family in SHOVELS.items()]
    for family, counts in (*counted, (FEDERATION_LINKS, node.federation_links)):
        yield family.labelled([(labels(status=status), n) for status, n in counts.items()])
    yield by(
        "mirror_changes_total",
        "What became of copies of mirrored queues whose master is on this node",
        "change",
        node.mirror_changes.items(),
    )
    yield EXPIRY.labelled(
        [
            (labels(protocol=protocol, certificate=key, port=str(port)), end_s)
            for protocol, key, port, end_s in node.expiries
        ]
    )
    yield by(
        "connections_refused_total",
        "Connections and log-ins that were refused for another reason than a wrong password",
        "reason",
        node.refused.items(),
    )
    yield AUDIT_DROPPED.alone(node.audit_dropped)
    yield ASKED.labelled(
        [
            (labels(backend=name, result=result), count)
            for name, counts in node.asked
            for result, count in zip(("answered", "failed"), counts, strict=True)
        ]
    )
    yield alone("locked_out_users", "Users that are locked out, for each address", node.locked_out)
    yield by("spans_total", "Spans of messages that belong to a trace", "fate", node.spans.items())
    yield by(
        "gc_runs_total",
        "Runs of the garbage collector of Python",
        "generation",
        [(str(number), count) for number, count in enumerate(collections())],
    )


def _flow(row: Row) -> Iterator[str]:
    stages = cast(list[Row], row["stages"])
    processor = cast(dict[str, float], row["processor"])
    yield by(
        "credit_in_flow",
        "Stages that wait for credit now, or did a moment ago",
        "stage",
        [(str(one["kind"]), cast(int, one["in_flow"])) for one in stages],
    )
    yield by(
        "credit_flow_ratio",
        "Of the last ten seconds, how much at least one of these stages was in flow",
        "stage",
        [(str(one["kind"]), cast(float, one["share"])) for one in stages],
    )
    yield by(
        "processor_ratio",
        "Of the processor time spent on messages, what each stage takes",
        "stage",
        [(name, processor[f"{name}s"]) for name in STAGES],
    )
    held = cast(int, row["held_bytes"])
    yield alone("flow_held_bytes", "Bytes of publishes that came in and wait", held)
    blocked = 1 if row["blocked"] else 0
    yield alone("publishers_blocked", "Is 1 while publishers of this node are blocked", blocked)


def _storage(row: Row) -> Iterator[str]:
    memory, journal = cast(dict[str, int], row["memory"]), cast(dict[str, int], row["journal"])
    segments = cast(dict[str, int], row["segments"])
    stores = cast(dict[str, dict[str, int]], row["stores"])
    yield alone("memory_queued_bytes", "Memory of messages in queues", memory["queued_bytes"])
    yield alone("memory_messages_limit_bytes", "Memory there is for them", memory["limit_bytes"])
    yield alone("paging", "Is 1 while messages are moved to disk", int(memory["paging"]))
    yield alone(
        "paged_slices_total", "Slices of work that moved messages to disk", memory["paged_slices"]
    )
    yield alone("journal_files", "Files of the journal", journal["files"])
    yield alone("journal_bytes", "Bytes in the journal", journal["bytes"])
    yield alone("journal_pending_bytes", "Bytes not yet given to it", journal["pending_bytes"])
    yield alone("journal_behind", "Is 1 while publishers wait for it", int(journal["behind"]))
    yield alone("journal_groups_total", "Groups written to it", journal["groups_sealed"])
    yield alone("journal_retired_files_total", "Files it has let go", journal["files_retired"])
    yield alone("segment_files", "Segment files of all queues", segments["files"])
    yield alone("segment_bytes", "Bytes in them", segments["bytes"])
    yield alone(
        "segment_garbage_ratio", "Share of messages that are gone", segments["garbage_share"]
    )
    rewritten, reclaimed = segments["files_rewritten"], segments["bytes_reclaimed"]
    yield alone("segment_rewrites_total", "Segments copied without garbage", rewritten)
    yield alone("segment_reclaimed_bytes_total", "Bytes won by that", reclaimed)
    for name, key, text in (
        ("files", "files", "Files of the message store"),
        ("bytes", "bytes", "Bytes in them"),
        ("garbage_ratio", "garbage_share", "Share of contents that are gone"),
        ("messages", "messages", "Contents it holds"),
        ("pending_bytes", "pending_bytes", "Bytes not yet written"),
        ("written_total", "messages_written", "Contents written"),
        ("compactions_total", "compactions", "Files copied without garbage"),
        ("reclaimed_bytes_total", "bytes_reclaimed", "Bytes won by that"),
    ):
        samples = [(store, stores[store][key]) for store in stores]
        yield by(f"store_{name}", text, "store", samples)


def _pipelines(rows: Sequence[Row]) -> Iterator[str]:
    for name, key, text in (
        ("rows_total", "rows", "Rows in the batches of a pipeline"),
        ("batches_total", "batches", "Batches of a pipeline"),
        ("depth_messages", "depth", "Messages in its queues"),
        ("lag_messages", "lag", "Messages it has still to read, by its own account"),
        ("rows_per_second", "rows_per_s", "Rows a second over its last batches"),
        ("drain_seconds", "to_drain_s", "Time to empty its queues, as things are"),
    ):
        samples = [
            (_of_pipeline(row), cast(float, row[key])) for row in rows if row[key] is not None
        ]
        yield Family(f"penstock_pipeline_{name}", text).labelled(samples)
    running = [(_of_pipeline(row), int(row["state"] == "running")) for row in rows]
    yield Family("penstock_pipeline_running", "Is 1 while it reports that it runs").labelled(
        running
    )


def _of_pipeline(row: Row) -> str:
    return labels(vhost=str(row["vhost"]), pipeline=str(row["name"]))


def _times(node: NodeNumbers, gathering: Gathering) -> Iterator[str]:
    for name, text, times in (
        (
            "loop_lag_seconds",
            "How long a call waited for the data loop, at every slice of statistics",
            gathering.sampler.waits,
        ),
        (
            "confirm_latency_seconds",
            "From a publish that waits for the disk to its confirm, by batch",
            node.confirms,
        ),
        (
            "e2e_seconds",
            "From the queue to the acknowledgement, of sampled messages (event log)",
            node.residence,
        ),
    ):
        family = Family(f"penstock_{name}", text, HISTOGRAM)
        yield family.histogram(times)
    sampler, statistics = gathering.sampler, gathering.statistics
    yield alone(
        "statistics_walk_seconds", "How long the last walk over all took", sampler.last_walk_s
    )
    yield by(
        "statistics_tracks",
        "Objects of which samples are kept",
        "kind",
        [(name, len(tracks.by_key)) for name, tracks in statistics.tracks.items()],
    )


def queue_totals(queues: Columns) -> Iterator[str]:
    yield VQ_MESSAGES.labelled(
        (labels(state=name), queues.sum(STATES_AT + place))
        for place, name in enumerate(STATE_NAMES)
    )
    for place, family in enumerate(QUEUE_OWN):
        yield family.alone(queues.sum(OWN_AT + place))
    for place, family in enumerate(STREAM):
        column = queues.columns[STREAM_AT + place]
        yield family.alone(sum(column) if place < LAGS else max(column, default=0))


def each_queue(queues: Columns) -> Iterator[tuple[Family, Iterator[tuple[str, int]]]]:
    yield VQ_MESSAGES, _states(queues)
    for place, family in enumerate(QUEUE_OWN):
        yield family, zip(queues.labels, queues.columns[OWN_AT + place], strict=True)
    streams = [at for at, kind in enumerate(queues.groups) if kind == STREAM_TYPE]
    for place, family in enumerate(STREAM):
        column = queues.columns[STREAM_AT + place]
        yield family, ((queues.labels[at], column[at]) for at in streams)


def _states(queues: Columns) -> Iterator[tuple[str, int]]:
    for at, label_text in enumerate(queues.labels):
        for place, name in enumerate(STATE_NAMES):
            state = f',state="{name}"}}'
            yield label_text[:-1] + state, queues.columns[STATES_AT + place][at]
