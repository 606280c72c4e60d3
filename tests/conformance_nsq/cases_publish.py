"""PUB, MPUB and DPUB: names, sizes, limits, what arrives, and what an error costs."""

from tests.conformance_nsq.case import World, case
from tests.helpers.nsq_line import batch, sized

MAX = 1_048_576


def _each(w: World, *attempts: tuple[str, bytes]) -> None:
    """Each command on a connection of its own, its bytes given whole."""
    for line, rest in attempts:
        a = w.client()
        a.send_raw(line.encode() + b"\n" + rest, f"{line} + {rest[:40]!r}")
        a.fate(1.5)
        a.close_socket()


@case()
def one_message(w: World) -> None:
    t = w.name("t")
    a = w.client()
    a.ask(f"PUB {t}", b"hello")
    a.ask(f"PUB {t} and more words", b"again")
    w.stats(t)
    b = w.subscriber(t, "c", rdy=2, name="B")
    w.got(b, count=2)


@case()
def messages_keep_their_bytes(w: World) -> None:
    t = w.name("t")
    a, b = w.client(), w.subscriber(t, "c", rdy=1, name="B")
    for body in (bytes(range(256)), b"\0", b"\n\r\n", b"  V2", b"x" * 100_000):
        a.ask(f"PUB {t}", body)
        event = b.receive()
        w.say(f"the same bytes: {event.body == body}")
        b.settle("FIN", event)


@case()
def wrong_words(w: World) -> None:
    one = sized(b"x")
    _each(w, ("PUB", one), ("PUB ", one), ("PUB a*b", one), ("PUB " + "x" * 65, one))
    _each(w, ("MPUB", one), ("MPUB ", one), ("MPUB a*b", one))
    _each(w, ("DPUB", one), ("DPUB x", one), ("DPUB a*b 1", one))
    _each(w, ("PUB #ephemeral", one))


@case()
def wrong_sizes(w: World) -> None:
    t = w.name("t")
    for size in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x80\0\0\0", (MAX + 1).to_bytes(4, "big")):
        _each(w, (f"PUB {t}", size), (f"DPUB {t} 10", size))
    w.stats(t)


@case()
def wrong_sizes_of_batches(w: World) -> None:
    t = w.name("t")
    for size in (0, 1, 4, 5_242_881):
        _each(w, (f"MPUB {t}", size.to_bytes(4, "big") + b"\0\0\0\0"))
    _each(w, (f"MPUB {t}", b"\xff\xff\xff\xff"))
    w.stats(t)


@case()
def wrong_counts_of_batches(w: World) -> None:
    t = w.name("t")
    for count in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\3", b"\0\x10\0\0"):
        _each(w, (f"MPUB {t}", sized(count + sized(b"x"))))
    w.stats(t)


@case()
def wrong_messages_of_batches(w: World) -> None:
    t = w.name("t")
    good = sized(b"good")
    for part in (b"\0\0\0\0", b"\xff\xff\xff\xff", (MAX + 1).to_bytes(4, "big")):
        _each(w, (f"MPUB {t}", sized(b"\0\0\0\2" + good + part + b"pad")))
    w.stats(t)


@case()
def half_a_publish(w: World) -> None:
    t = w.name("t")
    for line, rest in (
        (f"PUB {t}", b"\0\0"),
        (f"PUB {t}", b"\0\0\0\5he"),
        (f"DPUB {t} 1", b"\0\0\0\5he"),
        (f"MPUB {t}", b"\0\0"),
        (f"MPUB {t}", b"\0\0\0\x20\0\0"),
        (f"MPUB {t}", b"\0\0\0\x20\0\0\0\2\0\0\0\1x\0\0"),
        (f"MPUB {t}", b"\0\0\0\x20\0\0\0\2\0\0\0\1x\0\0\0\5he"),
    ):
        a = w.client()
        a.send_raw(line.encode() + b"\n" + rest, f"{line} + {rest!r}")
        a.finish_sending()
        a.fate()
    w.stats(t)


@case("small")
def over_a_small_limit(w: World) -> None:
    t = w.name("t")
    a = w.client()
    a.ask(f"PUB {t}", b"x" * 100)
    a.ask(f"MPUB {t}", batch(b"x" * 100, b"y" * 100))
    _each(w, (f"PUB {t}", sized(b"x" * 101)), (f"DPUB {t} 1", sized(b"x" * 101)))
    _each(w, (f"MPUB {t}", sized(batch(b"x" * 101))))
    _each(w, (f"MPUB {t}", sized(batch(b"x" * 99, b"y" * 99, b"z" * 99, b"z" * 99))))
    w.stats(t)


