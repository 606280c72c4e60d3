"""The end of an AMQP connection that we close: connection.close is sent, close-ok is waited for."""

from typing import Final, final

from penstock.core.clock_types import MonoMs

CLOSING_TIMEOUT_MS: Final = 30_000
CLOSE_OK_FRAME: Final = b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x33\xce"
TAIL_BYTES: Final = 65_536


@final
class Closing:
    """Made when connection.close is sent."""

    def __init__(self, now_ms: MonoMs) -> None:
        self._since_ms: MonoMs = now_ms
        self._tail: bytes = b""

    def is_overdue(self, now_ms: MonoMs) -> bool:
        return now_ms - self._since_ms > CLOSING_TIMEOUT_MS

    def is_answered(self, data: bytes) -> bool:
        """After an error frame boundaries may be lost, so look for the frame itself."""
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        return CLOSE_OK_FRAME in self._tail
