"""``TurnPart``: what else has its part in each turn of the broker, from outside the broker.

A node of a cluster takes in what other nodes sent before the queues deliver, so that both happen
in one turn, and sends at the end of the turn what the turn brought forth, in one batch.  A node
without neighbours has no such part and pays one comparison.
"""


class TurnPart:
    """Whatever it raises stops the node: half a batch of another node's must not stay behind."""

    def begin(self, now_ms: int) -> None:
        """Sockets were read; nothing has been delivered yet."""
        raise NotImplementedError

    def end(self, now_ms: int) -> None:
        """All is done but for writing to the sockets."""
        raise NotImplementedError

    def stood_still(self, now_ms: int) -> bool:
        """Has the process paused for so long that other nodes may have taken its place?

        True: they have, or may have, and this part has given up what they have now.  What was to
        be said to clients since ``begin`` may not be true any more.
        """
        raise NotImplementedError

    def has_work(self) -> bool:
        """Should the loop come back without waiting?"""
        raise NotImplementedError
