"""The options of the data source: parsed and judged in one place, before anything runs.

In: the strings the user gave to ``option(...)``, any case, and what ``endpoints.py`` makes of
the broker's URL.  Out: ``Settings``, or a ``ValueError`` that names the option, what was
given and what is allowed.  An unknown option is an error: a misspelt ``failOnDataLoss`` must
not be discovered after the loss.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final

from pyspark_penstock.endpoints import (
    TLS_OPTIONS,
    Endpoint,
    endpoint,
    parse_url,  # noqa: F401 - docs/guide/spark.md says that it is here
)

SUBSCRIPTIONS = ("queue", "queues", "queuesPattern", "stream", "exchange", "topic")
BELONGS = {"group": ("exchange", "stream"), "routingKey": ("exchange",), "channel": ("topic",)}
"""Options that go with some of these only."""
DEFAULT_COLUMNS = (
    "seq_id", "body", "queue", "exchange", "routing_key", "enqueued_at", "timestamp", "message_id",
    "correlation_id", "reply_to", "type", "app_id", "user_id", "content_type", "content_encoding",
    "priority", "persistent", "expiration", "redelivered", "headers",
)  # fmt: skip
COLUMNS = (*DEFAULT_COLUMNS, "incarnation", "properties_raw")
"""The last two come only when they are asked for: one tells apart the lives of a queue that was
deleted and declared again, the other repeats what others say."""

MAP, ARRAY = "map", "array"
"""Formats of the column ``headers``: of texts by name, or of all headers in their order."""
MINIMA = ("minMessagesPerTrigger", "minBytesPerTrigger")
"""A batch waits until one of them is reached, or ``maxTriggerDelay``."""
BATCH_ONLY = ("endingOffsets", "endingTimestamp")
STREAM_ONLY = (
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    *MINIMA,
    "maxTriggerDelay",
    "pollTimeout",
    "takeOver",
    "processedBelow",
    "claims",
)


@dataclass(frozen=True)
class Subscription:
    """What is read: queues by name, or what the broker has a queue for."""

    by: str  # an option of SUBSCRIPTIONS
    names: tuple[str, ...]  # queues, a pattern or a stream; exchange, group, keys; topic, channel
    group: str = ""  # of a stream

    @property
    def queues(self) -> tuple[str, ...] | None:
        """Their names, if the options say them."""
        return self.names if self.by in ("queue", "queues", "stream") else None

    def may_read(self, queue: str) -> bool:
        if self.is_pattern:
            return re.fullmatch(self.names[0], queue, re.ASCII) is not None
        return self.queues is None or queue in self.queues

    @property
    def is_pattern(self) -> bool:
        """Which queues there are is asked again and again."""
        return self.by == "queuesPattern"

    @property
    def is_stream(self) -> bool:
        """Messages stay, and are read under the name of a group."""
        return self.by == "stream"

    def __str__(self) -> str:
        if self.by == "exchange":
            return f"group '{self.names[1]}' of exchange '{self.names[0]}'"
        if self.by == "topic":
            return f"channel '{self.names[1]}' of topic '{self.names[0]}'"
        if self.is_stream:
            return f"stream '{self.names[0]}'"
        if self.is_pattern:
            return f"queues that match '{self.names[0]}'"
        return " and ".join(f"queue '{name}'" for name in self.names)


@dataclass(frozen=True)
class Position:
    """Where to begin or to end: a word for all queues, or what was said of each."""

    word: str = ""  # earliest or latest: of queues of which nothing else is said
    seq_ids: Mapping[str, int] = field(default_factory=dict)
    timestamp_ms: int | None = None


@dataclass(frozen=True)
class Settings:
    """Everything the user decided.  Plain values: travels pickled to the executors."""

    endpoint: Endpoint
    subscription: Subscription
    starting: Position
    ending: Position
    max_messages_per_trigger: int
    max_bytes_per_trigger: int
    min_partitions: int
    fail_on_data_loss: bool
    poll_timeout_ms: int
    reconnect_timeout_ms: int
    fetch_bytes: int
    take_over: bool
    processed_below: Mapping[str, int]  # known to be done, whatever the checkpoint says
    columns: tuple[str, ...]
    headers: str = MAP  # how that column is
    claims: bool = False  # rows are leave to read, not messages
    min_messages_per_trigger: int = 0  # 0 = any number
    min_bytes_per_trigger: int = 0
    max_trigger_delay_ms: int = 0
    given: frozenset[str] = frozenset()

    def is_enough(self, messages: int, size: int) -> bool:
        wanted = (self.min_messages_per_trigger, self.min_bytes_per_trigger)
        pairs = zip((messages, size), wanted, strict=True)
        return not any(wanted) or any(least and there >= least for there, least in pairs)

    def check_for_batch(self) -> None:
        self._refuse(STREAM_ONLY, "streams (readStream)")
        if self.starting.word == "latest" and not self.starting.seq_ids:
            raise ValueError(
                "penstock: option 'startingOffsets' is 'latest', which leaves a batch read nothing"
            )

    def check_for_stream(self) -> None:
        self._refuse(BATCH_ONLY, "batch reads (read)")
        if self.subscription.is_stream and not self.subscription.group:
            raise ValueError(
                "penstock: option 'stream' needs 'group' in readStream: the name under which the "
                "broker keeps this query's place, and holds messages for it"
            )

    def _refuse(self, names: tuple[str, ...], place: str) -> None:
        wrong = [name for name in names if name.lower() in self.given]
        if wrong:
            raise ValueError(f"penstock: option '{wrong[0]}' is for {place} only")


def parse_options(given: Mapping[str, str]) -> Settings:
    """Raises ValueError with advice."""
    options = {name.lower(): str(value) for name, value in given.items()}
    _refuse_unknown(options)
    subscription = _subscription(options)
    read = _Reader(options)
    settings = Settings(
        endpoint=endpoint(options),
        subscription=subscription,
        starting=_position(options, subscription, "starting", "earliest"),
        ending=_position(options, subscription, "ending", "latest"),
        max_messages_per_trigger=read("maxMessagesPerTrigger", "100000", _count),
        max_bytes_per_trigger=read("maxBytesPerTrigger", "256MiB", _size),
        min_partitions=read("minPartitions", "1", _count),
        fail_on_data_loss=read("failOnDataLoss", "true", _boolean),
        poll_timeout_ms=read("pollTimeout", "500ms", _duration),
        reconnect_timeout_ms=read("reconnectTimeout", "2m", _duration),
        fetch_bytes=read("fetchBytes", "1MiB", _fetch_bytes),
        take_over=read("takeOver", "false", _boolean),
        processed_below=_processed_below(options, subscription),
        columns=_columns(options),
        headers=read("headersFormat", MAP, _headers_format),
        claims=read("claims", "false", _boolean),
        min_messages_per_trigger=read(MINIMA[0], "0", _count_or_none),
        min_bytes_per_trigger=read(MINIMA[1], "0", _size_or_none),
        max_trigger_delay_ms=read("maxTriggerDelay", "15m", _duration),
        given=frozenset(options),
    )
    _check_minima(settings)
    return settings


def _check_minima(settings: Settings) -> None:
    pairs = (
        (settings.min_messages_per_trigger, settings.max_messages_per_trigger, "Messages"),
        (settings.min_bytes_per_trigger, settings.max_bytes_per_trigger, "Bytes"),
    )
    for least, most, what in pairs:
        if least > most:
            raise ValueError(
                f"penstock: option 'min{what}PerTrigger' is more than max{what}PerTrigger, {most}"
            )
    if "maxtriggerdelay" in settings.given and not any(least for least, _, _ in pairs):
        raise ValueError(f"penstock: option 'maxTriggerDelay' belongs to {' or '.join(MINIMA)}")


KNOWN = (
    "url",
    "user",
    "password",
    *TLS_OPTIONS,
    *SUBSCRIPTIONS,
    "routingKey",
    "group",
    "channel",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    *MINIMA,
    "maxTriggerDelay",
    "minPartitions",
    "failOnDataLoss",
    "pollTimeout",
    "reconnectTimeout",
    "fetchBytes",
    "takeOver",
    "processedBelow",
    "columns",
    "includeHeaders",
    "headersFormat",
    "claims",
)
_KNOWN_LOWER = {name.lower(): name for name in KNOWN}
_OF_KAFKA: Final = {
    "endingoffsetsbytimestamp": "endingTimestamp",
    "group.id": "group",
    "kafka.bootstrap.servers": "url",
    "kafka.group.id": "group",
    "maxoffsetspertrigger": "maxMessagesPerTrigger",
    "minoffsetspertrigger": "minMessagesPerTrigger",
    "startingoffsetsbytimestamp": "startingTimestamp",
    "subscribe": "queue' or 'stream",
    "subscribepattern": "queuesPattern",
}
"""Options of Spark's source for Kafka, in small letters as Spark hands them on, and ours."""


