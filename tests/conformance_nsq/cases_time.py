"""Heartbeats and the buffer of what is sent."""

import time

from tests.conformance_nsq.case import World, case
from tests.helpers.nsq_line import sized


@case(slow=True)
def heartbeats_come_and_silence_ends_the_connection(w: World) -> None:
    a = w.client(heartbeat_interval=1000)
    began = time.monotonic()
    a.receive(heartbeats=True)
    w.within(began, 0.9, 1.4)
    w.say("the second is due when the connection is given up")
    while (event := a.receive_quietly(4, heartbeats=True)).kind == "response":
        pass
    a.note(f"< {event}")
    w.within(began, 1.9, 3.2)


@case(slow=True)
def any_command_answers_a_heartbeat(w: World) -> None:
    a = w.client(heartbeat_interval=1000)
    t = w.name("t")
    for command in (b"NOP\n", b"PUB %s\n" % t.encode() + sized(b"x"), b"NOP\n", b"NOP\n"):
        event = a.receive_quietly(3, heartbeats=True)
        while event.text == "OK":
            event = a.receive_quietly(3, heartbeats=True)
        a.note(f"< {event}")
        a.send_off_record(command)
    w.barrier(a)


@case(slow=True)
def a_consumer_that_is_silent_is_closed(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", heartbeat_interval=1000)
    began = time.monotonic()
    while (event := a.receive_quietly(4, heartbeats=True)).kind == "response":
        pass
    a.note(f"< {event}")
    w.within(began, 1.9, 3.2)
    w.until_channel(t, "c", client_count=0)
    w.channel_stats(t, "c")


@case(slow=True)
def without_heartbeats_a_publisher_may_be_silent(w: World) -> None:
    a = w.client(heartbeat_interval=-1)
    event = a.receive_quietly(3.0, heartbeats=True)
    a.note(f"< {event}")
    a.ask(f"PUB {w.name('t')}", b"x")


@case(slow=True)
def no_heartbeats_before_time(w: World) -> None:
    a = w.client()
    event = a.receive_quietly(3.0, heartbeats=True)
    a.note(f"< {event}")


@case(slow=True)
def without_a_timer_a_message_waits_for_a_heartbeat(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=100, output_buffer_timeout=-1, heartbeat_interval=3000)
    began = time.monotonic()
    w.put(t, b"1")
    events = [a.receive_quietly(5, heartbeats=True) for _ in range(2)]
    w.say(f"{events[0]} came first" if events[0].text else "the message came first")
    w.within(began, 2.0, 4.0)


@case()
def with_a_timer_a_message_does_not_wait_long(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=100, output_buffer_timeout=500)
    for number in range(3):
        began = time.monotonic()
        w.put(t, b"%d" % number)
        a.receive()
        w.within(began, 0, 0.7)


@case()
def a_full_window_is_sent_at_once(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1, output_buffer_timeout=30_000)
    began = time.monotonic()
    w.put(t, b"1")
    a.receive()
    w.within(began, 0, 1.0)


@case()
def a_full_buffer_is_sent_at_once(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=100, output_buffer_size=64, output_buffer_timeout=30_000)
    began = time.monotonic()
    w.put(t, b"1" * 100)
    a.receive()
    w.within(began, 0, 1.0)


@case()
def without_a_buffer_nothing_waits(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=100, output_buffer_size=-1, output_buffer_timeout=30_000)
    began = time.monotonic()
    w.put(t, b"1")
    a.receive()
    w.within(began, 0, 1.0)


@case()
def an_answer_takes_messages_along(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=100, output_buffer_timeout=30_000)
    w.put(t, b"1")
    w.until_channel(t, "c", in_flight_count=1)
    a.send_off_record(b"FIN 0123456789abcdef\n")
    kinds = sorted(a.receive_quietly().kind for _ in range(2))
    w.say(f"came: {kinds}")
