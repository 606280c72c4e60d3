"""nsqlookupd: its TCP protocol and its HTTP API."""

import json
import struct
from typing import Any

from tests.conformance_nsq.case import World, case
from tests.helpers.nsq_line import CLOSED, RawNsq, sized

MAGIC = b"  V1"


class Registrar:
    """A producer's connection to nsqlookupd: answers carry a size and no kind."""

    def __init__(self, w: World, name: str = "A") -> None:
        self.line: RawNsq = w.raw(name)
        self.line.send_off_record(MAGIC)

    def tell(self, text: str, body: bytes | None = None) -> None:
        self.line.note(f"> {text}" + ("" if body is None else f" {body!r}"))
        rest = b"" if body is None else sized(body)
        self.line.send_off_record(text.encode() + b"\n" + rest)
        self.hear()

    def hear(self) -> str:
        head = self.line.take_bytes(4)
        if len(head) < 4:
            self.line.note(f"< {CLOSED}")
            return CLOSED
        text = self.line.take_bytes(struct.unpack(">i", head)[0]).decode()
        if text.startswith("{"):
            text = json.dumps(json.loads(text), sort_keys=True)
        self.line.note(f"< {text}")
        return text

    def fate(self) -> None:
        while self.hear() != CLOSED:
            pass

    def identify(self, **fields: Any) -> None:
        known = {
            "broadcast_address": "one.example",
            "hostname": "one",
            "tcp_port": 4150,
            "http_port": 4151,
            "version": "1.3.0",
        } | fields
        body = {key: value for key, value in known.items() if value is not None}
        self.line.note(f"> IDENTIFY {json.dumps(body, sort_keys=True)}")
        self.line.send_off_record(b"IDENTIFY\n" + sized(json.dumps(body).encode()))
        text = self.line.take_bytes(struct.unpack(">i", self.line.take_bytes(4) or b"\0\0\0\0")[0])
        try:
            answer = json.loads(text)
        except ValueError:
            self.line.note(f"< {text.decode()}")
            return
        self.line.note(f"< fields {', '.join(sorted(answer))}")


@case("lookup")
def magic_words(w: World) -> None:
    for word in (b"  V2", b"GET ", b"\0\0\0\0"):
        a = w.raw()
        a.send_raw(word)
        a.note(f"< {a.read_bytes(100, 2)!r}")


@case("lookup")
def ping_needs_no_introduction(w: World) -> None:
    a = Registrar(w)
    a.tell("PING")
    a.tell("PING and more")
    a.identify()
    a.tell("PING")


@case("lookup")
def before_identify(w: World) -> None:
    for line in ("REGISTER t c", "UNREGISTER t c", "REGISTER", "REGISTER a*b"):
        a = Registrar(w)
        a.tell(line)
        a.fate()


@case("lookup")
def unknown_commands(w: World) -> None:
    for line in ("", "HELLO", "ping", "  PING", "SUB t c"):
        a = Registrar(w)
        a.tell(line)
        a.fate()


@case("lookup")
def identify(w: World) -> None:
    a = Registrar(w)
    a.identify()
    a.tell("IDENTIFY", b"{}")
    a.fate()
    for missing in ("broadcast_address", "hostname", "tcp_port", "http_port", "version"):
        w.say(f"without {missing}")
        a = Registrar(w)
        a.identify(**{missing: None})
        a.line.close_socket()
    for wrong in ({"tcp_port": 0}, {"version": ""}, {"broadcast_address": ""}):
        a = Registrar(w)
        a.identify(**wrong)


@case("lookup")
def identify_with_wrong_bodies(w: World) -> None:
    for body in (b"{", b"[]", b"", b'{"tcp_port": "x"}'):
        a = Registrar(w)
        a.line.send_off_record(b"IDENTIFY\n" + sized(body))
        head = a.line.take_bytes(4)
        text = a.line.take_bytes(struct.unpack(">i", head)[0]) if head else b""
        a.line.note(f"> IDENTIFY {body!r}")
        # The rest of the text is the JSON reader's own.
        a.line.note(f"< {' '.join(text.decode().split()[:6])}")
        a.fate()
    a = Registrar(w)
    a.line.send_raw(b"IDENTIFY\n\0\0\0\5{}", "half a body")
    a.line.finish_sending()
    a.fate()


@case("lookup")
def register(w: World) -> None:
    t = w.name("t")
    a = Registrar(w)
    a.identify()
    a.tell(f"REGISTER {t}")
    w.http("GET", "/channels", topic=t)
    a.tell(f"REGISTER {t} c")
    a.tell(f"REGISTER {t} c")
    a.tell(f"REGISTER {t} d and more")
    w.http("GET", "/channels", topic=t)
    w.http("GET", "/lookup", topic=t)
    a.tell(f"UNREGISTER {t} c")
    w.http("GET", "/channels", topic=t)
    a.tell(f"UNREGISTER {t} nothing")
    a.tell(f"UNREGISTER {t}")
    w.http("GET", "/lookup", topic=t)
    a.tell("UNREGISTER nothing")


