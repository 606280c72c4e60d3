"""A publish under way, for the rare case that its frames come one by one.

method ──► HEADER_DUE ──header──► missing_bytes > 0 ──bodies──► 0: the message is whole
└── more than announced ──► OVERRUN
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.message import Address

HEADER_DUE: Final[i64] = -1
OVERRUN: Final[i64] = -2
"""Instead of a number of missing bytes: no header yet; more body than was announced."""


@final
class Assembly:
    """One channel's view of the frame order: what may come next, and what came so far."""

    def __init__(self) -> None:
        self.discarding: bool = False
        self.address: Address | None = None
        self.flags: i64 = 0
        self.expires_at_ms: i64 = 0
        self.parts: list[bytes] = []
        self.missing_bytes: i64 = 0

    def reset(self) -> None:
        self.address = None
        self.parts = []
        self.missing_bytes = 0

    def unexpected_text(self) -> str:
        """RabbitMQ's words for a frame that is not the one that is due."""
        what = "content header" if self.missing_bytes == HEADER_DUE else "content body"
        due = what + " for class 60" if self.missing_bytes == HEADER_DUE else what
        return f"expected {due}, got non {what} frame instead"
