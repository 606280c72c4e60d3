"""Publishing: missing exchanges, flags, returns, confirms; and properties the broker reads."""

from tests.conformance.case import World, case
from tests.helpers import raw_codec as codec


@case
def missing_exchange(w: World) -> None:
    """Item 41: the answer comes when it comes: later publishes of the same breath are ignored."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, w.name("none"), "k", b"1")
    a.publish(1, "", q, b"2")
    w.outcome(a)
    w.attempt(a, "basic.get", queue=q)


@case
def missing_exchange_in_confirm_mode(w: World) -> None:
    """Item 41: the channel dies; no confirm is sent for the message."""
    a = w.client()
    a.call(1, "confirm.select")
    a.publish(1, w.name("none"), "k", b"1")
    w.outcome(a)


@case
def immediate(w: World) -> None:
    """Item 80."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.send(1, "basic.publish", routing_key=q, immediate=True)
    a.send_off_record(codec.content_frames(1, b"m", {}))
    w.outcome(a)


@case
def mandatory_unroutable(w: World) -> None:
    """Item 80."""
    a = w.client()
    a.publish(1, "amq.direct", w.name("k"), b"body", mandatory=True, content_type="text/plain",
              headers={"h": 1}, delivery_mode=2)  # fmt: skip
    a.receive()
    a.publish(1, "", w.name("none"), b"", mandatory=True)
    a.receive()


@case
def mandatory_unroutable_large_body(w: World) -> None:
    a = w.client(frame_max=4096)
    key = w.name("k")
    a.send(1, "basic.publish", exchange="amq.direct", routing_key=key, mandatory=True)
    a.send_off_record(codec.content_frames(1, b"x" * 10_000, {}, frame_max=4096))
    a.receive()


@case
def mandatory_routable(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"1", mandatory=True)
    w.barrier(a)
    w.attempt(a, "basic.get", queue=q)


@case
def mandatory_to_an_exclusive_queue_of_another(w: World) -> None:
    a, b = w.client("A"), w.client("B")
    q = w.queue(a, exclusive=True)
    b.publish(1, "", q, b"1", mandatory=True)
    w.barrier(b)
    w.attempt(a, "basic.get", queue=q)


@case
def return_comes_before_the_confirm(w: World) -> None:
    """Item 80."""
    a = w.client()
    a.call(1, "confirm.select")
    a.publish(1, "amq.direct", w.name("k"), b"body", mandatory=True)
    a.receive()
    a.receive()


@case
def confirm_select_twice(w: World) -> None:
    """Item 81."""
    a = w.client()
    w.attempt(a, "confirm.select")
    w.attempt(a, "confirm.select")
    a.send(1, "confirm.select", nowait=True)
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q)
    a.receive()


@case
def confirms_one_by_one(w: World) -> None:
    """Item 81: each waited for: tags 1, 2, 3, never multiple."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"not counted")
    a.call(1, "confirm.select")
    for body in (b"1", b"2", b"3"):
        a.publish(1, "", q, body)
        a.receive()


def _confirmed(w: World, exchange: str, key: str, count: int, delivery_mode: int = 1) -> None:
    """A burst: which acks are multiple is the broker's choice, all must be covered once."""
    a = w.client()
    a.call(1, "confirm.select")
    for _ in range(count):
        a.publish(1, exchange, key, b"m", delivery_mode=delivery_mode)
    waiting = set(range(1, count + 1))
    while waiting:
        event = a.receive_quietly()
        if event.name != "basic.ack":
            a.note(f"< {event}")
            return
        tag = event.args["delivery_tag"]
        told = {t for t in waiting if t <= tag} if event.args["multiple"] else {tag} & waiting
        a.note("" if told else f"< {event} confirms nothing")
        waiting -= told
    w.lines[:] = [line for line in w.lines if line.strip() != "A"]
    a.note(f"< all {count} confirmed")
    w.barrier(a)


@case
def confirms_in_a_burst(w: World) -> None:
    b = w.client("B")
    _confirmed(w, "", w.queue(b, exclusive=True), 20)


@case
def confirms_of_unroutable_messages(w: World) -> None:
    """Item 82."""
    _confirmed(w, "amq.direct", w.name("k"), 20)


@case
def confirms_of_persistent_messages(w: World) -> None:
    """Item 82."""
    b = w.client("B")
    q = w.queue(b, durable=True)
    _confirmed(w, "", q, 20, delivery_mode=2)
    w.purge(q)


@case
def confirms_of_a_fanout(w: World) -> None:
    """Item 82."""
    b = w.client("B")
    x = w.exchange(b, type_="fanout")
    for base in ("q1", "q2", "q3"):
        b.call(1, "queue.bind", queue=w.queue(b, base, exclusive=True), exchange=x)
    _confirmed(w, x, "k", 20)
    b.call(1, "exchange.delete", exchange=x)


