"""Requests to nsqd and nsqlookupd, and what the real ones (1.3.0) answered.

    PENSTOCK_NSQ_BIN=... python -m tests.protocols.nsq.nsq_http_cases   # writes the record

The cases of one list are asked in their order, each list on a server that is new.  What differs
from run to run or from machine to machine (ports, times, the name of the machine) is taken out
before anything is compared.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.helpers.broker_process import free_port
from tests.helpers.nsq_broker import Answer, Real, ask

RECORDED = Path(__file__).with_name("nsq_http_recorded.json")
COMPARED_HEADERS = ("content-type", "x-nsq-content-type", "allow", "location")
BINARY = b"\0\0\0\2\0\0\0\1a\0\0\0\2bb"


class Case(NamedTuple):
    method: str
    path: str
    body: bytes | None = None

    @property
    def name(self) -> str:
        body = b"" if self.body is None else self.body
        shown = body[:24].decode("latin-1").encode("unicode_escape").decode()
        return f"{self.method} {self.path} {shown} {len(body)}"


def posts(*paths: str) -> list[Case]:
    return [Case("POST", path) for path in paths]


def gets(*paths: str) -> list[Case]:
    return [Case("GET", path) for path in paths]


NSQD = [
    *gets("/ping", "/nope", "/", "/info", "/pub?topic=t"),
    *[Case(method, "/ping") for method in ("POST", "OPTIONS", "PUT")],
    Case("PUT", "/info"),
    *[
        Case("POST", path, b"x")
        for path in (
            "/pub?topic=t",
            "/pub",
            "/pub?topic=",
            "/pub?topic=bad!",
            "/pub?topic=%23ephemeral",
            "/pub?topic=" + "x" * 64,
            "/pub?topic=" + "x" * 65,
            "/pub?topic=t&topic=bad!",
            "/pub?topic=t&x=%zz",
            "/pub?topic=t;a=b",
            "/pub?topic=t&defer=10",
            "/pub?topic=t&defer=%2B5",
            "/pub?topic=t&defer=",
            "/pub?topic=t&defer=x",
            "/pub?topic=t&defer=1_0",
            "/pub?topic=t&defer=%201",
            "/pub?topic=t&defer=-1",
            "/pub?topic=t&defer=3600000",
            "/pub?topic=t&defer=3600001",
        )
    ],
    Case("POST", "/pub?topic=t", b""),
    Case("POST", "/pub", b""),
    Case("POST", "/pub?topic=t", b"x" * 1_048_576),
    Case("POST", "/pub?topic=t", b"x" * 1_048_577),
    Case("POST", "/mpub", b"x"),
    Case("POST", "/mpub?topic=t", b"a\n\nb\n"),
    Case("POST", "/mpub?topic=t", b""),
    Case("POST", "/mpub?topic=t", b"x" * 1_048_577),
    *[Case("POST", f"/mpub?topic=t&binary={text}", BINARY) for text in ("true", "1", "yes", "")],
    *[Case("POST", f"/mpub?topic=t&binary={text}", b"a") for text in ("false", "0")],
    *[
        Case("POST", "/mpub?topic=t&binary=true", body)
        for body in (
            b"",
            b"ab",
            b"\0\0\0\0",
            b"\xff\xff\xff\xff",
            b"\x10\0\0\0",
            b"\0\0\0\1",
            b"\0\0\0\1\0\0\0\0",
            b"\0\0\0\1\0\0\0\5ab",
            b"\0\0\0\1\xff\xff\xff\xffab",
            b"\0\0\0\1\x10\0\0\0ab",
            BINARY + b"more",
        )
    ],
    *posts("/topic/create", "/topic/create?topic=!", "/topic/create?topic=u"),
    *posts("/topic/create?topic=u", "/topic/create?topic=e%23ephemeral"),
    *posts("/topic/empty", "/topic/empty?topic=!", "/topic/empty?topic=nobody"),
    *posts("/topic/empty?topic=u", "/topic/pause", "/topic/pause?topic=!"),
    *posts("/topic/unpause?topic=nobody", "/topic/pause?topic=u"),
    *gets("/stats?format=json&topic=u&include_mem=false"),
    *posts("/topic/unpause?topic=u", "/topic/delete", "/topic/delete?topic=!"),
    *posts("/topic/delete?topic=nobody", "/channel/create", "/channel/create?topic=!"),
    *posts("/channel/create?topic=u", "/channel/create?topic=u&channel=!"),
    *posts("/channel/create?topic=nobody&channel=c", "/channel/create?topic=u&channel=c"),
    *posts("/channel/create?topic=u&channel=c", "/channel/create?topic=u&channel=x%23ephemeral"),
    *posts("/channel/pause?topic=u&channel=c", "/channel/pause?topic=u&channel=nobody"),
    *posts("/channel/empty?topic=u&channel=nobody", "/channel/empty?topic=u&channel=c"),
    Case("POST", "/pub?topic=u", b"one"),
    Case("POST", "/pub?topic=u&defer=3000000", b"two"),
    *gets(
        "/stats?format=json&topic=u&include_mem=false",
        "/stats?format=json&topic=u&channel=c&include_mem=0&include_clients=false",
        "/stats?format=json&topic=u&channel=nobody&include_mem=0",
        "/stats?format=json&topic=nobody&include_mem=0",
        "/stats?topic=u&include_mem=0",
        "/stats?topic=nobody&include_mem=0&format=xml",
        "/stats?x=%zz",
    ),
    *posts("/channel/unpause?topic=u&channel=c", "/channel/empty?topic=u&channel=c"),
    *posts("/channel/delete?topic=u&channel=nobody", "/channel/delete?topic=u&channel=c"),
    *gets("/stats?format=json&topic=u&include_mem=false"),
    *posts("/topic/delete?topic=u"),
    *gets("/stats?format=json&topic=u&include_mem=false"),
    *gets("/config/max_msg_size", "/config/msg_timeout", "/config/log_level", "/config/nope"),
    *gets("/config/nsqlookupd_tcp_addresses", "/config/e2e_processing_latency_percentiles"),
    *gets("/config/max_req_timeout", "/config/deflate", "/config/snappy", "/config/max_rdy_count"),
    *[Case("PUT", "/config/log_level", body) for body in (b"debug", b"INFO", b"x", b"")],
    Case("PUT", "/config/max_msg_size", b"1"),
    *[
        Case("PUT", "/config/nsqlookupd_tcp_addresses", body)
        for body in (b'["127.0.0.1:1"]', b"{}", b"[1]", b"[", b"[]")
    ],
]

LOOKUPD = [
    *gets("/ping", "/info", "/topics", "/nodes", "/debug", "/nope", "/channels", "/lookup"),
    *gets("/channels?topic=t", "/lookup?topic=t", "/topic/create?topic=t"),
    *posts("/topic/create", "/topic/create?topic=!", "/topic/create?topic=t"),
    *gets("/topics", "/lookup?topic=t", "/channels?topic=t", "/debug"),
    *posts("/channel/create?topic=t", "/channel/create?topic=t&channel=!"),
    *posts("/channel/create", "/channel/create?topic=!", "/channel/create?topic=t&channel=c"),
    *gets("/lookup?topic=t", "/channels?topic=t", "/debug"),
    *posts("/channel/delete?topic=t&channel=d", "/channel/delete?topic=t&channel=c"),
    *gets("/lookup?topic=t"),
    *posts("/topic/tombstone", "/topic/tombstone?topic=t", "/topic/tombstone?topic=t&node=a:1"),
    *posts("/topic/delete", "/topic/delete?topic=nobody", "/topic/delete?topic=t"),
    *gets("/topics", "/lookup?topic=%zz"),
]

_CHANGING = (
    (re.compile(r'"(start_time|http_port|tcp_port)":\d+'), r'"\1":0'),
    (re.compile(r'"hostname":"[^"]*"'), '"hostname":""'),
    (re.compile(r"\(built w/.*\)"), "(built)"),
    (re.compile(r"^(start_time|uptime) .*$", re.MULTILINE), r"\1"),
)


def comparable(answer: Answer) -> list[object]:
    body = answer.body
    for pattern, text in _CHANGING:
        body = pattern.sub(text, body)
    headers = {name: answer.headers[name] for name in COMPARED_HEADERS if name in answer.headers}
    return [answer.status, body, headers]


def answers(port: int, cases: list[Case]) -> list[list[object]]:
    return [comparable(ask(port, *case)) for case in cases]


def real_nsqd(directory: str, *arguments: str) -> tuple[Real, int, int]:
    """With its TCP and its HTTP port."""
    tcp, http = free_port(), free_port()
    addresses = (f"-tcp-address=127.0.0.1:{tcp}", f"-http-address=127.0.0.1:{http}")
    told = "-broadcast-address=127.0.0.1"
    return Real("nsqd", http, f"-data-path={directory}", *addresses, told, *arguments), tcp, http


def real_lookupd() -> tuple[Real, int, int]:
    tcp, http = free_port(), free_port()
    addresses = (f"-tcp-address=127.0.0.1:{tcp}", f"-http-address=127.0.0.1:{http}")
    return Real("nsqlookupd", http, *addresses, "-broadcast-address=127.0.0.1"), tcp, http


def ask_the_real_ones() -> dict[str, list[list[object]]]:
    with tempfile.TemporaryDirectory() as directory:
        nsqd, _, http = real_nsqd(directory)
        try:
            found = {"nsqd": answers(http, NSQD)}
        finally:
            nsqd.stop()
    lookupd, _, http = real_lookupd()
    try:
        found["nsqlookupd"] = answers(http, LOOKUPD)
    finally:
        lookupd.stop()
    return found


if __name__ == "__main__":
    rows = ask_the_real_ones()
    RECORDED.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
