"""Contents of one AMQP connection that have come in part: counted, and bounded.

decoder ─ how much ─► UnfinishedInput ─► RamAccount.input_bytes, which the memory alarm counts
└► too much: the connection is closed with 506
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.flow import Flow
from penstock.protocols.amqp.codec.errors import (
    RESOURCE_ERROR,
    ProtocolViolation,
)
from penstock.protocols.amqp.codec.methods import BASIC_PUBLISH
from penstock.storage.engine.ram import RamAccount

OVERHEAD_BYTES: Final[i64] = 1024 * 1024
"""Frames around the largest message there may be, and the beginnings of a few small ones."""

TOO_MUCH: Final = "contents that have come in part take too much memory"


@final
class UnfinishedInput:
    """``max_bytes``: of one message, and so of all contents that come at a time."""

    def __init__(self, ram: RamAccount, flow: Flow, max_bytes: i64) -> None:
        self._ram = ram
        self._flow = flow
        self._max_bytes: i64 = max_bytes + OVERHEAD_BYTES
        self.size_bytes: i64 = 0  # as it was counted last
        self._is_over: bool = False

    def count(self, size_bytes: i64) -> bool:
        """So much is unfinished now; False = that is more than may be kept."""
        more_bytes = size_bytes - self.size_bytes
        if self._is_over:
            return size_bytes <= OVERHEAD_BYTES
        self.size_bytes = size_bytes
        may = self._ram.take_input(more_bytes, size_bytes, self._flow.held_bytes)
        return more_bytes < 0 or (may and size_bytes <= self._max_bytes)

    def forget(self) -> None:
        """The connection is over; what still comes in is not counted."""
        self.count(0)
        self._is_over = True


def too_much() -> ProtocolViolation:
    return ProtocolViolation(RESOURCE_ERROR, TOO_MUCH, BASIC_PUBLISH)
