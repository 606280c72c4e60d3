"""A publish whose frames arrive in several reads, put together.

method ──► HEADER_DUE ──header──► missing_bytes > 0 ──bodies──► 0: the message is whole
└── more than announced ──► OVERRUN
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import Address, Message

HEADER_DUE: Final[i64] = -1
OVERRUN: Final[i64] = -2
"""Instead of a number of missing bytes: no header yet; more body than was announced."""


@final
class Unfinished:
    """What the contents under way of one connection take, over all its channels."""

    def __init__(self) -> None:
        self.size_bytes: i64 = 0

    def count(self, more_bytes: i64) -> None:
        self.size_bytes += more_bytes

    def forget(self) -> None:
        """The connection has failed: nothing of it is kept."""
        self.size_bytes = 0


@final
class Assembly:
    """One channel's view of the frame order: what may come next, and what came so far."""

    def __init__(self, unfinished: Unfinished) -> None:
        self._unfinished = unfinished
        self._size_bytes: i64 = 0  # of ``parts``
        self.discarding: bool = False
        self.address: Address | None = None
        self.flags: i64 = 0
        self.expires_at_ms = WallMs(0)  # as if it were whole at the time of its header
        self.header_at_ms = WallMs(0)
        self.parts: list[bytes] = []
        self.missing_bytes: i64 = 0

    def begin(self, address: Address) -> None:
        """A publish to that address; its header is due."""
        self.address = address
        self.missing_bytes = HEADER_DUE

    def header(
        self, frame: bytes, flags: i64, expires_at_ms: WallMs, now_ms: WallMs, body_bytes: i64
    ) -> None:
        """The header frame has come, with what was found in it."""
        self.flags = flags
        self.expires_at_ms = expires_at_ms
        self.header_at_ms = now_ms
        self.missing_bytes = body_bytes
        self.add(frame)

    def body(self, frame: bytes, size: i64) -> bool:
        """A body frame with ``size`` bytes of the body has come; True: that was all of it."""
        if size > 0:
            self.add(frame)
        self.missing_bytes -= size
        return self.missing_bytes == 0

    def overrun(self) -> None:
        """More came than was announced: as RabbitMQ, wait on for what cannot be complete."""
        self._drop_parts()
        self.missing_bytes = OVERRUN

    def add(self, part: bytes) -> None:
        """Some of the content: a frame, or the beginning of one that ``body`` will end."""
        self.parts.append(part)
        self._size_bytes += len(part)
        self._unfinished.count(len(part))

    def _drop_parts(self) -> None:
        self.parts = []
        self._unfinished.count(-self._size_bytes)
        self._size_bytes = 0

    def reset(self) -> None:
        self.address = None
        self._drop_parts()
        self.missing_bytes = 0

    def whole(self, address: Address, now_ms: WallMs) -> Message:
        """All of it is here: its time to live begins now, not with its header."""
        expires_at_ms = self.expires_at_ms
        if expires_at_ms != 0:
            expires_at_ms = WallMs(expires_at_ms + now_ms - self.header_at_ms)
        message = Message(b"".join(self.parts), address.wire, self.flags, expires_at_ms)
        self.reset()
        return message

    def discard(self) -> None:
        """Until the channel is closed, what comes on it is not kept."""
        self.reset()
        self.discarding = True

    def unexpected_text(self) -> str:
        """RabbitMQ's words for a frame that is not the one that is due."""
        what = "content header" if self.missing_bytes == HEADER_DUE else "content body"
        due = what + " for class 60" if self.missing_bytes == HEADER_DUE else what
        return f"expected {due}, got non {what} frame instead"
