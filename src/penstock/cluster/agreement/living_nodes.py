"""``LivingNodes``: the running nodes, as far as queues depend on them; made from the membership.

Names of nodes are ``penstock@host``, a member is one life of a node (``name/incarnation``).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import final

from penstock.cluster.agreement.queue_views import node_of
from penstock.core.clock_types import MonoMs


@final
class LivingNodes:
    """``members``: node to the member that lives; ``joined_ms``: by the wall clock, since when.

    ``drained``: nodes that shall have no masters; ``unreached``: to which there has been no link
    for some time, though they live; ``short``: those with an alarm, and of what they are short.
    """

    def __init__(
        self,
        member: str,
        members: dict[str, str],
        joined_ms: dict[str, MonoMs],
        drained: Collection[str] = (),
        unreached: Collection[str] = (),
        short: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        self.member = member
        self.here = node_of(member)
        self.members = members
        self.joined_ms = joined_ms
        self.drained = frozenset(drained)
        self.unreached = frozenset(unreached)
        self.short: Mapping[str, Sequence[str]] = {} if short is None else short

    def lives(self, member: str) -> bool:
        return self.members.get(node_of(member)) == member

    def running(self) -> list[str]:
        return sorted(self.members)

    def within_reach(self) -> list[str]:
        return [node for node in self.running() if node not in self.unreached]

    def able_to_copy(self, having: Collection[str]) -> list[str]:
        """Within reach, and ``having`` a copy or short of nothing, for a new one takes room."""
        return [node for node in self.within_reach() if node in having or node not in self.short]

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
