"""Who may come in: passwords in plain text, addresses of listeners and users, numbers and rates."""

from __future__ import annotations

import http.client
import logging
import os
import signal
import socket
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from penstock.core.events.line_limit import LINES_MAX
from penstock.gate import Gate
from penstock.settings.entry import AddressRules
from penstock.settings.settings import load_settings
from penstock_ranges import frames as rf
from tests.helpers import raw_nsq
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import MISSING, Authority
from tests.helpers.live_broker import LiveBroker
from tests.helpers.namespaces import PrivateNetwork, missing_reason
from tests.helpers.nsq_broker import eventually

pytestmark = pytest.mark.slow

logging.getLogger("pika").setLevel(logging.CRITICAL)
CURE: Final = "plain_text_passwords"
BASIC: Final = f"Basic {b64encode(b'ann:secret').decode()}"


# -- passwords in plain text -------------------------------------------------------------


class FarBroker(LiveBroker):
    """On another machine than its clients, for which it has ports with and without TLS."""

    def __init__(self, directory: Path, network: PrivateNetwork) -> None:
        self.host = network.address(0)
        self.authority = Authority(directory)
        certificate, key = self.authority.sign("broker", "/CN=far", f"IP:{self.host}")
        self.tls_port, self.https_port, self.nsq_port = free_port(), free_port(), free_port()
        self.file = directory / "penstock.toml"
        self.file.write_text(
            f"default_user = 'ann'\ndefault_pass = 'secret'\nnsq_port = {self.nsq_port}\n"
            f"ssl_port = {self.tls_port}\nhttps_port = {self.https_port}\n"
            f"ssl_certfile = '{certificate}'\nssl_keyfile = '{key}'\nnsq_auth_required = true\n"
        )
        super().__init__(directory / "broker", ("--config", str(self.file)), place=network.place(0))

    def environment(self) -> dict[str, str]:
        found = super().environment()
        for key in ("PENSTOCK_PLAIN_TEXT_PASSWORDS", "PENSTOCK_NSQ_PORT"):
            found.pop(key, None)
        return found

    def connect(self, port: int, tls: bool = False) -> socket.socket:
        sock = socket.create_connection((self.host, port), 10)
        context = self.authority.client_context()
        return context.wrap_socket(sock, server_hostname=self.host) if tls else sock

    def amqp(self, tls: bool) -> str:
        """What a client with the right password is told; "" = it is served."""
        options = pika.SSLOptions(self.authority.client_context(), self.host) if tls else None
        port = self.tls_port if tls else self.amqp_port
        login = pika.PlainCredentials("ann", "secret")
        given = pika.ConnectionParameters(self.host, port, "/", login, ssl_options=options)
        try:
            pika.BlockingConnection(given).close()
        except pika.exceptions.ProbableAuthenticationError as error:
            return str(error)
        return ""

    def http(self, tls: bool) -> tuple[int, str]:
        port = self.https_port if tls else self.http_port
        line = http.client.HTTPConnection(self.host, port, timeout=10)
        line.sock = self.connect(port, tls)
        line.request("GET", "/api/whoami", headers={"Authorization": BASIC})
        answer = line.getresponse()
        found = answer.status, answer.read().decode()
        line.close()
        return found

    def nsq(self) -> bytes:
        with self.connect(self.nsq_port) as sock:
            sock.sendall(raw_nsq.MAGIC + raw_nsq.auth("ann:secret"))
            return sock.recv(4096)

    def ranges(self, tls: bool) -> tuple[int, bytes]:
        """The kind of the answer to a log-in, and its content."""
        login = b"".join(map(rf.string, ("ann", "secret", "/")))
        with self.connect(self.tls_port if tls else self.amqp_port, tls) as sock:
            sock.sendall(rf.MAGIC + rf.frame(rf.LOGIN, login))
            (answer,) = rf.FrameSplitter(1 << 20).feed(sock.recv(1 << 16))
            return answer


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarBroker]:
    reason = missing_reason() or MISSING
    if reason is not None:
        pytest.skip(reason)
    with PrivateNetwork(1) as network:
        broker = FarBroker(tmp_path_factory.mktemp("far"), network)
        with broker:
            yield broker


