"""Messages become ``basic.deliver``, ``basic.return`` and ``basic.get-ok`` (hot).

A message's content is copied as it lies; only the channel number in its frames is set
when it differs, and its body is cut anew when the peer takes smaller frames than the
publisher did.  A large one that goes out as it came is not even copied, where the socket takes
several buffers.
"""

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from penstock.core.message import REDELIVERED, Message

FRAME_END: Final = 0xCE
_DELIVER: Final[i64] = 0x003C003C
_GET_OK: Final[i64] = 0x003C0047
_RETURN: Final[i64] = 0x003C0032
_ACK: Final[i64] = 0x003C0050
_NACK: Final[i64] = 0x003C0078
BODY_OVERHEAD: Final = 8
UNCOPIED_BYTES: Final[i64] = 16 * 1024
"""Smaller contents are copied: that costs less than a buffer more in the write."""


def short_bytes(text: str) -> bytes:
    """A short string on the wire; what did not decode as UTF-8 goes back as it came."""
    encoded = text.encode("utf-8", "surrogateescape")
    return bytes([len(encoded)]) + encoded


def _channel_number(channel: i64) -> i16:
    """The sixteen bits of a channel number, which is unsigned, as the signed number they spell."""
    return i16(channel if channel < 0x8000 else channel - 0x10000)


def write_deliveries(
    out: BytesWriter,
    channel: i64,
    consumer_tag: bytes,
    first_tag: i64,
    messages: list[Message],
    frame_max: i64,
    ahead: list[bytes] | None = None,
) -> i64:
    """Append ``basic.deliver`` and content of each; ``consumer_tag`` is a wire short string.

    ``ahead`` leaves before ``out``: a large content is put there, behind what ``out`` had, instead
    of being copied.  Returns the bytes that were put there.
    """
    ahead_bytes: i64 = 0
    number = _channel_number(channel)
    tag = first_tag
    fixed: i64 = 4 + len(consumer_tag) + 9
    for message in messages:
        address = message.address
        out.append(1)
        write_i16_be(out, number)
        write_i32_be(out, i32(fixed + len(address)))
        write_i32_be(out, i32(_DELIVER))
        out.write(consumer_tag)
        write_i64_be(out, tag)
        out.append(1 if message.flags & REDELIVERED else 0)
        out.write(address)
        out.append(FRAME_END)
        content = message.content
        if (
            ahead is not None
            and len(content) >= UNCOPIED_BYTES
            and _goes_as_it_is(content, channel, frame_max)
        ):
            ahead_bytes += len(out) + len(content)
            ahead.append(out.getvalue())
            out.truncate(0)
            ahead.append(content)
        else:
            write_content(out, channel, content, frame_max)
        tag += 1
    return ahead_bytes


def write_get_ok(
    out: BytesWriter, channel: i64, tag: i64, message: Message, remaining: i64, frame_max: i64
) -> None:
    """Append ``basic.get-ok`` and the content."""
    number = _channel_number(channel)
    address = message.address
    out.append(1)
    write_i16_be(out, number)
    write_i32_be(out, i32(4 + 9 + len(address) + 4))
    write_i32_be(out, i32(_GET_OK))
    write_i64_be(out, tag)
    out.append(1 if message.flags & REDELIVERED else 0)
    out.write(address)
    write_i32_be(out, i32(remaining))
    out.append(FRAME_END)
    write_content(out, channel, message.content, frame_max)


def write_return(
    out: BytesWriter, channel: i64, code: i64, text: bytes, message: Message, frame_max: i64
) -> None:
    """Append ``basic.return`` and the content; ``text`` is a wire short string."""
    number = _channel_number(channel)
    address = message.address
    out.append(1)
    write_i16_be(out, number)
    write_i32_be(out, i32(4 + 2 + len(text) + len(address)))
    write_i32_be(out, i32(_RETURN))
    write_i16_be(out, i16(code))
    out.write(text)
    out.write(address)
    out.append(FRAME_END)
    write_content(out, channel, message.content, frame_max)


def write_ack(out: BytesWriter, channel: i64, tag: i64, multiple: bool) -> None:
    """Append ``basic.ack`` (a publisher confirm)."""
    _write_verdict(out, channel, _ACK, tag, 1 if multiple else 0)


def write_nack(out: BytesWriter, channel: i64, tag: i64, multiple: bool) -> None:
    """Append ``basic.nack`` (a publish that was refused); RabbitMQ sets the bit ``requeue``."""
    _write_verdict(out, channel, _NACK, tag, 3 if multiple else 2)


def _write_verdict(out: BytesWriter, channel: i64, key: i64, tag: i64, bits: i64) -> None:
    number = _channel_number(channel)
    out.append(1)
    write_i16_be(out, number)
    write_i32_be(out, 13)
    write_i32_be(out, i32(key))
    write_i64_be(out, tag)
    out.append(u8(bits))
    out.append(FRAME_END)


def write_content(out: BytesWriter, channel: i64, content: bytes, frame_max: i64) -> None:
    """Append header and body frames for this channel and frame size."""
    size: i64 = len(content)
    fits = size <= frame_max or _frames_fit(content, size, frame_max)
    if fits and i64(read_i16_be(content, 1)) & 0xFFFF == channel:
        out.write(content)
        return
    number = _channel_number(channel)
    position: i64 = 0
    while position < size:
        payload = i64(read_i32_be(content, position + 3))
        end = position + 7 + payload
        kind: i64 = content[position]
        # A header frame cannot be cut; a peer with frames that small gets it whole.
        if kind != 3 or payload + BODY_OVERHEAD <= frame_max:
            out.append(u8(kind))
            write_i16_be(out, number)
            out.write(content[position + 3 : end + 1])
        else:
            _write_body_in_pieces(out, channel, content, position + 7, end, frame_max)
        position = end + 1


def _goes_as_it_is(content: bytes, channel: i64, frame_max: i64) -> bool:
    same_number = i64(read_i16_be(content, 1)) & 0xFFFF == channel
    return same_number and _frames_fit(content, len(content), frame_max)


def _frames_fit(content: bytes, size: i64, frame_max: i64) -> bool:
    """Does the peer take each body frame as it is?"""
    position: i64 = 0
    while position < size:
        payload = i64(read_i32_be(content, position + 3))
        if content[position] == 3 and payload + BODY_OVERHEAD > frame_max:
            return False
        position += payload + BODY_OVERHEAD
    return True


def _write_body_in_pieces(
    out: BytesWriter, channel: i64, content: bytes, start: i64, end: i64, frame_max: i64
) -> None:
    number = _channel_number(channel)
    piece_max = frame_max - BODY_OVERHEAD
    while start < end:
        piece = end - start
        if piece > piece_max:
            piece = piece_max
        out.append(3)
        write_i16_be(out, number)
        write_i32_be(out, i32(piece))
        out.write(content[start : start + piece])
        out.append(FRAME_END)
        start += piece
