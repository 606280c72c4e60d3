"""Requests about queues whose master is on another node, as bytes (``core/queue_requests.py``).

A payload is any number of them, one behind the other; numbers are big-endian and of fixed size:

    kind u8 · no u64 · then by kind
    1  Open         vhost text · name text
    2  Close
    3  Given        first u64 · until_ms u64 · messages
    4  Subscribe    consumer u64 · question u64 · flags u8 (1 no_ack, 2 exclusive) · priority i64
                    · window i64 (-1 = any) · tag text · arguments (a field table of AMQP)
    5  Window       consumer u64 · window i64 · taken_bytes u64
    6  Unsubscribe  consumer u64
    7  Settle       consumer u64 · kind u8 · delay_ms u64 · runs u32, each first u64 · last u64
    8  Ask          question u64 · verb u8 · flags u8
    16 Gone
    17 Safe         upto u64 · refused u32, each u64
    18 Taken        cost u64
    19 Delivered    consumer u64 · first u64 · again_count u64 · messages
    20 Cancelled    consumer u64
    21 Answered     question u64 · value u64 · first u64 · error text · text text · messages
    22 State        ready_count u64 · ready_bytes u64 · unacked_count u64 · consumer_count u64

    text      length u16 · UTF-8, with what is none kept as it was (surrogates)
    messages  count u32 · each: flags u64 · expires_at_ms u64 · enqueued_at_ms u64
              · address length u16 (65535 = that of the one before) · address
              · content length u32 · content

Contents and addresses are raw: nothing of them is looked at.  Of the flags those travel that say
something of a message, not of how it rests.  Anything else than the above is refused.
"""

from collections import deque
from struct import Struct
from typing import Final, final

from penstock.core import queue_requests as q
from penstock.core.byte_reader import ByteReader, Malformed
from penstock.core.clock_types import WallMs
from penstock.core.message import ASKS_REPLY, COPIES, PERSISTENT, REDELIVERED, Message
from penstock.protocols.amqp.codec.errors import MalformedArguments, ProtocolViolation
from penstock.protocols.amqp.codec.tables import decode_table, encode_table

OPEN, CLOSE, GIVEN, SUBSCRIBE, WINDOW, UNSUBSCRIBE, SETTLE, ASK = range(1, 9)
GONE, SAFE, TAKEN, DELIVERED, CANCELLED, ANSWERED, STATE = range(16, 23)

SAME: Final = 0xFFFF
NUMBER_MAX: Final = 1 << 62
FLAGS: Final = PERSISTENT | REDELIVERED | COPIES | 0xFF00 | 0xFFFF_0000 | ASKS_REPLY

_HEAD: Final = Struct(">BQ")
_U8: Final = Struct(">B")
_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_I64: Final = Struct(">q")
_MESSAGE: Final = Struct(">QQQH")
_SUBSCRIBE: Final = Struct(">QQBqq")


# -- out -------------------------------------------------------------------------------------


def encode_some(requests: deque[q.QueueRequest], most_bytes: int) -> bytes:
    """Takes from the front what makes so many bytes, or one that makes more."""
    parts: list[bytes] = []
    size = 0
    while requests and size < most_bytes:
        known = len(parts)
        _write(parts, requests.popleft())
        for part in parts[known:]:
            size += len(part)
    return b"".join(parts)


def _write(parts: list[bytes], one: q.QueueRequest) -> None:
    no = int(one.no)
    if isinstance(one, q.Given):
        parts.append(_HEAD.pack(GIVEN, no) + _numbers(one.first, int(one.until_ms)))
        _write_messages(parts, one.messages)
    elif isinstance(one, q.Delivered):
        parts.append(_HEAD.pack(DELIVERED, no))
        parts.append(_numbers(one.consumer, one.first, one.again_count))
        _write_messages(parts, one.messages)
    elif isinstance(one, q.Settle):
        parts.append(_HEAD.pack(SETTLE, no) + _numbers(one.consumer) + _U8.pack(int(one.kind)))
        parts.append(_numbers(one.delay_ms) + _U32.pack(len(one.runs)))
        parts.extend(_numbers(first, last) for first, last in one.runs)
    elif isinstance(one, q.Safe):
        parts.append(_HEAD.pack(SAFE, no) + _numbers(one.upto) + _U32.pack(len(one.refused)))
        parts.append(_numbers(*one.refused))
    elif isinstance(one, q.Window):
        parts.append(_HEAD.pack(WINDOW, no) + _numbers(one.consumer))
        parts.append(_I64.pack(int(one.window)) + _numbers(one.taken_bytes))
    elif isinstance(one, q.Answered):
        parts.append(_HEAD.pack(ANSWERED, no) + _numbers(one.question, one.value, one.first))
        parts.append(_text(one.error) + _text(one.text))
        _write_messages(parts, one.messages)
    else:
        parts.append(_rare(one))


def _rare(one: q.QueueRequest) -> bytes:
    no = int(one.no)
    if isinstance(one, q.Taken):
        return _HEAD.pack(TAKEN, no) + _numbers(one.cost)
    if isinstance(one, q.Open):
        return _HEAD.pack(OPEN, no) + _text(one.vhost) + _text(one.name)
    if isinstance(one, q.Close):
        return _HEAD.pack(CLOSE, no)
    if isinstance(one, q.Subscribe):
        return _HEAD.pack(SUBSCRIBE, no) + _subscribe(one)
    if isinstance(one, q.Unsubscribe):
        return _HEAD.pack(UNSUBSCRIBE, no) + _numbers(one.consumer)
    if isinstance(one, q.Ask):
        head = _HEAD.pack(ASK, no) + _numbers(one.question)
        return head + bytes((int(one.verb), int(one.flags)))
    if isinstance(one, q.Gone):
        return _HEAD.pack(GONE, no)
    if isinstance(one, q.Cancelled):
        return _HEAD.pack(CANCELLED, no) + _numbers(one.consumer)
    assert isinstance(one, q.State)
    counts = (one.ready_count, one.ready_bytes, one.unacked_count, one.consumer_count)
    return _HEAD.pack(STATE, no) + _numbers(*counts)


