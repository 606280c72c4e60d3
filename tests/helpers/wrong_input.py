"""What a peer may do wrong, as Hypothesis strategies, and what it must be told for it.

An *act* is some octets on one channel: a method with any values its fields can hold, a part of a
content, a frame that is none, or octets damaged on the way.  ``Model`` remembers of a connection
what decides the answer (which channels are open or closing, where content is due) and says for
each act which answers are right.  The codes come from the recordings of RabbitMQ (``frames``,
``channel``, ``handshake`` in ``tests/conformance``).

Values are drawn from what brokers trip over: bounds, names with a meaning, arguments of the wrong
type.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from penstock.protocols.amqp.codec.refusals import METHOD_BYTES_MAX
from tests.helpers import raw_codec as codec
from tests.helpers.raw_codec import Typed

HARD: Final = frozenset({320, 501, 502, 503, 504, 505, 530, 540, 541})
"""Codes that end the connection; all others end the channel only."""
MESSAGE_MAX_BYTES: Final = 1 << 20
CONTENT_METHODS: Final = ("basic.publish", "basic.return", "basic.deliver", "basic.get-ok")
UNASKED: Final = ("basic.deliver", "basic.return", "basic.ack", "basic.nack", "basic.cancel")
"""What a broker says when it is time, not as an answer."""

NAMES: Final = (
    "", "q", "durable", "own", "healthy", "short", "priorities", "missing", "x", "internal",
    "headers", "hashes", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match",
    "amq.rabbitmq.trace", "amq.rabbitmq.reply-to", "amq.rabbitmq.reply-to.nobody", "amq.mine",
    "amq.penstock.extend", "direct", "fanout", "topic", "x-delayed-message", "x-consistent-hash",
    "sideways", "c", "#", "a.*.b", ".", "\0", "\r\n", "n" * 255, "\u00e9" * 127, "%s", "1",
    "-1", "/",
)  # fmt: skip
ARGUMENTS: Final = (
    "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow",
    "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-priority", "x-queue-mode",
    "x-queue-type", "x-single-active-consumer", "x-delivery-limit", "x-message-deduplication",
    "x-cache-size", "x-cache-ttl", "x-cache-persistence", "x-queue-version", "x-priority",
    "x-cancel-on-ha-failover", "x-match", "x-delayed-type", "hash-header", "hash-property",
    "alternate-exchange", "x-queue-master-locator", "x-consumer-timeout", "x-stream-offset",
    "CC", "BCC", "x-death", "x-delay", "x-deduplication-header", "a", "", "k" * 255,
)  # fmt: skip
TEXTS: Final = (
    *NAMES, "reject-publish", "reject-publish-dlx", "drop-head", "lazy", "classic", "quorum",
    "stream", "disk", "memory", "all", "any", "any-with-x",
)  # fmt: skip

_WIDTHS: Final = {
    "b": (8, True), "B": (8, False), "s": (16, True), "u": (16, False), "I": (32, True),
    "i": (32, False), "l": (64, True), "T": (64, False),
}  # fmt: skip


def _bounds(bits: int, signed: bool) -> tuple[int, int]:
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def _typed_integers() -> st.SearchStrategy[Typed]:
    def of(letter: str) -> st.SearchStrategy[Typed]:
        low, high = _bounds(*_WIDTHS[letter])
        numbers = st.sampled_from(sorted({low, 0, 1, 2, 10, high}))
        return st.builds(Typed, st.just(letter), numbers)

    return st.sampled_from(sorted(_WIDTHS)).flatmap(of)


def _scalars() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(),
        st.booleans(),
        _typed_integers(),
        st.sampled_from([0, 1, 5, -1]),
        st.sampled_from(TEXTS),
        st.sampled_from([0.0, 1.5, float("nan"), float("inf"), -1e308]),
        st.sampled_from([b"", b"\xff\xfe", b"q"]),
        st.builds(Typed, st.just("S"), st.sampled_from([b"\xff\xfe", b"\0"])),
        st.builds(Typed, st.just("D"), st.sampled_from([(0, 0), (255, -(1 << 31))])),
    )


VALUES: Final = st.recursive(
    _scalars(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(ARGUMENTS), inner, max_size=3)
    ),
    max_leaves=6,
)
_ARGUMENTS_OF: Final[dict[str, tuple[str, ...]]] = {
    "queue.declare": tuple(name for name in ARGUMENTS[:16] if name != "x-priority"),
    "basic.consume": ("x-priority", "x-consumer-timeout", "x-stream-offset"),
    "exchange.declare": (
        "alternate-exchange", "x-delayed-type", "hash-header", "hash-property", "x-cache-size",
        "x-cache-ttl", "x-cache-persistence",
    ),
    "queue.bind": ("x-match", "a", "x-match-of-mine"),
    "exchange.bind": ("x-match", "a"),
}  # fmt: skip
_HEADERS: Final = (
    "CC", "BCC", "x-death", "x-delay", "x-deduplication-header", "x-cache-ttl", "timestamp_in_ms",
)  # fmt: skip


def _table_of(keys: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(keys), _scalars() | VALUES, max_size=2)


TABLES: Final = st.just({}) | st.dictionaries(st.sampled_from(ARGUMENTS), VALUES, max_size=3)

_FIELDS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "o": st.sampled_from([0, 1, 127, 128, 255]),
    "h": st.sampled_from([0, 1, 2, 9, 200, 32_767, 32_768, 65_535]),
    "l": st.sampled_from([0, 1, 4096, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]),
    "q": st.sampled_from([0, 1, 2, 3, (1 << 31), (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    "b": st.booleans(),
    "s": st.sampled_from(NAMES),
    "S": st.sampled_from([b"", b"\0guest\0guest", b"\xff" * 300, b"x" * 70_000]),
    "t": TABLES,
}

_ANY_NAME: Final = st.sampled_from(NAMES)
_EXCHANGES: Final = st.sampled_from(("x", "internal", "headers", "hashes", "amq.topic", ""))
_QUEUES: Final = st.sampled_from(("q", "durable", "own", "short", "priorities", "new", ""))
_TYPES: Final = st.sampled_from(
    (
        "direct",
        "fanout",
        "topic",
        "headers",
        "x-delayed-message",
        "x-consistent-hash",
        "x-message-deduplication",
    )
)
_RARELY: Final = st.sampled_from([False] * 9 + [True])
_MOSTLY: Final = _RARELY.map(lambda rarely: not rarely)
_BY_NAME: Final[dict[str, st.SearchStrategy[Any]]] = {
    "exchange": _EXCHANGES | _ANY_NAME,
    "source": _EXCHANGES | _ANY_NAME,
    "destination": _EXCHANGES | _ANY_NAME,
    "queue": _QUEUES | _ANY_NAME,
    "routing_key": _QUEUES | _ANY_NAME,
    "type": st.one_of(_TYPES, _TYPES, _ANY_NAME),
    "immediate": _RARELY,
    "passive": _RARELY,
    "nowait": _RARELY,
    "active": _MOSTLY,
    "requeue": _MOSTLY,
    "prefetch_size": st.sampled_from([0] * 9 + [1 << 31]),
    "delivery_tag": st.sampled_from([1, 2, 3]) | _FIELDS["q"],
}
"""Fields that end too much too early, or say too little, when they are anything."""


@dataclass(frozen=True)
class Act:
    """``kind``: method, header, body, frame or damaged."""

    kind: str
    channel: int
    data: bytes = field(repr=False)
    name: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    """Of the body announced by a header, or of a body frame; of a frame, the code it earns."""


CHANNELS: Final = st.sampled_from([1] * 12 + [2] * 6 + [3, 0, 2048, 65_535])


def _method(channel: int, name: str, values: dict[str, Any]) -> Act:
    data = codec.encode_frame(codec.METHOD, channel, codec.encode_method(name, **dict(values)))
    return Act("method", channel, data, name, values)


def _values_of(name: str) -> st.SearchStrategy[dict[str, Any]]:
    fields = dict(codec.method_fields(name))
    return st.fixed_dictionaries(
        {
            key: _table_of(_ARGUMENTS_OF[name]) | TABLES
            if key == "arguments" and name in _ARGUMENTS_OF
            else _BY_NAME.get(key, _FIELDS[letter])
            for key, letter in fields.items()
        }
    )


def methods(names: Iterable[str] = tuple(codec.METHOD_IDS)) -> st.SearchStrategy[Act]:
    return st.sampled_from(sorted(names)).flatmap(
        lambda name: st.builds(_method, CHANNELS, st.just(name), _values_of(name))
    )


def _header(channel: int, class_id: int, size: int, properties: dict[str, Any]) -> Act:
    data = codec.header_frame(channel, size, properties, class_id)
    return Act("header", channel, data, "", {"class_id": class_id}, size)


_PROPERTIES_BY_NAME: Final[dict[str, st.SearchStrategy[Any]]] = {
    "expiration": st.sampled_from(["", "0", "-1", "1e3", "9" * 30, "60000"]),
    "headers": _table_of(_HEADERS) | TABLES,
    "user_id": st.sampled_from(["guest"] * 9 + ["somebody"]),
}
PROPERTY_VALUES: Final = st.fixed_dictionaries(
    {},
    optional={
        name: _PROPERTIES_BY_NAME.get(name, _FIELDS[letter])
        for name, letter in codec.property_fields()
    },
)
SIZES: Final = st.sampled_from(
    [0, 1, 3, 3, MESSAGE_MAX_BYTES, MESSAGE_MAX_BYTES + 1, 1 << 32, 1 << 63, (1 << 64) - 1]
)


def headers() -> st.SearchStrategy[Act]:
    classes = st.sampled_from([60, 60, 60, 60, 50, 0, 65_535])
    return st.builds(_header, CHANNELS, classes, SIZES, PROPERTY_VALUES)


def _body(channel: int, size: int) -> Act:
    return Act(
        "body",
        channel,
        codec.encode_frame(codec.BODY, channel, (b"1,2," * size)[:size]),
        "",
        {},
        size,
    )


def bodies() -> st.SearchStrategy[Act]:
    return st.builds(_body, CHANNELS, st.sampled_from([0, 1, 2, 3, 5000]))


def _frames(channel: int) -> list[Act]:
    plain = codec.encode_frame(codec.METHOD, channel, codec.encode_method("basic.qos"))
    heartbeat = codec.encode_frame(codec.HEARTBEAT, channel, b"")
    return [
        Act("frame", channel, heartbeat, size=505 if channel else 0),
        Act("frame", channel, codec.encode_frame(codec.HEARTBEAT, channel, b"abc"), size=501),
        *(
            Act("frame", channel, codec.encode_frame(kind, channel, b"abc"), size=501)
            for kind in (0, 4, 9, 255)
        ),
        Act("frame", channel, codec.encode_frame(codec.METHOD, channel, b""), size=501),
        Act("frame", channel, codec.encode_frame(codec.METHOD, channel, b"\0\x3c\0"), size=501),
        Act("frame", channel, plain[:-1] + b"\xcd", size=501),
        Act("frame", channel, plain[:3] + b"\xff\xff\xff\xff", size=501),
        Act("frame", channel, codec.PROTOCOL_HEADER, size=501),
    ]


def frames() -> st.SearchStrategy[Act]:
    return CHANNELS.flatmap(lambda channel: st.sampled_from(_frames(channel)))


def _damaged(act: Act, place: float, octets: bytes, how: str) -> Act:
    """The payload is changed; the frame around it fits again."""
    payload = act.data[7:-1]
    at = int(place * len(payload))
    changed = {
        "cut": payload[:at],
        "more": payload + octets,
        "other": payload[:at] + octets + payload[at + len(octets) :],
        "less": payload[:at] + payload[at + len(octets) :],
    }[how]
    return Act(
        "damaged", act.channel, codec.encode_frame(act.data[0], act.channel, changed), act.name
    )


def damaged() -> st.SearchStrategy[Act]:
    return st.builds(
        _damaged,
        methods() | headers(),
        st.floats(0, 1, exclude_max=True),
        st.binary(min_size=1, max_size=4),
        st.sampled_from(["cut", "more", "other", "less"]),
    )


FROM_CLIENTS: Final = tuple(
    name
    for name in codec.METHOD_IDS
    if not name.endswith(("-ok", "-empty")) and name not in ("basic.deliver", "basic.return")
)
USUAL: Final = tuple(name for name in FROM_CLIENTS if not name.startswith("connection."))


def acts() -> st.SearchStrategy[Act]:
    """Whatever there is."""
    return st.one_of(methods(USUAL), headers(), bodies(), methods(), frames(), damaged())


def _publish(values: dict[str, Any], channel: int, properties: dict[str, Any]) -> list[Act]:
    return [
        _method(channel, "basic.publish", values),
        _header(channel, 60, 3, properties),
        _body(channel, 3),
    ]


def steps() -> st.SearchStrategy[list[Act]]:
    """A publish that is whole, a method that clients say, or any act at all."""
    publish = st.builds(_publish, _values_of("basic.publish"), CHANNELS, PROPERTY_VALUES)
    method = methods(USUAL).map(lambda act: [act])
    anything = acts().map(lambda act: [act])
    return st.one_of(publish, method, method, method, method, anything)


def lives(max_size: int = 12) -> st.SearchStrategy[list[Act]]:
    return st.lists(steps(), min_size=1, max_size=max_size).map(
        lambda parts: [act for part in parts for act in part]
    )


# -- what is right ---------------------------------------------------------------------------

_DECLARING: Final = frozenset({403, 404, 405, 406})
CODES: Final[dict[str, frozenset[int]]] = {
    "channel.open": frozenset({504}),
    "channel.flow": frozenset({540}),
    "channel.close": frozenset(),
    "access.request": frozenset(),
    "exchange.declare": frozenset({403, 404, 406, 503, 540}),
    "exchange.delete": frozenset({403, 406}),
    "exchange.bind": frozenset({403, 404, 406}),
    "exchange.unbind": frozenset({403, 404, 406}),
    "queue.declare": _DECLARING | {540},
    "queue.bind": _DECLARING,
    "queue.unbind": _DECLARING,
    "queue.purge": frozenset({404, 405}),
    "queue.delete": frozenset({404, 405, 406}),
    "basic.qos": frozenset({540}),
    "basic.consume": _DECLARING | {530, 540},
    "basic.cancel": frozenset(),
    "basic.publish": frozenset({403, 404, 406, 540}),
    "basic.get": frozenset({404, 405}),
    "basic.ack": frozenset({406}),
    "basic.reject": frozenset({406}),
    "basic.nack": frozenset({406}),
    "basic.recover": frozenset({540}),
    "basic.recover-async": frozenset({540}),
    "tx.select": frozenset({406}),
    "tx.commit": frozenset({403, 404, 406}),
    "tx.rollback": frozenset({406}),
    "confirm.select": frozenset({406}),
}
"""What a method of a client may be refused with on an open channel; all others earn 503."""
SILENT: Final = ("basic.publish", "basic.ack", "basic.nack", "basic.reject", "basic.recover-async")
"""Methods without an answer when all is well."""


@dataclass(frozen=True)
class Right:
    """The right answers to one act."""

    replies: tuple[str, ...] = ()
    codes: frozenset[int] = frozenset()
    silence: bool = False
    anything: bool = False


NOTHING: Final = Right(silence=True)


def _only(code: int) -> Right:
    return Right(codes=frozenset({code}))


OPEN, CLOSING = "open", "closing"
TAGS_MAX: Final = 1 << 20
"""No channel here has as many deliveries."""
PREDECLARED: Final = ("", "amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match")
HEADER_DUE = -1
FRAME_MAX_BYTES: Final = 131_072
FRAME_BYTES: Final = 8
"""Of a frame beside its payload."""


class Model:
    """One connection, as far as it decides what is right."""

    def __init__(self) -> None:
        self.channels: dict[int, str] = {1: OPEN, 2: OPEN}
        self.due: dict[int, int] = {}
        """Channel to octets of the body that are missing, or ``HEADER_DUE``."""
        self.transactional: set[int] = set()
        """Channels that may ever have been: tags are looked at with the commit there."""
        self.over = False
        self.lost_track = False
        """Damaged octets may have meant anything."""

    def right(self, act: Act) -> Right:
        if self.over:
            return Right(("connection.close-ok",), silence=True)
        if self.lost_track or act.kind == "damaged":
            self.lost_track = True
            return Right(anything=True)
        if len(act.data) > FRAME_MAX_BYTES:
            return _only(501)
        if act.kind == "frame":
            return _only(act.size) if act.size else NOTHING
        if act.channel == 0:
            return self._on_channel_0(act)
        state = self.channels.get(act.channel)
        if state is None:
            return self._unopened(act)
        if state == CLOSING:
            return self._closing(act)
        if act.kind == "method":
            return self._method(act)
        return self._content(act)

    def _on_channel_0(self, act: Act) -> Right:
        if act.kind != "method":
            return _only(505)
        if act.name == "connection.close":
            self.over = True
            return Right(("connection.close-ok",))
        if act.name == "connection.update-secret":
            return Right(("connection.update-secret-ok",))
        return _only(504)

    def _unopened(self, act: Act) -> Right:
        if act.kind != "method":
            return _only(505)
        if act.name == "channel.open":
            self.channels[act.channel] = OPEN
            return Right(("channel.open-ok",))
        # A close-ok that comes late is forgiven (see the differences to RabbitMQ).
        return NOTHING if act.name == "channel.close-ok" else _only(504)

    def _closing(self, act: Act) -> Right:
        if act.name == "channel.open":
            return _only(504)
        if act.name == "channel.close-ok":
            del self.channels[act.channel]
        if act.name == "channel.close":
            del self.channels[act.channel]
            return Right(("channel.close-ok",))
        return NOTHING

    def _method(self, act: Act) -> Right:
        name = act.name
        if act.channel in self.due:
            return _only(505)
        if name != "basic.publish" and len(act.data) - FRAME_BYTES > METHOD_BYTES_MAX:
            return _only(406)
        if name not in CODES:
            return _only(503)
        if name == "channel.close":
            del self.channels[act.channel]
        if name == "basic.publish":
            self.due[act.channel] = HEADER_DUE
        if code := self._certain(act):
            return _only(code)
        if name == "tx.select":
            self.transactional.add(act.channel)
        silent = name in SILENT or act.values.get("nowait") is True
        replies = (name + "-ok", "basic.get-empty") if name == "basic.get" else (name + "-ok",)
        refuses = name == "channel.open" or (name == "channel.flow" and not act.values["active"])
        return Right(() if refuses else replies, CODES[name], silence=silent)

    def _certain(self, act: Act) -> int:
        """The one code it must be, 0 when there is a choice."""
        name, values = act.name, act.values
        if name == "basic.qos" and values["prefetch_size"]:
            return 540
        if name.startswith("basic.recover") and not values["requeue"]:
            return 540
        if name in ("basic.ack", "basic.nack", "basic.reject"):
            unknown = values["delivery_tag"] > TAGS_MAX
            return 406 if unknown and act.channel not in self.transactional else 0
        if name in ("basic.get", "queue.purge", "queue.delete"):
            return 405 if values["queue"] == "healthy" else 0
        if name == "exchange.delete":
            return 403 if values["exchange"] in PREDECLARED else 0
        return 0

    def _content(self, act: Act) -> Right:
        due = self.due.get(act.channel)
        refusals = CODES["basic.publish"]
        if due is None or (act.kind == "header") != (due == HEADER_DUE):
            return _only(505)
        if act.kind == "header":
            if act.values["class_id"] != codec.METHOD_IDS["basic.publish"][0]:
                return _only(505)
            self._await(act.channel, act.size)
            return Right(codes=refusals, silence=act.size <= MESSAGE_MAX_BYTES)
        if act.size > due:
            return _only(505)
        self._await(act.channel, due - act.size)
        return Right(codes=refusals, silence=True)

    def _await(self, channel: int, size: int) -> None:
        self.due[channel] = size
        if size == 0:
            del self.due[channel]

    def answered(self, name: str, channel: int) -> None:
        """What the broker said, when it ends something."""
        if name == "connection.close":
            self.over = True
        elif name == "channel.close":
            self.channels[channel] = CLOSING
            self.due.pop(channel, None)