@case("lookup")
def register_with_wrong_words(w: World) -> None:
    for line in (
        *(
            "REGISTER",
            "REGISTER a*b",
            "REGISTER t a*b",
            "REGISTER " + "x" * 65,
            "REGISTER #ephemeral",
        ),
        *("UNREGISTER", "UNREGISTER a*b", "UNREGISTER t a*b", "REGISTER ", "REGISTER t "),
    ):
        a = Registrar(w)
        a.identify()
        a.tell(line)
        a.line.close_socket()


@case("lookup")
def a_producer_that_leaves_is_no_producer(w: World) -> None:
    t = w.name("t")
    a = Registrar(w)
    a.identify(hostname="leaver")
    a.tell(f"REGISTER {t} c")
    a.line.close_socket()
    path = f"/lookup?topic={t}"
    w.until("it is gone", lambda: not w.http_quietly("GET", path).json()["producers"])
    w.http("GET", path)
    w.http("GET", "/channels", topic=t)


@case("lookup")
def ephemeral_ones_are_forgotten(w: World) -> None:
    t = w.name("t") + "#ephemeral"
    a = Registrar(w)
    a.identify()
    a.tell(f"REGISTER {t} c#ephemeral")
    w.http("GET", "/channels", topic=t)
    a.tell(f"UNREGISTER {t} c#ephemeral")
    w.http("GET", "/channels", topic=t)
    a.tell(f"UNREGISTER {t}")
    w.http("GET", "/lookup", topic=t)


@case("lookup")
def two_producers(w: World) -> None:
    t = w.name("t")
    a, b = Registrar(w), Registrar(w, "B")
    a.identify()
    b.identify(broadcast_address="two.example", hostname="two", tcp_port=5150, http_port=5151)
    a.tell(f"REGISTER {t} c")
    b.tell(f"REGISTER {t} d")
    w.http("GET", "/channels", topic=t)
    producers = w.http_quietly("GET", f"/lookup?topic={t}").json()["producers"]
    w.say(str(sorted((one["broadcast_address"], one["tcp_port"]) for one in producers)))
    w.http("POST", "/topic/tombstone", topic=t, node="two.example:5151")
    w.http("GET", "/lookup", topic=t)
    nodes = w.http_quietly("GET", "/nodes").json()["producers"]
    for node in sorted(nodes, key=lambda node: str(node["broadcast_address"])):
        if t in node["topics"]:
            w.say(f"{node['broadcast_address']}: {node['tombstones']} {sorted(node)}")


@case("lookup")
def http(w: World) -> None:
    t = w.name("t")
    w.http("GET", "/ping")
    w.http("GET", "/info")
    w.http("GET", "/lookup")
    w.http("GET", "/lookup", topic=t)
    w.http("GET", "/lookup", topic="a*b")
    w.http("GET", "/channels")
    w.http("GET", "/channels", topic=t)
    for path in ("/topic/create", "/topic/delete", "/topic/tombstone"):
        w.http("POST", path)
        w.http("POST", path, topic="a*b")
        w.http("GET", path)
    w.http("POST", "/topic/create", topic=t)
    w.http("POST", "/topic/create", topic=t)
    w.http("GET", "/lookup", topic=t)
    w.say(f"listed: {t in w.http_quietly('GET', '/topics').json()['topics']}")
    for path in ("/channel/create", "/channel/delete"):
        w.http("POST", path)
        w.http("POST", path, topic=t)
        w.http("POST", path, topic="a*b", channel="c")
        w.http("POST", path, topic=t, channel="a*b")
    w.http("POST", "/channel/delete", topic=t, channel="c")
    w.http("POST", "/channel/create", topic=t, channel="c")
    w.http("GET", "/channels", topic=t)
    w.http("POST", "/channel/delete", topic=t, channel="c")
    w.http("GET", "/channels", topic=t)
    w.http("POST", "/topic/tombstone", topic=t)
    w.http("POST", "/topic/tombstone", topic=t, node="nobody:1")
    w.http("POST", "/topic/delete", topic=t)
    w.http("POST", "/topic/delete", topic=t)
    w.http("GET", "/lookup", topic=t)
    for path in ("/", "/nothing", "/topic"):
        w.http("GET", path)


@case("lookup")
def a_channel_of_an_unknown_topic(w: World) -> None:
    t = w.name("t")
    w.http("POST", "/channel/create", topic=t, channel="c")
    w.http("GET", "/channels", topic=t)
    w.http("GET", "/lookup", topic=t)
    w.http("POST", "/topic/delete", topic=t)
    w.http("GET", "/channels", topic=t)


@case("lookup")
def debug(w: World) -> None:
    t = w.name("t")
    a = Registrar(w)
    a.identify(hostname="debugged")
    a.tell(f"REGISTER {t} c")
    known = w.http_quietly("GET", "/debug").json()
    for key in sorted(key for key in known if t in key):
        w.say(f"{key}: {[sorted(one) for one in known[key]]}")
