"""Pause, empty and delete of topics and channels, ephemeral ones, and what consumers see of it."""

import time

from tests.conformance_nsq.case import World, case
from tests.helpers.nsq_line import batch


@case()
def a_paused_channel(w: World) -> None:
    t = w.name("t")
    a, b = w.subscriber(t, "c", rdy=5), w.subscriber(t, "d", rdy=5, name="B")
    w.put(t, b"1")
    one = a.receive()
    b.receive()
    w.http("POST", "/channel/pause", topic=t, channel="c")
    w.put(t, b"2")
    b.receive()
    a.quiet()
    a.settle("FIN", one)
    w.until_channel(t, "c", in_flight_count=0)
    w.channel_stats(t, "c")
    w.http("POST", "/channel/unpause", topic=t, channel="c")
    a.receive()
    w.channel_stats(t, "c")


@case(slow=True)
def timeouts_go_on_while_a_channel_is_paused(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=5, msg_timeout=1000)
    w.put(t, b"1")
    a.receive()
    w.http("POST", "/channel/pause", topic=t, channel="c")
    w.until_channel(t, "c", timeout_count=1)
    a.quiet()
    w.channel_stats(t, "c")
    w.http("POST", "/channel/unpause", topic=t, channel="c")
    a.receive()


@case()
def a_paused_topic(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=5)
    w.put(t, b"0")
    a.receive()
    w.http("POST", "/topic/pause", topic=t)
    w.put(t, b"1")
    w.client("B").ask(f"PUB {t}", b"2")
    a.quiet()
    w.stats(t)
    w.channel_stats(t, "c")
    w.http("POST", "/topic/unpause", topic=t)
    w.got(a, count=2)
    w.until("the topic is empty", lambda: w.topic_stats(t)["depth"] == 0)
    w.stats(t)