def _refuse_unknown(options: Mapping[str, str]) -> None:
    if "path" in options:
        raise ValueError("penstock: load() takes no path; name the queue with option 'queue'")
    unknown = sorted(set(options) - set(_KNOWN_LOWER))
    if unknown:
        raise ValueError(f"penstock: unknown option '{unknown[0]}'; {_advice(unknown[0])}")


def _advice(unknown: str) -> str:
    near = get_close_matches(unknown, _KNOWN_LOWER, n=1)
    meant = _OF_KAFKA.get(unknown) or (_KNOWN_LOWER[near[0]] if near else "")
    return f"here it is '{meant}'" if meant else f"the options are {', '.join(KNOWN)}"


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    with_headers = _Reader(options)("includeHeaders", "true", _boolean)
    if "columns" not in options:
        return tuple(name for name in DEFAULT_COLUMNS if with_headers or name != "headers")
    columns = tuple(name.strip() for name in options["columns"].split(","))
    wrong = [name for name in columns if name not in COLUMNS]
    if wrong or len(set(columns)) != len(columns):
        raise ValueError(
            f"penstock: option 'columns' is {options['columns']!r}; give each at most once of "
            f"{', '.join(COLUMNS)}"
        )
    if "headers" in columns and not with_headers:
        raise ValueError("penstock: 'columns' names headers, 'includeHeaders' forbids them")
    return columns


