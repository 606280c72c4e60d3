"""``Ready``: the output of a ring after any number of messages, views and broadcasts.

All of it is to be done before the ring is asked again: the messages sent in their order, the
deliveries heard in theirs, the proposal brought to the coordinator.
"""

from typing import NamedTuple, TypeAlias

from penstock.cluster.ring.codec import RingMessage
from penstock.cluster.ring.views import View

DELIVER, BIRTH, DEATH = range(3)
Delivered: TypeAlias = tuple[int, str, int, bytes]
"""DELIVER, the origin, the number and the payload; or BIRTH or DEATH and the member.

Numbers of one origin ascend, and may have gaps: a sweep of the ring's own has one too."""


class Ready(NamedTuple):
    messages: list[tuple[str, RingMessage]]  # receiver and message
    delivered: list[Delivered]
    went_round: int  # own broadcasts up to this one: every live member has them
    proposal: View | None  # to be put in place of the version before it
    stopped: str  # why this member is out of the group, for ever
