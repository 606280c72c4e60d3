"""The load generator's engine: publishes made in bulk, deliveries read in bulk (hot).

In come the bytes a broker sends and the clock's time; out go counts, a latency
histogram and the bytes to send back.  No socket here: ``worker`` owns it.  The same
file runs interpreted and compiled, because a generator that is slower than the broker
it drives measures itself.

A body of the generator begins with its *stamp*, as far as its size allows:

    bytes 0..7    i64  nanoseconds of the monotonic clock: when it was, or should have
                       been, sent
    bytes 8..15   i64  publisher << 48 | sequence number, from 1

``Composer`` writes runs of whole publishes, ``DeliveryScanner`` walks deliveries (or, for
the sink, publishes) whatever their framing and wherever the chunks are cut, and
``SendTimes`` keeps what was sent and not yet confirmed.  None of them allocates per
message.  ``control`` lists hold the methods they do not understand: (channel, payload).
"""

from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i64_be
from librt.vecs import append, vec
from mypy_extensions import i64, u8

from penstock.core.counting.histogram import Histogram, new_counters

FRAME_METHOD: Final = 1
FRAME_HEADER: Final = 2
FRAME_BODY: Final = 3
FRAME_END: Final = 0xCE

KEY_PUBLISH: Final[i64] = 0x003C0028
KEY_DELIVER: Final[i64] = 0x003C003C
KEY_ACK: Final[i64] = 0x003C0050
KEY_NACK: Final[i64] = 0x003C0078

ACK_BEGIN: Final[i64] = 0x0000_000D_003C_0050
"""Payload size, class and method of ``basic.ack``."""

STAMP_BYTES: Final = 16
SEQUENCE_BITS: Final = 48
SEQUENCE_MASK: Final[i64] = (1 << 48) - 1
NS_PER_S: Final[i64] = 1_000_000_000

HEAD_BYTES: Final = 1024
"""More than any ``basic.deliver`` has: what straddles two chunks is copied up to here."""


class BrokenStream(Exception):
    """The broker sent bytes that are no AMQP frames; the text says where."""


@final
class Composer:
    """Makes runs of whole publishes (or deliveries, for the sink) from templates in turn.

    A template is a message around its stamp: ``prefix`` ends where the stamp begins,
    ``suffix`` begins after it, ``stamp_bytes`` is 16, 8 or 0.  A delivery also has a
    ``head``: what comes before its delivery tag.
    """

    def __init__(self, publisher: int) -> None:
        self.sequence: i64 = 0
        self._publisher_bits: i64 = publisher << SEQUENCE_BITS
        self._prefixes: list[bytes] = []
        self._suffixes: list[bytes] = []
        self._stamp_bytes: vec[i64] = new_counters(0)
        self._heads: list[bytes] = []
        self._turn: i64 = 0
        self._writer = BytesWriter()

    def add_template(
        self, prefix: bytes, suffix: bytes, stamp_bytes: int, head: bytes = b""
    ) -> None:
        assert stamp_bytes in {0, 8, STAMP_BYTES}, stamp_bytes
        self._heads.append(head)
        self._prefixes.append(prefix)
        self._suffixes.append(suffix)
        self._stamp_bytes = append(self._stamp_bytes, i64(stamp_bytes))

    def compose(self, count_max: i64, bytes_max: i64, now_ns: i64) -> bytes:
        """Whole messages, at most ``count_max`` and about ``bytes_max``, sent now."""
        return self._run(count_max, bytes_max, now_ns, 0, 1, 0)

    def compose_due(
        self, count_max: i64, bytes_max: i64, start_ns: i64, rate: i64, stride: i64, offset: i64
    ) -> bytes:
        """The same, each stamped with the time it is due.

        Of ``stride`` publishers this is number ``offset``; together they send ``rate`` a
        second, so that message n of this one is number n * stride + offset of all.
        """
        return self._run(count_max, bytes_max, start_ns, rate, stride, offset)

    def _run(
        self, count_max: i64, bytes_max: i64, start_ns: i64, rate: i64, stride: i64, offset: i64
    ) -> bytes:
        writer = self._writer
        writer.truncate(0)
        turn = self._turn
        templates = i64(len(self._prefixes))
        stop = self.sequence + count_max
        while self.sequence < stop and i64(len(writer)) < bytes_max:
            stamp_ns = start_ns
            if rate > 0:
                stamp_ns += due_after_ns(self.sequence, rate, stride, offset)
            self.sequence += 1
            self._write(writer, turn, stamp_ns)
            turn += 1
            if turn == templates:
                turn = 0
        self._turn = turn
        return writer.getvalue()

    def _write(self, writer: BytesWriter, turn: i64, stamp_ns: i64) -> None:
        head = self._heads[turn]
        if head:
            writer.write(head)
            write_i64_be(writer, self.sequence)
        writer.write(self._prefixes[turn])
        stamp_bytes = self._stamp_bytes[turn]
        if stamp_bytes > 0:
            write_i64_be(writer, stamp_ns)
            if stamp_bytes == STAMP_BYTES:
                write_i64_be(writer, self._publisher_bits | self.sequence)
        writer.write(self._suffixes[turn])