def _subscription(options: Mapping[str, str]) -> Subscription:
    given = [name for name in SUBSCRIPTIONS if options.get(name.lower(), "").strip()]
    if len(given) != 1:
        what = "is missing: name the queue to read" if not given else f"and '{given[-1]}' are given"
        raise ValueError(
            f"penstock: option '{given[0] if given else 'queue'}' {what}; what is read is said by"
            " exactly one of queue, queues (a,b,c), queuesPattern (a regular expression), stream"
            " (with group), exchange (with group, routingKey) and topic (with channel)"
        )
    by = given[0]
    for name, belongs in BELONGS.items():
        if name.lower() in options and by not in belongs:
            owners = " or ".join(f"'{owner}'" for owner in belongs)
            raise ValueError(f"penstock: option '{name}' belongs to {owners}, not to '{by}'")
    if by == "stream":
        return Subscription(by, (options[by],), options.get("group", "").strip())
    if by == "queue":
        return Subscription(by, (options[by],))
    if by == "queues":
        return Subscription(by, _names("queues", options[by]))
    if by == "queuesPattern":
        return Subscription(by, (_pattern(options[by.lower()].strip()),))
    needed = "group" if by == "exchange" else "channel"
    own = options.get(needed, "").strip()
    if not own:
        raise ValueError(
            f"penstock: option '{by}' needs '{needed}': the name under which this pipeline gets "
            "messages of its own, and finds its place again"
        )
    keys = options.get("routingkey")
    more = () if keys is None else tuple(key.strip() for key in keys.split(","))
    return Subscription(by, (options[by].strip(), own, *more))


def _pattern(text: str) -> str:
    try:
        re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(
            f"penstock: option 'queuesPattern' is {text!r}, which is no regular expression: {error}"
        ) from None
    return text


def _names(option: str, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) != len(names):
        raise ValueError(
            f"penstock: option '{option}' is {text!r}; it must be names, each once, with commas"
        )
    return names


