"""A queue with leases and its consumers against a model.

Everything a client of NSQ can do to a channel: take, finish, give back at once or for later, touch,
change its window at any time, leave; and what happens by itself: deadlines, delays, emptying, death
by too many attempts.  The model knows where each message is, its attempts and until when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.errors import NotInFlight, NotOwner
from penstock.core.message import Message, attempts_of
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from penstock.queues.limits import QueueLimits
from tests.backing.engine_tools import OpenEngine, message
from tests.helpers.queues import local_queue, new_context
from tests.helpers.sim_files import SimFileSystem

# A failed run is shrunk, and that alone may take minutes.
pytestmark = pytest.mark.timeout(600 + settings().max_examples // 2)

QUEUE_ID = 7
TIMEOUT_MS = 100
LONGEST_MS = 250
EVERYTHING = 1 << 40


@dataclass
class Flight:
    """One message in flight; ``latest_ms`` is the cap on its deadline."""

    owner: int
    token: Message
    due_ms: int
    latest_ms: int


class LeaseMachine(RuleBasedStateMachine):
    """Messages are named by their contents; ids of leases are these names."""

    @initialize(limit=st.sampled_from([-1, -1, 1, 3]))
    def begin(self, limit: int) -> None:
        self.now_ms = 1_000_000
        self.opened = OpenEngine(SimFileSystem(), {QUEUE_ID: 64})
        context = new_context()
        self.deaths = context.deaths
        self.wakeups = context.wakeups
        self.refills = context.refills
        self.queue = local_queue(self.opened.queues[QUEUE_ID], context, name="nsq.t:c")
        assert self.queue.use_leases()
        self.limit = limit
        self.queue.set_limits(QueueLimits(delivery_limit=limit))
        self.published = 0
        self.consumers: dict[int, Consumer] = {}
        self.everybody: dict[int, Consumer] = {}
        self.windows: dict[int, int] = {}
        self.ready: list[bytes] = []
        self.delayed: dict[bytes, int] = {}
        self.deferred: set[bytes] = set()  # from the start
        self.flights: dict[bytes, Flight] = {}
        self.attempts: dict[bytes, int] = {}
        self.requeued = self.timed_out = 0

    @property
    def leases(self) -> Any:
        return self.queue.leases

    # -- in and out ------------------------------------------------------------------------

    @rule(count=st.integers(1, 8), wait_ms=st.sampled_from([0, 0, 30, 120]))
    def publish(self, count: int, wait_ms: int) -> None:
        names = [b"%016d" % (self.published + i) for i in range(count)]
        self.published += count
        batch = [message(name) for name in names]
        self.attempts.update(dict.fromkeys(names, 0))
        if wait_ms:
            self.queue.publish_deferred(batch, self.now_ms + wait_ms, self.now_ms)
            self.delayed.update(dict.fromkeys(names, self.now_ms + wait_ms))
            self.deferred.update(names)
        else:
            self.queue.publish(batch, self.now_ms)
            self.ready += names

    @precondition(lambda self: len(self.consumers) < 3)
    @rule(window=st.integers(0, 6))
    def subscribe(self, window: int) -> None:
        consumer = Consumer("c", "c", OutputWindow(), SharedWindow(), False, 0, False, {})
        consumer.window = window
        self.queue.add_consumer(consumer)
        owner = int(self.leases.join(consumer))
        assert owner not in self.everybody
        self.consumers[owner] = self.everybody[owner] = consumer
        self.windows[owner] = window

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), window=st.integers(0, 6))
    def change_window(self, data: st.DataObject, window: int) -> None:
        """Also to less than what is outstanding."""
        owner = data.draw(st.sampled_from(sorted(self.consumers)))
        self.consumers[owner].window = window
        self.windows[owner] = window
        self.queue.room_came(self.consumers[owner])

    @precondition(lambda self: self.consumers)
    @rule(data=st.data(), gives_back=st.booleans())
    def leave(self, data: st.DataObject, gives_back: bool) -> None:
        """What it held waits for its time, or is ready again at once, where it was."""
        owner = data.draw(st.sampled_from(sorted(self.consumers)))
        consumer = self.consumers.pop(owner)
        self.queue.remove_consumer(consumer)
        if gives_back:
            self.queue.give_back_all(owner)
            names = [name for name, one in self.flights.items() if one.owner == owner]
            for name in names:
                del self.flights[name]
            self.ready += self.living(names)
        self.leases.leave(owner)
        del self.windows[owner]

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.queue.set_paused(paused)

    @rule()
    def deliver(self) -> None:
        """As many as the windows take, each to one who has room, from the head."""
        for queue in self.refills:  # the moment is over
            queue.refilling = False
            queue.wake()
        self.refills.clear()
        while self.wakeups:
            self.wakeups.clear()
            for delivery in self.queue.deliver(self.now_ms):
                owner = next(o for o, c in self.consumers.items() if c is delivery.consumer)
                for token in delivery.messages:
                    self.handed_out(owner, token)
        room = sum(max(0, window - self.held_by(owner)) for owner, window in self.windows.items())
        assert self.queue.paused or not room or not self.ready, "somebody waits in vain"

    def handed_out(self, owner: int, token: Message) -> None:
        name = token.content
        self.ready.remove(name)
        self.attempts[name] += 1
        assert attempts_of(token) == self.attempts[name]
        key = self.leases.grant(owner, token, name, self.now_ms, TIMEOUT_MS)
        assert key == name
        due_ms, latest_ms = self.now_ms + TIMEOUT_MS, self.now_ms + LONGEST_MS
        self.flights[name] = Flight(owner, token, due_ms, latest_ms)
        assert self.held_by(owner) <= self.windows[owner]

    def held_by(self, owner: int) -> int:
        return sum(flight.owner == owner for flight in self.flights.values())

    # -- what is in flight -----------------------------------------------------------------

    def some_flight(self, data: st.DataObject) -> tuple[bytes, Flight]:
        name = data.draw(st.sampled_from(sorted(self.flights)), "in flight")
        return name, self.flights[name]

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        name, flight = self.some_flight(data)
        token = self.leases.take(flight.owner, name)
        assert token is flight.token
        self.queue.settle(self.everybody[flight.owner], [token])
        self.gone(name)

    def gone(self, name: bytes) -> None:
        del self.flights[name]
        del self.attempts[name]

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), delay_ms=st.sampled_from([0, 0, 30, 120]))
    def give_back(self, data: st.DataObject, delay_ms: int) -> None:
        name, flight = self.some_flight(data)
        token = self.leases.take(flight.owner, name)
        consumer = self.everybody[flight.owner]
        self.queue.give_back(consumer, [token], delay_ms, self.now_ms)
        self.requeued += 1
        del self.flights[name]
        for living in self.living([name]):
            if delay_ms:
                self.delayed[living] = self.now_ms + delay_ms
            else:
                self.ready.append(living)

    def living(self, names: list[bytes]) -> list[bytes]:
        """The others were tried too often, and are gone."""
        living = [n for n in names if self.limit < 0 or self.attempts[n] <= self.limit]
        for name in set(names) - set(living):
            del self.attempts[name]
        return living

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def touch(self, data: st.DataObject) -> None:
        name, flight = self.some_flight(data)
        self.leases.extend(flight.owner, name, self.now_ms, LONGEST_MS)
        flight.due_ms = min(self.now_ms + TIMEOUT_MS, flight.latest_ms)

    @rule(data=st.data(), unknown=st.booleans())
    def meddle(self, data: st.DataObject, unknown: bool) -> None:
        """With what is another's, or nobody's."""
        if unknown or not self.flights:
            with pytest.raises(NotInFlight):
                self.leases.take(1, b"nobody has this")
            with pytest.raises(NotInFlight):
                self.leases.extend(1, b"nobody has this", self.now_ms, LONGEST_MS)
            return
        name, flight = self.some_flight(data)
        with pytest.raises(NotOwner):
            self.leases.take(flight.owner + 1, name)
        with pytest.raises(NotOwner):
            self.leases.extend(flight.owner + 1, name, self.now_ms, LONGEST_MS)

    # -- by itself -------------------------------------------------------------------------

    @rule(passed_ms=st.sampled_from([1, 30, 99, 100, 101, 300]))
    def pass_time(self, passed_ms: int) -> None:
        """Deadlines and delays, when the queue said they would be."""
        self.now_ms += passed_ms
        due = [flight.due_ms for flight in self.flights.values()] + list(self.delayed.values())
        assert self.queue.next_due_ms() == min(due, default=0)
        self.queue.release_due(self.now_ms)
        late = [name for name, one in self.flights.items() if one.due_ms <= self.now_ms]
        for name in late:
            del self.flights[name]
        self.timed_out += len(late)
        self.ready += self.living(late)
        for name in [name for name, until in self.delayed.items() if until <= self.now_ms]:
            del self.delayed[name]
            self.ready.append(name)

    @rule(really=st.sampled_from([False, False, False, True]))
    def empty(self, really: bool) -> None:
        if not really:
            return
        count = len(self.ready) + len(self.delayed) + len(self.flights)
        assert self.queue.empty() == count
        self.ready, self.delayed, self.flights, self.attempts = [], {}, {}, {}

    def teardown(self) -> None:
        """All of it is there, once."""
        if not hasattr(self, "queue"):
            return
        self.opened.settle(self.now_ms)
        self.queue.empty()
        self.opened.settle(self.now_ms)

    # -- always ----------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "queue"):
            return
        backing = self.opened.queues[QUEUE_ID]
        self.queue.check()
        self.leases.check()
        found = backing.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
        assert sorted(one.content for one in found) == sorted(self.ready)
        untried = [one.content for one in found if not attempts_of(one)]
        in_order = [name for name in untried if name not in self.deferred]
        assert in_order == sorted(in_order)
        assert self.queue.deferred_count() == len(self.delayed)
        assert self.leases.count() == self.queue.unacked_count == len(self.flights)
        assert self.leases.first_ms() == min((f.due_ms for f in self.flights.values()), default=0)
        counted = {one.content: int(attempts_of(one)) for one in found}
        assert counted == {name: self.attempts[name] for name in self.ready}
        assert (self.queue.statistics.requeued_count, self.queue.statistics.timed_out_count) == (
            self.requeued,
            self.timed_out,
        )
        for owner, consumer in self.everybody.items():
            assert consumer.outstanding == self.held_by(owner)


LeaseMachine.TestCase.settings = settings(stateful_step_count=60, deadline=None)
TestLeases = LeaseMachine.TestCase


def test_a_crash_with_everything_in_flight_finds_it_ready_with_its_attempts() -> None:
    """``note_attempts`` is with the delivery; what nobody had is as it was."""
    machine = LeaseMachine()
    machine.begin(-1)
    machine.publish(8, 0)
    machine.subscribe(5)
    for _ in range(2):
        machine.deliver()
        machine.pass_time(100)
    machine.deliver()
    machine.opened.commit()
    files = machine.opened.files
    assert isinstance(files, SimFileSystem)
    files.kill()
    queue = OpenEngine(files, {QUEUE_ID: 64}).queues[QUEUE_ID]
    found = queue.reads.read_range(0, EVERYTHING, EVERYTHING, EVERYTHING)
    assert {one.content: int(attempts_of(one)) for one in found} == machine.attempts


def test_the_same_id_twice_in_flight_has_another_the_second_time() -> None:
    """Somebody published what had been delivered to him."""
    machine = LeaseMachine()
    machine.begin(-1)
    machine.subscribe(5)
    machine.queue.publish([message(b"x" * 16), message(b"x" * 16)], machine.now_ms)
    (delivery,) = machine.queue.deliver(machine.now_ms)
    first, second = delivery.messages
    one, other = (
        machine.leases.grant(1, token, b"x" * 16, machine.now_ms, TIMEOUT_MS)
        for token in (first, second)
    )
    assert one != other
    assert len(other) == 16
    assert machine.leases.take(1, other) is second
    assert machine.leases.take(1, one) is first
    machine.leases.check()
