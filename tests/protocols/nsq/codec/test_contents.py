"""Ids and contents of NSQ messages: unique, laid out as promised, and readable by AMQP."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from penstock.core.message import ATTEMPTS_MAX, ONE_ATTEMPT, Message
from penstock.protocols.amqp.codec.properties import body_of, decode_properties
from penstock.protocols.nsq.codec import contents
from penstock.protocols.nsq.codec.contents import ContentMaker
from penstock.protocols.nsq.codec.frames import error_frame, response_frame, write_message
from penstock.protocols.nsq.codec.ids import SUFFIXES, IdFactory
from tests.helpers import raw_codec
from tests.helpers.raw_nsq import MESSAGE, NsqMessage, message_in, split_frames

NOW_NS = 1_795_000_000_123_456_789


def ids_of(factory: IdFactory, count: int, now_ns: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        taken = int(factory.take(count - len(found), now_ns))
        first = int(factory.first)
        found += [factory.prefix + suffix for suffix in SUFFIXES[first : first + taken]]
    return found


def test_an_id_has_nsqds_layout() -> None:
    number = int(IdFactory(517).one(NOW_NS), 16)
    assert number >> 22 == (NOW_NS >> 20) - 1288834974288
    assert number >> 12 & 0x3FF == 517
    assert number & 0xFFF == 0


@given(st.lists(st.tuples(st.integers(1, 9000), st.integers(-5_000_000, 5_000_000)), max_size=8))
def test_ids_differ_and_grow_whatever_the_clock_does(steps: list[tuple[int, int]]) -> None:
    factory = IdFactory(1)
    now_ns = NOW_NS
    found: list[bytes] = []
    for count, step_ns in steps:
        now_ns += step_ns
        found += ids_of(factory, count, now_ns)
    assert found == sorted(set(found))
    assert all(len(one) == 16 for one in found)


def content_of(body: bytes, mode: int = 2) -> bytes:
    factory = IdFactory(3)
    factory.take(1, NOW_NS)
    maker = ContentMaker()
    maker.begin(NOW_NS, mode, factory.prefix)
    return maker.make(SUFFIXES[factory.first], body)


@given(st.binary(min_size=1, max_size=300), st.sampled_from([1, 2]))
def test_amqp_reads_what_nsq_published(body: bytes, mode: int) -> None:
    content = content_of(body, mode)
    properties = decode_properties(content)
    assert body_of(content) == body
    assert properties.as_dict() == {
        "headers": {"x-nsq-timestamp-ns": NOW_NS},
        "delivery_mode": mode,
        "message_id": IdFactory(3).one(NOW_NS).decode(),
        "timestamp": NOW_NS // 1_000_000_000,
    }


def frame_of(message: Message, key: bytes) -> NsqMessage:
    out = BytesWriter()
    write_message(out, message, key)
    (frame,), rest = split_frames(out.getvalue())
    assert rest == b""
    assert frame.type == MESSAGE
    return message_in(frame.data)


def test_a_message_keeps_its_id_its_time_and_its_body() -> None:
    message = Message(content_of(b"hello"), b"", 0, 0)
    message.flags += 3 * ONE_ATTEMPT
    key = contents.id_of(message)
    assert key == IdFactory(3).one(NOW_NS)
    assert contents.timestamp_ns(message) == NOW_NS
    assert frame_of(message, key) == NsqMessage(NOW_NS, 3, key, b"hello")


def test_attempts_are_unsigned() -> None:
    message = Message(content_of(b"m"), b"", 0, 0)
    message.flags += ATTEMPTS_MAX * ONE_ATTEMPT
    assert frame_of(message, b"k" * 16).attempts == 65_535


@given(
    st.lists(st.binary(min_size=1, max_size=9), max_size=4),
    st.sampled_from(
        [{}, {"delivery_mode": 2}, {"message_id": "0123456789abcdef"}, {"headers": {}}]
    ),
)
def test_amqp_messages_come_with_a_lasting_id(
    pieces: list[bytes], properties: dict[str, object]
) -> None:
    body = b"".join(pieces)
    whole = raw_codec.content_frames(1, body, properties)
    header = whole[: 8 + int.from_bytes(whole[3:7], "big")]
    content = header + b"".join(
        b"\x03\x00\x01" + len(piece).to_bytes(4, "big") + piece + b"\xce" for piece in pieces
    )
    message = Message(content, b"", 0, 0)
    message.seq_id = 77
    message.enqueued_at_ms = 1_795_000_000_000
    key = contents.id_of(message)
    assert len(key) == 16
    assert contents.id_of(message) == key
    assert frame_of(message, key) == NsqMessage(1_795_000_000_000_000_000, 0, key, body)
    assert contents.body(content) == body
    message.seq_id = 78
    assert contents.id_of(message) != key


def test_a_body_cut_into_frames_is_whole_even_with_our_properties() -> None:
    """An AMQP client may publish again what it got, with frames of its own."""
    content = content_of(b"abcdef")
    cut = content[:80] + b"\x03\x00\x01\x00\x00\x00\x02ab\xce\x03\x00\x01\x00\x00\x00\x04cdef\xce"
    assert not contents.is_ours(cut)
    assert contents.body(cut) == b"abcdef"


def test_frames_say_their_size() -> None:
    assert response_frame(b"OK") == b"\0\0\0\x06\0\0\0\0OK"
    assert error_frame("E_BAD", "why") == b"\0\0\0\x0d\0\0\0\x01E_BAD why"
