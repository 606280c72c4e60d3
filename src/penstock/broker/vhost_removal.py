"""``VhostRemoval``: a virtual host goes, with everything in it.

    closing ─► connections end ─► staged sets ─► queues ─► exchanges ─► bindings ─► it is gone

From the first step on no client enters it.  A step is a slice: some dozens of objects, so
that others hardly notice when a hundred thousand go.  The definitions follow step by step, the
virtual host itself last, with its permissions, policies and limits; so a node that is stopped in
between has what was left of it.  They also say that it is on its way out: no client enters after
the next start either, and the removal goes on.

Batches of Spark programs that were decided are waited for: with nowhere to go they are soon done.
"""

from collections.abc import Callable
from typing import Final, final

from penstock.broker.broker import Broker
from penstock.broker.topology.vhost import Vhost
from penstock.queues.consumers import Consumer
from penstock.routing.exchanges import PREDECLARED

AT_ONCE: Final = 50
"""Queues or exchanges of one step."""
CONNECTIONS_AT_ONCE: Final = 100

CloseSome = Callable[[str, int], bool]
"""Ends the connections to that virtual host, so many at a time; False when there are none."""


@final
class VhostRemoval:
    """Of one virtual host; ``step`` until it says that it is done."""

    def __init__(self, broker: Broker, vhost: Vhost, close_some: CloseSome) -> None:
        self._broker = broker
        self._vhost = vhost
        self._close_some = close_some
        self._actor = broker.events.actor  # whose doing it is
        self._connections_ended: bool = False
        if not vhost.closing:
            vhost.close()
            broker.definitions.vhost_leaves(vhost.name)

    def step(self) -> tuple[bool, list[Consumer]]:
        """Is it gone?  And who has lost a queue by this step."""
        return self._broker.events.act_for(self._actor, self._step)

    def _step(self) -> tuple[bool, list[Consumer]]:
        vhost, broker = self._vhost, self._broker
        if broker.vhosts.get(vhost.name) is not vhost:
            return True, []  # another removal was faster
        if not self._connections_ended:
            self._connections_ended = not self._close_some(vhost.name, CONNECTIONS_AT_ONCE)
        if not self._connections_ended or vhost.budget.connection_count > 0:
            return False, []
        if self._drop_staged():
            return False, []
        if vhost.queues:
            return False, self._delete_queues()
        if self._vhost.copies.drop_some(AT_ONCE):
            return False, []
        if self._delete_exchanges() or broker.definitions.is_sweeping(vhost.name):
            return False, []
        if broker.staging.holds(vhost):
            return False, []
        self._end()
        return True, []

    def _drop_staged(self) -> bool:
        """Sets of batches that are not committed; True when there were some."""
        dropped = 0
        for staged in [one for one in self._broker.staging.sets.values() if one.is_droppable()]:
            if staged.vhost is self._vhost and dropped < AT_ONCE:
                self._broker.staging.drop(staged)
                dropped += 1
        return dropped > 0

    def _delete_queues(self) -> list[Consumer]:
        lost: list[Consumer] = []
        for queue in list(self._vhost.queues.values())[:AT_ONCE]:
            lost += self._vhost.delete_queue(queue)
        return lost

    def _delete_exchanges(self) -> bool:
        """True when there were some."""
        always = {name for name, _, _ in PREDECLARED}
        names = [name for name in self._vhost.exchanges if name not in always]
        for name in names[:AT_ONCE]:
            # That of the log too, which no client could delete.
            self._vhost.remove_exchange(self._vhost.exchanges[name])
        return len(names) > 0

    def _end(self) -> None:
        broker, name = self._broker, self._vhost.name
        for user in broker.users.users.values():
            user.forbid(name)
            for key in [key for key in user.topics if key[0] == name]:
                del user.topics[key]
        for producer in [key for key in broker.staging.producers.known if key[0] == name]:
            broker.staging.producers.forget(producer)
        broker.definitions.delete_vhost(name)
        broker.remove_vhost(self._vhost)
