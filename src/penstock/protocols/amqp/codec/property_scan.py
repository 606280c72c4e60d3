"""Property scan: the few properties that the broker itself needs, without decoding the rest (hot).

The content stays as it is; of its header frame the broker wants the delivery mode, the
priority, the expiration, whether the headers name further routing keys, and whether the
answer is asked for without a queue.  The rest is stepped over, but completely: properties
that do not fill their frame, or a headers table that is none, would hit the consumer that
decodes them, so they are refused here.
"""

from typing import Final, final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.errors import BrokerError, PreconditionFailed
from penstock.core.message import ASKS_REPLY, COPIES, PERSISTENT, priority_flags
from penstock.protocols.amqp.codec.properties import parse_expiration

FLAGS_AT: Final[i64] = 19
"""Offset of the property flags in a content header frame."""
NESTING_MAX: Final[i64] = 128
ANYBODY: Final = b"\xff"
"""As the user a ``user-id`` must name: any.  No name is these bytes: they are no UTF-8."""

# The properties in their order; flags from the top bit down.
_HEADERS: Final[i64] = 0x2000
_DELIVERY_MODE: Final[i64] = 0x1000
_PRIORITY: Final[i64] = 0x0800
_REPLY_TO: Final[i64] = 0x0200
_EXPIRATION: Final[i64] = 0x0100
_TIMESTAMP: Final[i64] = 0x0040
_USER_ID: Final[i64] = 0x0010
_CLUSTER_ID: Final[i64] = 0x0004
_CONTENT_TYPE: Final[i64] = 0x8000

_PSEUDO_QUEUE: Final = b"amq.rabbitmq.reply-to"

_FIXED_SIZES: Final = {
    "t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "f": 4,
    "l": 8, "L": 8, "d": 8, "T": 8, "D": 5, "V": 0,
}  # fmt: skip


def _sizes() -> list[int]:
    """Size of a field's value by its type octet; -1 = length before it, -2 = no such type."""
    sizes = [-2] * 256
    for letter, size in _FIXED_SIZES.items():
        sizes[ord(letter)] = size
    for letter in "SxFA":
        sizes[ord(letter)] = -1
    return sizes


_SIZES: Final = _sizes()
_TABLE: Final[i64] = 0x46
_ARRAY: Final[i64] = 0x41
_MALFORMED: Final[i64] = -1


@final
class PropertyScan:
    """The result of the last ``read``."""

    def __init__(self) -> None:
        self.flags: i64 = 0
        self.expires_at_ms = WallMs(0)
        self.refusal: BrokerError | None = None
        self._user_id: bytes = b""

    def read(
        self, data: bytes, header: i64, header_end: i64, now_ms: WallMs, user_id: bytes
    ) -> bool:
        """Scan the header frame at header..header_end.

        False when it is malformed, or when a value is not acceptable (``take_refusal``).
        """
        self.flags = 0
        self.expires_at_ms = WallMs(0)
        self._user_id = user_id
        position = header + FLAGS_AT + 2
        present = i64(read_i16_be(data, header + FLAGS_AT)) & 0xFFFF
        if present == 0:
            return position == header_end
        if present == _DELIVERY_MODE and position + 1 == header_end:
            return self._delivery_mode(i64(data[position]))
        bit = _CONTENT_TYPE
        while bit >= _CLUSTER_ID:
            if present & bit:
                position = self._property(data, bit, position, header_end, now_ms)
                if position == _MALFORMED:
                    return False
            bit >>= 1
        return position == header_end

    def take_refusal(self) -> BrokerError | None:
        """Why the last ``read`` refused a value."""
        refusal = self.refusal
        self.refusal = None
        return refusal

    def _property(self, data: bytes, bit: i64, position: i64, end: i64, now_ms: WallMs) -> i64:
        """Step over one property; returns where the next begins, or ``_MALFORMED``."""
        if bit == _DELIVERY_MODE:
            if position >= end or not self._delivery_mode(i64(data[position])):
                return _MALFORMED
            return position + 1
        if bit == _HEADERS:
            return self._headers(data, position, end)
        if bit == _PRIORITY:
            if position >= end:
                return _MALFORMED
            self.flags |= priority_flags(i64(data[position]))
            return position + 1
        if bit == _TIMESTAMP:
            return position + 8 if position + 8 <= end else _MALFORMED
        if position >= end:
            return _MALFORMED
        after = position + 1 + i64(data[position])
        if after > end:
            return _MALFORMED
        if bit == _EXPIRATION and not self._expiration(data[position + 1 : after], now_ms):
            return _MALFORMED
        if bit == _REPLY_TO and data[position + 1 : after] == _PSEUDO_QUEUE:
            self.flags |= ASKS_REPLY
        if bit == _USER_ID and not self._is_user(data[position + 1 : after]):
            return _MALFORMED
        return after

    def _is_user(self, claimed: bytes) -> bool:
        if claimed == self._user_id or self._user_id == ANYBODY:
            return True
        name = claimed.decode("utf-8", "replace")
        user = self._user_id.decode("utf-8", "replace")
        self.refusal = PreconditionFailed(
            f"user_id property set to '{name}' but authenticated user was '{user}'"
        )
        return False

    def _delivery_mode(self, mode: i64) -> bool:
        if mode == 2:
            self.flags |= PERSISTENT
        elif mode != 1:
            self.refusal = PreconditionFailed(f"invalid message: {{delivery_mode_unknown,{mode}}}")
            return False
        return True

    def _expiration(self, octets: bytes, now_ms: WallMs) -> bool:
        try:
            ttl_ms: i64 = parse_expiration(octets.decode("utf-8", "replace"))
        except BrokerError as error:
            self.refusal = error
            return False
        self.expires_at_ms = WallMs(now_ms + ttl_ms)
        return True

    def _headers(self, data: bytes, position: i64, end: i64) -> i64:
        start = position + 4
        if start > end:
            return _MALFORMED
        after = start + (i64(read_i32_be(data, position)) & 0xFFFFFFFF)
        if after > end:
            return _MALFORMED
        while start < after:
            key = start + 1
            start = key + i64(data[start])
            if start >= after:
                return _MALFORMED
            # CC and BCC are the only keys the broker itself acts upon.
            if start - key <= 3 and i64(data[start - 1]) == 0x43 and i64(data[start - 2]) == 0x43:
                self.flags |= COPIES
            start = _after_value(data, start, after, 0)
            if start == _MALFORMED:
                return _MALFORMED
        return after


def after_value(data: bytes, position: i64, end: i64) -> i64:
    """Where the typed value at ``position`` ends, in a table that was read before."""
    return _after_value(data, position, end, 0)


def _after_value(data: bytes, position: i64, end: i64, depth: i64) -> i64:
    """Step over one typed value; returns the place after it, or ``_MALFORMED``."""
    kind = i64(data[position])
    size: i64 = _SIZES[kind]
    position += 1
    if size >= 0:
        return position + size if position + size <= end else _MALFORMED
    if size == -2 or position + 4 > end or depth > NESTING_MAX:
        return _MALFORMED
    after = position + 4 + (i64(read_i32_be(data, position)) & 0xFFFFFFFF)
    if after > end:
        return _MALFORMED
    position += 4
    if kind == _ARRAY:
        while position < after:
            position = _after_value(data, position, after, depth + 1)
            if position == _MALFORMED:
                return _MALFORMED
    elif kind == _TABLE:
        while position < after:
            position += 1 + i64(data[position])
            if position >= after:
                return _MALFORMED
            position = _after_value(data, position, after, depth + 1)
            if position == _MALFORMED:
                return _MALFORMED
    return after
