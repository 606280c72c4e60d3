"""Bytes of one AMQP connection become events (sans-IO, hot).

In come the chunks as the socket gave them; out come the events of ``events.py``, wherever the
chunks were cut.  Of the next chunk only what completes the frame that was cut is joined to it.

A publish is three or more frames.  When all of them lie in the buffer, which is nearly
always, one look ahead finds the end and the content is cut out as a single slice;
otherwise the frames are collected one by one (``Assembly``).  The method frame of a
publish is never parsed twice: its bytes are the key of a dictionary of addresses, and the
dictionary is not asked for the frame that came last.

Memory is bounded: frames by ``frame_max``, assemblies by ``max_message_size``, addresses by
``ADDRESSES_MAX``, events of a call by ``EVENTS_MAX``.  No input makes this module raise.
"""

from typing import Final, final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.errors import BrokerError
from penstock.core.message import Address, Message
from penstock.protocols.amqp.codec import refusals
from penstock.protocols.amqp.codec.assembly import HEADER_DUE, OVERRUN, Assembly, Unfinished
from penstock.protocols.amqp.codec.errors import (
    MalformedArguments,
    MalformedTable,
    MalformedText,
    ProtocolViolation,
    UnknownMethod,
)
from penstock.protocols.amqp.codec.events import (
    AckRun,
    ChannelFailed,
    ConnectionFailed,
    Event,
    MethodReceived,
    PublishRun,
)
from penstock.protocols.amqp.codec.methods import (
    BASIC_ACK,
    BASIC_PUBLISH,
    CHANNEL_CLOSE,
    CHANNEL_CLOSE_OK,
    CHANNEL_OPEN,
    Method,
    decode_method,
)
from penstock.protocols.amqp.codec.property_scan import PropertyScan

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_HEARTBEAT: Final = 8
FRAME_END: Final = 0xCE
FRAME_HEAD_BYTES: Final = 7
FRAME_OVERHEAD: Final = 8
"""Type, channel and size before the payload; with the end octet after it."""
HEADER_FRAME_MIN: Final = 22
"""A content header frame without properties: overhead, class, weight, body size, flags."""
CLASS_BASIC: Final = 60
_CLASS_AND_NO_WEIGHT: Final[i64] = CLASS_BASIC << 16

ADDRESSES_MAX: Final = 8192
PASSED_BY_MAX: Final = 4 * ADDRESSES_MAX
"""When so many new addresses found no room, the old ones go.  Were they to go at once, a publisher
of a few more keys than there is room for, one after the other, would never meet one again."""
EVENTS_MAX: Final[i64] = 1000
LONG_BYTES: Final[i64] = 512
LONG_BYTES_MAX: Final[i64] = 64 * 1024
"""Of longer methods a call: to read and to use their tables takes as long as very many events."""
_HEARD_WHILE_DISCARDING: Final = (CHANNEL_OPEN, CHANNEL_CLOSE, CHANNEL_CLOSE_OK)

_KEY_PUBLISH: Final[i64] = BASIC_PUBLISH
_KEY_ACK: Final[i64] = BASIC_ACK


def read_address(method: bytes) -> Address | None:
    """Of a payload of ``basic.publish``; None of one that is malformed or says *immediate*."""
    end: i64 = len(method) - 1  # the octet of bits
    if end < 8:
        return None
    key_at: i64 = 7 + i64(method[6])
    if key_at >= end or key_at + 1 + i64(method[key_at]) != end:
        return None
    bits = i64(method[end])
    if bits & 2 != 0:
        return None
    exchange = method[7:key_at].decode("utf-8", "surrogateescape")
    routing_key = method[key_at + 1 : end].decode("utf-8", "surrogateescape")
    if "\r" in exchange or "\n" in exchange:
        exchange = exchange.replace("\r", "").replace("\n", "")
    return Address(exchange, routing_key, method[6:end], bits & 1 != 0)


