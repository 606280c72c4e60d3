"""The consumers of a queue whose master is elsewhere: a part of ``RemoteQueue``.

    Subscribe, Window, Unsubscribe with a consumer's number ─► the master's node ─► Delivered
    Settle with the numbers of the deliveries ─►

What a master delivered that is lost now cannot be settled any more: the next one delivers it anew.

Invariants (``check``):
  E1  every consumer has a number, and every number but that of a question its consumer
  E2  only what came from this master is held for consumers
"""

from collections import deque
from collections.abc import Iterable
from typing import final

from mypy_extensions import i64

from penstock.cluster.remote.master import Master
from penstock.core import queue_requests as q
from penstock.core.message import Message
from penstock.queues.consumers import NO_WINDOW, Consumer


@final
class RemoteConsumer:
    """One consumer here, and what has arrived for it."""

    def __init__(self, number: i64, no_ack: bool, told_window: i64) -> None:
        self.number: i64 = number
        self.no_ack = no_ack
        self.consumer: Consumer | None = None  # until its question is answered
        self.told_window: i64 = told_window
        self.arrived: deque[Message] = deque()

    def bind(self, consumer: Consumer) -> None:
        """The question is answered."""
        self.consumer = consumer

    def take_window(self, window: i64) -> bool:
        """True: the master is to be told."""
        has_changed = window != self.told_window
        self.told_window = window
        return has_changed


@final
class RemoteSubscriptions:
    """Of one queue."""

    def __init__(self, master: Master) -> None:
        self.by_consumer: dict[Consumer, RemoteConsumer] = {}
        self._by_number: dict[int, RemoteConsumer] = {}
        self._last_number: i64 = 0
        self._master = master

    def bind(self, remote: RemoteConsumer, consumer: Consumer) -> None:
        remote.bind(consumer)
        self.by_consumer[consumer] = remote

    def subscribe(self, consumer: Consumer, question: i64) -> RemoteConsumer:
        """``question``: 0 = without an answer."""
        self._last_number += 1
        remote = RemoteConsumer(self._last_number, consumer.no_ack, window_of(consumer))
        self._by_number[int(remote.number)] = remote
        self._master.send(
            q.Subscribe(
                self._master.no,
                remote.number,
                question,
                consumer.tag,
                consumer.no_ack,
                consumer.exclusive,
                consumer.priority,
                remote.told_window,
                consumer.arguments,
            )
        )
        return remote

    def adopt(self, consumer: Consumer) -> None:
        """If the master refuses it, it is cancelled."""
        self.bind(self.subscribe(consumer, 0), consumer)

    def renew(self, consumers: Iterable[Consumer]) -> None:
        """There is another master: it knows none of them."""
        self._by_number = {}
        self.by_consumer = {}
        for consumer in consumers:
            self.adopt(consumer)

    def find(self, number: i64) -> RemoteConsumer | None:
        return self._by_number.get(int(number))

    def forget(self, remote: RemoteConsumer) -> None:
        self._by_number.pop(int(remote.number), None)

    def forget_settled(self, consumer: Consumer) -> None:
        """Of a consumer that has left, as soon as nothing of it is to be settled."""
        if consumer.outstanding == 0:
            self.by_consumer.pop(consumer, None)

    def unsubscribe(self, remote: RemoteConsumer) -> None:
        """What has arrived for it and was not handed on goes back."""
        self.forget(remote)
        self._master.send(q.Unsubscribe(self._master.no, remote.number))
        arrived = list(remote.arrived)
        remote.arrived.clear()
        if not remote.no_ack:
            self.settle(remote.number, q.REQUEUE, arrived, 0)

    def lose(self) -> None:
        """What has arrived is the next master's."""
        for remote in self._by_number.values():
            remote.arrived.clear()

    def tell_window(self, remote: RemoteConsumer, consumer: Consumer) -> None:
        if remote.take_window(window_of(consumer)):
            self.tell_room(remote, 0)

    def tell_room(self, remote: RemoteConsumer, size: i64) -> None:
        """So many bytes of what was under way have left."""
        way = self._master.way
        if way is not None:
            way.send(q.Window(self._master.no, remote.number, remote.told_window, size))

    def settle(self, number: i64, kind: i64, messages: list[Message], delay_ms: i64) -> None:
        """Of what this master has delivered to the consumer of that number; 0 = to a get."""
        master = self._master
        base = master.base
        way = master.way
        numbers = [int(one.seq_id - base) for one in messages if one.seq_id > base]
        if way is not None and len(numbers) > 0:
            way.send(q.Settle(master.no, number, kind, delay_ms, q.in_runs(numbers)))

    def return_got(self, message: Message) -> None:
        """The session that asked for it has left."""
        self.settle(0, q.REQUEUE, [message], 0)

    def deliver(self, answer: q.Delivered) -> bool:
        """False = its consumer left meanwhile, and the messages go back."""
        remote = self._by_number.get(int(answer.consumer))
        if remote is None:
            if answer.first > 0:
                last = answer.first + len(answer.messages) - 1
                runs = [(int(answer.first), int(last))]
                master = self._master
                master.send(q.Settle(master.no, answer.consumer, q.REQUEUE, 0, runs))
            return False
        number_messages(answer.messages, answer.first + self._master.base)
        remote.arrived.extend(answer.messages)
        return True

    def check(self, consumers: Iterable[Consumer]) -> None:
        for consumer in consumers:
            remote = self.by_consumer[consumer]
            assert self._by_number[int(remote.number)] is remote, "E1"
            assert remote.consumer is consumer, "E1"
        for remote in self._by_number.values():
            for message in remote.arrived:
                assert remote.no_ack or self._master.delivered(message), "E2"


def number_messages(messages: list[Message], first: i64) -> None:
    """The numbers of their deliveries."""
    number = first
    for message in messages:
        message.seq_id = number
        number += 1


def window_of(consumer: Consumer) -> i64:
    """How many it may hold at a time; ``ANY_WINDOW`` = any number."""
    window = q.ANY_WINDOW
    if consumer.no_ack:
        return window
    if consumer.window != NO_WINDOW:
        window = consumer.window
    elif consumer.prefetch > 0:
        window = consumer.prefetch
    limit = consumer.shared.limit
    if limit > 0 and (window == q.ANY_WINDOW or limit < window):
        window = limit
    return window
