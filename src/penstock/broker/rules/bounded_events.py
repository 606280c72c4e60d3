"""``BoundedEvents``: events of one kind about connections that are not open yet, bounded.

    note(actor, example, values)   ─► the first TOLD_MAX of an address in a minute are events
                                   └► the others one event at the minute's end: how many, examples

Any machine that reaches a listener can cause these events, and an event becomes a line in the log,
so the bound of the one is the bound of the other.  Of IPv6 a network of 64 bits is one address: a
machine has all of it to itself.  Memory is bounded, too: above ``ADDRESSES_MAX`` addresses all
others share one count.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.events.book import Actor, EventBook
from penstock.settings.entry import network_of

TOLD_MAX: Final[i64] = 20
WINDOW_MS: Final[i64] = 60_000
ADDRESSES_MAX: Final = 1000
EXAMPLES_MAX: Final = 5
EXAMPLE_MAX_CHARS: Final = 255
ELSEWHERE: Final = "other addresses"


@final
class EventCount:
    """Of one address in this minute."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.guesses: i64 = 0  # of these, at names and passwords
        self.examples: list[str] = []  # among those that are only counted

    def count_one(self, example: str) -> bool:
        """True = the log gets a line for this event, False = only the count grows."""
        self.count += 1
        if self.count <= TOLD_MAX:
            return True
        if len(self.examples) < EXAMPLES_MAX and example not in self.examples:
            self.examples.append(example)
        return False

    def guess(self) -> i64:
        """One of them was a guess; returns how many there are."""
        self.guesses += 1
        return self.guesses


@final
class BoundedEvents:
    """Of one node.  ``kind``: of a single event; ``kind_of_many``: (address, count, examples)."""

    def __init__(self, events: EventBook, kind: str, kind_of_many: str) -> None:
        self._events = events
        self._kind = kind
        self._kind_of_many = kind_of_many
        self._tallies: dict[str, EventCount] = {}
        self._window_began_ms = WallMs(0)

    def note(self, actor: Actor, example: str, values: tuple[object, ...]) -> EventCount:
        """``values``: of the single event."""
        self.look()
        address = network_of(actor.address)
        if address not in self._tallies and len(self._tallies) >= ADDRESSES_MAX:
            address = ELSEWHERE
        tally = self._tallies.setdefault(address, EventCount())
        if tally.count_one(example[:EXAMPLE_MAX_CHARS]):
            self._events.note(self._kind, values, actor)
        return tally

    def look(self) -> None:
        """Call it once a second: the minute may be over."""
        if 0 <= self._events.now_ms - self._window_began_ms < WINDOW_MS:
            return
        self._window_began_ms = self._events.now_ms
        for address, tally in self._tallies.items():
            if tally.count > TOLD_MAX:
                more = int(tally.count - TOLD_MAX)
                values = (address, more, ", ".join(tally.examples))
                self._events.note(self._kind_of_many, values, Actor("", "", address))
        self._tallies = {}