@pytest.mark.namespaces
def test_passwords_in_plain_text_are_refused_with_the_cure(far: FarBroker) -> None:
    told = far.amqp(tls=False)
    assert "403" in told
    assert CURE in told
    status, body = far.http(tls=False)
    assert status == 401
    assert CURE in body
    answer = far.nsq()
    assert b"E_AUTH_FAILED" in answer
    assert CURE.encode() in answer
    kind, text = far.ranges(tls=False)
    assert kind == rf.ERROR
    assert CURE.encode() in text
    assert f"passwords from other machines are refused at {far.host}" in far.output()


@pytest.mark.namespaces
def test_passwords_by_tls_are_judged(far: FarBroker) -> None:
    assert far.amqp(tls=True) == ""
    assert far.http(tls=True)[0] == 200
    assert far.ranges(tls=True)[0] != rf.ERROR


@pytest.mark.namespaces
def test_with_permission_passwords_in_plain_text_are_judged(far: FarBroker) -> None:
    """The operator gives it to the running node."""
    far.file.write_text(f"{far.file.read_text()}plain_text_passwords = true\n")
    os.kill(far.pid, signal.SIGHUP)
    assert eventually(lambda: far.amqp(tls=False) == "")
    assert far.http(tls=False)[0] == 200
    assert b"E_AUTH_FAILED" not in far.nsq()
    assert far.ranges(tls=False)[0] != rf.ERROR


# -- addresses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rules, subject, address, allowed",
    [
        ((), "amqp", "192.0.2.1", True),
        (("amqp deny 192.0.2.0/24",), "amqp", "192.0.2.1", False),
        (("amqp deny 192.0.2.0/24",), "http", "192.0.2.1", True),
        (("* deny 192.0.2.0/24",), "http", "192.0.2.1", False),
        (("* deny 192.0.2.0/24",), "user:ann", "192.0.2.1", True),
        (("amqp allow 10.0.0.0/8",), "amqp", "10.1.2.3", True),
        (("amqp allow 10.0.0.0/8",), "amqp", "192.0.2.1", False),
        (("amqp allow 10.0.0.0/8", "* deny 10.1.0.0/16"), "amqp", "10.1.2.3", False),
        (("user:ann b allow 2001:db8::/32",), "user:ann b", "2001:db8::1", True),
        (("user:ann b allow 2001:db8::/32",), "user:ann b", "2001:db9::1", False),
        (("amqp deny 192.0.2.1",), "amqp", "::ffff:192.0.2.1", False),
        (("amqp deny 0.0.0.0/0",), "amqp", "unix", True),
        (("proxy allow 192.0.2.1", "* allow 10.0.0.0/8"), "proxy", "10.0.0.1", False),
        (("proxy allow 192.0.2.1", "* deny 192.0.2.1"), "proxy", "192.0.2.1", True),
        (("proxy allow 192.0.2.1", "* allow 10.0.0.0/8"), "amqp", "192.0.2.1", False),
    ],
)
def test_what_address_rules_say(
    rules: tuple[str, ...], subject: str, address: str, allowed: bool
) -> None:
    assert AddressRules(rules).allow(subject, address) is allowed


def gate(now_s: list[float], **given: str) -> Gate:
    return Gate(load_settings(None, {}, given), lambda: now_s[0])


def test_an_address_has_so_many_connections_and_others_have_theirs() -> None:
    one = gate([0.0], connection_max_per_address="2")
    assert [one.admit("amqp", "192.0.2.1") for _ in range(2)] == ["", ""]
    assert one.admit("http", "192.0.2.1") == "address_connections"
    assert one.admit("amqp", "192.0.2.2") == ""
    one.left("192.0.2.1")
    assert one.admit("http", "192.0.2.1") == ""
    assert one.counts["address_connections"] == 1


def test_rates_are_of_one_second_of_an_address_and_of_all() -> None:
    now_s = [10.0]
    one = gate(now_s, connection_rate_per_address_per_s="2", connection_rate_per_s="3")
    heard = [one.admit("amqp", f"192.0.2.{last}") for last in (1, 1, 1, 2, 3)]
    assert heard == ["", "", "address_rate", "", "rate"]
    assert one.admit("peer", "192.0.2.9") == ""  # nodes are not counted
    now_s[0] += 1
    assert one.admit("amqp", "192.0.2.1") == ""


