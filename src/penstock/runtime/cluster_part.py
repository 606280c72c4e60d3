"""``ClusterPart``: the part of a cluster in each turn of the broker.

A node of a cluster takes in what other nodes sent before the queues deliver, so that both happen
in one turn, and sends at the end of the turn what the turn brought forth, in one batch.
"""

from penstock.core.clock_types import WallMs


class ClusterPart:
    """An exception from any of these stops the node: no half batch of another node may remain."""

    def begin(self, now_ms: WallMs) -> None:
        """Sockets were read; nothing has been delivered yet."""
        raise NotImplementedError

    def end(self, now_ms: WallMs) -> None:
        """All is done but for writing to the sockets."""
        raise NotImplementedError

    def stood_still(self, now_ms: WallMs) -> bool:
        """Has the process paused for so long that other nodes may have taken its place?

        True: they have, or may have, and this part has given up what they have now.  What was to
        be said to clients since ``begin`` may not be true any more.
        """
        raise NotImplementedError

    def has_work(self) -> bool:
        """Should the loop come back without waiting?"""
        raise NotImplementedError
