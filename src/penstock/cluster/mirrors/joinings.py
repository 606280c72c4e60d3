"""``Joinings``: which joining of each member of a ring counts.

A member that leaves a ring and joins it anew has another name there: ``name/incarnation#n``, with
a higher ``n``.  What an earlier joining of it said, or is still saying, is about another copy.
"""

from collections.abc import Sequence
from typing import final


def member_of(ring_name: str) -> str:
    """``name/incarnation#n``, one joining of this member, without the number."""
    return ring_name.rpartition("#")[0]


def joining_of(ring_name: str) -> int:
    """The number: of two joinings the later one has the higher."""
    return int(ring_name.rpartition("#")[2])


def is_former(ring_name: str, names: Sequence[str]) -> bool:
    """A later joining of that member is among them: this one spoke of a queue deleted since."""
    member, joining = member_of(ring_name), joining_of(ring_name)
    for name in names:  # noqa: SIM110 - compiled code has no generators
        if member_of(name) == member and joining_of(name) > joining:
            return True
    return False


@final
class Joinings:
    def __init__(self) -> None:
        self._newest: dict[str, str] = {}  # by member: the newest ring name it was met under
        self._barred: dict[str, int] = {}  # by member: joinings up to this one do not count

    def counts(self, name: str, members: Sequence[str]) -> bool:
        """Does what is said under that name?  ``members``: names in the ring."""
        member = member_of(name)
        if joining_of(name) <= self._barred.get(member, 0) or is_former(name, members):
            return False
        known = self._newest.get(member, "")
        return not known or joining_of(known) <= joining_of(name)

    def meet(self, name: str) -> bool:
        """One that counts; True = for the first time."""
        is_new = self._newest.get(member_of(name), "") != name
        self._newest[member_of(name)] = name
        return is_new

    def is_newest(self, name: str) -> bool:
        return self._newest.get(member_of(name)) == name

    def bar(self, member: str, members: Sequence[str]) -> None:
        """What it has joined as so far counts no more."""
        for name in members:
            if member_of(name) == member:
                self._barred[member] = max(joining_of(name), self._barred.get(member, 0))
