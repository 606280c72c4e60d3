"""The choice of a queue's *home*: the node of its master when it is declared.

In: the declaration, what arguments and policies say, and from the node, as functions:
which nodes there are, which of them take no masters, which masters have moved.  Out: a name.

    exclusive                            here, where its connection is
    otherwise                            ``x-queue-master-locator``, else the policy's
                                         ``queue-master-locator``, else the setting of that name
    ha-mode "nodes" in its policy        one of that list, if one of them is a candidate
    no node is a candidate               here

A candidate runs, is heard by this node, and takes masters: so the queue can be used as soon as the
declaration is answered.  Where they are by then all nodes know from the queue's metadata.

A quorum queue has its first view (reigns.py) from its declaration on, so that nothing is confirmed
before there is one.  ``x-quorum-initial-group-size`` nodes are to have copies: its home, others
that run, by chance, and if these are too few such as are away, which have theirs when they are
back.
"""

from collections.abc import Callable
from typing import Final, final

from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement.agreed import Agreed
from penstock.cluster.agreement.metadata import QUEUES, path
from penstock.cluster.agreement.placement import Chance, locate_master
from penstock.cluster.agreement.queue_views import QueueView, first_ruled_view
from penstock.core.errors import Unavailable
from penstock.queues.context import QUORUM, queue_type
from penstock.settings.cluster import CLIENT_LOCAL, MIN_MASTERS

GROUP_SIZE: Final = "x-quorum-initial-group-size"
COPIES: Final = 3
"""Of a quorum queue whose declaration does not say how many; RabbitMQ's number."""


@final
class Locating:
    """``nodes``       those that run and can be reached, this one among them
    ``is_drained``  takes that node no masters?
    ``viewed``      (virtual host, queue) ─► its master's node, of queues that have a view: it may
                    have left their home
    ``default``     the locator where neither argument nor policy names one
    ``lives``       node ─► its member, of nodes that run
    ``known``       all nodes, also those that are away
    ``client_node`` the declaring client's node; not this one if the request names another
    """

    def __init__(
        self,
        agreed: Agreed,
        here: str,
        default: str = CLIENT_LOCAL,
        nodes: Callable[[], list[str]] | None = None,
        is_drained: Callable[[str], bool] = lambda _node: False,
        viewed: Callable[[], dict[tuple[str, str], str]] = dict,
        chance: Chance = lambda _count: 0,
        lives: Callable[[], dict[str, str]] = dict,
        known: Callable[[], list[str]] = list,
    ) -> None:
        self.here = here
        self.client_node = here
        self.default = default
        self.nodes = nodes or (lambda: [here])
        self.is_drained = is_drained
        self.viewed = viewed
        self.chance = chance
        self.lives = lives
        self.known = known
        self._agreed = agreed

    def prefer(self, node: str) -> None:
        """As if a client of that node declared; "" = of this one."""
        self.client_node = node or self.here

    def home_of(
        self, vhost: Vhost, name: str, durable: bool, owner: object, arguments: dict[str, object]
    ) -> str:
        if owner is not None:
            return self.here
        candidates = [node for node in self.nodes() if not self.is_drained(node)]
        if not candidates:
            return self.here
        policies = vhost.policies
        locator = policies.queue_settings(name, arguments).master_locator or self.default
        return locate_master(
            locator,
            policies.ha_policy(name, durable, False),
            self.client_node,
            candidates,
            self._masters() if locator == MIN_MASTERS else {},
            self.chance,
        )

    def first_view(self, home: str, arguments: dict[str, object]) -> QueueView | None:
        """Of a queue that a majority of its copies confirms; None: it has none at first.

        Raises Unavailable if its home has gone since it was chosen.
        """
        if queue_type(arguments) != QUORUM:
            return None
        member = self.lives().get(home)
        if member is None:
            raise Unavailable(f"node '{home}', where the queue is to be, has gone")
        size = arguments.get(GROUP_SIZE, COPIES)
        assert isinstance(size, int), "the declaration was checked"
        chosen = [home]
        left = [node for node in self.nodes() if node != home]
        while left and len(chosen) < size:
            chosen.append(left.pop(self.chance(len(left))))
        away = [node for node in self.known() if node not in self.nodes()]
        return first_ruled_view(member, tuple(chosen), tuple([*chosen, *away][:size]))

    def _masters(self) -> dict[str, int]:
        """By node."""
        counts = dict(self._agreed.homes)
        for (vhost, queue), node in self.viewed().items():
            known = self._agreed.queues.get(path(QUEUES, vhost, queue))
            if known is not None:
                counts[known.home] -= 1
                counts[node] = counts.get(node, 0) + 1
        return counts