def due_after_ns(sequence: i64, rate: i64, stride: i64, offset: i64) -> i64:
    """When message ``sequence`` (from 0) is due, after the start; exact for any rate."""
    number = sequence * stride + offset
    return number // rate * NS_PER_S + number % rate * NS_PER_S // rate


def due_count(elapsed_ns: i64, rate: i64, stride: i64, offset: i64) -> i64:
    if elapsed_ns < 0:
        return 0
    number = elapsed_ns // NS_PER_S * rate + elapsed_ns % NS_PER_S * rate // NS_PER_S
    if number < offset:
        return 0
    return (number - offset) // stride + 1


@final
class SendTimes:
    """What one publisher has sent and the broker has not yet confirmed.

    A slot per message in flight holds its send time, 0 once it is confirmed: brokers may
    confirm one by one, out of order, and several at once, all mixed.
    """

    def __init__(self, window: int) -> None:
        size = 1
        while size < 8 * window:
            size *= 2
        self.window: i64 = window
        self.sent: i64 = 0
        self.confirmed: i64 = 0
        self.nacked: i64 = 0
        self.latency = Histogram()
        self.control: list[tuple[int, bytes]] = []
        self._mask: i64 = size - 1
        self._times: vec[i64] = new_counters(size)
        self._low: i64 = 0  # every tag up to here is confirmed
        self._rest: bytes = b""

    def forget_latencies(self) -> None:
        self.latency = Histogram()

    def room(self) -> i64:
        """How many more may be sent; a hole that stays open ends it when the slots do."""
        slots = self._mask - (self.sent - self._low)
        room = self.window - (self.sent - self.confirmed)
        return room if room < slots else slots

    def note_sent(self, count: i64, sent_ns: i64) -> None:
        times = self._times
        for _ in range(count):
            self.sent += 1
            times[self.sent & self._mask] = sent_ns

    def note_due(self, count: i64, start_ns: i64, rate: i64, stride: i64, offset: i64) -> None:
        """As ``note_sent``, with the times at which ``compose_due`` had them due."""
        times = self._times
        for _ in range(count):
            due_ns = start_ns + due_after_ns(self.sent, rate, stride, offset)
            self.sent += 1
            times[self.sent & self._mask] = due_ns

    def feed(self, data: bytes, now_ns: i64) -> None:
        if self._rest:
            data = self._rest + data
        size = i64(len(data))
        at: i64 = 0
        while at + 7 <= size:
            length = i64(read_i32_be(data, at + 3))
            end = at + 7 + length
            if end >= size:
                break
            check_end(data, end)
            if data[at] == FRAME_METHOD:
                self._method(data, at, end, now_ns)
            at = end + 1
        self._rest = data[at:] if at < size else b""

    def _method(self, data: bytes, at: i64, end: i64, now_ns: i64) -> None:
        key = i64(read_i32_be(data, at + 7))
        if key != KEY_ACK and key != KEY_NACK:
            channel = i64(read_i16_be(data, at + 1)) & 0xFFFF
            self.control.append((int(channel), data[at + 7 : end]))
            return
        tag = i64(read_i64_be(data, at + 11))
        if tag > self.sent:
            raise BrokenStream(f"confirm of message {tag}, but only {self.sent} were sent")
        before = self.confirmed
        if data[at + 19] & 1:
            self._settle_through(tag, now_ns)
        else:
            self._settle(tag, now_ns)
        if key == KEY_NACK:
            self.nacked += self.confirmed - before
        while self._low < self.sent and self._times[(self._low + 1) & self._mask] == 0:
            self._low += 1

    def _settle_through(self, tag: i64, now_ns: i64) -> None:
        """``multiple``: messages sent together were stamped together, so count them so."""
        times = self._times
        same: i64 = 0
        same_ns: i64 = 0
        while self._low < tag:
            self._low += 1
            sent_ns = times[self._low & self._mask]
            if sent_ns == 0:
                continue
            times[self._low & self._mask] = 0
            if sent_ns != same_ns:
                self._count(same_ns, same, now_ns)
                same_ns = sent_ns
                same = 0
            same += 1
        self._count(same_ns, same, now_ns)

    def _settle(self, tag: i64, now_ns: i64) -> None:
        if tag <= self._low:
            return
        sent_ns = self._times[tag & self._mask]
        self._times[tag & self._mask] = 0
        if sent_ns != 0:
            self._count(sent_ns, 1, now_ns)

    def _count(self, sent_ns: i64, times: i64, now_ns: i64) -> None:
        if times > 0:
            self.confirmed += times
            self.latency.add(now_ns - sent_ns if now_ns > sent_ns else 0, times)


