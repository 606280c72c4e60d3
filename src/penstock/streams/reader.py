"""``StreamReader``: one consumer of a stream, its cursor and what it has not settled.

In: messages that it took, settled and gave back.  Out: its position, the lowest offset that is not
settled, for the log to keep.  Acknowledged in any order, what is kept is never ahead of what was
settled.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.message import Message
from penstock.streams.cursor import StreamCursor
from penstock.streams.filtering import HeaderFilter
from penstock.streams.marks import Marks

LOOKED_AT_MAX: Final[i64] = 100
"""Messages whose headers are looked at in one go."""
LOOK_BYTES: Final[i64] = 1024
"""To look at the headers of one takes as long as to deliver so much."""
NONE_BACK: Final[i64] = 1 << 62


@final
class StreamReader:
    """``name``: that its position is kept by; "" = none is.  ``headers``: what it wants of them.

    A message that it gives back is not settled: its position stays there, though the stream
    does not deliver it again.
    """

    def __init__(
        self, name: str, cursor: StreamCursor, headers: HeaderFilter | None = None
    ) -> None:
        self.name: str = name
        self.cursor: StreamCursor = cursor
        self.taken_bytes: i64 = 0
        self._headers: HeaderFilter | None = headers
        self._unsettled: dict[int, int] = {}  # offset -> when it came; ascending
        self._back: i64 = NONE_BACK
        self._back_ms: i64 = 0

    def take(self, most: i64) -> list[Message]:
        """At most so many of those at hand, without those whose headers it does not want.

        ``taken_bytes`` is the work that was: all of them, and more for headers.
        """
        headers = self._headers
        if headers is not None and most > LOOKED_AT_MAX:
            most = LOOKED_AT_MAX
        messages = self.cursor.take(most)
        size: i64 = 0
        for message in messages:
            size += message.size
        self.taken_bytes = size
        if headers is None:
            return messages
        self.taken_bytes = size + LOOK_BYTES * len(messages)
        return [message for message in messages if headers.matches(message)]

    def took(self, messages: list[Message]) -> None:
        for message in messages:
            self._unsettled[int(message.seq_id)] = int(message.enqueued_at_ms)

    def settled(self, messages: list[Message], back: bool) -> None:
        """The consumer is done with them, or gives them ``back``."""
        for message in messages:
            self._unsettled.pop(int(message.seq_id), None)
            if back and message.seq_id < self._back:
                self._back = message.seq_id
                self._back_ms = message.enqueued_at_ms
        if not self._unsettled:
            self._unsettled = {}  # one that is emptied keeps the room of what it had

    def report(self, positions: Marks) -> None:
        """Its position now; not while the cursor looks for a time, and not without room for it."""
        offset = self.cursor.place()
        came_ms = self.cursor.came_ms
        for lowest, lowest_ms in self._unsettled.items():
            offset = lowest
            came_ms = lowest_ms
            break
        if self._back < offset:
            offset = self._back
            came_ms = self._back_ms
        if offset >= 0 and positions.has_room(self.name):
            positions.move(self.name, offset, came_ms)
