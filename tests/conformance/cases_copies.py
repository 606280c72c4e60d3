"""CC and BCC: headers that name further routing keys (item 40)."""

from typing import Any

from tests.conformance.case import World, case


@case
def each_queue_once(w: World) -> None:
    """Item 40: keys that say the same twice, and that nobody has."""
    a = w.client()
    to, cc, bcc = (w.queue(a, base, exclusive=True) for base in ("to", "cc", "bcc"))
    headers = {"first": 1, "CC": [cc, to, "nobody", cc], "BCC": [bcc, cc], "last": [1, "x"]}
    a.publish(1, "", to, b"m", headers=headers, message_id="id", delivery_mode=2)
    w.barrier(a)
    for queue in (to, cc, bcc):
        w.attempt(a, "basic.get", queue=queue, no_ack=True)
        w.attempt(a, "basic.get", queue=queue, no_ack=True)


@case
def bcc_alone(w: World) -> None:
    """It is taken out."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", "nobody", b"m", headers={"BCC": [q]}, mandatory=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q, no_ack=True)
    a.publish(1, "", "nobody", b"m", headers={"BCC": []}, mandatory=True)
    a.receive()
    a.publish(1, "", "nobody", b"m", headers={"CC": ["x"], "BCC": ["y"]}, mandatory=True)
    a.receive()


@case
def through_every_type(w: World) -> None:
    a = w.client()
    for type_ in ("direct", "topic", "fanout", "headers"):
        w.say(type_)
        x = w.exchange(a, "x", type_, auto_delete=True)
        queues = [w.queue(a, base, exclusive=True) for base in ("one", "two", "three")]
        for place, queue in enumerate(queues):
            w.attempt(a, "queue.bind", queue=queue, exchange=x, routing_key=f"k.{place}",
                      arguments={"place": place})  # fmt: skip
        a.publish(1, x, "k.0", b"m", headers={"CC": ["k.1"], "place": 2})
        w.barrier(a)
        for queue in queues:
            w.attempt(a, "basic.get", queue=queue, no_ack=True)
            w.attempt(a, "basic.get", queue=queue, no_ack=True)


@case
def the_alternate_only_when_no_key_leads_anywhere(w: World) -> None:
    """Items 34 and 40."""
    a = w.client()
    spare_x = w.exchange(a, "spare-x", "fanout", auto_delete=True)
    spare, q = w.queue(a, "spare", exclusive=True), w.queue(a, exclusive=True)
    w.attempt(a, "queue.bind", queue=spare, exchange=spare_x)
    x = w.exchange(a, "x", auto_delete=True, arguments={"alternate-exchange": spare_x})
    w.attempt(a, "queue.bind", queue=q, exchange=x, routing_key="k")
    for keys in (["k"], ["other"]):
        a.publish(1, x, "nobody", b"m", headers={"CC": keys})
        w.barrier(a)
        for queue in (q, spare):
            w.attempt(a, "basic.get", queue=queue, no_ack=True)


@case
def what_is_no_list_of_texts(w: World) -> None:
    """Item 40: the type of the header counts, wrong items in it are passed over."""
    a = w.client()
    q, other = w.queue(a, exclusive=True), w.queue(a, "other", exclusive=True)
    values: tuple[Any, ...] = (1, True, None, "text", b"octets", {"a": "b"}, 1.5)
    for header in ("CC", "BCC"):
        for value in values:
            a.publish(1, "", q, b"m", headers={header: value})
            w.outcome_or_barrier(a)
    a.publish(1, "", q, b"m", headers={"CC": [1, None, other, ["x"]]})
    w.barrier(a)
    for queue in (q, other):
        w.attempt(a, "basic.get", queue=queue, no_ack=True)
    w.say("only these very names")
    a.publish(1, "", q, b"m", headers={"cc": [other], "XCC": [other], "Bcc": [other]})
    w.barrier(a)
    for queue in (q, other):
        w.attempt(a, "basic.get", queue=queue, no_ack=True)


@case
def both_wrong(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"m", headers={"BCC": 1, "CC": "x"})
    w.outcome_or_barrier(a)
    a.publish(1, w.name("missing"), q, b"m", headers={"BCC": 1})
    w.outcome_or_barrier(a)


@case
def confirmed_and_in_a_transaction(w: World) -> None:
    """Items 40, 82 and 85."""
    a = w.client()
    to, cc = w.queue(a, "to", exclusive=True), w.queue(a, "cc", exclusive=True)
    a.open_channel(2)
    w.attempt(a, "confirm.select", channel=2)
    a.publish(2, "", to, b"1", headers={"CC": [cc]})
    a.receive()
    w.attempt(a, "tx.select")
    a.publish(1, "", to, b"2", headers={"BCC": [cc]})
    w.attempt(a, "tx.commit")
    for _ in range(2):
        for queue in (to, cc):
            w.attempt(a, "basic.get", queue=queue, no_ack=True)


@case
def in_a_dead_letter(w: World) -> None:
    """Items 40 and 93: CC is among its keys and leads it further, BCC is forgotten."""
    a = w.client()
    x = w.exchange(a, "grave", "direct", auto_delete=True)
    q = w.queue(a, exclusive=True, arguments={"x-dead-letter-exchange": x})
    by_cc, by_bcc = w.queue(a, "by-cc", exclusive=True), w.queue(a, "by-bcc", exclusive=True)
    a.call(1, "queue.bind", queue=by_cc, exchange=x, routing_key="copy")
    a.call(1, "queue.bind", queue=by_bcc, exchange=x, routing_key="blind")
    w.put(q, b"one", headers={"CC": ["copy"], "BCC": ["blind"]})
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.consume", queue=by_cc, consumer_tag="c", no_ack=True)
    a.receive()
    a.send(1, "basic.reject", delivery_tag=1, requeue=False)
    a.receive()
    w.attempt(a, "queue.declare", queue=by_bcc, passive=True)


@case
def in_a_dead_letter_with_a_key_of_its_own(w: World) -> None:
    """Item 93: CC goes."""
    a = w.client()
    morgue, cc = w.queue(a, "morgue", exclusive=True), w.queue(a, "cc", exclusive=True)
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": morgue}
    q = w.queue(a, exclusive=True, arguments=letters)
    w.put(q, b"one", headers={"CC": [cc]})
    w.attempt(a, "basic.get", queue=cc, no_ack=True)
    w.attempt(a, "basic.get", queue=q)
    a.send(1, "basic.consume", queue=morgue, consumer_tag="c", no_ack=True)
    a.receive()
    a.send(1, "basic.reject", delivery_tag=2, requeue=False)
    a.receive()
    w.attempt(a, "queue.declare", queue=cc, passive=True)


@case
def a_return_names_the_first_key(w: World) -> None:
    """Items 40 and 80: the message as it was, without BCC."""
    a = w.client()
    a.publish(1, "amq.direct", "nobody", b"m", headers={"CC": ["a"], "BCC": ["b"]}, mandatory=True)
    a.receive()
    w.barrier(a)