def test_rules_name_the_proxies_of_a_listener() -> None:
    one = gate([0.0], address_rules="amqp allow 10.0.0.0/8,proxy allow 192.0.2.1")
    assert one.admit("amqp", "192.0.2.1", is_proxy=True) == ""
    assert one.admit("amqp", "192.0.2.1") == "address"
    assert one.admit("amqp", "10.0.0.1", is_proxy=True) == "address"
    one = gate([0.0], address_rules="amqp allow 10.0.0.0/8")
    assert one.admit("amqp", "192.0.2.1", is_proxy=True) == "address"
    assert one.admit("amqp", "10.0.0.1", is_proxy=True) == ""


def test_the_same_refusal_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = [0.0]
    one = gate(now_s, address_rules="amqp deny 192.0.2.1")
    for _ in range(3):
        one.admit("amqp", "192.0.2.1")
    assert caplog.text.count("may not use this listener") == 1
    now_s[0] = 60.0
    one.admit("amqp", "192.0.2.1")
    assert caplog.text.count("may not use this listener") == 2
    assert one.counts["address"] == 4


def test_ever_new_addresses_have_no_lines_without_end(caplog: pytest.LogCaptureFixture) -> None:
    one = gate([0.0], address_rules="amqp deny 2001:db8::/32")
    for number in range(5000):
        one.admit("amqp", f"2001:db8::{number:x}")
    assert caplog.text.count("may not use this listener") == LINES_MAX
    assert one.counts["address"] == 5000


class RuledBroker(LiveBroker):
    """127.0.0.2 may not use AMQP, guest not come from 127.0.0.3, 127.0.0.4 not use HTTP."""

    def __init__(self, directory: Path) -> None:
        rules = "amqp deny 127.0.0.2,user:guest deny 127.0.0.3,http deny 127.0.0.4"
        limits = ("--connection-max-per-address", "3", "--channel-max-per-node", "4")
        super().__init__(directory, ("--address-rules", rules, *limits))

    def amqp(self, address: str) -> pika.BlockingConnection:
        """A client at this address."""
        given = pika.URLParameters(self.url)
        given.socket_timeout = 10
        connect = socket.socket.connect

        def connect_from(sock: socket.socket, where: Any) -> None:
            sock.bind((address, 0))
            connect(sock, where)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(socket.socket, "connect", connect_from)
            return pika.BlockingConnection(given)

    def refused(self, reason: str) -> int:
        line = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=10)
        login = f"Basic {b64encode(b'guest:guest').decode()}"
        line.request("GET", "/metrics", headers={"Authorization": login})
        text = line.getresponse().read().decode()
        line.close()
        label = f'penstock_connections_refused_total{{reason="{reason}"}} '
        return int(text.partition(label)[2].partition("\n")[0])


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RuledBroker]:
    with RuledBroker(tmp_path_factory.mktemp("ruled")) as broker:
        yield broker


def test_a_listener_is_closed_to_an_address(ruled: RuledBroker) -> None:
    for port, address in ((ruled.amqp_port, "127.0.0.2"), (ruled.http_port, "127.0.0.4")):
        with socket.create_connection(("127.0.0.1", port), 10, (address, 0)) as sock:
            try:
                heard = sock.recv(1)
            except ConnectionResetError:
                heard = b""
            assert heard == b""
    assert eventually(lambda: ruled.refused("address") == 2)
    assert "amqp connection from 127.0.0.2 refused" in ruled.output()


def test_a_user_may_not_come_from_an_address(ruled: RuledBroker) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="from this address"):
        ruled.amqp("127.0.0.3")
    ruled.amqp("127.0.0.5").close()
    assert eventually(lambda: ruled.refused("user_address") == 1)


def test_connections_of_an_address_are_counted_until_they_are_over(ruled: RuledBroker) -> None:
    held = [ruled.amqp("127.0.0.6") for _ in range(3)]
    with socket.create_connection(("127.0.0.1", ruled.amqp_port), 10, ("127.0.0.6", 0)) as sock:
        assert sock.recv(1) == b""
    for one in held:
        one.close()

    def fits() -> bool:
        try:
            ruled.amqp("127.0.0.6").close()
        except pika.exceptions.AMQPConnectionError:
            return False
        return True

    assert eventually(fits)
    assert eventually(lambda: ruled.refused("address_connections") >= 1)


def test_a_node_has_so_many_channels(ruled: RuledBroker) -> None:
    connection = ruled.amqp("127.0.0.7")
    for _ in range(4):
        connection.channel()
    with pytest.raises(pika.exceptions.ConnectionClosed, match="opened on this node"):
        connection.channel()
    assert eventually(lambda: ruled.refused("limit") == 1)
