"""TLS: clients that need nothing but a certificate authority, and logins by certificate."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pika
import pytest

from penstock.core.errors import SettingInvalid
from penstock.runtime.secure_socket import SecureSocket
from penstock.settings.settings import load_settings
from penstock.tls.names import Subject, common_name, distinguished_name
from penstock.tls.options import HandshakeBudget, TlsOptions, tls_options
from tests.helpers import raw_codec as codec
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import MISSING, Authority
from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage

logging.getLogger("pika").setLevel(logging.CRITICAL)
needs_openssl = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


class Site:
    """A broker with TLS, and the authority that all sides trust."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")
        self.server = self.authority.sign("server", "/CN=localhost")
        self.tls_port = free_port()
        files = ("--ssl-certfile", self.server[0], "--ssl-keyfile", self.server[1])
        self.broker = LiveBroker(
            directory / "broker",
            (
                *("--ssl-port", str(self.tls_port), *files),
                *("--ssl-cacertfile", str(self.authority.certificate)),
                *arguments,
            ),
        )

    def connect(self, own: tuple[str, str] | None = None, **more: Any) -> pika.BlockingConnection:
        options = pika.SSLOptions(self.authority.client_context(own), "localhost")
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", self.tls_port, ssl_options=options, socket_timeout=10, **more
            )
        )

    def ask(self, path: str) -> Any:
        return manage(self.broker.http_url + path)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("tls"))
    with site.broker:
        yield site


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Knows its users by the common name of their certificates."""
    site = Site(
        tmp_path_factory.mktemp("strict"),
        *("--ssl-verify", "verify_peer", "--ssl-cert-login-from", "common_name"),
    )
    with site.broker:
        yield site


@needs_openssl
def test_messages_of_all_sizes_pass_in_order(site: Site) -> None:
    """Larger than a record, than what is read at once, than what the socket takes at once."""
    connection = site.connect()
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    sizes = (0, 1, 16_383, 16_384, 16_385, 65_536, 131_073, 3_000_001)
    for size in sizes:
        channel.basic_publish("", queue, bytes([size % 251]) * size)
    for size in sizes:
        _, _, body = channel.basic_get(queue, auto_ack=True)
        assert body == bytes([size % 251]) * size
    connection.close()


@needs_openssl
def test_a_slow_reader_gets_everything(site: Site) -> None:
    """The way out is full again and again: every byte leaves once."""
    connection = site.connect()
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    bodies = [bytes([i]) * 400_000 for i in range(40)]
    for body in bodies:
        channel.basic_publish("", queue, body)
    got: list[bytes] = []
    channel.basic_consume(queue, lambda *given: got.append(given[3]), auto_ack=True)
    until = time.monotonic() + 30
    while len(got) < len(bodies) and time.monotonic() < until:
        time.sleep(0.02)  # meanwhile the broker finds the socket full
        connection.process_data_events(0)
    assert got == bodies
    connection.close()


@needs_openssl
def test_management_says_which_connections_are_secure(site: Site) -> None:
    connection = site.connect()
    plain = pika.BlockingConnection(pika.URLParameters(site.broker.url))
    rows = {row["port"]: row for row in site.ask("/api/connections")}
    assert rows[site.tls_port]["ssl"] is True
    assert rows[site.tls_port]["ssl_protocol"] == "tlsv1.3"
    assert rows[site.broker.amqp_port]["ssl"] is False
    listeners = {(row["protocol"], row["port"]) for row in site.ask("/api/overview")["listeners"]}
    assert ("amqp/ssl", site.tls_port) in listeners
    assert f"amqps://127.0.0.1:{site.tls_port}" in site.broker.output()
    connection.close()
    plain.close()


@needs_openssl
def test_a_failed_handshake_is_logged_and_costs_nobody_else(site: Site) -> None:
    connection = site.connect()
    with pytest.raises(ssl.SSLError), socket.create_connection(("127.0.0.1", site.tls_port)) as raw:
        site.stranger.client_context().wrap_socket(raw, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", site.tls_port)) as raw:
        raw.settimeout(10)
        raw.sendall(codec.PROTOCOL_HEADER)  # no TLS at all
        while raw.recv(4096):
            pass
    assert connection.channel().is_open
    until = time.monotonic() + 10
    while site.broker.output().count("TLS handshake with") < 2 and time.monotonic() < until:
        time.sleep(0.02)
    assert site.broker.output().count("TLS handshake with") == 2
    connection.close()


@needs_openssl
def test_a_handshake_octet_by_octet(site: Site) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = site.authority.client_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with socket.create_connection(("127.0.0.1", site.tls_port)) as raw:
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                for octet in outgoing.read():
                    raw.sendall(bytes([octet]))
                incoming.write(raw.recv(65536))
        tls.write(codec.PROTOCOL_HEADER)
        for octet in outgoing.read():
            raw.sendall(bytes([octet]))
        said = b""
        while len(said) < 11:
            incoming.write(raw.recv(65536))
            while True:
                try:
                    said += tls.read(65536)
                except ssl.SSLWantReadError:
                    break
    assert said[7:11] == b"\x00\x0a\x00\x0a"  # connection.start


@needs_openssl
def test_sigterm_is_told_through_tls(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.broker:
        connection = site.connect()
        threading.Timer(0.2, site.broker.stop).start()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
            connection.sleep(10)
        assert caught.value.reply_code == 320
        while site.broker.process is not None:
            time.sleep(0.02)


# -- EXTERNAL ----------------------------------------------------------------------------


def external(site: Site, own: tuple[str, str] | None) -> pika.BlockingConnection:
    return site.connect(own, credentials=pika.credentials.ExternalCredentials())


@needs_openssl
def test_a_certificate_is_a_login(strict: Site) -> None:
    own = strict.authority.sign("guest", "/O=Org/CN=guest")
    connection = external(strict, own)
    channel = connection.channel()
    channel.confirm_delivery()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"x", pika.BasicProperties(user_id="guest"))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.basic_publish("", queue, b"x", pika.BasicProperties(user_id="somebody"))
    (row,) = strict.ask("/api/connections")
    assert (row["user"], row["auth_mechanism"]) == ("guest", "EXTERNAL")
    assert row["peer_cert_subject"] == "CN=guest,O=Org"
    connection.close()


@needs_openssl
@pytest.mark.parametrize("subject", ["/CN=nobody", "/O=guest", "/CN=guest/CN=guest", None])
def test_a_certificate_of_nobody_is_refused(strict: Site, subject: str | None) -> None:
    own = strict.authority.sign("other", subject) if subject else None
    with pytest.raises(pika.exceptions.ProbableAuthenticationError) as caught:
        external(strict, own)
    assert "using authentication mechanism EXTERNAL" in str(caught.value)


@needs_openssl
def test_a_certificate_of_a_stranger_is_refused(strict: Site) -> None:
    own = strict.stranger.sign("forged", "/CN=guest")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        external(strict, own)


@needs_openssl
def test_a_password_is_a_login_there_too(strict: Site) -> None:
    strict.connect().close()


@needs_openssl
def test_external_is_not_offered_where_nobody_asked_for_it(site: Site, strict: Site) -> None:
    own = site.authority.sign("guest", "/CN=guest")
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        external(site, own)
    parameters = pika.URLParameters(strict.broker.url)
    parameters.credentials = pika.credentials.ExternalCredentials()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(parameters)


@needs_openssl
def test_who_must_have_a_certificate_and_has_none_is_not_let_in(tmp_path: Path) -> None:
    arguments = ("--ssl-verify", "verify_peer", "--ssl-fail-if-no-peer-cert", "true")
    site = Site(tmp_path, *arguments)
    with site.broker:
        with pytest.raises(pika.exceptions.AMQPConnectionError):
            site.connect()
        site.connect(site.authority.sign("any", "/CN=any")).close()


# Subjects as Python shows them, and what RabbitMQ 3.10.8 made of the same certificates.
SUBJECTS: list[tuple[Subject, str, str]] = [
    (((("organizationName", "Org"),), (("commonName", "guest"),)), "CN=guest,O=Org", "guest"),
    (((("commonName", "one"),), (("commonName", "two"),)), "CN=two,CN=one", "one,two"),
    (((("organizationName", "nobody"),),), "O=nobody", ""),
    (
        (
            (("countryName", "DE"),),
            (("organizationName", "A, B"),),
            (("emailAddress", "a@b.c"),),
            (("userId", "u1"),),
            (("commonName", " guest#;<>\\ "),),
        ),
        r"CN=\ guest#\;\<\>\\\ ,UID=u1,EMAILADDRESS=a@b.c,O=A\, B,C=DE",
        " guest#;<>\\ ",
    ),
    (
        (
            (("organizationalUnitName", "x"), ("userId", "y")),
            (("domainComponent", "org"),),
            (("domainComponent", "example"),),
            (("surname", "Sur"),),
            (("givenName", "Giv"),),
            (("title", "T"),),
            (("streetAddress", "Road 1"),),
            (("localityName", "Town"),),
            (("stateOrProvinceName", "State"),),
            (("serialNumber", "12"),),
            (("pseudonym", "p"),),
            (("dnQualifier", "q"),),
            (("initials", "I"),),
            (("generationQualifier", "G"),),
            (("commonName", "guest"),),
        ),
        (
            "CN=guest,GENERATIONQUALIFIER=G,INITIALS=I,2.5.4.46=q,PSEUDONYM=p,"
            "SERIALNUMBER=12,ST=State,"
            "L=Town,2.5.4.9=Road 1,TITLE=T,GIVENNAME=Giv,SN=Sur,DC=example,DC=org,OU=x+UID=y"
        ),
        "guest",
    ),
]


@pytest.mark.parametrize("subject, whole, common", SUBJECTS)
def test_names_are_spelt_as_rabbitmq_spells_them(subject: Subject, whole: str, common: str) -> None:
    assert distinguished_name(subject) == whole
    assert common_name(subject) == common


# -- what stops a start ------------------------------------------------------------------


@needs_openssl
def test_files_that_cannot_work_are_refused_by_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("one", "/CN=one")
    _, other_key = authority.sign("two", "/CN=two")
    locked = tmp_path / "locked.key"
    locked.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY")
    good = {"ssl_certfile": certificate, "ssl_keyfile": key}
    for given, words in (
        ({**good, "ssl_certfile": "/none"}, ["ssl_certfile = '/none'", "No such file"]),
        ({**good, "ssl_keyfile": "/none"}, ["ssl_keyfile = '/none'", "No such file"]),
        ({**good, "ssl_keyfile": other_key}, ["mismatch"]),
        ({**good, "ssl_keyfile": str(locked)}, [str(locked), "unencrypted"]),
        ({**good, "ssl_certfile": key}, [key, "no certificate"]),
        ({"ssl_certfile": certificate}, ["needs ssl_keyfile"]),
        ({"ssl_keyfile": key}, ["ssl_keyfile is set", "no TLS"]),
        ({"ssl_verify": "verify_peer"}, ["no TLS"]),
        ({**good, "ssl_cacertfile": key}, ["ssl_cacertfile", "no certificates"]),
        ({**good, "ssl_verify": "verify_peer"}, ["needs ssl_cacertfile"]),
        ({**good, "ssl_fail_if_no_peer_cert": "true"}, ["needs ssl_verify"]),
        ({**good, "ssl_cert_login_from": "common_name"}, ["needs ssl_verify"]),
    ):
        with pytest.raises(SettingInvalid) as caught:
            tls_options(load_settings(None, {}, given))
        for word in words:
            assert word in str(caught.value), given
    assert tls_options(load_settings(None, {}, good)) is not None
    assert tls_options(load_settings(None, {}, {})) is None


# -- the socket --------------------------------------------------------------------------


def secure_pair(
    directory: Path, clock: Callable[[], float] = time.monotonic, received: bytes = b""
) -> tuple[SecureSocket, socket.socket, ssl.SSLContext]:
    """Our end of a connection, the client's, and what the client trusts."""
    authority = Authority(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("server", "/CN=localhost"))
    near, far = socket.socketpair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    near.setblocking(False)
    options = TlsOptions(context, budget=HandshakeBudget(clock))
    secure = SecureSocket(near, options, ("127.0.0.1", 1), received)
    return secure, far, authority.client_context()


