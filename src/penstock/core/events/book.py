"""``EventBook``: events of the quiet packages, noted for the event log.

    packages ─ note(kind, values) ─► book ─ take(), a few times a second ─► runtime/disk/event_log

A note is a tuple: when, what kind, the values of its fields in the order in which ``event_kinds``
names them, and the actor whose doing it was.  This module writes no file, asks no clock and makes
no text: the collector does, on the loop, and the writers, in threads of their own.

While the event log is off (``on`` is False), a note costs one comparison.  The book is bounded:
notes that do not fit until the collector comes are counted, and the count becomes an event itself.
"""

from collections.abc import Callable
from typing import Final, TypeVar, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs

EVENTS_MAX: Final = 20_000
"""What waits at most to be taken: a quarter of a second's worth on the worst of days."""

T = TypeVar("T")


@final
class Actor:
    """A user, and the protocol and address (without a port) of its client; "" = not known.

    Without a user: the node itself.  ``has_acted``: something that it did was noted.
    """

    __slots__ = ("address", "has_acted", "protocol", "user")

    def __init__(self, user: str = "", protocol: str = "", address: str = "") -> None:
        self.user: str = user
        self.protocol: str = protocol
        self.address: str = address
        self.has_acted: bool = False

    def act(self) -> None:
        self.has_acted = True


NODE: Final = Actor()
Event = tuple[WallMs, str, tuple[object, ...]]
Noted = tuple[WallMs, str, tuple[object, ...], Actor]
"""An event, and the actor whose doing it was."""


@final
class EventBook:
    """Of one node; ``now_ms`` is when its loop last woke, ``actor`` whose request is worked on."""

    def __init__(self) -> None:
        self.on: bool = False
        self.directory: str = ""  # of the log, for its readers
        self.now_ms: WallMs = WallMs(0)
        self.dropped: i64 = 0
        self.unrecorded: i64 = 0  # records that the audit trail lacks
        self.actor: Actor = NODE
        self._events: list[Noted] = []

    def open(self) -> None:
        """From here on events are kept until they are taken."""
        self.on = True

    def begin_log(self, directory: str) -> None:
        """They are written to files there."""
        self.directory = directory

    def lacks_records(self, count: int) -> None:
        """So many the audit trail could not take, since the start."""
        self.unrecorded = count

    def set_now(self, now_ms: WallMs) -> None:
        """The loop woke."""
        self.now_ms = now_ms

    def close(self) -> None:
        self.on = False

    @property
    def user(self) -> str:
        """The actor's."""
        return self.actor.user

    def act_for(self, actor: Actor, function: Callable[[], T]) -> T:
        """Run it: what is noted meanwhile is the doing of that actor."""
        before = self.actor
        self.actor = actor
        try:
            return function()
        finally:
            self.actor = before

    def note(self, kind: str, values: tuple[object, ...], actor: Actor | None = None) -> None:
        """Something happened just now.

        ``actor``: whose doing it was, if that is another than the one whose request is worked on.
        """
        if not self.on:
            return
        if len(self._events) >= EVENTS_MAX:
            self.dropped += 1
            return
        actor = actor or self.actor
        actor.act()
        self._events.append((self.now_ms, kind, values, actor))

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
