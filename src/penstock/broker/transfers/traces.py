"""Copies of the firehose on their way to the queues that listen.

    what is traced ─► copies ─► routed from ``amq.rabbitmq.trace`` on ─► queues
                             └► *behind*: in the next turns, in order

Routes of copies are dear where many patterns listen, and cannot be refused.  So they have a share
of each turn (``routing/steps``).  While some are left, what would bring forth more waits: the
deliveries of virtual hosts that are traced (``hold``), and connections to these.  So there are
never more copies than one turn makes, and no message is delivered before the copy of its publish.
"""

from collections import deque
from typing import Final, final

from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.letters import HeaderWriter
from penstock.core.message import Message
from penstock.core.turn_part import TurnPart
from penstock.queues.queue import Queue
from penstock.routing.exchanges import looks_at_headers
from penstock.routing.steps import RouteUnfinished, RoutingShare

TRACE: Final = "amq.rabbitmq.trace"


@final
class Copies:
    """Of neighbours with one routing key; ``queues``: that take them, None = not known."""

    def __init__(self, vhost: Vhost, key: str) -> None:
        self.vhost: Final = vhost
        self.key: Final = key
        self.messages: deque[Message] = deque()
        self.queues: list[Queue] | None = None

    def lead_to(self, queues: list[Queue]) -> None:
        """All of them."""
        self.queues = queues

    def add(self, message: Message) -> None:
        self.messages.append(message)


@final
class Traces(TurnPart):
    """``vhosts`` is the broker's own registry.  ``behind``: copies are left for the next turn."""

    def __init__(self, vhosts: dict[str, Vhost], writer: HeaderWriter) -> None:
        self._left: Final[deque[Copies]] = deque()
        super().__init__(self._left)
        self.behind: bool = False
        self._held: dict[Queue, None] = {}
        self._share: Final = RoutingShare()
        self._share.begin()
        self._vhosts: Final = vhosts
        self._writer: Final = writer

    def run(self, now_ms: WallMs, idle: bool) -> bool:
        """Those that had to wait for this turn."""
        self._share.begin()
        while self._left and self._publish(self._left[0], now_ms):
            self._left.popleft()
        self.behind = len(self._left) > 0
        if not self.behind:
            for queue in self._held:
                queue.wake()
            self._held.clear()
        return self.behind

    def hold(self, queue: Queue) -> bool:
        """Must its deliveries wait for copies?  Then it is woken behind them."""
        vhost = self._vhosts.get(queue.vhost)
        if vhost is None or not vhost.tracing:
            return False
        queue.begin_turn()
        self._held[queue] = None
        return True

    def begin(self, vhost: Vhost, key: str, now_ms: WallMs) -> Copies | None:
        """For copies with that key; None: no queue takes them."""
        copies = Copies(vhost, key)
        if not self.behind and not looks_at_headers(vhost.exchanges[TRACE], vhost.exchanges):
            try:
                copies.lead_to(self._route(copies, {}, copies, now_ms))
            except RouteUnfinished:
                return copies
            if not copies.queues:
                return None
        return copies

    def publish(self, copies: Copies, now_ms: WallMs) -> None:
        """``messages`` are there."""
        if self.behind or not self._publish(copies, now_ms):
            self._left.append(copies)
            self.behind = True

    def _publish(self, copies: Copies, now_ms: WallMs) -> bool:
        """False: some are left."""
        vhost = copies.vhost
        if self._vhosts.get(vhost.name) is not vhost:
            return True
        try:
            while copies.messages:
                message = copies.messages[0]
                queues = copies.queues
                if queues is None:
                    headers = self._writer.release(message).headers
                    queues = self._route(copies, headers, message, now_ms)
                noted = len(vhost.waits.noted)
                vhost.publish_some(queues, [message], now_ms)
                vhost.waits.forget_after(noted)
                copies.messages.popleft()
        except RouteUnfinished:
            return False
        return True

    def _route(
        self, copies: Copies, headers: dict[str, object], owner: object, now_ms: WallMs
    ) -> list[Queue]:
        if self._share.is_over():
            raise RouteUnfinished
        share = self._share.of(owner)
        return copies.vhost.find_queues(TRACE, copies.key, headers, [], now_ms, share)
