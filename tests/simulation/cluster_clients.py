"""Clients of random lives of a cluster (cluster_lives.py), and what is known of their messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.helpers.connection_pair import ClientEnd

if TYPE_CHECKING:
    from tests.simulation.cluster_lives import Life
    from tests.simulation.cluster_nodes import Machine


class Judgement(AssertionError):
    """A promise was broken."""


class Sent:
    """What is known of one message."""

    __slots__ = (
        *("body", "confirmed_at", "number", "of_two"),
        *("persistent", "published_at", "queue", "settled"),
    )

    def __init__(
        self, number: int, queue: str, body: bytes, published_at: int, *, persistent: bool
    ) -> None:
        self.number = number
        self.queue = queue
        self.body = body
        self.persistent = persistent
        self.published_at = published_at  # the store's revision then
        self.confirmed_at = 0  # the same; 0 = it was not
        self.of_two = False  # while two nodes had the queue as theirs, or one a deleted one
        self.settled = False  # somebody acknowledged or rejected it, or it may have been purged


class Person:
    """A client at one node, with one channel."""

    def __init__(self, life: Life, machine: Machine) -> None:
        self.life = life
        self.machine = machine
        self.client: ClientEnd = machine.client()
        self.client.call("confirm.select")
        counts = (1, 5, 20) if life.streams else (0, 1, 5, 20)
        self.client.call("basic.qos", prefetch_count=life.rng.choice(counts))
        self.published = 0
        self.open_publishes: dict[int, Sent] = {}
        self.deliveries: dict[int, Sent] = {}
        self.consuming: dict[str, str] = {}
        self.last_first: dict[tuple[str, int], int] = {}  # by tag and publisher
        self.publisher = life.next_publisher()
        self.waits: list[tuple[str, str]] = []  # methods that are to be answered
        self.tags = 0
        self.over = False

    def hear(self) -> None:
        for name, fields in self.client.methods():
            if self.over:
                return
            if name in ("basic.deliver", "basic.get-ok"):
                self._delivered(name, fields)
            elif name == "basic.ack":
                self._answered(fields, confirmed=True)
            elif name == "basic.nack":
                self._answered(fields, confirmed=False)
            elif name == "basic.return":
                self._returned(fields["body"])
            elif name == "basic.cancel":
                self.consuming.pop(fields["consumer_tag"], None)
            elif name in ("queue.purge-ok", "queue.delete-ok", "queue.declare-ok"):
                self._done(name)
            elif name in ("channel.close", "connection.close"):
                self.life.counts[f"closed {fields.get('code')}"] += 1
                self.leave()

    def _done(self, name: str) -> None:
        what, queue = self.waits.pop(0)
        assert name == what, (name, what)
        if what != "queue.declare-ok":
            self.life.took_all(queue)
        self.life.counts[what] += 1

    def _delivered(self, name: str, fields: dict[str, Any]) -> None:
        life = self.life
        sent = life.sent_as(fields["body"])
        life.counts["delivered"] += 1
        if sent.number in life.gone:
            raise Judgement(f"J3: {sent.number} was gone, and is delivered")
        self.deliveries[fields["delivery_tag"]] = sent
        if name == "basic.get-ok" or fields["redelivered"]:
            return
        tag, publisher = fields["consumer_tag"], life.publishers[sent.number]
        last = self.last_first.get((tag, publisher), 0)
        if sent.number <= last:
            raise Judgement(f"J4: {sent.number} is delivered for the first time behind {last}")
        self.last_first[tag, publisher] = sent.number

    def _answered(self, fields: dict[str, Any], *, confirmed: bool) -> None:
        last = fields["delivery_tag"]
        numbers = [n for n in self.open_publishes if n <= last] if fields["multiple"] else [last]
        for number in numbers:
            sent = self.open_publishes.pop(number)
            if confirmed:
                sent.confirmed_at = self.life.world.store.model.revision
                sent.of_two = sent.of_two or self.life.is_of_two(sent.queue)
                self.life.counts["confirmed"] += 1
            else:
                self.life.counts["denied"] += 1

    def _returned(self, body: bytes) -> None:
        """There was no queue; it is confirmed behind this."""
        self.life.sent_as(body).settled = True
        self.life.counts["returned"] += 1

    def leave(self) -> None:
        if not self.over:
            self.over = True
            if self.machine.runs:
                self.client.drop()
                self.client.node.clients.remove(self.client)
            self.life.left(self)