@case()
def a_channel_made_while_its_topic_is_paused(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/topic/create", topic=t)
    w.http("POST", "/topic/pause", topic=t)
    w.put(t, b"1")
    a = w.subscriber(t, "c", rdy=5)
    a.quiet()
    w.http("POST", "/topic/unpause", topic=t)
    a.receive()


@case()
def pausing_twice(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/topic/create", topic=t)
    w.http("POST", "/channel/create", topic=t, channel="c")
    for _ in range(2):
        w.http("POST", "/topic/pause", topic=t)
        w.http("POST", "/channel/pause", topic=t, channel="c")
    w.stats(t)
    w.channel_stats(t, "c")
    for _ in range(2):
        w.http("POST", "/topic/unpause", topic=t)
        w.http("POST", "/channel/unpause", topic=t, channel="c")
    w.stats(t)
    w.channel_stats(t, "c")


@case()
def emptying_a_channel(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1)
    w.put(t, b"1", b"2", b"3")
    w.put(t, b"later", defer_ms=60_000)
    one = a.receive()
    w.until_channel(t, "c", depth=2, deferred_count=1)
    a.settle("REQ", one, 0)
    two = a.receive()
    w.channel_stats(t, "c")
    w.http("POST", "/channel/empty", topic=t, channel="c")
    w.channel_stats(t, "c")
    a.ask(f"FIN {two.id}")
    w.put(t, b"4")
    a.receive()
    w.channel_stats(t, "c")
    w.stats(t)


@case()
def emptying_a_topic(w: World) -> None:
    t = w.name("t")
    w.put(t, b"1", b"2")
    w.put(t, b"later", defer_ms=60_000)
    w.stats(t)
    w.http("POST", "/topic/empty", topic=t)
    w.stats(t)
    a = w.subscriber(t, "c", rdy=1)
    a.quiet()


@case()
def emptying_a_topic_leaves_its_channels(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c")
    w.put(t, b"1")
    w.until_channel(t, "c", depth=1)
    w.http("POST", "/topic/empty", topic=t)
    a.send("RDY 1")
    a.receive()


@case()
def deleting_a_channel(w: World) -> None:
    t = w.name("t")
    a, b = w.subscriber(t, "c", rdy=1), w.subscriber(t, "d", rdy=1, name="B")
    w.put(t, b"1", b"2")
    a.receive()
    b.receive()
    w.http("POST", "/channel/delete", topic=t, channel="c")
    a.fate()
    w.channel_stats(t, "c")
    w.channel_stats(t, "d")
    c = w.subscriber(t, "c", rdy=1, name="C")
    c.quiet()
    w.put(t, b"3")
    c.receive()


@case()
def deleting_the_last_channel(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/topic/create", topic=t)
    w.http("POST", "/channel/create", topic=t, channel="c")
    w.put(t, b"1")
    w.until_channel(t, "c", depth=1)
    w.http("POST", "/channel/delete", topic=t, channel="c")
    w.put(t, b"2")
    w.stats(t)
    a = w.subscriber(t, "c", rdy=5)
    a.receive()
    a.quiet()


@case()
def deleting_a_topic(w: World) -> None:
    t = w.name("t")
    a, b = w.subscriber(t, "c", rdy=1), w.subscriber(t, "d", rdy=1, name="B")
    w.put(t, b"1", b"2")
    a.receive()
    b.receive()
    w.http("POST", "/topic/delete", topic=t)
    a.fate()
    b.fate()
    w.stats(t)
    w.http("POST", "/topic/delete", topic=t)
    c = w.subscriber(t, "c", rdy=5, name="C")
    c.quiet()
    w.stats(t)


@case()
def a_publisher_goes_on_after_its_topic_was_deleted(w: World) -> None:
    t = w.name("t")
    a = w.client()
    a.ask(f"PUB {t}", b"1")
    w.http("POST", "/topic/delete", topic=t)
    a.ask(f"PUB {t}", b"2")
    w.stats(t)


@case()
def an_ephemeral_channel_goes_with_its_last_consumer(w: World) -> None:
    t, c = w.name("t"), w.name("c") + "#ephemeral"
    a, b = w.subscriber(t, c), w.subscriber(t, c, name="B")
    w.put(t, b"1")
    w.until_channel(t, c, depth=1)
    w.channel_stats(t, c)
    a.close_socket()
    w.until_channel(t, c, client_count=1)
    w.channel_stats(t, c)
    b.close_socket()
    w.until("the channel is gone", lambda: not w.topic_stats(t)["channels"])
    w.channel_stats(t, c)
    w.stats(t)


@case()
def an_ephemeral_topic_goes_with_its_last_channel(w: World) -> None:
    t = w.name("t") + "#ephemeral"
    w.put(t, b"1")
    w.stats(t)
    a = w.subscriber(t, "c#ephemeral", rdy=1)
    a.receive()
    a.close_socket()
    w.until("the topic is gone", lambda: not w.topic_stats(t))
    w.stats(t)


@case()
def a_durable_channel_keeps_an_ephemeral_topic(w: World) -> None:
    t = w.name("t") + "#ephemeral"
    a, b = w.subscriber(t, "c#ephemeral"), w.subscriber(t, "d", name="B")
    a.close_socket()
    w.until("one channel", lambda: len(w.topic_stats(t)["channels"]) == 1)
    b.close_socket()
    w.until_channel(t, "d", client_count=0)
    w.channel_stats(t, "d")
    w.http("POST", "/channel/delete", topic=t, channel="d")
    w.until("the topic is gone", lambda: not w.topic_stats(t))
    w.stats(t)


@case()
def an_ephemeral_channel_made_by_http_waits_for_its_first_consumer(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/topic/create", topic=t)
    w.http("POST", "/channel/create", topic=t, channel="c#ephemeral")
    w.put(t, b"1")
    w.until_channel(t, "c#ephemeral", depth=1)
    w.channel_stats(t, "c#ephemeral")


def _many(w: World, topic: str, count: int) -> None:
    """Published in one go; the first body says 0."""
    w.say(f"published to <t>: {count} messages")
    answer = w.client("B").call_off_record(
        f"MPUB {topic}", batch(*(b"%d" % number for number in range(count)))
    )
    w.say(answer.text)


@case()
def an_ephemeral_channel_drops_the_newest(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c#ephemeral")
    _many(w, t, 10_000)
    w.until_channel(t, "c#ephemeral", depth=10_000)
    _many(w, t, 5)
    w.stats(t, "depth", "message_count")
    w.channel_stats(t, "c#ephemeral")
    a.send("RDY 1")
    a.receive()


@case()
def an_ephemeral_topic_drops_the_newest(w: World) -> None:
    t = w.name("t") + "#ephemeral"
    _many(w, t, 10_000)
    _many(w, t, 5)
    w.stats(t, "depth", "message_count")


@case("tiny")
def beyond_its_memory_a_channel_keeps_everything(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c")
    w.client("B").ask(f"MPUB {t}", batch(*(b"%02d" % number for number in range(10))))
    w.until_channel(t, "c", message_count=10)
    w.channel_stats(t, "c", "depth", "backend_depth", "message_count")
    a.send("RDY 20")
    w.got(a, count=10)


@case("tiny")
def what_is_deferred_is_beyond_memory_too(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/topic/create", topic=t)
    w.http("POST", "/topic/pause", topic=t)
    w.put(t, b"1", b"2", b"3", b"4", defer_ms=1500)
    a = w.subscriber(t, "c", rdy=10)
    began = time.monotonic()
    w.http("POST", "/topic/unpause", topic=t)
    w.got(a, count=1)
    w.say(f"the first came {'at once' if time.monotonic() - began < 0.5 else 'later'}")
    w.got(a, count=3)