def _position(
    options: Mapping[str, str], subscription: Subscription, side: str, word: str
) -> Position:
    """``startingOffsets`` or ``startingTimestamp``, or their like with ``ending``."""
    offsets, timestamp = f"{side}Offsets", f"{side}Timestamp"
    if timestamp.lower() in options:
        if offsets.lower() in options:
            raise ValueError(f"penstock: give '{offsets}' or '{timestamp}', not both")
        return Position(timestamp_ms=_Reader(options)(timestamp, "", _timestamp))
    text = options.get(offsets.lower(), word).strip()
    if text.lower() in ("earliest", "latest"):
        if side == "ending" and text.lower() == "earliest":
            raise ValueError(f"penstock: option '{offsets}' is {text!r}; that would be nothing")
        return Position(text.lower())
    try:
        return Position(word, _seq_ids(text, subscription))
    except ValueError as error:
        words = "'earliest', 'latest'" if side == "starting" else "'latest'"
        example = (subscription.queues or ("orders",))[0]
        raise ValueError(
            f"penstock: option '{offsets}' is {text!r}; allowed are {words} and "
            f'{{"{example}": seq_id}} with numbers from 0 on, of the queues that are read{error}'
        ) from None


def _seq_ids(text: str, subscription: Subscription) -> dict[str, int]:
    """Positions by queue, as JSON; raises ValueError without a word of its own."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise ValueError("")
    for queue, seq_id in found.items():
        if not isinstance(seq_id, int) or isinstance(seq_id, bool) or not 0 <= seq_id < 1 << 62:
            raise ValueError("")
        if not subscription.may_read(queue):
            raise ValueError(f" ('{queue}' is not)")
    return found


def _processed_below(options: Mapping[str, str], subscription: Subscription) -> dict[str, int]:
    text = options.get("processedbelow", "").strip()
    if not text:
        return {}
    if re.fullmatch(r"[0-9]{1,18}", text) and subscription.by == "queue":
        return {subscription.names[0]: int(text)}
    try:
        return _seq_ids(text, subscription)
    except ValueError as error:
        raise ValueError(
            f"penstock: option 'processedBelow' is {text!r}; it must be a seq_id, or such as "
            f'{{"orders": 1200}} where several queues are read{error}'
        ) from None


def _headers_format(text: str) -> str:
    if text not in (MAP, ARRAY):
        raise ValueError(f"it must be {MAP} or {ARRAY}")
    return text


def _timestamp(text: str) -> int:
    """Milliseconds since 1970; without a zone, a date means UTC, as in column enqueued_at."""
    if re.fullmatch(r"[0-9]{1,15}", text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            "it must be such as 2026-11-21T08:30:00Z, or milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


class _Reader:
    """Reads one option with its default, and says which one was wrong."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = options

    def __call__(self, name: str, default: str, parse: Callable[[str], Any]) -> Any:
        text = self._options.get(name.lower(), default).strip()
        try:
            return parse(text)
        except ValueError as error:
            raise ValueError(f"penstock: option '{name}' is {text!r}; {error}") from None


def _count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,15}", text) or int(text) < 1:
        raise ValueError("it must be a whole number, at least 1")
    return int(text)


def _count_or_none(text: str) -> int:
    return 0 if text == "0" else _count(text)


def _size_or_none(text: str) -> int:
    return 0 if text == "0" else _size(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return text.lower() == "true"


_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


def _size(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,15})\s*([A-Za-z]*)", text)
    if not match or match[2].lower() not in _UNITS or int(match[1]) < 1:
        raise ValueError("it must be a size such as 1048576, 512KiB, 64MiB or 1GiB")
    return int(match[1]) * _UNITS[match[2].lower()]


def _fetch_bytes(text: str) -> int:
    size = _size(text)
    if not 1 << 16 <= size <= 1 << 26:
        raise ValueError("it must be a size from 64KiB to 64MiB")
    return size


_DURATIONS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000}


def _duration(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})\s*([A-Za-z]*)", text)
    if not match or match[2].lower() not in _DURATIONS_MS:
        raise ValueError("it must be a time such as 500ms, 30s, 2m, or a number of milliseconds")
    return int(match[1]) * _DURATIONS_MS[match[2].lower()]
