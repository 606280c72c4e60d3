"""``Hearing``: which nodes hear each other, as each of them says.

In: the nodes of which this one has heard nothing for a moment, and what other members say of
themselves.  Out: ``unheard``, by node, this one too; and what is to be said to members: a change
to all, the present to one that is new.  A member that has said nothing yet hears all.
"""

from collections.abc import Iterable, Mapping
from typing import final

from penstock.cluster.agreement.coordinator import node_of


@final
class Hearing:
    """``here``: the name of the node."""

    def __init__(self, here: str) -> None:
        self.unheard: dict[str, frozenset[str]] = {}
        self._here = here
        self._now: frozenset[str] = frozenset()  # what this node says
        self._said: dict[str, frozenset[str]] = {}  # by member
        self._told: dict[str, frozenset[str]] = {}  # to members

    def begin_life(self) -> None:
        """This node is a new member: the others say anew what they hear, and so does this node."""
        self._said = {}
        self._told = {}
        self._gather()

    def look(self, members: Mapping[str, str], unheard: Iterable[str]) -> list[tuple[str, bytes]]:
        """``members``: node to the member that lives.  Returns what is to be said to whom."""
        now = frozenset(unheard)
        others = [member for node, member in members.items() if node != self._here]
        if now != self._now or self._told.keys() != set(others):
            self._now = now
            self._said = {one: names for one, names in self._said.items() if one in others}
            self._gather()
        data = "\n".join(sorted(now)).encode("utf-8", "surrogateescape")
        news = [(one, data) for one in others if self._told.get(one, frozenset()) != now]
        self._told = dict.fromkeys(others, now)
        return news

    def hear(self, member: str, data: bytes) -> None:
        names = data.decode("utf-8", "surrogateescape").split("\n")
        self._said[member] = frozenset(names) - {""}
        self._gather()

    def _gather(self) -> None:
        said = {node_of(member): names for member, names in self._said.items() if names}
        self.unheard = said | ({self._here: self._now} if self._now else {})
