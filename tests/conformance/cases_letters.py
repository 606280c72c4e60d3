"""Dead letters: which messages become some, where they go, and what is written on them."""

from typing import Any

from tests.conformance.case import World, case
from tests.helpers.raw_amqp import RawClient
from tests.helpers.raw_codec import Typed


def _with_morgue(w: World, client: RawClient, **arguments: Any) -> tuple[str, str]:
    """A queue and the one its dead letters go to, by the default exchange."""
    morgue = w.queue(client, "morgue", exclusive=True)
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue}
    return w.queue(client, exclusive=True, arguments=letters | named), morgue


def _await(w: World, client: RawClient, queue: str, count: int = 1) -> None:
    """A consumer shows when they arrive."""
    client.send(1, "basic.consume", queue=queue, consumer_tag="morgue", no_ack=True)
    for _ in range(count + 1):
        client.receive()
    w.attempt(client, "basic.cancel", consumer_tag="morgue")


@case
def rejected(w: World) -> None:
    """Items 72, 90, 91 and 92."""
    a = w.client()
    q, morgue = _with_morgue(w, a)
    w.put(q, b"one", headers={"mine": 1}, content_type="text/plain", delivery_mode=2)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    _await(w, a, morgue)


@case
def nacked_in_order(w: World) -> None:
    a = w.client()
    q, morgue = _with_morgue(w, a)
    w.put(q, b"one", b"two", b"three")
    for _ in range(3):
        w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.nack", delivery_tag=3, multiple=True, requeue=False)
    _await(w, a, morgue, 3)


@case
def rejected_without_a_place_to_go(w: World) -> None:
    """Items 55 and 72: dropped."""
    a = w.client()
    plain = w.queue(a, exclusive=True)
    nowhere = w.queue(
        a, "nowhere", exclusive=True, arguments={"x-dead-letter-exchange": w.name("missing")}
    )
    for queue in (plain, nowhere):
        w.put(queue, b"one")
        tag = w.attempt(a, "basic.get", queue=queue).args["delivery_tag"]
        a.send(1, "basic.reject", delivery_tag=tag, requeue=False)
        w.barrier(a)
        w.attempt(a, "queue.declare", queue=queue, passive=True)
        w.attempt(a, "basic.get", queue=queue)


@case
def expired(w: World) -> None:
    """Items 92 and 93: the expiration moves into the entry."""
    a = w.client()
    q, morgue = _with_morgue(w, a)
    w.put(q, b"one", expiration="30")
    _await(w, a, morgue)


@case
def expired_by_the_queue(w: World) -> None:
    a = w.client()
    q, morgue = _with_morgue(w, a, message_ttl=30)
    w.put(q, b"one", b"two")
    _await(w, a, morgue, 2)


@case
def pushed_out(w: World) -> None:
    """Items 54 and 92: maxlen."""
    a = w.client()
    q, morgue = _with_morgue(w, a, max_length=1)
    w.put(q, b"one", b"two")
    _await(w, a, morgue)
    w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def refused_and_kept(w: World) -> None:
    """Item 54: reject-publish-dlx."""
    a = w.client()
    q, morgue = _with_morgue(w, a, max_length=1, overflow="reject-publish-dlx")
    w.attempt(a, "confirm.select")
    for body in (b"one", b"two"):
        a.publish(1, "", q, body)
        a.receive()
    _await(w, a, morgue)
    w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def by_its_own_key(w: World) -> None:
    """Without a routing key of the queue the message keeps its own."""
    a = w.client()
    x = w.exchange(a, "grave", type_="topic", auto_delete=True)
    morgue = w.queue(a, "morgue", exclusive=True)
    w.attempt(a, "queue.bind", queue=morgue, exchange=x, routing_key="a.#")
    source = w.exchange(a, "source", type_="topic", auto_delete=True)
    q = w.queue(a, exclusive=True, arguments={"x-dead-letter-exchange": x})
    w.attempt(a, "queue.bind", queue=q, exchange=source, routing_key="#")
    w.put("a.b", b"one", exchange=source)
    w.put("c", b"two", exchange=source)
    for _ in range(2):
        tag = w.attempt(a, "basic.get", queue=q).args["delivery_tag"]
        a.send(1, "basic.reject", delivery_tag=tag, requeue=False)
    _await(w, a, morgue)
    w.attempt(a, "queue.declare", queue=morgue, passive=True)


