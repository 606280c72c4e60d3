"""``LivingNodes``: the running nodes, as far as queues depend on them; made from the membership.

Names of nodes are ``penstock@host``, a member is one life of a node (``name/incarnation``).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import final

from penstock.cluster.agreement.coordinator import node_of
from penstock.core.clock_types import MonoMs


@final
class LivingNodes:
    """``members``: node to the member that lives; ``joined_ms``: by the wall clock, since when.

    ``drained``: nodes that shall have no masters; ``unreached``: to which there has been no link
    for some time, though they live; ``short``: those with an alarm, and of what they are short;
    ``unheard``: by node, this one too, of which others it has heard nothing for a moment.
    """

    def __init__(
        self,
        member: str,
        members: dict[str, str],
        joined_ms: dict[str, MonoMs],
        drained: Collection[str] = (),
        unreached: Collection[str] = (),
        short: Mapping[str, Sequence[str]] | None = None,
        unheard: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.member = member
        self.here = node_of(member)
        self.members = members
        self.joined_ms = joined_ms
        self.drained = frozenset(drained)
        self.unreached = frozenset(unreached)
        self.short: Mapping[str, Sequence[str]] = {} if short is None else short
        self.unheard: Mapping[str, Collection[str]] = {} if unheard is None else unheard

    def seen_by(self, member: str) -> "LivingNodes":
        """As another member sees them; it is one of them when the membership has it."""
        rest = self.drained, self.unreached, self.short, self.unheard
        return LivingNodes(member, self.members, self.joined_ms, *rest)

    def lives(self, member: str) -> bool:
        return self.members.get(node_of(member)) == member

    def hear_each_other(self, one: str, other: str) -> bool:
        """As far as they say; a node that does not run hears none."""
        if one not in self.members or other not in self.members:
            return False
        return other not in self.unheard.get(one, ()) and one not in self.unheard.get(other, ())

    def running(self) -> list[str]:
        return sorted(self.members)

    def within_reach(self) -> list[str]:
        return [node for node in self.running() if node not in self.unreached]

    def able_to_copy(self, having: Collection[str]) -> list[str]:
        """Within reach, and ``having`` a copy, or fit for a new one.

        A new one takes room, and hears this node.
        """
        return [node for node in self.within_reach() if node in having or self._is_fit(node)]

    def _is_fit(self, node: str) -> bool:
        return node not in self.short and (
            node == self.here or self.hear_each_other(node, self.here)
        )

    def shortage(self, node: str) -> str:
        """In words; "" = it is short of nothing."""
        resources = self.short.get(node, ())
        return f"short of {' and '.join(resources)}" if resources else ""

    def is_here(self) -> bool:
        """Is this node's own life one of those that count?"""
        return self.lives(self.member)

    def speaker(self) -> str:
        """The node that proposes what has no other proposer."""
        return min(self.members, default="")
