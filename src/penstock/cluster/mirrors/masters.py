"""``ViewedMasters``: where the masters of queues that have a view are, by the newest that was told.

It is told before the applier has done what came with the views, so that a queue is made where its
master is at once.
"""

from collections.abc import Iterable
from typing import final

from penstock.cluster.agreement.coordinator import Event, node_of
from penstock.cluster.agreement.mirror_keys import VIEWS, Place, kind_of, place_of
from penstock.cluster.agreement.queue_views import view_from_json


@final
class ViewedMasters:
    """``is_old_disk``: this node's is a backup's."""

    def __init__(self, *, is_old_disk: bool = False) -> None:
        self.is_old_disk = is_old_disk
        self._nodes: dict[Place, str] = {}
        self._at_start: set[Place] | None = None

    def told(self, events: Iterable[Event]) -> None:
        for event in events:
            if kind_of(event.key) != VIEWS:
                continue
            if event.value is None:
                self._nodes.pop(place_of(event.key), None)
                if self._at_start is not None:
                    self._at_start.discard(place_of(event.key))
            else:
                view = view_from_json(event.value)
                self._nodes[place_of(event.key)] = node_of(view.master or view.former)
        if self._at_start is None:
            self._at_start = set(self._nodes)

    def disk_is_current(self) -> None:
        self.is_old_disk = False

    def is_new(self, vhost: str, queue: str) -> bool:
        """It had no view yet when this process started."""
        return self._at_start is not None and (vhost, queue) not in self._at_start

    def node_of(self, vhost: str, queue: str) -> str | None:
        """The master's node, or where it was last if the queue is down; None = it has no view."""
        return self._nodes.get((vhost, queue))

    def by_place(self) -> dict[Place, str]:
        """Of all queues that have a view, as ``node_of``."""
        return self._nodes