@case()
def batches(w: World) -> None:
    t = w.name("t")
    a = w.client()
    a.ask(f"MPUB {t}", batch(b"one"))
    a.ask(f"MPUB {t} and more", batch(b"two", b"three", b"four"))
    a.ask(f"MPUB {t}", batch(*(b"%03d" % number for number in range(500))))
    w.stats(t)
    b = w.subscriber(t, "c", rdy=600, name="B")
    w.got(b, count=504)


@case()
def answers_keep_the_order_of_commands(w: World) -> None:
    a = w.client()
    t = w.name("t")
    a.send_raw(
        b"".join(b"PUB %s\n" % t.encode() + sized(b"%d" % number) for number in range(50))
        + b"NONSENSE\n",
        "50 times PUB, then nonsense",
    )
    a.fate()
    w.stats(t)


@case()
def what_stands_before_an_error_is_published(w: World) -> None:
    a = w.client()
    t = w.name("t")
    a.send_raw(
        b"PUB %s\n" % t.encode() + sized(b"kept") + b"PUB %s\n" % t.encode() + sized(b""),
        "PUB, and a PUB of nothing",
    )
    a.fate()
    w.stats(t)


@case()
def deferred(w: World) -> None:
    t = w.name("t")
    a, b = w.client(), w.subscriber(t, "c", rdy=5, name="B")
    for ms in ("0", "1", "3600000", "0007"):
        a.ask(f"DPUB {t} {ms}", b"later " + ms.encode())
    w.got(b, count=3)
    w.until_channel(t, "c", deferred_count=1)
    w.channel_stats(t, "c")
    w.stats(t)
    one = sized(b"x")
    _each(w, (f"DPUB {t} 3600001", one), (f"DPUB {t} -1", one), (f"DPUB {t} x", one))
    _each(w, (f"DPUB {t} ", one), (f"DPUB {t} 1.5", one), (f"DPUB {t} +1", one))
    _each(w, (f"DPUB {t} 99999999999999999999", one))
    a.ask(f"DPUB {t} 1 and more", b"x")


@case("small")
def deferred_over_a_small_limit(w: World) -> None:
    t = w.name("t")
    one = sized(b"x")
    _each(w, (f"DPUB {t} 2000", one), (f"DPUB {t} 2001", one))


@case()
def deferral_is_kept_in_order_of_due_times(w: World) -> None:
    import time

    t = w.name("t")
    b = w.subscriber(t, "c", rdy=5, name="B")
    began = time.monotonic()
    for body, ms in ((b"third", 1800), (b"second", 1200), (b"first", 600)):
        w.put(t, body, defer_ms=ms)
    b.quiet(0.3)
    for number in range(3):
        b.receive()
        w.within(began, 0.6 * (number + 1), 9, f"message {number + 1}")


@case()
def every_channel_gets_its_copy(w: World) -> None:
    t = w.name("t")
    consumers = [w.subscriber(t, channel, rdy=1, name=channel) for channel in "ABC"]
    w.client().ask(f"PUB {t}", b"to all")
    for consumer in consumers:
        consumer.settle("FIN", consumer.receive())


@case()
def a_topic_keeps_messages_for_its_first_channel(w: World) -> None:
    t = w.name("t")
    w.put(t, b"one", b"two")
    w.stats(t)
    b = w.subscriber(t, "c", rdy=5, name="B")
    w.got(b, count=2)
    w.until("the topic is empty", lambda: w.topic_stats(t)["depth"] == 0)
    c = w.subscriber(t, "d", rdy=5, name="C")
    c.quiet()
    w.put(t, b"three")
    b.receive()
    c.receive()


@case()
def timestamps_are_nanoseconds_of_now(w: World) -> None:
    import time

    t = w.name("t")
    b = w.subscriber(t, "c", rdy=5, name="B")
    before_ns = time.time_ns()
    w.put(t, b"one")
    one = b.receive()
    w.say(f"between the publish and now: {before_ns <= one.timestamp_ns <= time.time_ns()}")
    b.settle("REQ", one, 0)
    again = b.receive()
    w.say(f"the same after a requeue: {again.timestamp_ns == one.timestamp_ns}")
