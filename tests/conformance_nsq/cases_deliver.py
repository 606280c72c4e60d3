"""Delivery: the window of RDY, FIN, REQ, TOUCH, owners, attempts, and who goes away."""

import time

from tests.conformance_nsq.case import World, case


@case()
def the_window_is_no_credit(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=2)
    w.put(t, b"1", b"2", b"3", b"4")
    one, two = w.got(a, count=2)
    a.quiet()
    a.settle("FIN", one)
    three = a.receive()
    a.quiet()
    a.send("RDY 3")
    a.receive()
    for event in (two, three):
        a.settle("FIN", event)
    w.until_channel(t, "c", in_flight_count=1)
    w.channel_stats(t, "c")


@case()
def a_window_below_what_is_in_flight(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=3)
    w.put(t, b"1", b"2", b"3", b"4", b"5")
    first = w.got(a, count=3)
    a.send("RDY 1")
    a.settle("FIN", first[0])
    a.quiet()
    a.settle("FIN", first[1])
    a.quiet()
    a.settle("FIN", first[2])
    a.receive()
    a.quiet()


@case()
def no_window_no_messages(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c")
    w.put(t, b"1")
    a.quiet()
    a.send("RDY 0")
    a.quiet()
    a.send("RDY")
    a.receive()
    a.send("RDY 0")
    w.put(t, b"2")
    a.quiet()
    w.until_channel(t, "c", depth=1)
    w.channel_stats(t, "c")


@case()
def finish(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=5)
    w.put(t, b"1")
    one = a.receive()
    a.settle("FIN", one)
    a.ask(f"FIN {one.id}")
    a.ask(f"REQ {one.id} 0")
    a.ask(f"TOUCH {one.id}")
    w.channel_stats(t, "c")


@case()
def requeue_at_once(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1)
    w.put(t, b"1")
    one = a.receive()
    for _ in range(3):
        a.settle("REQ", one, 0)
        one = a.receive()
    a.settle("FIN", one)
    w.until_channel(t, "c", in_flight_count=0)
    w.channel_stats(t, "c")


@case()
def requeue_goes_to_the_tail(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1)
    w.put(t, b"1", b"2", b"3")
    w.until_channel(t, "c", depth=2)
    a.settle("REQ", a.receive(), 0)
    for _ in range(3):
        a.settle("FIN", a.receive())


@case(slow=True)
def requeue_later(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1)
    w.put(t, b"1")
    one = a.receive()
    began = time.monotonic()
    a.settle("REQ", one, 700)
    w.until_channel(t, "c", deferred_count=1)
    w.channel_stats(t, "c")
    a.ask(f"FIN {one.id}")
    a.receive()
    w.within(began, 0.7, 7)
    w.channel_stats(t, "c")


@case("small", slow=True)
def a_requeue_is_clamped(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1)
    w.put(t, b"1")
    began = time.monotonic()
    a.settle("REQ", a.receive(), 99_999_999)
    a.receive()
    w.within(began, 2, 9)


@case(slow=True)
def timeout(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1, msg_timeout=1000)
    began = time.monotonic()
    w.put(t, b"1")
    one = a.receive()
    a.quiet(0.7)
    again = a.receive()
    w.within(began, 1, 9)
    w.say(f"the same id: {again.id == one.id}")
    a.settle("FIN", again)
    w.until_channel(t, "c", in_flight_count=0)
    w.channel_stats(t, "c")


@case(slow=True)
def a_timeout_may_give_it_to_another(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1, msg_timeout=1000)
    w.put(t, b"1")
    one = a.receive()
    a.send("RDY 0")
    w.barrier(a)
    b = w.subscriber(t, "c", rdy=1, name="B", msg_timeout=60_000)
    b.receive()
    a.ask(f"FIN {one.id}")
    a.ask(f"REQ {one.id} 0")
    a.ask(f"TOUCH {one.id}")
    w.channel_stats(t, "c")
    b.settle("FIN", one)
    w.until_channel(t, "c", in_flight_count=0)


@case(slow=True)
def touch_extends(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1, msg_timeout=1500)
    w.until_channel(t, "c", client_count=1)
    time.sleep(5.3)
    w.say("touched each half second for three seconds")
    began = time.monotonic()
    w.put(t, b"1")
    one = a.receive()
    for _ in range(6):
        time.sleep(0.5)
        a.send_off_record(b"TOUCH %s\n" % one.id.encode())
    a.quiet(0.3)
    a.receive()
    w.within(began, 4.4, 8)


@case("small", slow=True)
def touch_is_capped(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1, msg_timeout=1000)
    time.sleep(5.3)
    w.say("touched each half second; the limit is three seconds")
    began = time.monotonic()
    w.put(t, b"1")
    one = a.receive()
    for _ in range(5):
        time.sleep(0.5)
        a.send_off_record(b"TOUCH %s\n" % one.id.encode())
    while (event := a.receive_quietly(0.5)).kind == "silence" and time.monotonic() < began + 9:
        a.send_off_record(b"TOUCH %s\n" % one.id.encode())
    a.note(f"< {event}")
    w.within(began, 2.9, 5)


@case(slow=True)
def a_timed_out_message_goes_behind_the_others(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1, msg_timeout=1000)
    w.put(t, b"1", b"2")
    w.until_channel(t, "c", depth=1)
    for _ in range(3):
        a.receive()


@case(slow=True)
def a_consumer_that_leaves_keeps_its_messages_until_their_timeout(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1, msg_timeout=1500)
    began = time.monotonic()
    w.put(t, b"1")
    a.receive()
    a.close_socket()
    b = w.subscriber(t, "c", rdy=1, name="B")
    w.until_channel(t, "c", client_count=1)
    w.channel_stats(t, "c")
    b.quiet(0.5)
    event = b.receive()
    w.within(began, 1.5, 9)
    b.settle("FIN", event)
    w.until_channel(t, "c", in_flight_count=0)
    w.channel_stats(t, "c")


@case()
def only_the_owner_may_settle(w: World) -> None:
    t = w.name("t")
    a, b = w.subscriber(t, "c", rdy=1), w.subscriber(t, "c", name="B")
    w.put(t, b"1")
    one = a.receive()
    b.ask(f"FIN {one.id}")
    b.ask(f"REQ {one.id} 0")
    b.ask(f"TOUCH {one.id}")
    a.settle("FIN", one)
    w.barrier(a)
    w.channel_stats(t, "c")


@case()
def ids_belong_to_their_channel(w: World) -> None:
    t = w.name("t")
    a, b = w.subscriber(t, "c", rdy=1), w.subscriber(t, "d", rdy=1, name="B")
    w.put(t, b"1")
    one, two = a.receive(), b.receive()
    w.say(f"both channels see one id: {one.id == two.id}")
    a.settle("FIN", one)
    w.barrier(a)
    b.settle("REQ", two, 0)
    b.receive()


@case()
def every_message_goes_to_one_consumer(w: World) -> None:
    t = w.name("t")
    a, b = w.subscriber(t, "c", rdy=10), w.subscriber(t, "c", rdy=10, name="B")
    bodies = [b"%02d" % number for number in range(20)]
    w.put(t, *bodies)
    w.until_channel(t, "c", in_flight_count=20)
    seen = []
    for client in (a, b):
        while (event := client.receive_quietly(0.3)).kind == "message":
            seen.append(event.body)
    w.say(f"each once: {sorted(seen) == bodies}")


@case()
def attempts_begin_anew_in_each_channel(w: World) -> None:
    t = w.name("t")
    a, b = w.subscriber(t, "c", rdy=1), w.subscriber(t, "d", name="B")
    w.put(t, b"1")
    a.settle("REQ", a.receive(), 0)
    a.receive()
    b.send("RDY 1")
    b.receive()


@case()
def a_settlement_after_the_window_was_closed(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1)
    w.put(t, b"1")
    one = a.receive()
    a.send("RDY 0")
    a.settle("REQ", one, 0)
    a.quiet()
    w.channel_stats(t, "c")
    a.send("RDY 1")
    a.receive()


@case()
def sampling(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=2500, sample_rate=49)
    w.put(t, b"x")
    count = 2000
    client = w.client("B")
    body = b"\0\0\7\xd0" + b"\0\0\0\1x" * count
    client.call_off_record(f"MPUB {t}", body)
    w.until_channel(t, "c", depth=0)
    seen = 0
    while a.receive_quietly(0.5).kind == "message":
        seen += 1
    w.say(f"about half of {count} arrived: {0.43 * count < seen < 0.57 * count}")
    w.until_channel(t, "c", depth=0)
    w.say("what was left out is gone:")
    w.channel_stats(t, "c", "depth", "deferred_count", "requeue_count", "timeout_count")


@case()
def sampling_nothing_out(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=100, sample_rate=99)
    w.put(t, *(b"%02d" % number for number in range(50)))
    w.got(a, count=50)
