"""nsqd's HTTP API: publishing, creating, and every refusal."""

import time

from tests.conformance_nsq.case import World, case
from tests.helpers.nsq_line import RawNsq, batch, sized

MAX = 1_048_576


@case()
def ping_and_info(w: World) -> None:
    w.http("GET", "/ping")
    w.http("POST", "/ping")
    info = w.http_quietly("GET", "/info").json()
    w.say(f"fields of /info: {', '.join(info)}")
    known = ("max_heartbeat_interval", "max_output_buffer_size", "max_output_buffer_timeout")
    w.say(str({name: info[name] for name in (*known, "max_deflate_level")}))
    w.say(f"ports: {info['tcp_port'] == w.place.port} {info['http_port'] == w.place.http_port}")
    w.say(f"started: {0 < time.time() - info['start_time'] < 3600}")


@case()
def wrong_methods(w: World) -> None:
    for path in ("/pub", "/mpub", "/topic/create", "/topic/delete", "/topic/empty"):
        w.http("GET", path, topic="x")
    for path in ("/topic/pause", "/topic/unpause", "/channel/create", "/channel/delete"):
        w.http("GET", path, topic="x", channel="c")
    for path in ("/channel/empty", "/channel/pause", "/channel/unpause"):
        w.http("PUT", path, topic="x", channel="c")
    for path in ("/stats", "/info", "/config/log_level"):
        w.http("POST", path)
    w.http("DELETE", "/pub")
    w.http("HEAD", "/ping")
    w.http("OPTIONS", "/pub")


@case()
def wrong_paths(w: World) -> None:
    for path in ("/", "/nothing", "/topic", "/topic/", "/topic/nothing", "/PUB", "/pub/"):
        w.http("GET", path)
        w.http("POST", path, b"x")
    w.http("GET", "/ping/")
    w.http("GET", "//ping")


