"""Thousands of one thing at one queue: none of the steps is long, however they come together."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from tests.fuzz.loop_time import Steps, _consume, _method, _publish, judge
from tests.helpers.connection_pair import ClientEnd, QuietBroker
from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.raw_nsq import dpub

pytestmark = pytest.mark.fuzz

CONSUMERS = 9400


def crowd(steps: Steps, make: Callable[[int], bytes], count: int = CONSUMERS) -> ClientEnd:
    """A client with many consumers of one queue, each step of whose coming is timed."""
    end = steps.node.client()
    end.call("queue.declare", queue="q0")
    said = b"".join(make(number) for number in range(count))
    for at in range(0, len(said), 250_000):
        steps.read(end, said[at : at + 250_000])
    return end


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_messages_for_many_consumers(prefetch: int) -> None:
    def play() -> Steps:
        steps = Steps(QuietBroker())
        end = crowd(steps, lambda n: _method("basic.qos", prefetch_count=prefetch) + _consume(n))
        steps.read(end, _publish("", "q0") * 1358)
        steps.read(end, _publish("", "q0") * 3000)
        return steps

    judge(play)


def test_messages_for_many_queues_with_many_consumers_together() -> None:
    def play() -> Steps:
        steps = Steps(QuietBroker())
        end = steps.node.client()
        for number in range(30):
            end.call("queue.declare", queue=f"q{number}")
            end.call("queue.bind", queue=f"q{number}", exchange="amq.fanout")
        said = b"".join(_consume(number, f"q{number % 30}") for number in range(4500))
        steps.read(end, said)
        steps.read(end, _publish("amq.fanout", "") * 200)
        return steps

    judge(play)


def test_gets_beside_many_consumers() -> None:
    def play() -> Steps:
        steps = Steps(QuietBroker())
        end = crowd(steps, lambda n: _method("basic.qos", prefetch_count=1) + _consume(n))
        steps.read(end, _method("basic.get", queue="q0") * 5000)
        steps.read(end, (_publish("", "q0") + _method("basic.get", queue="q0")) * 1000)
        return steps

    judge(play)


def test_room_that_many_consumers_share() -> None:
    """Each settlement, and each change of the limit, may let any of them go on."""

    def play() -> Steps:
        steps = Steps(QuietBroker())
        end = crowd(steps, _consume, 4000)
        one = _method("basic.qos", prefetch_count=1, global_=True)
        steps.read(end, one + _publish("", "q0") * 200)
        get = _method("basic.get", queue="q0")
        acks = [_method("basic.ack", delivery_tag=tag) + get for tag in range(1, 201)]
        steps.read(end, b"".join(acks))
        steps.read(end, one * 400)
        return steps

    judge(play)


def test_consumers_of_as_many_priorities() -> None:
    def play() -> Steps:
        steps = Steps(QuietBroker())
        end = crowd(steps, lambda n: _consume(n, arguments={"x-priority": n}), 3000)
        steps.read(end, _publish("", "q0") * 3000)
        cancels = [_method("basic.cancel", consumer_tag=f"c{n}") for n in range(3000)]
        steps.read(end, b"".join(cancels))
        return steps

    judge(play)


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish"])
def test_publishes_to_a_full_queue_with_many_consumers(overflow: str) -> None:
    def play() -> Steps:
        steps = Steps(QuietBroker())
        end = steps.node.client()
        limits = {"x-max-length": 1, "x-overflow": overflow}
        end.call("queue.declare", queue="q0", arguments=limits)
        end.call("queue.bind", queue="q0", exchange="amq.fanout")
        qos = _method("basic.qos", prefetch_count=1)
        said = b"".join(qos + _consume(number) for number in range(3000))
        steps.read(end, said)
        # By two ways, so that each is a publish of its own.
        steps.read(end, (_publish("", "q0") + _publish("amq.fanout", "")) * 1500)
        return steps

    judge(play)


@pytest.mark.parametrize("kind", ["classic", "stream"])
@pytest.mark.parametrize("in_turn", ["as they came", "the other way round"])
def test_leaving_costs_the_same_for_each_of_many(kind: str, in_turn: str) -> None:
    """Four times as many took sixteen times as long."""

    def took_ms(count: int) -> float:
        steps = Steps(QuietBroker(), 20)
        end = steps.node.client()
        arguments = {"x-queue-type": kind}
        end.call("queue.declare", queue="q0", durable=True, arguments=arguments)
        end.call("basic.qos", prefetch_count=1)
        numbers = list(range(count))
        for at in range(0, count, 4000):
            steps.read(end, b"".join(_consume(number) for number in numbers[at : at + 4000]))
        steps.slowest_ms = 0.0
        if in_turn != "as they came":
            numbers.reverse()
        cancels = [_method("basic.cancel", consumer_tag=f"c{n}", nowait=True) for n in numbers]
        steps.read(end, b"".join(cancels))
        assert not steps.node.broker.vhosts["/"].queues["q0"].consumers
        return steps.slowest_ms

    few = min(took_ms(2500) for _ in range(3))
    many = min(took_ms(10_000) for _ in range(3))
    assert many < 8 * few


@pytest.mark.parametrize("topics", [1, 90])
def test_deferred_messages_that_are_due_at_one_tick(topics: int) -> None:
    """Of one channel, or of a channel of each topic, with a consumer or without."""

    def play() -> Steps:
        node = NsqBroker()
        steps = Steps(node)
        for number in range(topics):
            watcher = node.nsq_client()
            watcher.send(b"SUB t%d c\nRDY 2500\n" % number)
            if number % 2:
                watcher.drop()
        end = node.nsq_client()
        for at in range(0, 20_000, 5000):
            parts = [dpub(f"t{n % topics}", 900, b"x") for n in range(at, at + 5000)]
            steps.read(end, b"".join(parts))
        steps.tick(end, 5000)
        return steps

    judge(play)


def test_many_readers_of_one_stream() -> None:
    def play() -> Steps:
        steps = Steps(QuietBroker(), 60)
        end = steps.node.client()
        arguments = {"x-queue-type": "stream"}
        end.call("queue.declare", queue="q0", durable=True, arguments=arguments)
        for _ in range(10):
            end.send(_publish("", "q0", b"x" * 20) * 50)
        end.call("basic.qos", prefetch_count=1)
        first = {"x-stream-offset": "first"}
        said = b"".join(_consume(number, arguments=first) for number in range(2000))
        steps.read(end, said)
        steps.read(end, _method("basic.ack", delivery_tag=0, multiple=True))
        steps.read(end, _publish("", "q0") * 10)
        steps.read(end, _method("basic.ack", delivery_tag=0, multiple=True))
        return steps

    judge(play)


def test_a_queue_to_which_many_exchanges_lead_is_deleted() -> None:
    """Each of them goes with its last binding."""

    def play() -> Steps:
        steps = Steps(QuietBroker())
        end = steps.node.client()
        end.call("queue.declare", queue="q0")
        for at in range(0, 20_000, 500):
            said = b"".join(
                _method("exchange.declare", exchange=f"x{n}", type="fanout", auto_delete=True)
                + _method("queue.bind", queue="q0", exchange=f"x{n}")
                for n in range(at, at + 500)
            )
            steps.read(end, said)
        steps.read(end, _method("queue.delete", queue="q0"))
        assert not [name for name in steps.node.broker.vhosts["/"].exchanges if name[0] == "x"]
        return steps

    judge(play)


def test_a_policy_for_many_queues() -> None:
    """It is there for all of them after some turns, and for those that are declared meanwhile."""

    def play() -> Steps:
        node = QuietBroker()
        steps = Steps(node)
        end = node.client()
        vhost = node.broker.vhosts["/"]
        for number in range(10_000):
            vhost.declare_queue(f"q{number}", False, None, False, {})
        admin = Administration(node.broker, 16_384)
        for number in range(20):
            admin.put_policy("/", Policy(f"p{number}", "^none$", "queues", 0, {"expires": 9}))
        steps.rest(end)
        steps.slowest_ms = 0.0
        bound = Policy("bound", "", "queues", 0, {"max-length": 5})
        steps.timed("the policy", lambda: admin.put_policy("/", bound))
        assert vhost.queues["q0"].limits.max_length == -1, "all of them in one step"
        vhost.declare_queue("new", False, None, False, {})
        steps.rest(end)
        assert {int(queue.limits.max_length) for queue in vhost.queues.values()} == {5}
        return steps

    judge(play)


def test_a_message_for_many_queues() -> None:
    def play() -> Steps:
        node = QuietBroker()
        steps = Steps(node)
        end = node.client()
        vhost = node.broker.vhosts["/"]
        for number in range(30_000):
            queue = vhost.declare_queue(f"q{number}", False, None, False, {})
            assert queue is not None
            vhost.bind_queue(queue, "amq.fanout", "", {})
        steps.read(end, _publish("amq.fanout", "") * 3)
        assert {int(queue.backing.ready_count()) for queue in vhost.queues.values()} == {3}
        return steps

    judge(play)