@case
def dying_twice_in_one_queue(w: World) -> None:
    """Item 90: the entry moves to the front, and its count grows."""
    a = w.client()
    second = w.name("second")
    q, _ = _with_morgue(w, a, dead_letter_routing_key=second)
    back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": q}
    a.send(1, "queue.declare", queue=second, exclusive=True, arguments=back)
    a.receive()
    w.put(q, b"one")
    for queue in (q, second, q, second):
        a.send(1, "basic.consume", queue=queue, consumer_tag="t")
        a.receive()
        tag = a.receive().args["delivery_tag"]
        w.attempt(a, "basic.cancel", consumer_tag="t")
        a.send(1, "basic.reject", delivery_tag=tag, requeue=False)
    a.send(1, "basic.consume", queue=q, consumer_tag="t", no_ack=True)
    a.receive()
    a.receive()


@case
def a_cycle_without_a_reject_ends(w: World) -> None:
    """Item 94."""
    a = w.client()
    q = w.name("q")
    letters = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": q,
        "x-message-ttl": 20,
    }
    a.send(1, "queue.declare", queue=q, exclusive=True, arguments=letters)
    a.receive()
    end = w.queue(a, "end", exclusive=True, arguments={"x-expires": 10_000})
    w.put(q, b"one")
    late, morgue = _with_morgue(w, a, message_ttl=200)
    w.put(late, b"later")
    _await(w, a, morgue)  # long after the first one expired
    w.attempt(a, "queue.declare", queue=q, passive=True)
    w.attempt(a, "queue.declare", queue=end, passive=True)


@case
def a_wrong_x_death_is_replaced(w: World) -> None:
    """Item 95."""
    a = w.client()
    q, morgue = _with_morgue(w, a)
    for value in ("text", 1, {}):
        w.put(q, b"one", headers={"x-death": value})
        tag = w.attempt(a, "basic.get", queue=q).args["delivery_tag"]
        a.send(1, "basic.reject", delivery_tag=tag, requeue=False)
        _await(w, a, morgue)


@case
def a_message_published_again_keeps_counting(w: World) -> None:
    """Item 96."""
    a = w.client()
    q, morgue = _with_morgue(w, a)
    w.put(q, b"one")
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    a.send(1, "basic.consume", queue=morgue, consumer_tag="t", no_ack=True)
    a.receive()
    headers = a.receive().properties["headers"]
    w.put(q, b"again", headers=headers)
    tag = w.attempt(a, "basic.get", queue=q).args["delivery_tag"]
    a.send(1, "basic.reject", delivery_tag=tag, requeue=False)
    a.receive()


@case
def confirmed_though_it_died(w: World) -> None:
    """Item 83."""
    a = w.client()
    q, morgue = _with_morgue(w, a, message_ttl=0)
    w.attempt(a, "confirm.select")
    a.publish(1, "", q, b"one", delivery_mode=2)
    a.receive()
    _await(w, a, morgue)


@case
def purged_and_deleted_messages_are_no_letters(w: World) -> None:
    a = w.client()
    q, morgue = _with_morgue(w, a)
    w.put(q, b"one", b"two")
    w.attempt(a, "queue.purge", queue=q)
    w.put(q, b"three")
    w.attempt(a, "queue.delete", queue=q)
    w.put(morgue, b"the only one")
    _await(w, a, morgue)


@case
def exchange_and_key_of_wrong_types(w: World) -> None:
    a = w.client()
    for key in ("x-dead-letter-exchange", "x-dead-letter-routing-key"):
        for value in (1, True, None, [1]):
            arguments = {"x-dead-letter-exchange": "amq.direct", key: value}
            w.attempt(a, "queue.declare", queue=w.name("q"), exclusive=True, arguments=arguments)


@case
def deaths_without_a_count(w: World) -> None:
    """As releases before 3.6 wrote them: one entry for each death."""
    a = w.client()
    q, morgue = _with_morgue(w, a)

    def death(reason: str, queue: str, **more: Any) -> dict[str, Any]:
        return {"reason": reason, "queue": queue, "exchange": "", "routing-keys": [queue], **more}

    def died(*entries: dict[str, Any]) -> None:
        w.put(q, b"m", headers={"x-death": list(entries)})
        tag = w.attempt(a, "basic.get", queue=q).args["delivery_tag"]
        a.send(1, "basic.reject", delivery_tag=tag, requeue=False)
        _await(w, a, morgue)

    here, wait = death("rejected", q), death("expired", "wait")
    other = death("rejected", "other")
    died(here)
    died(wait)
    died(here, wait, here, wait)
    died(wait, here, other, here, wait, here)
    w.say("some with a count")
    died({**here, "count": 2}, here, wait)
    died(here, {**here, "count": 2}, {**here, "count": 5})
    died({**here, "count": -3}, {**wait, "count": 0}, {**wait, "count": -3}, wait)
    died({**here, "count": -3})
    died({**wait, "count": 7}, {**wait, "count": 7}, {**here, "count": 0})
    w.say("entries that differ beside queue and reason; entries without a queue or a reason")
    died(here, death("rejected", q, time=Typed("T", 5), mine=1), {"reason": "expired"}, {}, {})