@case
def confirm_tags_start_over_with_the_channel(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "confirm.select")
    a.publish(1, "", q)
    a.receive()
    a.call(1, "channel.close", code=200)
    a.call(1, "channel.open")
    a.call(1, "confirm.select")
    a.publish(1, "", q)
    a.receive()


@case
def confirm_tags_count_publishes_of_every_exchange(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.call(1, "confirm.select")
    a.publish(1, "", q)
    a.receive()
    a.publish(1, "amq.fanout", w.name("k"))
    a.receive()
    a.publish(1, "amq.direct", w.name("k2"), mandatory=True)
    a.receive()
    a.receive()
    a.publish(1, "", q)
    a.receive()


@case
def delivery_mode_zero_and_three(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    for mode in (0, 1, 2, 3, 255):
        a.publish(1, "", q, b"m", delivery_mode=mode)
        w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def expiration_not_a_number(w: World) -> None:
    """Item 50."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for expiration in ("abc", "-1", "", "1.5", "10 ", "+60000"):
        a.publish(1, "", q, b"m", expiration=expiration)
        w.barrier(a)
    w.attempt(a, "queue.purge", queue=q)


@case
def expiration_huge(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"m", expiration="99999999999999999999")
    w.barrier(a)


@case
def user_id_is_checked(w: World) -> None:
    """Item 87."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"m", user_id=w.user)
    w.barrier(a)
    a.publish(1, "", q, b"m", user_id="somebody")
    w.barrier(a)
    w.attempt(a, "queue.purge", queue=q)


@case
def cc_not_an_array(w: World) -> None:
    """Item 40."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for name in ("CC", "BCC"):
        a.publish(1, "", q, b"m", headers={name: "text"})
        w.barrier(a)


@case
def cc_and_bcc(w: World) -> None:
    """Item 40."""
    a = w.client()
    to, cc, bcc = (w.queue(a, base, exclusive=True) for base in ("to", "cc", "bcc"))
    a.publish(1, "", to, b"m", headers={"CC": [cc, to], "BCC": [bcc, cc]})
    w.barrier(a)
    for queue in (to, cc, bcc):
        w.attempt(a, "basic.get", queue=queue, no_ack=True)
        w.attempt(a, "basic.get", queue=queue, no_ack=True)


@case
def priority_and_timestamp_pass(w: World) -> None:
    a = w.client()
    q = w.queue(a, exclusive=True)
    a.publish(1, "", q, b"m", priority=255, timestamp=2**64 - 1)
    w.attempt(a, "basic.get", queue=q, no_ack=True)


@case
def large_body_in_many_frames(w: World) -> None:
    a = w.client(frame_max=4096)
    q = w.queue(a, exclusive=True)
    body = bytes(range(256)) * 400
    a.send(1, "basic.publish", routing_key=q)
    a.send_off_record(codec.content_frames(1, body, {}, frame_max=4096))
    got = w.attempt(a, "basic.get", queue=q, no_ack=True)
    a.note(f"< body is {'the same' if got.body == body else 'another'}")


@case
def body_frames_fit_the_consumers_frame_max(w: World) -> None:
    """Published in one frame, read by a client with a smaller limit: it is cut anew."""
    a, b = w.client("A"), w.client("B", frame_max=4096)
    q = w.queue(a)
    body = b"x" * 20_000
    w.put(q, body)
    got = w.attempt(b, "basic.get", queue=q, no_ack=True)
    b.note(f"< {len(got.body)} bytes in frames with payloads of {b.body_frame_sizes}")
    w.purge(q)


@case
def small_frames_to_a_large_frame_max(w: World) -> None:
    """Published in small frames, read by a client with a large limit."""
    a, b = w.client("A", frame_max=4096), w.client("B")
    q = w.queue(a)
    a.call(1, "confirm.select")
    a.send(1, "basic.publish", routing_key=q)
    a.send_off_record(codec.content_frames(1, b"x" * 10_000, {}, frame_max=4096))
    a.receive()
    got = w.attempt(b, "basic.get", queue=q, no_ack=True)
    b.note(f"< {len(got.body)} bytes in frames with payloads of {b.body_frame_sizes}")
    w.purge(q)


@case
def order_of_one_publisher(w: World) -> None:
    """Item 79."""
    a = w.client()
    q = w.queue(a, exclusive=True)
    for number in range(200):
        a.send_off_record(
            codec.method_frame(1, "basic.publish", routing_key=q)
            + codec.content_frames(1, b"%d" % number, {"delivery_mode": 1 + number % 2})
        )
    a.call(1, "basic.consume", queue=q, consumer_tag="t", no_ack=True)
    bodies = [a.receive_quietly().body for _ in range(200)]
    a.note(f"< in order: {bodies == [b'%d' % number for number in range(200)]}")