@case()
def publish(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/pub", b"one", topic=t)
    w.http("PUT", "/pub", b"one", topic=t)
    w.http("POST", "/pub", b"two", topic=t, more="words")
    w.http("POST", f"/pub?topic={t}&topic=other", b"three")
    w.stats(t)
    a = w.subscriber(t, "c", rdy=5)
    w.got(a, count=3)


@case()
def publish_refused(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/pub", b"x")
    w.http("POST", "/pub", b"x", topic="")
    w.http("POST", "/pub", b"x", topic="a*b")
    w.http("POST", "/pub", b"x", topic="x" * 65)
    w.http("POST", "/pub", b"", topic=t)
    w.http("POST", "/pub", topic=t)
    w.http("POST", "/pub", b"x" * (MAX + 1), topic=t)
    w.http("POST", "/pub", b"x" * MAX, topic=t)
    w.http("POST", "/pub", b"", topic="a*b")
    w.http("POST", "/pub?topic=%zz", b"x")
    w.http("POST", "/pub?topic=x;y", b"x")
    w.stats(t)


@case()
def publish_deferred(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=5)
    for defer in ("0", "200", "3600000"):
        w.http("POST", "/pub", b"later " + defer.encode(), topic=t, defer=defer)
    for defer in ("3600001", "-1", "x", "1.5", "", "99999999999999999999"):
        w.http("POST", "/pub", b"x", topic=t, defer=defer)
    w.got(a, count=2)
    w.until_channel(t, "c", deferred_count=1)
    w.channel_stats(t, "c")


@case()
def publish_many_lines(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/mpub", b"one\ntwo\n\nthree\n", topic=t)
    w.http("POST", "/mpub", b"four\r\nfive", topic=t)
    w.http("POST", "/mpub", b"", topic=t)
    w.http("POST", "/mpub", b"\n\n", topic=t)
    w.http("POST", "/mpub", b"six", topic=t, binary="false")
    w.http("POST", "/mpub", b"seven", topic=t, binary="0")
    w.http("POST", "/mpub", b"eight", topic=t, defer="60000")
    w.stats(t)
    a = w.subscriber(t, "c", rdy=20)
    w.got(a, count=8)


@case()
def publish_many_binary(w: World) -> None:
    t = w.name("t")
    for value in ("true", "1", "yes", ""):
        w.http("POST", "/mpub", batch(b"one\ntwo", b"\0"), topic=t, binary=value)
    w.stats(t)


@case()
def publish_many_refused(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/mpub", b"x")
    w.http("POST", "/mpub", b"x", topic="a*b")
    w.http("POST", "/mpub", b"x" * (MAX + 1), topic=t)
    w.http("POST", "/mpub", b"ok\n" + b"x" * (MAX + 1) + b"\nok", topic=t)
    w.http("POST", "/mpub", b"x\n" * 2_621_441, topic=t)
    for body in (b"", b"\0\0", b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\2" + sized(b"x")):
        w.http("POST", "/mpub", body, topic=t, binary="true")
    for part in (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\5he", (MAX + 1).to_bytes(4, "big")):
        w.http("POST", "/mpub", b"\0\0\0\1" + part, topic=t, binary="true")
    w.http("POST", "/mpub", batch(b"x") + b"trailing", topic=t, binary="true")
    w.stats(t)


@case("small")
def publish_over_small_limits(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/pub", b"x" * 101, topic=t)
    w.http("POST", "/pub", b"x" * 100, topic=t)
    w.http("POST", "/pub", b"x", topic=t, defer="2001")
    w.http("POST", "/mpub", b"x" * 101, topic=t)
    w.http("POST", "/mpub", b"x" * 401, topic=t)
    w.http("POST", "/mpub", b"x\n" * 201, topic=t)
    w.http("POST", "/mpub", batch(b"x" * 101), topic=t, binary="true")
    w.http("POST", "/mpub", batch(*[b"x" * 99] * 4), topic=t, binary="true")
    w.stats(t)


@case()
def topics(w: World) -> None:
    t = w.name("t")
    for action in ("create", "empty", "delete", "pause", "unpause"):
        w.http("POST", f"/topic/{action}")
        w.http("POST", f"/topic/{action}", topic="")
        w.http("POST", f"/topic/{action}", topic="a*b")
        if action != "create":
            w.http("POST", f"/topic/{action}", topic=t)
    for action in ("create", "create", "empty", "pause", "unpause", "delete", "delete"):
        w.http("POST", f"/topic/{action}", topic=t)
    w.http("POST", "/topic/create?topic=%zz")
    w.stats(t)


@case()
def channels(w: World) -> None:
    t = w.name("t")
    actions = ("create", "empty", "delete", "pause", "unpause")
    for action in actions:
        w.http("POST", f"/channel/{action}")
        w.http("POST", f"/channel/{action}", topic=t)
        w.http("POST", f"/channel/{action}", channel="c")
        w.http("POST", f"/channel/{action}", topic="a*b", channel="c")
        w.http("POST", f"/channel/{action}", topic=t, channel="a*b")
        w.http("POST", f"/channel/{action}", topic=t, channel="c")
    w.http("POST", "/topic/create", topic=t)
    for action in actions[1:]:
        w.http("POST", f"/channel/{action}", topic=t, channel="c")
    for action in ("create", "create", "empty", "pause", "unpause", "delete", "delete"):
        w.http("POST", f"/channel/{action}", topic=t, channel="c")
    w.channel_stats(t, "c")


@case()
def configuration(w: World) -> None:
    w.http("GET", "/config/nsqlookupd_tcp_addresses")
    for name in (
        *("max_msg_size", "max_body_size", "max_rdy_count", "msg_timeout", "max_msg_timeout"),
        *("max_req_timeout", "max_heartbeat_interval", "max_output_buffer_size"),
        *("max_output_buffer_timeout", "max_deflate_level", "snappy", "deflate"),
        *("mem_queue_size", "max_channel_consumers"),
    ):
        w.http("GET", f"/config/{name}")
    for name in ("nothing", "tcp-address", ""):
        w.http("GET", f"/config/{name}")
    w.http("PUT", "/config/max_msg_size", b"1")
    w.http("PUT", "/config/nothing", b"1")
    w.http("PUT", "/config/nsqlookupd_tcp_addresses", b"x")
    w.http("PUT", "/config/nsqlookupd_tcp_addresses", b"")
    w.http("PUT", "/config/nsqlookupd_tcp_addresses", b'["127.0.0.1:1"]')
    w.http("GET", "/config/nsqlookupd_tcp_addresses")
    w.http("PUT", "/config/nsqlookupd_tcp_addresses", b"[]")
    w.http("PUT", "/config/log_level", b"nonsense")
    w.http("PUT", "/config/log_level", b"info")
    w.http("GET", "/config/log_level")


@case()
def what_is_no_http(w: World) -> None:
    for said in (b"  V2IDENTIFY\n\0\0\0\2{}", b"nonsense\r\n\r\n", b"\x16\x03\x01\n\n"):
        a = RawNsq(w.host, w.place.http_port, "A", w.lines.append)
        a.send_raw(said)
        head = a.read_bytes(12)
        w.say("the answer begins with HTTP, which is how a client of NSQ knows its mistake")
        a.note(f"< {head[:4]!r} {head[9:]!r}")
        a.close_socket()
