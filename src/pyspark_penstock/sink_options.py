"""The options of writing: parsed and judged before anything runs, as those of reading.

In: the strings the user gave to ``option(...)`` of ``df.write`` or ``writeStream``.  Out:
``SinkSettings``, or a ``ValueError`` that names the option, what was given and what is allowed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark_penstock.endpoints import TLS_OPTIONS, Endpoint, endpoint
from pyspark_penstock.options import _boolean, _duration, _Reader, _size

TARGETS = ("exchange", "queue", "topic")
EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
DELIVERIES = (EXACTLY_ONCE, AT_LEAST_ONCE)
FAIL, DROP, COUNT = "fail", "drop", "count"
MANDATORY = (FAIL, DROP, COUNT)
TOPIC_PREFIX = "nsq."
"""The exchange of an NSQ topic begins so."""
SHORT_BYTES_MAX = 255
TXN_ID_BYTES_MAX = 251
"""The producer is called ``txn:`` and this, and brokers take names of 255 bytes."""

KNOWN = (
    "url",
    "user",
    "password",
    *TLS_OPTIONS,
    *TARGETS,
    "routingKey",
    "delivery",
    "txnId",
    "mandatory",
    "persistent",
    "stageMaxBytes",
    "publishTimeout",
    "reconnectTimeout",
)
_SPARKS_OWN = ("path", "checkpointlocation", "queryname")
"""Options of Spark that arrive here with ours."""


@dataclass(frozen=True)
class SinkSettings:
    """Everything the user decided.  Plain values: travels pickled to the executors.

    ``exchange`` and ``routing_key``: of rows that do not say their own; None = they must.
    """

    endpoint: Endpoint
    by: str  # an option: exchange, queue or topic; "" = rows say the exchange
    exchange: str | None
    routing_key: str | None
    delivery: str
    txn_id: str
    mandatory: str
    persistent: bool
    stage_max_bytes: int
    publish_timeout_ms: int
    reconnect_timeout_ms: int
    checkpoint: str  # of a stream, as Spark was told; "" = by its configuration

    @property
    def must_route(self) -> bool:
        return self.mandatory == FAIL

    @property
    def target(self) -> str:
        if self.by == "queue":
            return f"queue '{self.routing_key}'"
        if self.by == "topic":
            return f"topic '{(self.exchange or '')[len(TOPIC_PREFIX) :]}'"
        return f"exchange '{self.exchange}'"

    def check_for_stream(self) -> None:
        if self.txn_id:
            raise ValueError(
                "penstock: option 'txnId' is for batch writes only: a stream's batches have numbers"
            )


def parse_sink_options(given: Mapping[str, str]) -> SinkSettings:
    """Raises ValueError with advice."""
    options = {name.lower(): str(value) for name, value in given.items()}
    _refuse_unknown(options)
    by, exchange, routing_key = _target(options)
    read = _Reader(options)
    settings = SinkSettings(
        endpoint=endpoint(options),
        by=by,
        exchange=exchange,
        routing_key=routing_key,
        delivery=_choice(options, "delivery", DELIVERIES),
        txn_id=options.get("txnid", "").strip(),
        mandatory=_choice(options, "mandatory", MANDATORY),
        persistent=read("persistent", "true", _boolean),
        stage_max_bytes=read("stageMaxBytes", "1GiB", _size),
        publish_timeout_ms=read("publishTimeout", "60s", _duration),
        reconnect_timeout_ms=read("reconnectTimeout", "2m", _duration),
        checkpoint=options.get("checkpointlocation", ""),
    )
    if settings.delivery == AT_LEAST_ONCE and settings.txn_id:
        raise ValueError("penstock: option 'txnId' needs 'delivery' exactly-once")
    if len(settings.txn_id.encode()) > TXN_ID_BYTES_MAX:
        raise ValueError(f"penstock: option 'txnId' is longer than {TXN_ID_BYTES_MAX} bytes")
    return settings


def _refuse_unknown(options: Mapping[str, str]) -> None:
    if "path" in options:
        raise ValueError(
            "penstock: save() takes no path; say where to with one of the options"
            f" {', '.join(TARGETS)}"
        )
    known = {name.lower() for name in KNOWN} | set(_SPARKS_OWN)
    unknown = sorted(set(options) - known)
    if unknown:
        raise ValueError(
            f"penstock: unknown option '{unknown[0]}'; the options of writing are"
            f" {', '.join(KNOWN)}"
        )


def _target(options: Mapping[str, str]) -> tuple[str, str | None, str | None]:
    given = [name for name in TARGETS if options.get(name, "").strip()]
    if len(given) > 1:
        raise ValueError(
            f"penstock: options '{given[0]}' and '{given[1]}' are given; say where to with one of"
            f" {', '.join(TARGETS)}"
        )
    key = options.get("routingkey")
    if not given:
        return "", None, key
    by = given[0]
    name = options[by].strip()
    if len(name.encode()) > SHORT_BYTES_MAX:
        raise ValueError(f"penstock: option '{by}' is longer than {SHORT_BYTES_MAX} bytes")
    if by == "exchange":
        return by, name, key
    if key is not None:
        raise ValueError(f"penstock: option 'routingKey' belongs to 'exchange', not to '{by}'")
    return (by, "", name) if by == "queue" else (by, TOPIC_PREFIX + name, "")


def _choice(options: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    """The first is the default."""
    text = options.get(name.lower(), allowed[0]).strip().lower()
    if text not in allowed:
        raise ValueError(
            f"penstock: option '{name}' is {text!r}; it must be one of {', '.join(allowed)}"
        )
    return text
