"""``EventBook``: events of the quiet packages, noted for the event log.

    packages ─ note(kind, values) ─► book ─ take(), a few times a second ─► runtime/disk/event_log

A note is a tuple: when, what kind, the values of its fields in the order in which ``event_kinds``
names them, and the user whose doing it was, "" = the node itself.  This module writes no file, asks
no clock and makes no text: the collector does, on the loop, and the writer, in a thread of its own.

While the event log is off (``on`` is False), a note costs one comparison.  The book is bounded:
notes that do not fit until the collector comes are counted, and the count becomes an event itself.
"""

from collections.abc import Callable
from typing import Final, TypeVar, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs

EVENTS_MAX: Final = 20_000
"""What waits at most to be taken: a quarter of a second's worth on the worst of days."""

Event = tuple[WallMs, str, tuple[object, ...]]
Noted = tuple[WallMs, str, tuple[object, ...], str]
"""An event, and the user whose doing it was."""
T = TypeVar("T")


@final
class EventBook:
    """Of one node; ``now_ms`` is when its loop last woke, ``user`` whose request is worked on."""

    def __init__(self) -> None:
        self.on: bool = False
        self.directory: str = ""  # of the log, for its readers
        self.now_ms: WallMs = WallMs(0)
        self.dropped: i64 = 0
        self.user: str = ""
        self._events: list[Noted] = []

    def open(self) -> None:
        """From here on events are kept until they are taken."""
        self.on = True

    def begin_log(self, directory: str, now_ms: WallMs) -> None:
        """They are written to files there."""
        self.directory = directory
        self.now_ms = now_ms

    def set_now(self, now_ms: WallMs) -> None:
        """The loop woke."""
        self.now_ms = now_ms

    def close(self) -> None:
        self.on = False

    def act_for(self, user: str, function: Callable[[], T]) -> T:
        """Run it: what is noted meanwhile is the doing of that user."""
        before = self.user
        self.user = user
        try:
            return function()
        finally:
            self.user = before

    def note(self, kind: str, values: tuple[object, ...], user: str = "") -> None:
        """Something happened just now; ``user``: whose doing it was, if no request is worked on."""
        if not self.on:
            return
        if len(self._events) >= EVENTS_MAX:
            self.dropped += 1
            return
        self._events.append((self.now_ms, kind, values, user or self.user))

    def take(self) -> list[Noted]:
        """Everything since the last time."""
        events = self._events
        if events:
            self._events = []
        return events

    def take_dropped(self) -> int:
        """How many did not fit since the last time."""
        dropped = int(self.dropped)
        self.dropped = 0
        return dropped
