"""``BatchClaims``: which node publishes a batch (``staging``), asked before it is decided.

On a single node every batch is its own.  In a cluster the nodes agree on it
(``batch_homes.py``), so that a batch that was committed at one is not published by another.
"""

from typing import Final

from penstock.broker.transfers.producers import Key

CLAIMED: Final = 1
"""It is this node's to publish, or to say that it has."""
PUBLISHED: Final = 2
"""All of it is where it should be, published by this node or another."""
PENDING: Final = 3
"""The nodes are agreeing on it: ask again."""


class BatchClaims:
    """On a single node.  ``done`` of a cluster's claims is found out by itself."""

    def is_published(self, key: Key, batch: int) -> bool:
        """Need it not be staged?  Raises QueueElsewhere or NoMaster if another node has it."""
        return False

    def claim(self, key: Key, batch: int, watcher: object) -> int:
        """CLAIMED, PUBLISHED or PENDING; raises as ``is_published``.

        ``watcher`` is told (``Staging.told``) when the answer to PENDING is there.
        """
        return CLAIMED