@needs_openssl
def test_handshakes_have_their_share_of_the_time_and_no_more(tmp_path: Path) -> None:
    """Each look at this clock takes 4 ms: the second handshake of a round is one too many."""
    now_s = [100.0]

    def clock() -> float:
        now_s[0] += 0.004
        return now_s[0]

    secure, far, trusted = secure_pair(tmp_path, clock)
    outgoing = ssl.MemoryBIO()
    client = trusted.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    far.sendall(outgoing.read())
    far.settimeout(1)
    secure._options.budget.count(now_s[0] - 0.1)
    secure._options.budget._round_over_s = now_s[0] + 0.010
    with pytest.raises(BlockingIOError):
        secure.recv(1)
    far.setblocking(False)
    with pytest.raises(BlockingIOError):
        far.recv(1)  # it has not been answered
    now_s[0] += 0.010
    with pytest.raises(BlockingIOError):
        secure.recv(1)
    assert far.recv(65536)
    far.close()
    secure.close()


@needs_openssl
def test_what_is_said_to_have_left_has_left_in_full(tmp_path: Path) -> None:
    """A socket that takes a little at a time: counts are of plain bytes, none twice, none lost."""
    secure, far, trusted = secure_pair(tmp_path)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusted.wrap_bio(incoming, outgoing, server_hostname="localhost")
    while not secure.established:
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        far.sendall(outgoing.read())
        with pytest.raises(BlockingIOError):
            secure.recv(1)
        far.setblocking(False)
        with suppress(BlockingIOError):
            incoming.write(far.recv(65536))
    data = memoryview(bytes(range(256)) * 2000)
    left, got, blocked = data, b"", 0
    while left or len(got) < len(data):
        if left:
            try:
                left = left[secure.send(left) :]
            except BlockingIOError:
                blocked += 1
        try:
            incoming.write(far.recv(3000))
            got += client.read(1 << 20)
        except (BlockingIOError, ssl.SSLWantReadError):
            continue
    assert got == data
    assert blocked > 0
    secure.close()
    far.close()
