"""The nsqlookupd within, and this node at nsqlookupds of others: ours, or the real ones."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from penstock.settings.settings import load_settings
from tests.helpers.broker_process import free_port
from tests.helpers.nsq_broker import NsqBroker, Real, ask, eventually
from tests.protocols.nsq.nsq_http_cases import real_lookupd, real_nsqd

IDENTITY = {
    "broadcast_address": "h",
    "hostname": "hh",
    "tcp_port": 1,
    "http_port": 2,
    "version": "1.3.0",
}


def identify(data: bytes) -> bytes:
    return b"IDENTIFY\n" + struct.pack(">i", len(data)) + data


HELLO = b"  V1" + identify(json.dumps(IDENTITY).encode())

TALKS = {
    b"  V2": [b"E_BAD_PROTOCOL"],
    b"  V1PING\n": [b"OK"],
    b"  V1REGISTER t\n": [b"E_INVALID client must IDENTIFY"],
    b"  V1UNREGISTER t\n": [b"E_INVALID client must IDENTIFY"],
    b"  V1NOPE a\n": [b"E_INVALID invalid command NOPE"],
    b"  V1\n": [b"E_INVALID invalid command "],
    b"  V1" + identify(b"{}"): [b"E_BAD_BODY IDENTIFY missing fields"],
    b"  V1" + identify(b"null"): [b"E_BAD_BODY IDENTIFY missing fields"],
    b"  V1" + identify(b"x"): [b"E_BAD_BODY IDENTIFY failed to decode JSON body"],
    b"  V1" + identify(b"[]"): [b"E_BAD_BODY IDENTIFY failed to decode JSON body"],
    b"  V1" + identify(b'{"tcp_port":"x"}'): [b"E_BAD_BODY IDENTIFY failed to decode JSON body"],
    HELLO + b"PING\n" + identify(b"{}"): [b"{", b"OK", b"E_INVALID cannot IDENTIFY again"],
    HELLO + b"REGISTER\n": [b"{", b"E_INVALID REGISTER insufficient number of params"],
    HELLO + b"REGISTER !\n": [b"{", b"E_BAD_TOPIC REGISTER topic name '!' is not valid"],
    HELLO + b"REGISTER t !\n": [b"{", b"E_BAD_CHANNEL REGISTER channel name '!' is not valid"],
    HELLO + b"UNREGISTER ! c\n": [b"{", b"E_BAD_TOPIC UNREGISTER topic name '!' is not valid"],
    HELLO + b"register t\n": [b"{", b"E_INVALID invalid command register"],
    HELLO + b"REGISTER t c\r\nUNREGISTER t c\nUNREGISTER t\nUNREGISTER u c\n": [b"{"] + [b"OK"] * 4,
}


def frames(sock: socket.socket) -> list[bytes]:
    """All until the peer closes, or says no more."""
    sock.settimeout(0.5)
    data = b""
    try:
        while piece := sock.recv(65536):
            data += piece
    except TimeoutError:
        pass
    found = []
    while data:
        size = struct.unpack(">i", data[:4])[0]
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


def said(port: int, words: bytes) -> list[bytes]:
    with closing(socket.create_connection(("127.0.0.1", port), 5)) as sock:
        sock.sendall(words)
        return [b"{" if one.startswith(b"{") else one for one in frames(sock)]


@pytest.fixture(scope="module")
def broker() -> Iterator[NsqBroker]:
    with NsqBroker() as running:
        yield running


@pytest.fixture
def theirs() -> Iterator[tuple[int, int]]:
    """TCP and HTTP ports of a real nsqlookupd."""
    process, tcp, http = real_lookupd()
    yield tcp, http
    process.stop()


@pytest.mark.parametrize("words", TALKS, ids=lambda words: words[-24:].decode("latin-1"))
def test_what_nodes_are_answered(broker: NsqBroker, words: bytes) -> None:
    assert said(broker.lookup_tcp_port, words) == TALKS[words]


@pytest.mark.nsqd
@pytest.mark.parametrize("words", TALKS, ids=lambda words: words[-24:].decode("latin-1"))
def test_the_real_one_says_the_same(theirs: tuple[int, int], words: bytes) -> None:
    assert said(theirs[0], words) == TALKS[words]


def test_a_body_of_a_negative_size_ends_the_connection_only(broker: NsqBroker) -> None:
    """It ends the real nsqlookupd 1.3.0."""
    words = b"  V1IDENTIFY\n\xff\xff\xff\xff"
    assert said(broker.lookup_tcp_port, words) == [b"E_BAD_BODY IDENTIFY failed to read body"]
    assert broker.look("/ping").body == "OK"


def test_a_node_is_known_while_its_connection_lasts(broker: NsqBroker) -> None:
    with closing(socket.create_connection(("127.0.0.1", broker.lookup_tcp_port), 5)) as sock:
        sock.sendall(HELLO + b"REGISTER outside c\n")
        answer = json.loads(frames(sock)[0])
        row = broker.look("/debug").data["topic:outside:"][0]
        assert (row["tombstoned"], row["tombstoned_at"]) == (False, -6795364578871345152)
        assert answer["http_port"] == broker.lookup_port
        assert answer["tcp_port"] == broker.lookup_tcp_port
        found = broker.look("/lookup?topic=outside").data
        assert found["channels"] == ["c"]
        assert [one["broadcast_address"] for one in found["producers"]] == ["h"]
        assert broker.look("/topic/tombstone?topic=outside&node=h:2", "POST").status == 200
        assert broker.look("/lookup?topic=outside").data["producers"] == []
        nodes = {one["hostname"]: one for one in broker.look("/nodes").data["producers"]}
        assert nodes["hh"]["tombstones"] == [True]
        assert "topic:outside:" in broker.look("/debug").data
    eventually(lambda: "hh" not in broker.look("/nodes").body)
    assert broker.look("/lookup?topic=outside").data == {"channels": ["c"], "producers": []}


def test_the_node_is_in_its_own_registry(broker: NsqBroker) -> None:
    broker.post("/topic/create?topic=own")
    broker.post("/channel/create?topic=own&channel=c")
    eventually(lambda: broker.look("/channels?topic=own").data == {"channels": ["c"]})
    producer = broker.look("/lookup?topic=own").data["producers"][0]
    assert producer["tcp_port"] == broker.tcp_port
    assert producer["http_port"] == broker.api_port
    broker.post("/topic/delete?topic=own")
    eventually(lambda: broker.look("/lookup?topic=own").data["producers"] == [])


def test_topics_are_announced_after_a_restart() -> None:
    with NsqBroker() as broker:
        broker.post("/pub?topic=old", b"x")
        broker.restart()
        eventually(lambda: broker.look("/lookup?topic=old").status == 200)


def test_a_new_topic_gets_the_channels_its_registry_knows(broker: NsqBroker) -> None:
    broker.look("/channel/create?topic=planned&channel=c", "POST")
    broker.look("/channel/create?topic=planned&channel=x%23ephemeral", "POST")
    broker.post("/pub?topic=planned", b"x")
    topic = eventually(lambda: _with_channels(broker, "planned"))
    assert [one["channel_name"] for one in topic["channels"]] == ["c"]
    assert topic["channels"][0]["message_count"] == 1


def _with_channels(broker: NsqBroker, name: str) -> Any:
    topic = broker.stats(f"topic={name}")["topics"][0]
    return topic if topic["channels"] and topic["depth"] == 0 else None


# -- at others -----------------------------------------------------------------------------------


def producers(http: int, topic: str) -> list[int]:
    answer = ask(http, "GET", f"/lookup?topic={topic}")
    return [one["tcp_port"] for one in answer.data["producers"]] if answer.status == 200 else []


def test_registered_at_another_of_ours(broker: NsqBroker) -> None:
    others = {"PENSTOCK_NSQLOOKUPD_TCP_ADDRESSES": f"127.0.0.1:{broker.lookup_tcp_port}"}
    with NsqBroker(environment=others) as second:
        _follows(second, broker.lookup_port)
        # In maintenance nobody is sent there.
        _operate(second, "drain")
        eventually(lambda: producers(broker.lookup_port, "mine") == [])
        _operate(second, "revive")
        eventually(lambda: producers(broker.lookup_port, "mine") == [second.tcp_port])
    eventually(lambda: producers(broker.lookup_port, "mine") == [])


@pytest.mark.nsqd
def test_registered_at_a_real_one(theirs: tuple[int, int]) -> None:
    others = {"PENSTOCK_NSQLOOKUPD_TCP_ADDRESSES": f"127.0.0.1:{theirs[0]}"}
    with NsqBroker(environment=others) as broker:
        _follows(broker, theirs[1])
    eventually(lambda: producers(theirs[1], "mine") == [])


def _operate(node: NsqBroker, word: str) -> None:
    login = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}
    url = f"{node.http_url}/api/penstock/{word}"
    request = urllib.request.Request(url, b"{}", login, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def _follows(node: NsqBroker, lookup: int) -> None:
    node.post("/topic/create?topic=mine")
    eventually(lambda: producers(lookup, "mine") == [node.tcp_port])
    node.post("/channel/create?topic=mine&channel=c")
    eventually(lambda: ask(lookup, "GET", "/channels?topic=mine").data["channels"] == ["c"])
    node.post("/channel/delete?topic=mine&channel=c")
    node.post("/topic/delete?topic=mine")
    eventually(lambda: producers(lookup, "mine") == [])
    # What another knows of a topic is there before its first message leaves the backlog.
    ask(lookup, "POST", "/channel/create?topic=first&channel=c")
    assert node.post("/pub?topic=first", b"x").status == 200
    topic = eventually(lambda: _with_channels(node, "first"))
    assert topic["channels"][0]["depth"] == 1
    node.post("/topic/create?topic=mine")
    eventually(lambda: producers(lookup, "mine") == [node.tcp_port])


@pytest.mark.nsqd
def test_a_real_nsqd_registers_here(broker: NsqBroker) -> None:
    address = f"-lookupd-tcp-address=127.0.0.1:{broker.lookup_tcp_port}"
    nsqd, tcp, http = real_nsqd(str(broker.directory), address)
    try:
        ask(http, "POST", "/topic/create?topic=elsewhere")
        ask(http, "POST", "/channel/create?topic=elsewhere&channel=c")
        eventually(lambda: producers(broker.lookup_port, "elsewhere") == [tcp])
        eventually(lambda: broker.look("/channels?topic=elsewhere").data["channels"] == ["c"])
    finally:
        nsqd.stop()
    eventually(lambda: producers(broker.lookup_port, "elsewhere") == [])


def test_where_it_registers_can_be_changed_and_comes_back(broker: NsqBroker) -> None:
    port = free_port()
    with NsqBroker() as node:
        node.post("/topic/create?topic=late")
        path = "/config/nsqlookupd_tcp_addresses"
        addresses = json.dumps([f"127.0.0.1:{port}"]).encode()
        assert node.ask("PUT", path, addresses).data == [f"127.0.0.1:{port}"]
        # Nobody is there: a new topic waits for nobody.
        assert node.post("/pub?topic=alone", b"x").status == 200
        address = f"127.0.0.1:{broker.lookup_tcp_port}"
        node.ask("PUT", path, json.dumps([address]).encode())
        eventually(lambda: producers(broker.lookup_port, "late") == [node.tcp_port])
        assert node.ask("GET", path).data == [address]
        node.ask("PUT", path, b"[]")
        eventually(lambda: producers(broker.lookup_port, "late") == [])


@pytest.mark.nsqd
def test_a_nsqlookupd_that_comes_later_is_found() -> None:
    tcp, http = free_port(), free_port()
    with NsqBroker(environment={"PENSTOCK_NSQLOOKUPD_TCP_ADDRESSES": f"127.0.0.1:{tcp}"}) as node:
        node.post("/topic/create?topic=t")
        addresses = (f"-tcp-address=127.0.0.1:{tcp}", f"-http-address=127.0.0.1:{http}")
        for _ in range(2):  # the second time it has been connected and lost
            lookupd = Real("nsqlookupd", http, *addresses, "-broadcast-address=127.0.0.1")
            try:
                eventually(lambda: producers(http, "t") == [node.tcp_port], 10)
            finally:
                lookupd.stop()


class Mute:
    """A nsqlookupd that takes every command and never says which channels a topic has."""

    def __init__(self) -> None:
        self.silent = socket.create_server(("127.0.0.1", 0))  # nobody accepts there
        self.server = socket.create_server(("127.0.0.1", 0))
        self.heard = b""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.getsockname()[1]}"

    def _serve(self) -> None:
        sock, _ = self.server.accept()
        hello = {"broadcast_address": "127.0.0.1", "http_port": self.silent.getsockname()[1]}
        answer = json.dumps(hello).encode()
        with sock, suppress(ConnectionError):
            while data := sock.recv(65536):
                self.heard += data
                sock.sendall(struct.pack(">i", len(answer)) + answer)
                answer = b"OK"

    def close(self) -> None:
        self._thread.join(5)
        self.server.close()
        self.silent.close()


def test_a_new_topic_waits_a_second_for_one_that_does_not_answer() -> None:
    with closing(Mute()) as mute:
        others = {"PENSTOCK_NSQLOOKUPD_TCP_ADDRESSES": mute.address}
        with NsqBroker(environment=others) as node:
            eventually(lambda: b"IDENTIFY" in mute.heard)
            began = time.monotonic()
            node.post("/topic/create?topic=t")
            node.post("/channel/create?topic=t&channel=c")
            node.post("/pub?topic=t", b"x")
            assert node.stats("topic=t")["topics"][0]["depth"] == 1
            eventually(lambda: _with_channels(node, "t"))
            assert 0.5 < time.monotonic() - began < 4
            eventually(lambda: b"REGISTER t c\n" in mute.heard)


FLAGS = {
    "broadcast-address": "nsq_broadcast_address",
    "config": "",  # of penstock serve
    "http-address": "nsqlookupd_http_port",
    "inactive-producer-timeout": "nsqlookupd_inactive_producer_timeout_ms",
    "log-level": "log_level",
    "log-prefix": "",  # the log has its own form
    "tcp-address": "nsqlookupd_tcp_port",
    "tombstone-lifetime": "nsqlookupd_tombstone_lifetime_ms",
    "verbose": "",  # deprecated there
    "version": "",  # of penstock
}
"""Of nsqlookupd 1.3.0, and the setting of the same meaning."""


def test_each_flag_of_nsqlookupd_has_its_setting() -> None:
    settings = load_settings(None, {}, {})
    for setting in FLAGS.values():
        assert setting == "" or settings.value_of(setting) is not None
    assert settings.value_of("nsqlookupd_inactive_producer_timeout_ms") == 300_000
    assert settings.value_of("nsqlookupd_tombstone_lifetime_ms") == 45_000


def test_a_shortened_tombstone_ends_and_a_silent_node_is_hidden() -> None:
    shortened = {
        "PENSTOCK_NSQLOOKUPD_INACTIVE_PRODUCER_TIMEOUT_MS": "1000",
        "PENSTOCK_NSQLOOKUPD_TOMBSTONE_LIFETIME_MS": "1000",
    }
    with (
        NsqBroker(environment=shortened) as broker,
        closing(socket.create_connection(("127.0.0.1", broker.lookup_tcp_port), 5)) as sock,
    ):
        sock.sendall(HELLO + b"REGISTER tomb c\n")
        frames(sock)
        assert broker.look("/topic/tombstone?topic=tomb&node=h:2", "POST").status == 200
        assert broker.look("/lookup?topic=tomb").data["producers"] == []
        for _ in range(3):
            sock.sendall(b"PING\n")
            frames(sock)
        assert len(broker.look("/lookup?topic=tomb").data["producers"]) == 1
        eventually(lambda: "hh" not in broker.look("/nodes").body)
