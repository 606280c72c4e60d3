"""A virtual host against a model: declare, bind, delete, cascades, and what a restart finds."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.backing.delaying import RELEASED_AT_ONCE
from penstock.broker.administration import Administration
from penstock.broker.queue_turns import DUE_MESSAGES
from penstock.broker.rules.policies import Policy
from penstock.broker.topology.declaring import check_deletable
from penstock.core.errors import (
    AccessRefused,
    BrokerError,
    CommandInvalid,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from penstock.core.message import Address, Message
from penstock.queues.consumers import Consumer, OutputWindow, SharedWindow
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.sources import AFAR, HERE

EXCHANGES = ("x0", "x1", "x2", "x3")
QUEUES = ("q0", "q1", "q2", "q3")
KEYS = ("k0", "k1")
NOW_MS = 1_000_000


class Binding(NamedTuple):
    source: str
    kind: str
    destination: str
    key: str


class ModelVhost:
    """Everything by name.  An exchange is (type, durable, auto-delete), a queue (durable, ...)."""

    def __init__(self) -> None:
        self.exchanges: dict[str, tuple[str, bool, bool]] = {}
        self.alternates: dict[str, str | None] = {}
        self.queues: dict[str, tuple[bool, bool, object]] = {}
        self.bindings: set[Binding] = set()

    def forget(self, kind: str, name: str) -> None:
        """A destination is gone; auto-delete exchanges go with the last way out of them."""
        gone = {b for b in self.bindings if (b.kind, b.destination) == (kind, name)}
        self.bindings -= gone
        for source in {b.source for b in gone}:
            self.source_lost_a_binding(source)

    def source_lost_a_binding(self, source: str) -> None:
        last = not any(b.source == source for b in self.bindings)
        if source in self.exchanges and self.exchanges[source][2] and last:
            self.delete_exchange(source)

    def delete_exchange(self, name: str) -> None:
        del self.exchanges[name]
        self.bindings = {b for b in self.bindings if b.source != name}
        self.forget("exchange", name)

    def delete_queue(self, name: str) -> None:
        del self.queues[name]
        self.forget("queue", name)

    def kept(self, name: str) -> bool:
        durable, _, owner = self.queues[name]
        return durable and owner is None

    def lasting_bindings(self) -> set[Binding]:
        return {
            b
            for b in self.bindings
            if self.exchanges[b.source][1]
            and (
                self.kept(b.destination) if b.kind == "queue" else self.exchanges[b.destination][1]
            )
        }

    def reach(self, source: str, key: str) -> set[str]:
        """Queues a message gets to, by walking every way."""
        found: set[str] = set()
        seen: set[str] = set()
        ahead = [source]
        while ahead:
            name = ahead.pop()
            if name in seen:
                continue
            seen.add(name)
            fanout = self.exchanges[name][0] == "fanout"
            ways = [b for b in self.bindings if b.source == name and (fanout or b.key == key)]
            for binding in ways:
                if binding.kind == "queue":
                    found.add(binding.destination)
                else:
                    ahead.append(binding.destination)
            alternate = self.alternates[name]
            if not ways and alternate in self.exchanges:
                ahead.append(alternate)
        return found

    def restart(self) -> None:
        lasting = self.lasting_bindings()
        self.exchanges = {n: e for n, e in self.exchanges.items() if e[1]}
        self.queues = {n: q for n, q in self.queues.items() if self.kept(n)}
        self.bindings = lasting


class VhostMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.node = QuietBroker()
        self.model = ModelVhost()
        self.owner: object = object()

    @property
    def vhost(self) -> Any:
        return self.node.broker.vhosts["/"]

    # -- exchanges -------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(EXCHANGES),
        kind=st.sampled_from(["direct", "fanout"]),
        durable=st.booleans(),
        auto_delete=st.booleans(),
        alternate=st.sampled_from([None, None, *EXCHANGES]),
    )
    def declare_exchange(
        self, name: str, kind: str, durable: bool, auto_delete: bool, alternate: str | None
    ) -> None:
        arguments = {} if alternate is None else {"alternate-exchange": alternate}

        def declare() -> None:
            self.vhost.declare_exchange(name, kind, durable, auto_delete, False, arguments)

        wanted = (kind, durable, auto_delete)
        if name not in self.model.exchanges:
            self.model.exchanges[name] = wanted
            self.model.alternates[name] = alternate
        if (self.model.exchanges[name], self.model.alternates[name]) == (wanted, alternate):
            declare()
        else:
            with pytest.raises(PreconditionFailed, match="inequivalent arg"):
                declare()

    @rule(name=st.sampled_from(EXCHANGES), if_unused=st.booleans())
    def delete_exchange(self, name: str, if_unused: bool) -> None:
        used = any(b.source == name for b in self.model.bindings)
        if if_unused and used:
            with pytest.raises(PreconditionFailed, match="in use"):
                self.vhost.delete_exchange(name, True)
            return
        self.vhost.delete_exchange(name, if_unused)
        if name in self.model.exchanges:
            self.model.delete_exchange(name)

    # -- queues ----------------------------------------------------------------------------

    @rule(
        name=st.sampled_from(QUEUES),
        durable=st.booleans(),
        auto_delete=st.booleans(),
        exclusive=st.sampled_from([False, False, True]),
        mine=st.booleans(),
    )
    def declare_queue(
        self, name: str, durable: bool, auto_delete: bool, exclusive: bool, mine: bool
    ) -> None:
        owner = (self.owner if mine else object()) if exclusive else None

        def declare() -> Any:
            return self.vhost.declare_queue(name, durable, owner, auto_delete, {})

        known = self.model.queues.get(name)
        if known is None:
            self.model.queues[name] = (durable, auto_delete, owner)
            queue = declare()
            self.vhost.queue(name).publish([Message(b"m", b"", 0, 0)], NOW_MS)
            assert queue.exclusive == exclusive
        elif known[2] is not owner and (known[2] is not None or exclusive):
            with pytest.raises(ResourceLocked):
                declare()
        elif known[:2] != (durable, auto_delete):
            with pytest.raises(PreconditionFailed, match="inequivalent arg"):
                declare()
        else:
            assert declare() is self.vhost.queues[name]

    @precondition(lambda self: self.model.queues)
    @rule(data=st.data(), consumers=st.integers(0, 2))
    def delete_queue(self, data: st.DataObject, consumers: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.queues)))
        queue = self.vhost.queue(name)
        for number in range(consumers):
            taker = Consumer(str(number), 1, OutputWindow(), SharedWindow(), True, 0, False, {})
            queue.add_consumer(taker)
        with pytest.raises(PreconditionFailed, match="not empty"):
            check_deletable(self.vhost, queue, False, True)
        if consumers:
            with pytest.raises(PreconditionFailed, match="in use"):
                check_deletable(self.vhost, queue, True, False)
        assert len(self.vhost.delete_queue(queue)) == consumers
        assert queue.deleted
        self.model.delete_queue(name)

    # -- bindings --------------------------------------------------------------------------

    @rule(
        source=st.sampled_from(EXCHANGES),
        kind=st.sampled_from(["queue", "exchange"]),
        place=st.integers(0, 3),
        key=st.sampled_from(KEYS),
    )
    def bind(self, source: str, kind: str, place: int, key: str) -> None:
        binding = Binding(source, kind, (QUEUES if kind == "queue" else EXCHANGES)[place], key)
        try:
            self.apply("bind", binding)
        except NotFound:
            assert not self.exists(binding)
        else:
            assert self.exists(binding)
            self.model.bindings.add(binding)

    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        """What is bound, or something that is not: the latter changes nothing."""
        anything = st.builds(
            Binding,
            st.sampled_from(EXCHANGES),
            st.just("exchange"),
            st.sampled_from(EXCHANGES),
            st.sampled_from(KEYS),
        )
        known = sorted(self.model.bindings)
        binding = data.draw(st.sampled_from(known) | anything if known else anything)
        self.apply("unbind", binding)
        if binding in self.model.bindings:
            self.model.bindings.remove(binding)
            self.model.source_lost_a_binding(binding.source)

    def exists(self, binding: Binding) -> bool:
        model = self.model
        there = model.queues if binding.kind == "queue" else model.exchanges
        return binding.source in model.exchanges and binding.destination in there

    def apply(self, verb: str, binding: Binding) -> None:
        vhost = self.vhost
        destination: Any = binding.destination
        if binding.kind == "queue":
            destination = vhost.queue(destination)
        act = getattr(vhost, f"{verb}_{binding.kind}")
        act(destination, binding.source, binding.key, {})

    # -- the end of the process ------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """A crash right after a turn."""
        self.node.definitions.commit()
        self.node.files.kill()
        self.node = QuietBroker(definitions=self.node.definitions)
        self.model.restart()
        for queue in self.vhost.queues.values():
            queue.publish([Message(b"m", b"", 0, 0)], NOW_MS)

    # -- always ----------------------------------------------------------------------------

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "node"):
            return
        vhost, model = self.vhost, self.model
        own = {n: e for n, e in vhost.exchanges.items() if n in EXCHANGES}
        assert {n: (e.type, e.durable, e.auto_delete) for n, e in own.items()} == model.exchanges
        assert {n: (q.durable, q.auto_delete, q.owner) for n, q in vhost.queues.items()} == (
            model.queues
        )
        found = {
            Binding(
                *(b.source.name, "queue" if b.destination in vhost.queues.values() else "exchange"),
                *(b.destination.name, b.routing_key),
            )
            for exchange in own.values()
            for b in exchange.bindings()
        }
        assert found == model.bindings
        for target in [*vhost.queues.values(), *own.values()]:
            leading = [one for one in vhost.exchanges.values() if one.leads_to(target)]
            known = [one for one in vhost.sources.of(target) if one.leads_to(target)]
            assert sorted(one.name for one in known) == sorted(one.name for one in leading)
        assert set(vhost.queue_ids) == {n for n in model.queues if model.kept(n)}
        for source in model.exchanges:
            for key in KEYS:
                address = Address(source, key, b"", False)
                reached = [queue.name for queue in vhost.route(address).queues]
                assert sorted(reached) == sorted(model.reach(source, key))

    @invariant()
    def definitions_agree(self) -> None:
        """What the next start would find is exactly the lasting part."""
        if not hasattr(self, "node"):
            return
        topology = self.node.definitions.load()
        model = self.model
        assert {e.name for e in topology.exchanges} == {
            n for n, e in model.exchanges.items() if e[1]
        }
        assert {q.name for q in topology.queues} == {n for n in model.queues if model.kept(n)}
        assert {
            Binding(b.source, b.destination_type, b.destination, b.routing_key)
            for b in topology.bindings
        } == model.lasting_bindings()


VhostMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=40, deadline=None
)
TestVhost = VhostMachine.TestCase


# -- single stories --------------------------------------------------------------------------


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def test_bindings_of_an_exclusive_queue_are_not_kept(node: QuietBroker) -> None:
    """It may call itself durable, but the next start would look for it in vain."""
    vhost = node.broker.vhosts["/"]
    queue = vhost.declare_queue("q", True, object(), False, {})
    vhost.bind_queue(queue, "amq.direct", "k", {})
    assert node.definitions.load().bindings == []


def test_a_remembered_route_is_forgotten_with_the_topology(node: QuietBroker) -> None:
    vhost = node.broker.vhosts["/"]
    address = Address("", "q", b"", False)
    assert vhost.route(address).queues == []
    queue = vhost.declare_queue("q", False, None, False, {})
    assert vhost.route(address).queues == [queue]
    assert vhost.route(address) is vhost.route(address)
    vhost.delete_queue(queue)
    assert vhost.route(address).queues == []


def test_a_cycle_of_exchanges_delivers_once(node: QuietBroker) -> None:
    vhost = node.broker.vhosts["/"]
    for name in ("a", "b"):
        vhost.declare_exchange(name, "fanout", False, False, False, {})
    queue = vhost.declare_queue("q", False, None, False, {})
    vhost.bind_exchange("b", "a", "", {})
    vhost.bind_exchange("a", "b", "", {})
    vhost.bind_queue(queue, "a", "", {})
    vhost.bind_queue(queue, "b", "", {})
    assert vhost.route(Address("a", "", b"", False)).queues == [queue]


def test_a_fan_out_shares_the_bytes_but_not_the_message(node: QuietBroker) -> None:
    vhost = node.broker.vhosts["/"]
    queues = [vhost.declare_queue(f"q{n}", n > 0, None, False, {}) for n in range(3)]
    content = b"content"
    position = vhost.publish(queues, [Message(content, b"", 1, NOW_MS + 5)], NOW_MS)
    assert position == node.engine.journal.position > 0
    taken = [queue.backing.fetch(1, 0)[0] for queue in queues]
    assert len({id(message) for message in taken}) == 3
    assert all(message.content is content for message in taken)
    assert all(message.expires_at_ms == NOW_MS + 5 for message in taken)


def test_transient_messages_need_no_disk(node: QuietBroker) -> None:
    vhost = node.broker.vhosts["/"]
    queue = vhost.declare_queue("q", True, None, False, {})
    vhost.publish([queue], [Message(b"", b"", 1, 0)], NOW_MS)  # sets numbers aside
    assert vhost.publish([queue], [Message(b"", b"", 0, 0)], NOW_MS) == 0


def refusal(act: Any, *arguments: Any) -> str:
    with pytest.raises(BrokerError) as caught:
        act(*arguments)
    return f"{type(caught.value).__name__}: {caught.value}"


def test_reserved_names_and_the_default_exchange(node: QuietBroker) -> None:
    vhost = node.broker.vhosts["/"]
    queue = vhost.declare_queue("q", False, None, False, {})
    default = "AccessRefused: operation not permitted on the default exchange"
    assert refusal(vhost.bind_queue, queue, "", "k", {}) == default
    assert refusal(vhost.delete_exchange, "", False) == default
    assert refusal(vhost.declare_exchange, "", "direct", True, False, False, {}) == default
    assert "reserved prefix" in refusal(
        vhost.declare_exchange, "amq.mine", "direct", True, False, False, {}
    )
    assert "system exchange" in refusal(vhost.delete_exchange, "amq.direct", False)
    assert refusal(vhost.route, Address("amq.rabbitmq.trace", "", b"", False)).startswith(
        "AccessRefused: cannot publish to internal exchange"
    )
    with pytest.raises(CommandInvalid):
        vhost.declare_exchange("x", "x-nosuch", True, False, False, {})


def test_a_queue_that_is_due_again_at_once_has_one_slice_a_turn(node: QuietBroker) -> None:
    vhost, broker = node.broker.vhosts["/"], node.broker
    queue = vhost.declare_queue("q", False, None, False, {})
    messages = [Message(b"x", b"", 0, 0) for _ in range(3 * RELEASED_AT_ONCE)]
    vhost.publish_deferred([queue], messages, NOW_MS + 10, NOW_MS)
    broker.queue_turns.plan(queue)
    for slices in (1, 2, 3):
        broker.queue_turns.visit_due(NOW_MS + 10)
        assert queue.backing.ready_count() == slices * RELEASED_AT_ONCE


def test_a_turn_releases_no_more_of_many_queues_than_of_one(node: QuietBroker) -> None:
    """They are due at one time, and have their shares in turn."""
    vhost, broker = node.broker.vhosts["/"], node.broker
    queues = [vhost.declare_queue(f"q{n}", False, None, False, {}) for n in range(40)]
    for queue in queues:
        messages = [Message(b"x", b"", 0, 0) for _ in range(100)]
        vhost.publish_deferred([queue], messages, NOW_MS + 10, NOW_MS)
        broker.queue_turns.plan(queue)
    counts = []
    while sum(counts) < 4000:
        before = sum(counts)
        broker.queue_turns.visit_due(NOW_MS + 10)
        counts.append(sum(int(queue.backing.ready_count()) for queue in queues) - before)
    assert max(counts) < DUE_MESSAGES + 100
    assert len(counts) == 4


@pytest.mark.parametrize(
    "arguments, error",
    [
        ({"x-message-ttl": -1}, "PreconditionFailed"),
        ({"x-message-ttl": "10"}, "PreconditionFailed"),
        ({"x-message-ttl": True}, "PreconditionFailed"),
        ({"x-expires": 0}, "PreconditionFailed"),
        ({"x-expires": 315_360_000_001}, "PreconditionFailed"),
        ({"x-queue-mode": "odd"}, "PreconditionFailed"),
        ({"x-queue-type": "odd"}, "PreconditionFailed"),
        ({"x-queue-type": "stream", "x-max-length": 5}, "PreconditionFailed"),
        ({"x-queue-type": "quorum", "x-max-priority": 5}, "PreconditionFailed"),
        ({"x-max-priority": 256}, "PreconditionFailed"),
        ({"x-max-priority": True}, "PreconditionFailed"),
        ({"x-max-length": -5}, "PreconditionFailed"),
        ({"x-dead-letter-routing-key": "x"}, "PreconditionFailed"),
        ({"x-single-active-consumer": 1}, "PreconditionFailed"),
    ],
)
def test_a_queue_is_not_made_with_arguments_nobody_keeps(
    node: QuietBroker, arguments: dict[str, object], error: str
) -> None:
    vhost = node.broker.vhosts["/"]
    assert refusal(vhost.declare_queue, "q", True, None, False, arguments).startswith(error)
    assert "q" not in vhost.queues
    assert node.definitions.load().queues == []


def test_unknown_arguments_are_kept_and_shown(node: QuietBroker) -> None:
    vhost = node.broker.vhosts["/"]
    arguments: dict[str, object] = {"x-of-somebody": 7, "x-message-ttl": 0}
    vhost.declare_queue("q", True, None, False, arguments)
    assert node.definitions.load().queues[0].arguments == arguments
    # Compared are only those that mean something here.
    vhost.declare_queue("q", True, None, False, {"x-message-ttl": 0})
    with pytest.raises(PreconditionFailed, match="x-message-ttl"):
        vhost.declare_queue("q", True, None, False, {})


def test_a_decimal_is_no_integer(node: QuietBroker) -> None:
    vhost = node.broker.vhosts["/"]
    vhost.declare_queue("q", True, None, False, {"x-message-ttl": 10})
    with pytest.raises(PreconditionFailed, match=r"received '\{1,100\}' but current is '10'"):
        vhost.declare_queue("q", True, None, False, {"x-message-ttl": Decimal("10.0")})


def reached(vhost: Any, exchange: str, key: str = "k") -> list[str]:
    return [queue.name for queue in vhost.route(Address(exchange, key, b"", False)).queues]


def test_alternate_exchanges_by_policy(tmp_path: Path) -> None:
    """Of exchanges that are there, that come later, and that every virtual host has."""
    node = QuietBroker(definitions=str(tmp_path / "definitions.db"))
    vhost = node.broker.vhosts["/"]
    admin = Administration(node.broker, 64)
    vhost.declare_exchange("early", "direct", True, False, False, {})
    vhost.declare_exchange("own", "direct", True, False, False, {"alternate-exchange": "none"})
    vhost.declare_exchange("spare", "fanout", True, False, False, {})
    queue = vhost.declare_queue("q", True, None, False, {})
    vhost.bind_queue(queue, "spare", "", {})
    assert reached(vhost, "early") == []
    address = Address("early", "k", b"", True)
    assert vhost.route(address).queues == []
    policy = Policy("p", "^(early|late|own|amq.direct)$", "exchanges", 0,
                    {"alternate-exchange": "spare"})  # fmt: skip
    admin.put_policy("/", policy)
    vhost.declare_exchange("late", "topic", True, False, False, {})
    assert vhost.route(address).queues == [queue]
    node.definitions.commit()
    again = QuietBroker(definitions=str(tmp_path / "definitions.db"))
    for broker in (node.broker, again.broker):
        here = broker.vhosts["/"]
        assert [reached(here, name) for name in ("early", "late", "amq.direct")] == [["q"]] * 3
        assert reached(here, "own") == []
    admin.delete_policy("/", "p")
    assert reached(vhost, "early") == reached(vhost, "amq.direct") == []


def test_who_may_enter(node: QuietBroker) -> None:
    broker = node.broker
    user = broker.users.authenticate("guest", "guest", HERE)
    assert broker.enter(user, "/").name == "/"
    with pytest.raises(NotFound, match="vhost nowhere not found"):
        broker.enter(user, "nowhere")
    with pytest.raises(AccessRefused, match="access to vhost 'closed' refused for user 'guest'"):
        broker.enter(user, "closed")
    for name, password, source in (
        ("guest", "no", HERE),
        ("x", "", HERE),
        ("guest", "guest", AFAR),
    ):
        with pytest.raises(AccessRefused):
            broker.users.authenticate(name, password, source)
