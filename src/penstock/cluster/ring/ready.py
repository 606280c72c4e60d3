"""``Ready``: the output of a ring after any number of messages, views and broadcasts.

All of it is to be done before the ring is asked again: the messages sent in their order, the
deliveries heard in theirs, the proposal brought to the coordinator.
"""

from typing import Final, TypeAlias, final

from mypy_extensions import i64

from penstock.cluster.ring.codec import RingMessage
from penstock.cluster.ring.views import View

DELIVER, BIRTH, DEATH = range(3)
Delivered: TypeAlias = tuple[int, str, int, bytes]
"""DELIVER, the origin, the number and the payload; or BIRTH or DEATH and the member.

Numbers of one origin ascend, and may have gaps: a sweep of the ring's own has one too."""


@final
class Ready:
    """``messages``    receiver and message
    ``went_round``  own broadcasts up to this one: every live member has them
    ``proposal``    to be put in place of the version before it
    ``stopped``     why this member is out of the group, for ever
    """

    def __init__(
        self,
        messages: list[tuple[str, RingMessage]],
        delivered: list[Delivered],
        went_round: i64,
        proposal: View | None,
        stopped: str,
    ) -> None:
        self.messages: Final = messages
        self.delivered: Final = delivered
        self.went_round: Final[i64] = went_round
        self.proposal: Final = proposal
        self.stopped: Final = stopped
