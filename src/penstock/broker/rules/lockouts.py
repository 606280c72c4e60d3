"""``Lockouts``: after so many wrong passwords a user's log-ins with a password are refused a while.

    failed ─► within the window ``failures`` of a user ─► locked out until a point in time
    accepted ─► what was counted is forgotten

Of a user at one address (``OF_ADDRESS``) no other machine can shut the user out.  With
``OF_USER`` the user is locked out everywhere, and any machine that reaches a listener can do that:
the operator decides.  Names that no user has are counted as others are, so that nothing tells them
apart.  Within ``COUNTED_MAX`` and ``LOCKED_MAX`` the oldest entries make room.

In a cluster each node sends the others what it counts (``take_news``), and counts what they send
(``hear``): so all nodes count all wrong passwords, and lock out at the same one.  A link that ends
loses the news on its way: the counts of two nodes then differ until the window is over.
"""

from collections import deque
from typing import Final, NamedTuple, final

from mypy_extensions import i64

from penstock.broker.rules.bounded_events import EXAMPLE_MAX_CHARS
from penstock.core.clock_types import WallMs
from penstock.settings.entry import OF_ADDRESS, OFF, network_of

COUNTED_MAX: Final = 10_000
LOCKED_MAX: Final = 10_000

NEWS_MAX: Final = 1000
"""Kept for other nodes; the oldest of more are not sent."""

FAILED, ACCEPTED, ENDED = range(3)

Key = tuple[str, str]
"""User, and address or network; "" = everywhere."""


class News(NamedTuple):
    """``what``: FAILED, ACCEPTED, or ENDED by an operator, at all addresses."""

    what: int
    user: str
    address: str


class LockoutRule(NamedTuple):
    """``scope``: OFF, OF_ADDRESS or OF_USER of the settings."""

    scope: str = OFF
    failures: int = 10
    window_ms: int = 300_000
    lasts_ms: int = 300_000


NO_LOCKOUT: Final = LockoutRule()


class Lockout(NamedTuple):
    """``address``: "" = everywhere."""

    user: str
    address: str
    until_ms: WallMs


@final
class Failures:
    """Of one key in its window."""

    def __init__(self, began_ms: WallMs) -> None:
        self.began_ms: Final = began_ms
        self.count: i64 = 0

    def one_more(self) -> i64:
        self.count += 1
        return self.count


@final
class Lockouts:
    """Of one node."""

    def __init__(self, rule: LockoutRule) -> None:
        self.rule: Final = rule
        self._failures: dict[Key, Failures] = {}  # the oldest first
        self._locked: dict[Key, WallMs] = {}  # until then, the oldest first
        self._news: deque[News] = deque(maxlen=NEWS_MAX)

    def is_locked(self, name: str, address: str, now_ms: WallMs) -> bool:
        until_ms = self._locked.get(self._key(name, address), WallMs(0))
        return now_ms < until_ms

    def failed(self, name: str, address: str, now_ms: WallMs) -> Lockout | None:
        """A wrong password; returns the lock-out that begins with it."""
        if self.rule.scope == OFF or name == "":
            return None
        key = self._key(name, address)
        self._news.append(News(FAILED, *key))
        return self._count(key, now_ms)

    def _count(self, key: Key, now_ms: WallMs) -> Lockout | None:
        rule = self.rule
        failures = self._failures.get(key)
        if failures is None or not 0 <= now_ms - failures.began_ms < rule.window_ms:
            self._failures.pop(key, None)
            _make_room(self._failures, COUNTED_MAX)
            failures = self._failures[key] = Failures(now_ms)
        if failures.one_more() < rule.failures:
            return None
        del self._failures[key]
        self._locked.pop(key, None)
        _make_room(self._locked, LOCKED_MAX)
        self._locked[key] = WallMs(now_ms + rule.lasts_ms)
        return Lockout(*key, self._locked[key])

    def accepted(self, name: str, address: str) -> None:
        if self._failures:
            key = self._key(name, address)
            if self._failures.pop(key, None) is not None:
                self._news.append(News(ACCEPTED, *key))

    def all(self, now_ms: WallMs) -> list[Lockout]:
        """Those in force, the oldest first."""
        self._locked = {key: until for key, until in self._locked.items() if now_ms < until}
        return [Lockout(*key, until) for key, until in self._locked.items()]

    def end(self, name: str, now_ms: WallMs) -> list[Lockout]:
        """All of a user; returns those that were in force."""
        name = name[:EXAMPLE_MAX_CHARS]
        if self.rule.scope != OFF:
            self._news.append(News(ENDED, name, ""))
        return self._end(name, now_ms)

    def _end(self, name: str, now_ms: WallMs) -> list[Lockout]:
        ended = [one for one in self.all(now_ms) if one.user == name]
        for one in ended:
            del self._locked[one.user, one.address]
        for key in [key for key in self._failures if key[0] == name]:
            del self._failures[key]
        return ended

    def take_news(self) -> list[News]:
        """What happened here since it was asked last, for the other nodes."""
        if not self._news:
            return []
        taken = list(self._news)
        self._news.clear()
        return taken

    def hear(self, news: News, now_ms: WallMs) -> tuple[Lockout | None, list[Lockout]]:
        """From another node: the lock-out that begins here too, and those that end."""
        key = (news.user, news.address)
        if self.rule.scope == OFF:
            return None, []
        if news.what == FAILED:
            is_locked = now_ms < self._locked.get(key, WallMs(0))
            return None if is_locked else self._count(key, now_ms), []
        if news.what == ENDED:
            return None, self._end(news.user, now_ms)
        self._failures.pop(key, None)
        return None, []

    def _key(self, name: str, address: str) -> Key:
        where = network_of(address) if self.rule.scope == OF_ADDRESS else ""
        return name[:EXAMPLE_MAX_CHARS], where


def _make_room(entries: dict[Key, Failures] | dict[Key, WallMs], most: int) -> None:
    if len(entries) >= most:
        del entries[next(iter(entries))]
