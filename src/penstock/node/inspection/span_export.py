"""``SpanExport``: spans of messages leave for a receiver of OpenTelemetry's protocol (OTLP, HTTP).

    SpanBook ─ look(), a few times a second ─► batches ─► a thread: encodes and sends ─► receiver

The data loop takes tuples from the book and puts them in a row of batches, no more.  A receiver
that is slow or away costs spans, which are counted, and nothing else.  The packages of
OpenTelemetry are an extra, and loaded where there is an endpoint.  Their other settings (headers,
authorities, attributes of the resource) are environment variables: OTEL_EXPORTER_OTLP_HEADERS and
others.
"""

import logging
import queue
import random
import threading
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.core.clock_types import WallMs
from penstock.core.counting.spans import Span, SpanBook, trace_of
from penstock.core.errors import SettingInvalid
from penstock.settings.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

TAKES_PER_S: Final = 4
BATCHES_MAX: Final = 40
"""Ten seconds' worth, for a receiver that is slow for once."""
STOP_S: Final = 2.0
"""What still waits when the node stops has so long."""
NS_PER_MS: Final = 1_000_000

logger = logging.getLogger("penstock.traces")


def span_book(settings: Settings) -> SpanBook:
    """For the spans of a second, in shares."""
    if not settings.otlp_endpoint:
        return SpanBook()
    return SpanBook(max(1, settings.otlp_spans_per_s // TAKES_PER_S))


class SpanExport:
    """Of one node; without an endpoint it only ends what was followed."""

    def __init__(self, book: SpanBook, settings: Settings, node_name: str) -> None:
        self._book: Final = book
        self._endpoint: Final = settings.otlp_endpoint
        self._batches: Final[queue.Queue[list[Span] | None]] = queue.Queue(BATCHES_MAX)
        self._exported: int = 0  # by the thread, since the start
        self._failed: int = 0
        self._counted: tuple[int, int] = (0, 0)
        self._sender: Sender | None = None
        self._thread: threading.Thread | None = None
        if self._endpoint:
            self._sender = _sender(self._endpoint, node_name)

    def start(self) -> None:
        if self._sender is not None:
            self._thread = threading.Thread(target=self._run, name="traces", daemon=True)
            self._thread.start()

    def look(self, now_ms: WallMs) -> None:
        """``TAKES_PER_S`` times a second."""
        spans = self._book.take(now_ms)
        exported, failed = self._exported, self._failed
        self._book.count(exported - self._counted[0], failed - self._counted[1])
        self._counted = exported, failed
        if spans:
            try:
                self._batches.put_nowait(spans)
            except queue.Full:
                self._book.count(0, len(spans))

    def stop(self) -> None:
        """What waits is sent if that is quick."""
        if self._thread is None:
            return
        try:
            self._batches.put_nowait(None)
            self._thread.join(STOP_S)
        except queue.Full:
            pass  # its receiver is away: what waits is lost

    def _run(self) -> None:
        sender = self._sender
        assert sender is not None
        away = False
        while (spans := self._batches.get()) is not None:
            sent = sender.send(spans)
            if sent:
                self._exported += len(spans)
            else:
                self._failed += len(spans)
            if sent == away:
                away = not sent
                if away:
                    logger.warning("%s takes no spans; they are dropped", self._endpoint)
                else:
                    logger.info("%s takes spans again", self._endpoint)


class Sender:
    """Makes spans of OpenTelemetry's and sends them; its methods are for one thread."""

    def __init__(self, exporter: "OTLPSpanExporter", resource: "Resource") -> None:
        self._exporter = exporter
        self._resource = resource

    def send(self, spans: list[Span]) -> bool:
        """False: they are lost.  Tries for the time of OTEL_EXPORTER_OTLP_TIMEOUT (10 s)."""
        from opentelemetry.sdk.trace.export import SpanExportResult  # noqa: PLC0415 - an extra

        made = [self._made(span) for span in spans]
        return self._exporter.export(made) is SpanExportResult.SUCCESS

    def _made(self, span: Span) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan  # noqa: PLC0415 - as above
        from opentelemetry.trace import SpanContext, TraceFlags  # noqa: PLC0415

        trace = int(trace_of(span.parent), 16)
        recorded = TraceFlags(TraceFlags.SAMPLED)
        facts = {
            "messaging.system": "penstock",
            "messaging.operation.name": span.step,
            "messaging.destination.name": span.name,
            "penstock.vhost": span.vhost,
        }
        return ReadableSpan(
            f"{span.step} {span.name}",
            SpanContext(trace, random.getrandbits(64) or 1, is_remote=False, trace_flags=recorded),
            SpanContext(trace, int(span.parent[36:52], 16), is_remote=True, trace_flags=recorded),
            self._resource,
            {**facts, **dict(span.facts)},
            start_time=span.start_ms * NS_PER_MS,
            end_time=span.end_ms * NS_PER_MS,
        )


def _sender(endpoint: str, node_name: str) -> Sender:
    """Raises SettingInvalid where the packages are missing."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SettingInvalid(
            f"otlp_endpoint needs the package {error.name}: pip install 'penstock-broker[otel]'"
        ) from error
    known = {
        "service.name": "penstock",
        "service.version": __version__,
        "service.instance.id": node_name,
    }
    return Sender(OTLPSpanExporter(endpoint=endpoint), Resource.create(known))
