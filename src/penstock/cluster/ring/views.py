"""``View``: the members of a ring, their order, and which of them are dead.

A view is a value.  It is kept in the coordinator under the group's key, and changed by
compare-and-set only: a member makes the next one from the newest it knows (``with_joined``,
``with_dead``, ``without``), one version higher, and proposes it in its place.  So versions have no
gaps.

The members stand in a circle in the order of the list; the right of the last is the first.  A dead
member keeps its place until its broadcasts have gone round in its name.  ``left`` and ``right``
are the nearest live ones; the *aliases* of a live member are the dead between its left and
itself: those it answers for.
"""

import json
from collections.abc import Iterable
from typing import Final, final

from mypy_extensions import i64


class BadView(Exception):
    """What is stored under the key is no view of a ring."""


@final
class View:
    """``version`` 0: there is no group yet."""

    def __init__(
        self, version: int, members: tuple[str, ...], dead: frozenset[str] = frozenset()
    ) -> None:
        self.version: i64 = version
        self.members = members
        self.dead = dead

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, View)
            and self.version == other.version
            and self.members == other.members
            and self.dead == other.dead
        )

    def __hash__(self) -> int:
        return hash((self.version, self.members, self.dead))

    def __repr__(self) -> str:
        names = ", ".join("†" + one if one in self.dead else one for one in self.members)
        return f"View({self.version}: {names})"

    # -- neighbours ------------------------------------------------------------------------

    def is_live(self, member: str) -> bool:
        return member in self.members and member not in self.dead

    def live(self) -> list[str]:
        return [member for member in self.members if member not in self.dead]

    def right_of(self, member: str) -> str:
        """The next live one; of the only live one itself."""
        return self._next_live(member, 1)

    def left_of(self, member: str) -> str:
        return self._next_live(member, -1)

    def aliases_of(self, member: str) -> list[str]:
        """The dead ones it answers for, the nearest last."""
        found: list[str] = []
        at = self.members.index(member)
        for step in range(1, len(self.members)):
            one = self.members[at - step]
            if one not in self.dead:
                break
            found.append(one)
        found.reverse()
        return found

    def _next_live(self, member: str, step: int) -> str:
        count = len(self.members)
        at = self.members.index(member)
        for _ in range(count):
            at = (at + step) % count
            if self.members[at] not in self.dead:
                return self.members[at]
        return member

    # -- the next one ---------------------------------------------------------------------

    def with_joined(self, member: str, left: str) -> "View":
        """With ``member`` directly on the right of ``left``, which lives; "": no member lives.

        Without a live member there is nothing to go on with, and the dead are forgotten.
        """
        assert member not in self.members
        if not left:
            assert not self.live()
            return View(self.version + 1, (member,))
        assert self.is_live(left)
        at = self.members.index(left) + 1
        members = (*self.members[:at], member, *self.members[at:])
        return View(self.version + 1, members, self.dead)

    def with_dead(self, members: Iterable[str]) -> "View":
        more = frozenset(members)
        assert more <= frozenset(self.members)
        return View(self.version + 1, self.members, self.dead | more)

    def without(self, members: Iterable[str]) -> "View":
        """Dead ones are erased, when what they broadcast has gone round."""
        gone = frozenset(members)
        assert gone <= self.dead
        rest = tuple(one for one in self.members if one not in gone)
        return View(self.version + 1, rest, self.dead - gone)

    def same_version(self, version: int) -> "View":
        """These members under another version: several changes are one proposal."""
        return View(version, self.members, self.dead)

    # -- as it is kept ----------------------------------------------------------------------

    def to_json(self) -> str:
        dead = [one for one in self.members if one in self.dead]
        fields = {"version": int(self.version), "members": list(self.members), "dead": dead}
        return json.dumps(fields, separators=(",", ":"))


NO_VIEW: Final = View(0, ())


def from_json(text: str) -> View:
    try:
        fields = json.loads(text)
    except ValueError as error:
        raise BadView(f"no JSON: {error}") from None
    if not isinstance(fields, dict) or set(fields) != {"version", "members", "dead"}:
        raise BadView("not the fields of a view")
    version = fields["version"]
    if type(version) is not int or not 0 < version < 1 << 63:
        raise BadView(f"version {version!r}")
    members = _names(fields["members"])
    dead = frozenset(_names(fields["dead"]))
    if not dead <= frozenset(members):
        raise BadView("a dead member is not in the list of members")
    return View(version, members, dead)


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise BadView("members are a list")
    names: list[str] = []
    for one in value:
        if not isinstance(one, str) or not one or one in names:
            raise BadView(f"member {one!r}")
        names.append(one)
    return tuple(names)


def joined_view(view: View, member: str, place: int, died: set[str]) -> View:
    """With ``member`` somewhere among the living; of them, those that died are said to be dead."""
    view_now = view.with_dead([one for one in view.live() if one in died])
    live = view_now.live()
    left = live[place % len(live)] if live else ""
    return view_now.with_joined(member, left).same_version(view.version + 1)


def who_reports(view: View, member: str, died: set[str]) -> str:
    """Proposes that ``member`` is dead: the next on its right that has not died itself."""
    reporter = view.right_of(member)
    while reporter in died and reporter != member:
        reporter = view.right_of(reporter)
    return reporter
