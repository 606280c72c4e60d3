"""``PolicyChange``: what a new, other or deleted policy means for what is there.

In: a virtual host whose ``PolicyBook`` has changed.  Out: its exchanges, queues and copies of
queues, some a step, go by what holds now.  One that is made meanwhile does from its beginning; a
later change begins with all of them, and ends this one.
"""

from typing import Final, final

from penstock.broker.broker import Broker
from penstock.broker.topology.mirror_copies import Copy
from penstock.broker.topology.vhost import Vhost
from penstock.core.long_work import LongWork
from penstock.core.steps import steps
from penstock.queues.queue import Queue
from penstock.routing.exchanges import Exchange

AT_ONCE: Final = 16
"""Of one step: each may ask a thousand patterns."""
QUEUE_STEPS: Final = 200
PATTERN_STEPS: Final = 40


@final
class PolicyChange(LongWork):
    """Of one virtual host."""

    def __init__(self, broker: Broker, vhost: Vhost) -> None:
        self._broker = broker
        self._vhost = vhost
        self._epoch = int(vhost.policies.epoch)
        self._left: list[object] = [
            *vhost.copies.copies.values(),
            *vhost.queues.values(),
            *vhost.exchanges.values(),
        ]

    def step(self) -> bool:
        policies = self._vhost.policies
        if policies.epoch != self._epoch:
            return False
        some = self._left[-AT_ONCE:]
        del self._left[-AT_ONCE:]
        count = len(policies.policies) + len(policies.operator_policies)
        steps.count((QUEUE_STEPS + PATTERN_STEPS * count) * len(some))
        for one in some:
            if isinstance(one, Queue):
                self._apply_to_queue(one)
            elif isinstance(one, Exchange):
                policies.apply_to_exchanges([one])
            elif isinstance(one, Copy) and self._vhost.copies.copies.get(one.name) is one:
                self._vhost.copies.apply_policy(one)
        self._vhost.forget_routes()
        return len(self._left) > 0

    def _apply_to_queue(self, queue: Queue) -> None:
        if self._vhost.queues.get(queue.name) is not queue:
            return  # it is gone, or another object has its place
        if self._vhost.policies.queue_settings(queue.name, queue.arguments).apply_to(queue):
            self._broker.idleness.changed(queue)
        queue.wake()  # what is too much for a new limit goes in the next turn