def check_end(data: bytes, end: i64) -> None:
    if data[end] != FRAME_END:
        raise BrokenStream(f"frame end octet is {int(data[end])}, not 206")


@final
class DeliveryScanner:
    """Counts, checks and times the messages in a stream of frames, and writes the acks.

    Channels 1..``channels`` each carry one queue's deliveries, so order is judged per
    channel and publisher.  ``ack_every`` 0 writes no acks; 1 acknowledges every message by
    itself; n acknowledges each n-th with ``multiple``.

    A body frame may be cut anywhere: what is left of it (``_skip``) is stepped over in the
    next chunk, never collected, and its message counts when its last byte has come.
    """

    def __init__(self, key: int, channels: int, publishers: int, ack_every: int) -> None:
        self.messages: i64 = 0
        self.body_bytes: i64 = 0
        self.redelivered: i64 = 0
        self.out_of_order: i64 = 0
        self.foreign: i64 = 0  # bodies whose stamp is not of this run
        self.latency = Histogram()
        self.control: list[tuple[int, bytes]] = []
        self.acks = BytesWriter()
        self._key: i64 = key
        self._publishers: i64 = publishers
        self._ack_every: i64 = ack_every
        self._channels: i64 = channels
        self._tags: vec[i64] = new_counters(channels + 1)
        self._left: vec[i64] = new_counters(channels + 1)  # body bytes still to come
        self._sizes: vec[i64] = new_counters(channels + 1)
        self._stamps: vec[i64] = new_counters(channels + 1)  # 0 = body has none
        self._unacked: vec[i64] = new_counters(channels + 1)
        self._sequences: vec[i64] = new_counters((channels + 1) * publishers)
        self._rest: bytes = b""
        self._skip: i64 = 0
        self._skip_channel: i64 = 0  # its message is complete when the skip is

    def forget_latencies(self) -> None:
        self.latency = Histogram()

    def feed(self, data: bytes, now_ns: i64) -> None:
        at = self._skipped(data, 0, now_ns)
        if self._rest:
            at = self._join(data, at, now_ns)
            if at < 0:
                return
        stop = self._walk(data, at, now_ns)
        if stop < len(data):
            self._rest = data[stop:]

    def settle_rest(self) -> None:
        """Write acks for what was delivered since the last one, at the end of a run."""
        for channel in range(1, self._channels + 1):
            if self._ack_every > 0 and self._unacked[channel] > 0:
                self._write_ack(channel, 1)

    def _join(self, data: bytes, at: i64, now_ns: i64) -> i64:
        """Finish what the last chunk began; returns where to go on, -1 when all is used."""
        rest = self._rest
        head = rest + data[at : at + HEAD_BYTES]
        stop = self._walk(head, 0, now_ns)
        if stop == 0 and at + HEAD_BYTES < len(data):  # an uncommonly long method
            head = rest + data[at:]
            stop = self._walk(head, 0, now_ns)
        if stop == 0:
            self._rest = head
            return -1
        self._rest = b""
        at += stop - len(rest)
        return self._skipped(data, at, now_ns)

    def _skipped(self, data: bytes, at: i64, now_ns: i64) -> i64:
        """Step over the rest of a frame begun earlier; returns where the next begins."""
        if self._skip == 0:
            return at
        there = i64(len(data)) - at
        if there < self._skip:
            self._skip -= there
            return len(data)
        at += self._skip
        self._skip = 0
        check_end(data, at - 1)
        if self._skip_channel > 0:
            self._finish(self._skip_channel, now_ns)
        return at

    def _walk(self, data: bytes, at: i64, now_ns: i64) -> i64:
        """Read frames from ``at`` on; returns where the first unread one begins."""
        size = i64(len(data))
        while at + 7 <= size:
            kind = data[at]
            channel = i64(read_i16_be(data, at + 1)) & 0xFFFF
            length = i64(read_i32_be(data, at + 3))
            end = at + 7 + length
            if channel > self._channels or length < 0:
                raise BrokenStream(f"frame of {length} bytes on channel {channel}")
            finished = False
            if kind == FRAME_BODY:
                if at + 7 + (length if length < STAMP_BYTES else STAMP_BYTES) > size:
                    return at
                finished = self._body(data, at + 7, length, channel, now_ns)
            elif kind == FRAME_HEADER:
                if at + 19 > size:
                    return at
                body_size = i64(read_i64_be(data, at + 11))
                self._sizes[channel] = body_size
                self._left[channel] = body_size
                self._stamps[channel] = 0
                finished = body_size == 0
            elif end >= size:
                return at
            elif kind == FRAME_METHOD:
                self._method(data, at + 7, end, channel)
            if end >= size:
                self._skip = end + 1 - size
                self._skip_channel = channel if finished else 0
                return size
            check_end(data, end)
            if finished:
                self._finish(channel, now_ns)
            at = end + 1
        return at

    def _method(self, data: bytes, at: i64, end: i64, channel: i64) -> None:
        key = i64(read_i32_be(data, at))
        if key != self._key:
            self.control.append((int(channel), data[at:end]))
        elif key == KEY_DELIVER:
            tag_at = at + 5 + i64(data[at + 4])
            self._tags[channel] = i64(read_i64_be(data, tag_at))
            self.redelivered += i64(data[tag_at + 8]) & 1

    def _body(self, data: bytes, at: i64, length: i64, channel: i64, now_ns: i64) -> bool:
        """True when the message is complete with this frame."""
        left = self._left[channel]
        if left == self._sizes[channel] and length >= 8:
            self._stamps[channel] = i64(read_i64_be(data, at))
            if length >= STAMP_BYTES:
                self._order(i64(read_i64_be(data, at + 8)), channel)
        if length > left:
            raise BrokenStream(f"body frame of {length} bytes where {left} were expected")
        self._left[channel] = left - length
        return left == length

    def _order(self, mark: i64, channel: i64) -> None:
        publisher = mark >> SEQUENCE_BITS
        if publisher < 0 or publisher >= self._publishers:
            self.foreign += 1
            return
        slot = channel * self._publishers + publisher
        sequence = mark & SEQUENCE_MASK
        sequences = self._sequences
        if sequence <= sequences[slot]:
            self.out_of_order += 1
        sequences[slot] = sequence

    def _finish(self, channel: i64, now_ns: i64) -> None:
        self.messages += 1
        self.body_bytes += self._sizes[channel]
        stamp_ns = self._stamps[channel]
        if stamp_ns > 0 and stamp_ns <= now_ns:
            self.latency.add(now_ns - stamp_ns, 1)
        if self._ack_every > 0:
            unacked = self._unacked[channel] + 1
            self._unacked[channel] = unacked
            if unacked >= self._ack_every:
                self._write_ack(channel, 0 if self._ack_every == 1 else 1)

    def _write_ack(self, channel: i64, multiple: i64) -> None:
        acks = self.acks
        acks.append(FRAME_METHOD)
        acks.append(u8(channel >> 8))
        acks.append(u8(channel & 0xFF))
        write_i64_be(acks, ACK_BEGIN)
        write_i64_be(acks, self._tags[channel])
        acks.append(u8(multiple))
        acks.append(FRAME_END)
        self._unacked[channel] = 0
