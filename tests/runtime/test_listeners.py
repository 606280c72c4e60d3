"""Clients behind a proxy, clients of a Unix socket, and how many may come at all."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.core.clock_types import MonoMs
from penstock.core.errors import SettingInvalid
from penstock.core.events.line_limit import LineLimit
from penstock.management.facts.sessions import ListenerFacts
from penstock.runtime.connection import Connection
from penstock.runtime.listener import LINES_MAX, Listener, check_listeners, tcp_socket, unix_socket
from penstock.runtime.proxy_protocol import (
    SIGNATURE,
    Header,
    NoProxyHeader,
    ProxySocket,
    read_header,
)
from penstock.settings.settings import load_settings
from penstock.tls.dates import Certificate
from penstock.tls.options import TlsOptions, TlsSet
from tests.helpers import raw_codec as codec
from tests.helpers.broker_process import BrokerFailed, free_port
from tests.helpers.certificates import MISSING, Authority
from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage
from tests.helpers.raw_amqp import RawClient

LINE = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 5672\r\n"
FROM_HERE = b"PROXY TCP4 127.0.0.1 198.51.100.1 56324 5672\r\n"


def binary(command: int, family: int, body: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(body)) + body


FOUR = socket.inet_aton("192.0.2.7") + socket.inet_aton("198.51.100.1") + b"\xdc\x04\x16\x28"
SIX = socket.inet_pton(socket.AF_INET6, "2001:db8::7") + bytes(15) + b"\x01" + b"\x00\x01\x16\x28"
EXTENSION = b"\x03\x00\x04\x01\x02\x03\x04"
CLIENT, OWN = ("192.0.2.7", 56324), ("198.51.100.1", 5672)
HEADERS: list[tuple[bytes, Header]] = [
    (LINE, Header(CLIENT, OWN, len(LINE))),
    (
        b"PROXY TCP6 2001:db8::7 ::1 1 5672\r\n",
        Header(("2001:db8::7", 1), ("::1", 5672), 35),
    ),
    (b"PROXY UNKNOWN\r\n", Header(None, None, 15)),
    (b"PROXY UNKNOWN ffff:f 1 65535 65535\r\n", Header(None, None, 36)),
    (binary(0x21, 0x11, FOUR), Header(CLIENT, OWN, 28)),
    (binary(0x21, 0x11, FOUR + EXTENSION), Header(CLIENT, OWN, 35)),
    (binary(0x21, 0x21, SIX), Header(("2001:db8::7", 1), ("::1", 5672), 52)),
    (binary(0x20, 0x00, b""), Header(None, None, 16)),
    (binary(0x20, 0x11, FOUR), Header(None, None, 28)),
    (binary(0x21, 0x31, bytes(216)), Header(None, None, 232)),
]


@pytest.mark.parametrize("data, header", HEADERS)
def test_a_header_is_read_however_it_comes(data: bytes, header: Header) -> None:
    for size in range(len(data)):
        assert read_header(data[:size]) is None
    assert read_header(data) == header
    assert read_header(data + codec.PROTOCOL_HEADER) == header


@pytest.mark.parametrize(
    "data",
    [
        codec.PROTOCOL_HEADER,
        b"GET / HTTP/1.1\r\n",
        b"PROXY \r\n",
        b"PROXY TCP4\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 65536\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 1\r\n",
        b"PROXY TCP4 ::1 ::1 1 1\r\n",
        b"PROXY TCP6 127.0.0.1 127.0.0.1 1 1\r\n",
        b"PROXY TCP4 localhost 127.0.0.1 1 1\r\n",
        b"PROXY TCP4  127.0.0.1 1 1\r\n",
        b"PROXY " + b"x" * 200,
        binary(0x11, 0x11, FOUR),
        binary(0x22, 0x11, FOUR),
        binary(0x21, 0x12, FOUR),
        binary(0x21, 0x11, FOUR[:-1]),
        binary(0x21, 0x21, FOUR),
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(NoProxyHeader):
        read_header(data)


@given(st.binary(max_size=60), st.sampled_from([b"", LINE, SIGNATURE, binary(0x21, 0x11, FOUR)]))
@example(b"\xff\xff\r\n", b"PROXY ")
def test_any_bytes_are_read_refused_or_not_enough(noise: bytes, before: bytes) -> None:
    try:
        header = read_header(before[:-3] + noise)
    except NoProxyHeader:
        return
    assert header is None or header.size <= len(before) + len(noise)


# -- a broker with all of it -------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("sock") / "penstock.sock")


@pytest.fixture(scope="module")
def live(path: str) -> Iterator[LiveBroker]:
    arguments = (
        *("--proxy-protocol", "amqp", "--unix-socket", path, "--unix-socket-mode", "0600"),
        *("--handshake-timeout-ms", "1000"),
    )
    with LiveBroker(arguments=arguments) as broker:
        yield broker


def rows(broker: LiveBroker) -> list[dict[str, Any]]:
    found = manage(f"{broker.http_url}/api/connections")
    return [row for row in found if row["state"] == "running"]


def tcp(broker: LiveBroker) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", broker.amqp_port), timeout=10)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def enter(sock: socket.socket) -> RawClient:
    client = RawClient("", 0, sock=sock)
    client.open()
    client.open_channel(1)
    return client


def is_hung_up(sock: socket.socket) -> bool:
    try:
        return sock.recv(4096) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("header", [FROM_HERE, binary(0x20, 0, b""), b"PROXY UNKNOWN\r\n"])
@pytest.mark.parametrize("pieces", [1, 7, 1000])
def test_a_proxy_says_who_comes(live: LiveBroker, header: bytes, pieces: int) -> None:
    with tcp(live) as sock:
        size = -(-len(header) // pieces)
        for start in range(0, len(header), size):
            sock.sendall(header[start : start + size])
        client = enter(sock)
        (row,) = rows(live)
        if header is FROM_HERE:
            assert (row["peer_host"], row["peer_port"]) == ("127.0.0.1", 56324)
            assert row["name"] == "127.0.0.1:56324 -> 198.51.100.1:5672"
        else:
            assert (row["peer_host"], row["port"]) == ("127.0.0.1", live.amqp_port)
        client.send(0, "connection.close")
        assert client.receive().name == "connection.close-ok"


def test_header_and_handshake_in_one_piece(live: LiveBroker) -> None:
    with tcp(live) as sock:
        sock.sendall(FROM_HERE + codec.PROTOCOL_HEADER)
        assert sock.recv(4096)[7:11] == b"\x00\x0a\x00\x0a"  # connection.start


def test_guest_behind_a_proxy_is_judged_by_its_own_address(live: LiveBroker) -> None:
    with tcp(live) as sock:
        sock.sendall(LINE)
        client = RawClient("", 0, sock=sock)
        answer = client.login(capabilities={"authentication_failure_close": True})
        assert answer.name == "connection.close"


@pytest.mark.parametrize("header", [FROM_HERE, b"PROXY TCP6 ::1 ::1 1 1\r\n"])
def test_a_client_on_the_machine_of_its_proxy_is_on_another_one(header: bytes) -> None:
    """It has what is for clients of this machine only if the proxy is one."""
    with socket.create_server(("127.0.0.1", 0)) as server, ExitStack() as stack:
        for proxy in (("192.0.2.9", 7), ("127.0.0.1", 7)):
            far = stack.enter_context(socket.create_connection(server.getsockname()))
            near = stack.enter_context(server.accept()[0])
            far.sendall(header + codec.PROTOCOL_HEADER)
            connection = Connection(near, proxy, MonoMs(0))
            said = ProxySocket(near, connection, None, LineLimit(1))
            assert said.recv(1000) == codec.PROTOCOL_HEADER
            is_here = proxy[0] == "127.0.0.1"
            assert connection.peer == (read_header(header).client if is_here else proxy)
            assert is_here or connection.own == server.getsockname()


def test_rules_say_which_addresses_are_proxies_and_which_clients_come_by_them() -> None:
    rules = "proxy allow 127.0.0.5,amqp allow 192.0.2.0/24"
    with LiveBroker(arguments=("--proxy-protocol", "amqp", "--address-rules", rules)) as broker:
        for proxy, header, is_let_in in (
            ("127.0.0.5", LINE, True),
            ("127.0.0.5", b"PROXY UNKNOWN\r\n", False),
            ("127.0.0.5", FROM_HERE, False),
            ("127.0.0.1", LINE, False),
        ):
            where = ("127.0.0.1", broker.amqp_port)
            with socket.create_connection(where, 10, (proxy, 0)) as sock:
                with suppress(ConnectionError):  # it may be closed before all is sent
                    sock.sendall(header + codec.PROTOCOL_HEADER)
                assert is_hung_up(sock) is not is_let_in, (proxy, header)


def test_who_is_no_proxy_is_refused(live: LiveBroker) -> None:
    for _ in range(LINES_MAX + 5):
        with tcp(live) as sock:
            sock.sendall(codec.PROTOCOL_HEADER)
            assert is_hung_up(sock)
    assert live.output().count("which is no proxy") == LINES_MAX


def test_who_says_nothing_does_not_stay(live: LiveBroker) -> None:
    began = time.monotonic()
    with tcp(live) as sock:
        sock.sendall(LINE[:20])
        assert is_hung_up(sock)
    assert time.monotonic() - began < 5


def hello_with_the_header(authority: Authority, port: int) -> bytes:
    """What the broker says when header and TLS come in one piece."""
    outgoing = ssl.MemoryBIO()
    context = authority.client_context()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
        raw.sendall(FROM_HERE + outgoing.read())
        return raw.recv(65536)


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_tls_begins_behind_the_header(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", "/CN=localhost")
    port = free_port()
    arguments = (
        *("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-port", str(port)),
        *("--proxy-protocol", "amqp/ssl"),
    )
    with LiveBroker(tmp_path / "broker", arguments) as broker:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as raw:
            raw.sendall(FROM_HERE)
            with authority.client_context().wrap_socket(raw, server_hostname="localhost") as sock:
                enter(sock)
                (row,) = rows(broker)
        assert (row["peer_port"], row["ssl"]) == (56324, True)
        assert hello_with_the_header(authority, port)
        with tcp(broker) as sock:
            enter(sock)  # the other listener has no proxy before it


def test_a_unix_socket_is_this_machine(live: LiveBroker, path: str) -> None:
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as two:
        for sock in (one, two):
            sock.settimeout(10)
            sock.connect(path)
        enter(one)  # as guest, who may only come from here
        enter(two)
        names = [row["name"] for row in rows(live)]
    assert len(set(names)) == 2
    assert all(name.startswith("unix:") and name.endswith(f" -> {path}") for name in names)
    assert f"{path} (Unix socket)" in live.output()


def test_the_file_goes_with_its_broker_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "p.sock"
    broker = LiveBroker(tmp_path / "broker", ("--unix-socket", str(path)))
    with broker:
        with pytest.raises(BrokerFailed) as caught:
            LiveBroker(tmp_path / "other", ("--unix-socket", str(path))).start()
        assert f"cannot listen on {path}" in str(caught.value)
        broker.kill()
        assert path.exists()
        broker.start()
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(10)
            sock.connect(str(path))
            enter(sock)
    assert not path.exists()


def test_a_file_that_is_no_socket_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("mine")
    with pytest.raises(OSError, match="is no socket"):
        unix_socket(str(path), 0o600)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("mode", ["rw", "0888", "-1", "01777", "0o17777"])
def test_a_mode_is_octal(mode: str) -> None:
    with pytest.raises(SettingInvalid, match="unix_socket_mode"):
        check_listeners(
            load_settings(None, {}, {"unix_socket_mode": mode}), TlsSet(load_settings(None, {}, {}))
        )


def test_a_proxy_before_no_listener_is_refused() -> None:
    with pytest.raises(SettingInvalid, match="ssl_certfile is not set"):
        check_listeners(
            load_settings(None, {}, {"proxy_protocol": "amqp/ssl"}),
            TlsSet(load_settings(None, {}, {})),
        )


# -- how many ------------------------------------------------------------------------------


def test_the_node_has_a_connection_limit(tmp_path: Path) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(LiveBroker(tmp_path, ("--connection-max", "2")))
        socks = [stack.enter_context(tcp(broker)) for _ in range(4)]
        enter(socks[0])
        enter(socks[1])
        with pytest.raises(AssertionError) as caught:
            RawClient("", 0, sock=socks[2]).open()
        text = "NOT_ALLOWED - connection refused: node connection limit (2) is reached"
        assert text in str(caught.value)
        socks[0].close()
        until = time.monotonic() + 10
        while len(rows(broker)) > 1 and time.monotonic() < until:
            time.sleep(0.02)
        enter(socks[3])


def test_the_dates_of_renewed_certificates_are_shown() -> None:
    old, new = (Certificate("c.pem", "", "", (), 0, end_s) for end_s in (1, 2))
    options = TlsOptions(ssl.create_default_context(), certificates={"certfile": [old]})
    listener = Listener(tcp_socket("127.0.0.1", 0), options)
    shown = ListenerFacts(listener.protocol, listener.host, listener.port, listener.tls)
    options.renew(TlsOptions(options.context, certificates={"certfile": [new]}))
    assert shown.expiry_dates == {"certfile": [2]}
    listener.close()


def test_a_peer_whose_machine_vanished_is_noticed_after_a_minute() -> None:
    """Whatever its protocol says: Spark's has no heartbeat."""
    listener = Listener(tcp_socket("127.0.0.1", 0))
    with socket.create_connection(("127.0.0.1", listener.port)):
        sock, peer = listener.accept()
        listener.connection(sock, peer, 0)
        options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle_s, interval_s, count = (sock.getsockopt(socket.IPPROTO_TCP, one) for one in options)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert idle_s + interval_s * count == 60
        sock.close()
    listener.close()
