"""``ConfirmWatermark``: the number up to which publishes are safe on other nodes.

A queue whose copies, or whose master, are on other nodes numbers what it takes, and hears later
"safe up to n", which of them had no room, or that no answer will ever come.  The publisher's
session finds a ``PendingConfirm`` in ``PendingConfirms.noted``, the one list of the node, and
looks at it in later turns:

    queue.publish ─► ConfirmWatermark.number ─► PendingConfirms.noted ─► session: looks at ``done``
    the other node ─► advance, refuse, lose ─► Wait.done, and ``PendingConfirms.moved``: look now

A publish that waits for nothing of the kind costs its publisher one truth test of the list.

One number may stand for a whole batch (a broadcast), or there is one for each message of it (a
publish to another node): then single ones may be refused.  The places of those in the batch are the
wait's to know: all of it, unless a publisher in parts has said otherwise (``cover``, ``only``).

Invariants (``check``):
  F1  the open waits of a watermark ascend, and none is reached or done
  F2  no more is reached than was numbered
"""

from collections import deque
from typing import final

from mypy_extensions import i64

from penstock.core.clock_types import WallMs
from penstock.core.message import Message


@final
class PendingConfirm:
    """The numbers first..last of a watermark have to be safe.

    ``lost``       no node will ever say whether they are; not ``done`` if it must not go on: it is
                   *stranded*, and its publisher publishes it again
    ``resend``     the broker itself is the publisher: if it gets lost it is sent again
    ``held``       it has not been sent, so it cannot get lost
    ``relayed``    another node passed it on, and can say no to its publisher itself
    ``away_text``  why this node cannot reach the node that would say so, while another may: the
                   publisher is to go there; "" = it can
    """

    def __init__(
        self,
        first: i64,
        last: i64,
        away_text: str = "",
        messages: list[Message] | None = None,
        until_ms: WallMs = WallMs(0),
    ) -> None:
        self.first: i64 = first
        self.last: i64 = last
        self.done: bool = False
        self.lost: bool = False
        self.resend: bool = False
        self.held: bool = False
        self.relayed: bool = False
        self.away_text: str = away_text
        self.messages: list[Message] = messages or []  # until it is done; of those elsewhere only
        self.until_ms: WallMs = until_ms  # and they were deferred until then
        self._refused: list[int] = []  # numbers
        self._place: i64 = 0
        self._count: i64 = -1  # to the end of the batch
        self._places: list[int] | None = None

    def renumber(self, first: i64) -> None:
        """As many numbers, from ``first`` on."""
        self.last = first + self.last - self.first
        self.first = first

    def must_arrive(self) -> None:
        """The broker itself is the publisher."""
        self.resend = True

    def follow(self, waits: "list[PendingConfirm]") -> None:
        """It was published as these, which are over."""
        self.lost = any_lost(waits)
        self.done = not (self.lost and self.resend)

    def refuse(self, number: i64) -> None:
        self._refused.append(int(number))

    def hold(self) -> None:
        """It was not sent."""
        self.held = True

    def sent(self) -> None:
        self.held = False

    def relay(self) -> None:
        """Another node has passed it on."""
        self.relayed = True

    def lose(self) -> None:
        """No node will say whether it is safe."""
        self.lost = True

    def strand(self) -> None:
        """It is lost, and not done: its publisher has to go on elsewhere."""
        self.lost = True
        self.messages = []

    def end(self) -> None:
        self.done = True
        self.messages = []

    def cover(self, place: i64, count: i64) -> None:
        """It stands for these neighbours of the batch only."""
        self._place = place
        self._count = count
        self._places = None

    def only(self, places: list[int]) -> None:
        """It stands for these of the batch only."""
        self._places = places

    def was_refused(self) -> bool:
        return len(self._refused) > 0

    def unsafe_places(self, batch_count: i64) -> list[int]:
        """Of a wait that is done: what of the batch was refused, or got lost."""
        if not self.lost and len(self._refused) == 0:
            return []
        covered = self._covered(batch_count)
        if self.lost or len(covered) == 1 or self.first == self.last:
            return covered
        return [covered[number - int(self.first)] for number in self._refused]

    def _covered(self, batch_count: i64) -> list[int]:
        if self._places is not None:
            return self._places
        count = self._count if self._count >= 0 else batch_count - self._place
        return list(range(int(self._place), int(self._place + count)))


