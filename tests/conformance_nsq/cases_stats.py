"""/stats: which fields there are, their values, filters, clients, and the text form."""

import re
from typing import Any

from tests.conformance_nsq.case import World, case

_VOLATILE = {"connect_ts", "start_time", "remote_address", "hostname", "client_id"}


def _shown(value: Any, name: str = "") -> Any:
    """The value with what changes from run to run replaced by its type."""
    if name in _VOLATILE:
        return f"<{type(value).__name__}>"
    if name == "version" and value != "V2":
        return "<version>"
    if name == "memory" and value:
        return sorted(value)
    if isinstance(value, dict):
        return {key: _shown(item, key) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return value


def _tell(w: World, value: Any, indent: str = "") -> None:
    """A JSON value, a field a line, so that a difference is a line."""
    if isinstance(value, dict):
        for key in sorted(value):
            item = value[key]
            nested = isinstance(item, dict) or (isinstance(item, list) and key != "memory")
            if nested and item:
                w.lines.append(f"{indent}{key}:")
                _tell(w, item, indent + "  ")
            else:
                w.lines.append(f"{indent}{key} = {item!r}")
    elif isinstance(value, list):
        for item in value:
            w.lines.append(f"{indent}-")
            _tell(w, item, indent + "  ")


def _stats(w: World, **query: object) -> Any:
    path = "/stats?" + "&".join(f"{key}={value}" for key, value in query.items())
    w.lines.append(f"http > GET {path}")
    answer = w.http_quietly("GET", path)
    return _shown(answer.json())


@case()
def a_topic_in_full(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=2, client_id="me", hostname="here", user_agent="u/1")
    w.subscriber(t, "d", name="B", sample_rate=5)
    w.http_quietly("POST", f"/channel/create?topic={t}&channel=a")
    w.put(t, b"12345", b"678")
    one, two = w.got(a, count=2)
    a.settle("FIN", one)
    a.settle("REQ", two, 60_000)
    w.barrier(a)
    _tell(w, _stats(w, format="json", topic=t)["topics"])


@case()
def without_clients(w: World) -> None:
    t = w.name("t")
    w.subscriber(t, "c")
    _tell(w, _stats(w, format="json", topic=t, include_clients="false"))
    for value in ("true", "1", "0", "nonsense"):
        stats = _stats(w, format="json", topic=t, include_clients=value)
        w.say(f"clients: {(stats['topics'][0]['channels'][0]['clients'] or 'none') != 'none'}")


@case()
def the_whole_of_it(w: World) -> None:
    stats = _stats(w, format="json")
    w.say(f"fields: {', '.join(sorted(stats))}")
    w.say(f"memory: {stats['memory']}")
    w.say(f"health: {stats['health']}")
    for value in ("true", "1", "false", "0", "nonsense"):
        stats = _stats(w, format="json", include_mem=value)
        w.say(f"memory is told: {'memory' in stats and bool(stats['memory'])}")


@case()
def filters(w: World) -> None:
    t = w.name("t")
    for channel in ("a", "b"):
        w.http_quietly("POST", f"/topic/create?topic={t}")
        w.http_quietly("POST", f"/channel/create?topic={t}&channel={channel}")
    for query in (
        {"topic": t},
        {"topic": t, "channel": "a"},
        {"topic": t, "channel": "nothing"},
        {"topic": "nothing"},
        {"topic": "a*b"},
    ):
        topics = _stats(w, format="json", include_mem="false", **query)["topics"]
        shown = topics and [
            (topic["topic_name"], [channel["channel_name"] for channel in topic["channels"]])
            for topic in topics
        ]
        w.say(str(shown))


@case()
def a_topic_without_channels(w: World) -> None:
    t = w.name("t")
    w.put(t, b"x")
    _tell(w, _stats(w, format="json", topic=t)["topics"])


@case()
def producers(w: World) -> None:
    t = w.name("t")
    a = w.client(client_id="writer", user_agent="u/2")
    for _ in range(3):
        a.ask(f"PUB {t}", b"x")
    a.ask(f"MPUB {t}", b"\0\0\0\2\0\0\0\1x\0\0\0\1y")
    a.ask(f"DPUB {t} 1", b"x")
    producers = w.http_quietly("GET", f"/stats?format=json&topic={t}").json()["producers"]
    _tell(w, [_shown(one) for one in producers if one["user_agent"] == "u/2"])


@case()
def states_of_a_client(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=7)
    fields = ("state", "ready_count", "in_flight_count", "message_count")

    def tell() -> None:
        w.barrier(a)
        client = w.topic_stats(t)["channels"][0]["clients"][0]
        w.say(str({field: client[field] for field in fields}))

    tell()
    w.put(t, b"x")
    a.receive()
    tell()
    a.ask("CLS")
    tell()


@case()
def as_text(w: World) -> None:
    t = w.name("t")
    a = w.subscriber(t, "c", rdy=1, client_id="me", user_agent="u/1")
    w.http_quietly("POST", f"/channel/create?topic={t}&channel=p")
    w.http_quietly("POST", f"/channel/pause?topic={t}&channel=p")
    w.put(t, b"x")
    a.receive()
    answer = w.http_quietly("GET", f"/stats?topic={t}&include_mem=false")
    w.say(answer.headers.get("Content-Type", ""))
    text = answer.body.decode().partition("\nTopics:")[2]
    text = re.sub(r"connected: \S+", "connected: <time>", text.partition("\nProducers:")[0])
    text = re.sub(r"V2 (\S*):\d+", r"V2 \1:<port>", text)
    w.lines += [line.rstrip() for line in text.splitlines()]


@case()
def the_head_of_the_text(w: World) -> None:
    for query in ("", "format=text", "format=nonsense", "include_mem=false"):
        text = w.http_quietly("GET", f"/stats?{query}&topic=nothing").body.decode()
        text = re.sub(r"\d\d\d\d-\S+", "<time>", text.partition("\nProducers:")[0])
        text = re.sub(r"\(built w/.*\)", "(built with something)", text)
        text = re.sub(r"\d[\w.]*", "<number>", re.sub(r"uptime .*", "uptime <time>", text))
        w.say(query)
        w.lines += [line.rstrip() for line in text.splitlines()]
