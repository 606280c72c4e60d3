"""Who may get what: windows, outlets and leases as plain sets.

``ModelHall`` is the truth of one queue with its consumers.  Which consumer gets which message
is the queue's choice; the model is told, and judges: the first messages go first, nobody gets
more than it has room for, nobody with room is left out, and nobody gets two before another
with room got one.
"""

from __future__ import annotations

from collections import Counter

ANY = 1 << 30


class ModelWindow:
    """A limit shared by several consumers; 0 = none."""

    def __init__(self) -> None:
        self.limit = 0
        self.held: set[int] = set()

    def room(self) -> int:
        return ANY if self.limit == 0 else max(0, self.limit - len(self.held))


class ModelConsumer:
    def __init__(self, name: str, window: ModelWindow, *, no_ack: bool, prefetch: int) -> None:
        self.name = name
        self.window = window
        self.no_ack = no_ack
        self.prefetch = prefetch
        self.open = True
        self.cancelled = False
        self.held: set[int] = set()

    def room(self) -> int:
        if not self.open or self.cancelled:
            return 0
        if self.no_ack:
            return ANY if self.window.room() else 0
        own = ANY if self.prefetch == 0 else max(0, self.prefetch - len(self.held))
        return min(own, self.window.room())


class ModelHall:
    def __init__(self) -> None:
        self.ready: set[int] = set()
        self.redelivered: set[int] = set()
        self.consumers: list[ModelConsumer] = []
        self.published = 0
        self.leased = False
        self.lease = 0

    def publish(self, count: int) -> None:
        self.ready.update(range(self.published, self.published + count))
        self.published += count

    def begin_turn(self) -> None:
        """Who had room all the time is told at the end; so who had it at the beginning now."""
        self._eager = [consumer for consumer in self.consumers if consumer.room()]
        self._dealt: Counter[str] = Counter()

    def delivered(self, consumer: ModelConsumer, seq_id: int, redelivered: bool) -> None:
        """In the order in which the queue dealt."""
        assert not self.leased, "a leased queue delivers nothing"
        assert seq_id in self.ready
        assert consumer.room() > 0, f"{consumer.name} has no room"
        assert redelivered == (seq_id in self.redelivered)
        self.ready.remove(seq_id)
        self._dealt[consumer.name] += 1
        if not consumer.no_ack:
            consumer.held.add(seq_id)
            consumer.window.held.add(seq_id)

    def end_turn(self, highest: int | None) -> None:
        """Nothing more can be done, and what was done was fair."""
        if highest is not None and self.ready:
            assert min(self.ready) > highest, "a later message went before an earlier one"
        if not self.leased:
            idle = [consumer.name for consumer in self.consumers if consumer.room()]
            assert not self.ready or not idle, f"{idle} have room, {len(self.ready)} are ready"
        counts = [self._dealt[consumer.name] for consumer in self._eager if consumer.room()]
        assert not counts or max(counts) - min(counts) <= 1, f"unfair: {self._dealt}"

    def settle(self, consumer: ModelConsumer, seq_ids: list[int]) -> None:
        consumer.held.difference_update(seq_ids)
        consumer.window.held.difference_update(seq_ids)

    def requeue(self, consumer: ModelConsumer, seq_ids: list[int]) -> None:
        self.settle(consumer, seq_ids)
        self.ready.update(seq_ids)
        self.redelivered.update(seq_ids)