@final
class AmqpDecoder:
    """The receiving half of one connection, from the first frame on."""

    def __init__(self, frame_max: i64, max_message_size_bytes: i64) -> None:
        self.frame_max: i64 = frame_max
        self.channel_max: i64 = 0xFFFF
        self.max_message_size_bytes: i64 = max_message_size_bytes
        self.opened: bool = False  # connection.open was answered: channels may speak
        self.failed: bool = False
        self.paused: bool = False  # the session must look before we go on: call again with b""
        self.full: bool = False  # because it was given EVENTS_MAX events, or long ones
        self.user_id: bytes = b""  # what a user-id property must say
        self.unfinished = Unfinished()
        self._channels: dict[int, Assembly] = {}
        self._channel: i64 = 0  # of the frame under way
        self._assembly: Assembly | None = None  # of that channel, if it is open
        self._addresses: dict[bytes, Address] = {}
        self._passed_by: i64 = 0  # addresses, for want of room
        self._last_method: bytes = b""  # of a publish
        self._last_address: Address | None = None
        self._rest: list[bytes] = []
        self._rest_bytes: i64 = 0
        self._needed_bytes: i64 = 0
        self._events: list[Event] = []
        self._run: PublishRun | None = None
        self._ack: AckRun | None = None
        self._now_ms = WallMs(0)
        self._scan = PropertyScan()

    def receive(self, data: bytes, now_ms: WallMs) -> list[Event]:
        """Take a chunk, return what it completed; after a ``ConnectionFailed`` always []."""
        if self.failed:
            return []
        if self.paused:
            data = self._joined(data)
        self.paused = False
        self.full = False
        self._events = []
        self._run = None
        self._ack = None
        self._now_ms = now_ms
        position: i64 = 0
        while self._rest_bytes > 0 and not self.paused:
            missing = self._needed_bytes - self._rest_bytes
            part = data[position : position + missing]
            position += len(part)
            if len(part) < missing:
                self._keep(part)
                return self._events
            if not self._end_body(part):
                self._split(self._joined(part), 0)
        if self.paused:
            self._keep(data[position:])
        elif not self.failed:
            self._split(data, position)
        return self._events

    def _keep(self, part: bytes) -> None:
        """For the next chunk."""
        self._rest.append(part)
        self._rest_bytes += len(part)

    def _end_body(self, part: bytes) -> bool:
        """The end of a body frame: its parts go into the content as they came, unjoined.

        False: it is another frame, or one that is not what is due.
        """
        first = self._rest[0]
        size = self._needed_bytes - FRAME_OVERHEAD
        if size <= 0 or len(first) < FRAME_HEAD_BYTES or first[0] != FRAME_BODY:
            return False
        channel = i64(read_i16_be(first, 1)) & 0xFFFF
        assembly = self._channels.get(channel)
        if assembly is None or size > assembly.missing_bytes or part[len(part) - 1] != FRAME_END:
            return False
        for early in self._rest:
            assembly.add(early)
        self._rest = []
        self._rest_bytes = 0
        if assembly.body(part, size):
            self._assembled(channel, assembly)
        return True

    def _joined(self, part: bytes) -> bytes:
        """All that was kept, and this."""
        self._rest.append(part)
        data = b"".join(self._rest)
        self._rest = []
        self._rest_bytes = 0
        return data

    def open(self, user_id: bytes) -> None:
        """Channels may speak from now on, for a user of that name (``ANYBODY``: in any name)."""
        self.opened = True
        self.user_id = user_id

    def forget_addresses(self) -> None:
        """Their routes were judged by rights that the user may have lost."""
        self._addresses = {}
        self._last_method = b""
        self._last_address = None

    def tune(self, channel_max: i64, frame_max: i64) -> None:
        """What client and broker agreed on."""
        self.channel_max = channel_max
        self.frame_max = frame_max

    def discard(self, channel: i64) -> None:
        """The session closed this channel: drop its frames until ``channel.close-ok``."""
        assembly = self._channels.get(channel)
        if assembly is not None:
            assembly.discard()

    def stop(self) -> None:
        """Decode nothing that comes from now on, and let go of what came in part."""
        self.failed = True
        self.paused = False
        self.full = False
        self._channels.clear()
        self._assembly = None
        self.unfinished.forget()
        self._rest = []
        self._rest_bytes = 0

    # -- frames ------------------------------------------------------------------------

    def _split(self, data: bytes, position: i64) -> None:
        """Handle every whole frame from there on, and keep what is behind them."""
        length: i64 = len(data)
        long_bytes: i64 = 0
        self._needed_bytes = FRAME_HEAD_BYTES
        while length - position >= FRAME_HEAD_BYTES:
            size = i64(read_i32_be(data, position + 3)) & 0xFFFFFFFF
            # RabbitMQ forgives the eight octets of overhead; so do we.
            if size > self.frame_max:
                self._frame_error(
                    data, position, position, position, refusals.too_large(size, self.frame_max)
                )
                return
            end = position + 7 + size
            if end >= length:
                self._needed_bytes = end + 1 - position
                break
            if i64(data[end]) != FRAME_END:
                self._frame_error(data, position, position + 7, end, refusals.bad_end(data[end]))
                return
            kind = i64(data[position])
            channel = i64(read_i16_be(data, position + 1)) & 0xFFFF
            if channel != self._channel:
                self._channel = channel
                self._assembly = self._channels.get(channel)
            begin = position
            position = end + 1
            if kind == FRAME_METHOD:
                if size >= 4 and i64(read_i32_be(data, begin + 7)) == _KEY_PUBLISH:
                    position = self._publish(data, begin, end, channel)
                else:
                    self._method(data, begin, end, channel)
                    if size > LONG_BYTES:
                        long_bytes += size
            elif kind == FRAME_HEADER:
                self._header(data, begin, end, channel)
            elif kind == FRAME_BODY:
                self._body(data, begin, end, channel)
            else:
                self._other(data, kind, begin, end, channel)
            if self.failed:
                return
            if len(self._events) >= EVENTS_MAX or long_bytes > LONG_BYTES_MAX:
                self.full = True
                self.paused = True
            if self.paused:
                break
        if position < length:
            self._keep(data[position:])

    def _other(self, data: bytes, kind: i64, position: i64, end: i64, channel: i64) -> None:
        if kind != FRAME_HEARTBEAT or end > position + 7:
            self._frame_error(data, position, position + 7, end, ": unknown_frame")
        elif channel != 0:
            self._misplaced(data, position, end, channel)

    # -- methods -----------------------------------------------------------------------

    def _method(self, data: bytes, position: i64, end: i64, channel: i64) -> None:
        size = end - position - 7
        if size < 4:
            self._frame_error(data, position, position + 7, end, ": unknown_frame")
            return
        key = i64(read_i32_be(data, position + 7)) & 0xFFFFFFFF
        if channel != 0:
            assembly = self._assembly
            if assembly is None:
                assembly = self._new_channel(channel, key, data, position, end)
                if assembly is None:
                    return
            if assembly.discarding and key not in _HEARD_WHILE_DISCARDING:
                return
            if assembly.address is not None:
                self._unexpected(channel, assembly)
                return
            if key == _KEY_ACK and size == 13:
                self._basic_ack(data, position, channel)
                return
        self._run = None
        self._ack = None
        method = self._decoded(data[position + 7 : end], channel)
        if method is None:
            return
        if channel != 0 and size > refusals.METHOD_BYTES_MAX:
            error = refusals.method_too_long(size)
            self._reject_channel(channel, self._channels[int(channel)], error, key)
            return
        if key == CHANNEL_CLOSE or (key == CHANNEL_CLOSE_OK and self._is_discarding()):
            self._channels.pop(channel, None)
            self._assembly = None
        self._events.append(MethodReceived(channel, method))
        # During the handshake each answer decides what the next frame may be.
        self.paused = not self.opened

    def _is_discarding(self) -> bool:
        return self._assembly is not None and self._assembly.discarding

    def _decoded(self, payload: bytes, channel: i64) -> Method | None:
        """The method; None and a failed connection when it is none."""
        try:
            return decode_method(payload)
        except UnknownMethod:
            self._fail(channel, 0, "")  # without a word, as RabbitMQ's reader does
        except MalformedTable:
            self._fail(channel, 0, "")  # without a word, as RabbitMQ's reader does
        except MalformedArguments as malformed:
            if channel == 0 and isinstance(malformed, MalformedText):
                key = read_i32_be(payload, 0)
                self._fail(channel, 501, malformed.text, i64(key))
            elif channel == 0:
                self._fail(channel, 541, "", 0)
            else:
                self._fail(channel, 501, malformed.text, malformed.method_key)
        return None

    def _new_channel(
        self, channel: i64, key: i64, data: bytes, position: i64, end: i64
    ) -> Assembly | None:
        """Of a channel that has none; None when the method must not be handled here."""
        if not self.opened:
            self._misplaced(data, position, end, channel)
            return None
        if key == CHANNEL_CLOSE_OK:
            return None  # both sides closed at once, theirs came first, the echo last
        if key != CHANNEL_OPEN:
            self._fail(channel, 504, "expected 'channel.open'", key)
            return None
        count: i64 = len(self._channels)
        if count >= self.channel_max:
            # The number of a channel may be anything; what counts is how many there are.
            text = "number of channels opened (" + str(count) + ") has reached the negotiated "
            self._fail(channel, 530, text + f"channel_max ({self.channel_max})", 0)
            return None
        assembly = Assembly(self.unfinished)
        self._channels[channel] = assembly
        self._assembly = assembly
        return assembly

    def _basic_ack(self, data: bytes, position: i64, channel: i64) -> None:
        tag = read_i64_be(data, position + 11)
        multiple = (i64(data[position + 19]) & 1) != 0
        last = self._ack
        if not multiple and last is not None and last.takes(channel, tag):
            return
        self._run = None
        run = AckRun(channel, tag, tag, multiple)
        self._ack = None if multiple else run
        self._events.append(run)

    # -- publishing ----------------------------------------------------------------------

    def _publish(self, data: bytes, position: i64, end: i64, channel: i64) -> i64:
        """A ``basic.publish`` frame at position..end; returns where to go on."""
        if channel == 0:
            self._method(data, position, end, channel)
            return end + 1
        assembly = self._assembly
        if assembly is None:
            assembly = self._new_channel(channel, _KEY_PUBLISH, data, position, end)
        if assembly is None or assembly.discarding:
            return end + 1
        if assembly.address is not None:
            self._unexpected(channel, assembly)
            return end + 1
        method = data[position + 7 : end]
        address = self._last_address
        if address is None or method != self._last_method:
            address = self._addresses.get(method)
            if address is None:
                address = self._new_address(method, channel)
                if address is None:
                    return end + 1
            self._last_method = method
            self._last_address = address
        # The look ahead: header frame, then nothing or one body frame, all in the buffer.
        header = end + 1
        length: i64 = len(data)
        if length - header >= HEADER_FRAME_MIN and i64(data[header]) == FRAME_HEADER:
            header_end = header + 7 + i64(read_i32_be(data, header + 3))
            if header + 21 <= header_end <= header + 7 + self.frame_max and header_end < length:
                body_size = read_i64_be(data, header + 11)
                content_end = self._content_end(data, header_end + 1, body_size, length, channel)
                if (
                    content_end > 0
                    and i64(data[header_end]) == FRAME_END
                    and i64(read_i16_be(data, header + 1)) & 0xFFFF == channel
                    and i64(read_i32_be(data, header + 7)) == _CLASS_AND_NO_WEIGHT
                    and body_size <= self.max_message_size_bytes
                ):
                    scan = self._scan
                    if not scan.read(data, header, header_end, self._now_ms, self.user_id):
                        self._bad_properties(channel, assembly)
                        return end + 1
                    content = data[header:content_end]
                    message = Message(content, address.wire, scan.flags, scan.expires_at_ms)
                    run = self._run
                    if run is None or not run.takes(channel, address, message):
                        self._begin_run(channel, address, message)
                    return content_end
        assembly.begin(address)  # no whole content: go on frame by frame
        return end + 1

    def _content_end(
        self, data: bytes, body: i64, body_size: i64, length: i64, channel: i64
    ) -> i64:
        """Where the content ends if one whole body frame carries it all, else 0."""
        if body_size == 0:
            return body
        if length - body < FRAME_OVERHEAD or body_size < 0 or body_size > self.frame_max:
            return 0
        body_end = body + 7 + body_size
        if body_end >= length or i64(data[body]) != FRAME_BODY or i64(data[body_end]) != FRAME_END:
            return 0
        if i64(read_i32_be(data, body + 3)) != body_size:
            return 0
        if i64(read_i16_be(data, body + 1)) & 0xFFFF != channel:
            return 0
        return body_end + 1

    def _new_address(self, payload: bytes, channel: i64) -> Address | None:
        """Of a method that was not seen before; None and a failed connection if it has none."""
        address = read_address(payload)
        if address is None:
            method = self._decoded(payload, channel)
            if method is not None:
                self._fail(channel, 540, "immediate=true", _KEY_PUBLISH)
            return None
        if len(self._addresses) < ADDRESSES_MAX:
            self._addresses[payload] = address
        else:
            self._passed_by += 1
            if self._passed_by >= PASSED_BY_MAX:
                self._passed_by = 0
                self._addresses.clear()
        return address

    def _begin_run(self, channel: i64, address: Address, message: Message) -> None:
        self._ack = None
        run = PublishRun(channel, address, [message], self._now_ms)
        self._run = run
        self._events.append(run)

    def _header(self, data: bytes, position: i64, end: i64, channel: i64) -> None:
        size = end - position - 7
        if size < 12:
            self._frame_error(data, position, position + 7, end, ": unknown_frame")
            return
        assembly = self._content_assembly(data, position, end, channel)
        if assembly is None or assembly.discarding:
            return
        if assembly.missing_bytes != HEADER_DUE or read_i16_be(data, position + 9) != 0:
            self._unexpected(channel, assembly)
            return
        class_id = i64(read_i16_be(data, position + 7)) & 0xFFFF
        if class_id != CLASS_BASIC:
            text = "expected content header for class 60, got one for class " + str(class_id)
            self._fail(channel, 505, text + " instead", _KEY_PUBLISH)
            return
        body_size = read_i64_be(data, position + 11)
        if body_size < 0 or body_size > self.max_message_size_bytes:
            error = refusals.message_too_large(body_size, self.max_message_size_bytes)
            self._reject_channel(channel, assembly, error)
            return
        scan = self._scan
        if size < 14 or not scan.read(data, position, end, self._now_ms, self.user_id):
            self._bad_properties(channel, assembly)
            return
        header = data[position : end + 1]
        assembly.header(header, scan.flags, scan.expires_at_ms, self._now_ms, body_size)
        if body_size == 0:
            self._assembled(channel, assembly)

    def _body(self, data: bytes, position: i64, end: i64, channel: i64) -> None:
        assembly = self._content_assembly(data, position, end, channel)
        if assembly is None or assembly.discarding:
            return
        size = end - position - 7
        if assembly.missing_bytes == HEADER_DUE:
            self._unexpected(channel, assembly)
            return
        if assembly.missing_bytes == OVERRUN:
            return
        if size > assembly.missing_bytes:
            assembly.overrun()
        elif assembly.body(data[position : end + 1], size):
            self._assembled(channel, assembly)

    def _assembled(self, channel: i64, assembly: Assembly) -> None:
        address = assembly.address
        assert address is not None
        message = assembly.whole(address, self._now_ms)
        run = self._run
        if run is None or not run.takes(channel, address, message):
            self._begin_run(channel, address, message)

    def _content_assembly(
        self, data: bytes, position: i64, end: i64, channel: i64
    ) -> Assembly | None:
        """The assembly that waits for content, or None and a failed connection."""
        if channel == 0 or not self.opened:
            self._misplaced(data, position, end, channel)
            return None
        assembly = self._assembly
        if assembly is not None and (assembly.discarding or assembly.address is not None):
            return assembly
        text = "expected method frame, got non method frame instead"
        self._fail(channel, 505, text)
        return None

    # -- failures ------------------------------------------------------------------------

    def _bad_properties(self, channel: i64, assembly: Assembly) -> None:
        """Of a value that is refused, the channel; of octets that are no properties, all."""
        refusal = self._scan.take_refusal()
        if refusal is None:
            self._fail(channel, 541, "")
        else:
            self._reject_channel(channel, assembly, refusal)

    def _unexpected(self, channel: i64, assembly: Assembly) -> None:
        """What came is not the part of the content that was due."""
        self._fail(channel, 505, assembly.unexpected_text(), _KEY_PUBLISH)

    def _reject_channel(
        self, channel: i64, assembly: Assembly, error: BrokerError, key: i64 = _KEY_PUBLISH
    ) -> None:
        self._run = None
        self._ack = None
        assembly.discard()
        self._events.append(ChannelFailed(channel, error, key))

    def _fail(self, channel: i64, code: i64, text: str, key: i64 = 0) -> None:
        self.stop()
        violation = ProtocolViolation(int(code), text, int(key))
        self._events.append(ConnectionFailed(channel, violation))

    def _frame_error(self, data: bytes, position: i64, start: i64, end: i64, term: str) -> None:
        """Bytes that are no frame; ``term`` is RabbitMQ's reason, an Erlang term."""
        channel = i64(read_i16_be(data, position + 1)) & 0xFFFF
        self._fail(channel, 501, refusals.frame_text(data, position, start, end) + term)

    def _misplaced(self, data: bytes, position: i64, end: i64, channel: i64) -> None:
        """A sound frame where none of its kind may be."""
        self._fail(channel, 505, refusals.frame_text(data, position, position + 7, end))