@final
class PendingConfirms:
    """Of one node: what the publish under way has to wait for, and whether anything was reached."""

    def __init__(self) -> None:
        self.noted: list[PendingConfirm] = []
        self.moved: bool = False  # since the last look

    def take(self) -> list[PendingConfirm]:
        """What has been noted since the last time."""
        noted = self.noted
        self.noted = []
        return noted

    def note(self, waits: list[PendingConfirm]) -> None:
        """The publish under way has to wait for these, too."""
        self.noted += waits

    def forget_after(self, count: i64) -> None:
        """The publisher of the last of these does not wait."""
        if len(self.noted) > count:
            del self.noted[count:]

    def move(self) -> None:
        """Something was reached, or should be looked at as if it were."""
        self.moved = True

    def take_moved(self) -> bool:
        moved = self.moved
        self.moved = False
        return moved


@final
class ConfirmWatermark:
    """``reached``: up to here everything is decided; ``numbered``: the last number given."""

    def __init__(self, waits: PendingConfirms) -> None:
        self.reached: i64 = 0
        self.numbered: i64 = 0
        self._waits = waits
        self._open: deque[PendingConfirm] = deque()

    def number(
        self,
        count: i64,
        away_text: str = "",
        messages: list[Message] | None = None,
        until_ms: WallMs = WallMs(0),
    ) -> PendingConfirm:
        """The next ``count`` numbers, and a note that the publish under way waits for them.

        ``messages``: what is on its way to another node, ``until_ms`` deferred.
        """
        first, last = self.numbered + 1, self.numbered + count
        wait = PendingConfirm(first, last, away_text, messages, until_ms)
        self.numbered += count
        self._open.append(wait)
        self._waits.noted.append(wait)
        return wait

    def number_again(self, wait: PendingConfirm) -> None:
        """What it stands for is sent once more, under new numbers."""
        wait.renumber(self.numbered + 1)
        self.numbered = wait.last
        self._open.append(wait)

    def has_open(self) -> bool:
        return len(self._open) > 0

    def advance(self, upto: i64) -> None:
        """Up to here everything is safe, but for what was refused before."""
        if upto <= self.reached:
            return
        self.reached = upto
        while len(self._open) > 0 and self._open[0].last <= upto:
            self._end(self._open.popleft())

    def refuse(self, number: i64) -> None:
        """This one was not taken; to be said before it is reached."""
        for wait in self._open:
            if wait.first <= number <= wait.last:
                wait.refuse(number)
                return

    def held(self) -> list[PendingConfirm]:
        """What is open and was not sent."""
        return [wait for wait in self._open if wait.held]

    def hold(self) -> None:
        """What is open was not taken by any node."""
        for wait in self._open:
            wait.hold()

    def lose(self) -> list[PendingConfirm]:
        """No answer will come for what is open; returns what is to be sent again."""
        again: list[PendingConfirm] = []
        waits = self._open
        self._open = deque()
        for wait in waits:
            if wait.resend or wait.held:
                again.append(wait)
            else:
                wait.lose()
                self._end(wait)
        self.reached = self.numbered
        return again

    def take_open(self) -> list[PendingConfirm]:
        """All that is open, to be numbered again."""
        waits = list(self._open)
        self._open = deque()
        self.reached = self.numbered
        return waits

    def strand(self, waits: list[PendingConfirm]) -> None:
        """What they stand for cannot be sent again from here: its publisher has to."""
        for wait in waits:
            wait.strand()
            self._waits.move()

    def give_up(self, waits: list[PendingConfirm]) -> None:
        """Of those that were to be sent again: they will not be."""
        for wait in waits:
            wait.lose()
            self._end(wait)

    def _end(self, wait: PendingConfirm) -> None:
        wait.end()
        self._waits.move()

    def check(self) -> None:
        last = self.reached
        for wait in self._open:
            assert not wait.done, "F1"
            assert wait.last > self.reached, "F1"
            assert wait.first > last or wait.first <= self.reached, "F1"
            last = wait.last
        assert self.reached <= self.numbered, "F2"


def all_done(waits: list[PendingConfirm]) -> bool:
    return all(wait.done for wait in waits)


def all_over(waits: list[PendingConfirm]) -> bool:
    """Nothing more will be said of any of them."""
    return all(wait.done or wait.lost for wait in waits)


def any_stranded(waits: list[PendingConfirm]) -> bool:
    return any(wait.lost and not wait.done for wait in waits)


def any_lost(waits: list[PendingConfirm]) -> bool:
    return any(wait.lost for wait in waits)


def any_refused(waits: list[PendingConfirm]) -> bool:
    return any(wait.was_refused() for wait in waits)
