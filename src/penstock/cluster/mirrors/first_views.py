"""``FirstViews``: proposes the first view of queues whose master is here and that need mirrors.

In: queues that were made here, or may have come under another policy.  Out: proposals of their
first views, on condition that the queue is the one we know and that it has no view yet.
"""

from collections.abc import Container
from typing import final

from penstock.broker.broker import Broker
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.agreed import Agreed
from penstock.cluster.agreement.coordinator import (
    ABSENT,
    ACCEPTED,
    PENDING,
    Condition,
    Coordinator,
    Proposal,
)
from penstock.cluster.agreement.living_nodes import LivingNodes
from penstock.cluster.agreement.mirror_keys import VIEWS, Place, view_changes
from penstock.cluster.agreement.placement import Chance
from penstock.cluster.agreement.queue_views import QueueView
from penstock.cluster.mirrors.deciding import NOTHING, Step, begins
from penstock.queues.queue import Queue


@final
class FirstViews:
    def __init__(
        self, broker: Broker, coordinator: Coordinator, agreed: Agreed, chance: Chance
    ) -> None:
        self._broker = broker
        self._coordinator = coordinator
        self._agreed = agreed
        self.chance = chance
        self._places: dict[Place, None] = {}
        self._asked: dict[Place, Proposal] = {}

    def made(self, vhost: Vhost, queue: Queue) -> None:
        """Its master is here."""
        self._places[(vhost.name, queue.name)] = None

    def forget(self, place: Place) -> None:
        """It has a view, or is gone."""
        self._places.pop(place, None)
        self._asked.pop(place, None)

    def renew(self, place: Place) -> None:
        """It had a view that is gone again; the queue may be another one by now."""
        self._asked.pop(place, None)
        self._places[place] = None

    def add_all(self) -> None:
        """The set of queues to be mirrored may have changed."""
        for vhost in self._broker.vhosts.values():
            for name, queue in vhost.queues.items():
                if not queue.remote:
                    self._places[(vhost.name, name)] = None

    def under_way(self) -> int:
        return len([one for one in self._asked.values() if one.state == PENDING])

    def propose(
        self, nodes: LivingNodes, viewed: Container[Place], room: int, *, again: bool
    ) -> None:
        """So many at most; ``again``: also what was refused, or failed."""
        for place in list(self._places):
            asked = self._asked.get(place)
            if asked is not None and (not again or asked.state in (PENDING, ACCEPTED)):
                continue
            step = NOTHING if place in viewed else self._step(place, nodes)
            if step.view is None:
                self.forget(place)
            elif room > 0:
                room -= 1
                self._asked[place] = self._propose(place, step.view)

    def _propose(self, place: Place, view: QueueView) -> Proposal:
        queue_key, view_key = md.path(md.QUEUES, *place), md.path(VIEWS, *place)
        conditions = [
            Condition(queue_key, self._agreed.revision_of(queue_key)),
            Condition(view_key, ABSENT),
        ]
        return self._coordinator.propose(conditions, view_changes(place, view))

    def _step(self, place: Place, nodes: LivingNodes) -> Step:
        vhost = self._broker.vhosts.get(place[0])
        queue = None if vhost is None else vhost.queues.get(place[1])
        if vhost is None or queue is None or queue.remote:
            return NOTHING
        return begins(vhost.policies.ha_policy_of(queue), nodes, self.chance)