def _subscribe(one: q.Subscribe) -> bytes:
    flags = (1 if one.no_ack else 0) | (2 if one.exclusive else 0)
    head = _SUBSCRIBE.pack(
        int(one.consumer), int(one.question), flags, int(one.priority), int(one.window)
    )
    return head + _text(one.tag) + encode_table(one.arguments)


def _numbers(*numbers: int) -> bytes:
    return b"".join([_U64.pack(int(number)) for number in numbers])


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")[:SAME]
    return _U16.pack(len(data)) + data


def _write_messages(parts: list[bytes], messages: list[Message]) -> None:
    parts.append(_U32.pack(len(messages)))
    before = b""
    for message in messages:
        address = message.address
        flags = int(message.flags) & FLAGS
        times = int(message.expires_at_ms), int(message.enqueued_at_ms)
        if address == before:
            parts.append(_MESSAGE.pack(flags, *times, SAME))
        else:
            parts.append(_MESSAGE.pack(flags, *times, len(address)))
            parts.append(address)
            before = address
        parts.append(_U32.pack(len(message.content)))
        parts.append(message.content)


# -- in --------------------------------------------------------------------------------------


def decode_requests(payload: bytes) -> list[q.QueueRequest]:
    """Raises Malformed."""
    reader = _RequestReader(payload, 0, len(payload))
    found: list[q.QueueRequest] = []
    while reader.offset < reader.end:
        kind, no = reader.octet(), reader.number()
        found.append(_read_request(reader, kind, no) if kind < GONE else _read(reader, kind, no))
    return found


@final
class _RequestReader(ByteReader):
    __slots__ = ()

    def below(self, limit: int) -> int:
        value = self.octet()
        if value >= limit:
            raise Malformed(f"{value} where less than {limit} was expected")
        return value

    def table(self) -> dict[str, object]:
        try:
            table, self.offset = decode_table(self.data, self.offset)
        except (MalformedArguments, ProtocolViolation) as error:
            raise Malformed(f"a table of arguments: {error}") from error
        return table

    def messages(self) -> list[Message]:
        found: list[Message] = []
        address = b""
        for _ in range(self.count(_MESSAGE.size + 4)):
            flags, expires_at_ms, enqueued_at_ms, size = _MESSAGE.unpack_from(
                self.data, self.take(_MESSAGE.size)
            )
            if flags & ~FLAGS or max(expires_at_ms, enqueued_at_ms) > NUMBER_MAX:
                raise Malformed("a message with unknown flags or times")
            if size != SAME:
                address = self.raw(size)
            content = self.raw(self.long())
            message = Message(content, address, flags, expires_at_ms)
            message.place(-1, enqueued_at_ms)
            found.append(message)
        return found


def _read_request(reader: _RequestReader, kind: int, no: int) -> q.QueueRequest:
    if kind == GIVEN:
        return q.Given(no, reader.number(), WallMs(reader.number()), reader.messages())
    if kind == SETTLE:
        consumer, what, delay_ms = reader.number(), reader.below(q.GIVE_BACK + 1), reader.number()
        runs = [(reader.number(), reader.number()) for _ in range(reader.count(16))]
        if any(first > last for first, last in runs):
            raise Malformed("a run of deliveries that ends before it begins")
        return q.Settle(no, consumer, what, delay_ms, runs)
    if kind == WINDOW:
        return q.Window(no, reader.number(), _window(reader), reader.number())
    if kind == OPEN:
        return q.Open(no, reader.text(), reader.text())
    if kind == CLOSE:
        return q.Close(no)
    if kind == SUBSCRIBE:
        consumer, question, flags = reader.number(), reader.number(), reader.below(4)
        priority, window, tag = reader.signed(), _window(reader), reader.text()
        no_ack, exclusive = flags & 1 != 0, flags & 2 != 0
        return q.Subscribe(
            no, consumer, question, tag, no_ack, exclusive, priority, window, reader.table()
        )
    if kind == UNSUBSCRIBE:
        return q.Unsubscribe(no, reader.number())
    if kind == ASK:
        return q.Ask(no, reader.number(), reader.below(q.FACTS + 1), reader.below(8))
    raise Malformed(f"a request of the kind {kind}")


def _window(reader: _RequestReader) -> int:
    window = reader.signed()
    if not q.ANY_WINDOW <= window <= NUMBER_MAX:
        raise Malformed(f"a window of {window}")
    return window


def _read(reader: _RequestReader, kind: int, no: int) -> q.QueueRequest:
    if kind == DELIVERED:
        numbers = reader.number(), reader.number(), reader.number()
        return q.Delivered(no, *numbers, reader.messages())
    if kind == SAFE:
        upto = reader.number()
        return q.Safe(no, upto, [reader.number() for _ in range(reader.count(8))])
    if kind == TAKEN:
        return q.Taken(no, reader.number())
    if kind == ANSWERED:
        question, value, first = reader.number(), reader.number(), reader.number()
        error, text = reader.text(), reader.text()
        return q.Answered(no, question, error, text, value, first, reader.messages())
    if kind == STATE:
        return q.State(no, reader.number(), reader.number(), reader.number(), reader.number())
    if kind == CANCELLED:
        return q.Cancelled(no, reader.number())
    if kind == GONE:
        return q.Gone(no)
    raise Malformed(f"an answer of the kind {kind}")
