"""A broker with the configuration of docs/guide/hardening.md: its ports with TLS, and its secrets.

Each secret is a canary, a text that occurs nowhere else.  After log-ins, good and bad, by every
protocol, changes, exports, pages and commands, no canary is in any file, page, listing, or list of
processes but where it was put.
"""

from __future__ import annotations

import base64
import io
import json
import os
import random
import re
import secrets
import socket
import ssl
import struct
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.client.amqp import Connection
from penstock.client.endpoint import ClientError, Endpoint
from penstock.ctl.main import run as penstockctl
from penstock.secrets.encryption import BLOCK_BYTES, SALT_BYTES, Encryption, term_of_text
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import MISSING, Authority, encrypted
from tests.helpers.hardened import hardened
from tests.helpers.live_broker import LiveBroker
from tests.helpers.raw_nsq import auth, identify

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
PORTS = ("ssl_port", "https_port", "prometheus_https_port", "nsq_port", "nsq_https_port")
HOSTILE = int(os.environ.get("PENSTOCK_HOSTILE_REQUESTS", "10"))
"""Requests without credentials at each port."""
ANN = "user-password-by-http"
BOB = "user-password-by-definitions"
KINDS = (
    *(
        "default-pass",
        "key-password",
        "etcd-password",
        "http-backend",
        "passphrase",
        "static-shovel",
    ),
    *("shovel", "upstream", "link-password", "oauth", "token", "wrong-amqp", "wrong-http"),
    *("wrong-nsq", "changed", "malformed", ANN, BOB),
)


class HardenedBroker(LiveBroker):
    """Its configuration is a file; ports are its own."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.canaries = {kind: f"canary-{kind}-{secrets.token_hex(8)}" for kind in KINDS}
        self.authority = Authority(directory)
        _certificate, key = self.authority.sign("server", "/CN=localhost", "DNS:localhost")
        os.replace(encrypted(key, self.canary("key-password")), key)
        self.ports = {key: free_port() for key in PORTS}
        for name, kind in {
            "server.pass": "key-password",
            "etcd.pass": "etcd-password",
            "backend.pass": "http-backend",
            "passphrase": "passphrase",
            "link.pass": "link-password",
        }.items():
            self.put(name, self.canary(kind))
        self.put("shovels.json", self.static_shovels())
        self.put("oauth.json", json.dumps({"oauth_client_secret": self.canary("oauth")}))
        encryption = Encryption(self.canary("passphrase").encode(), iterations=100_000)
        term = term_of_text(f'<<"{self.canary("default-pass")}">>')
        default_pass = encryption.encrypt(term, os.urandom(SALT_BYTES), os.urandom(BLOCK_BYTES))
        link = f"amqps://linked@localhost:{self.ports['ssl_port']}=file:{directory}/link.pass"
        more = {
            "bind": '"127.0.0.1"',
            "data_dir": f'"{self.data_dir}"',
            "log_file": f'"{directory}/penstock.log"',
            "log_level": '"debug"',
            "cluster_etcd_password": f'"file:{directory}/etcd.pass"',
            "auth_http_ssl_password": f'"file:{directory}/backend.pass"',
            "management_oauth": f'"file:{directory}/oauth.json"',
            "default_pass": f'"encrypted:{default_pass}"',
            "config_iterations": "100000",
            "config_passphrase": f'"file:{directory}/passphrase"',
            "static_shovels": f'"file:{directory}/shovels.json"',
            "link_passwords": f'["{link}"]',
            "link_tls_dirs": f'["{directory}"]',
            **{key: str(port) for key, port in self.ports.items()},
        }
        self.config = directory / "penstock.toml"
        self.config.write_text(hardened(directory, **more))
        self.context = self.authority.client_context()
        self._line = HTTPSConnection(
            "localhost", self.ports["https_port"], timeout=20, context=self.context
        )

    def canary(self, kind: str) -> str:
        return self.canaries[kind]

    def put(self, name: str, text: str) -> None:
        (self.directory / name).write_text(text)
        (self.directory / name).chmod(0o600)

    def stop(self) -> None:
        self._line.close()
        super().stop()

    def static_shovels(self) -> str:
        uri = f"amqps://u:{self.canary('static-shovel')}@localhost:1/"
        value = {"src-uri": uri, "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
        return json.dumps({"static": {**value, "src-protocol": "amqp091"}})

    def command(self) -> list[str]:
        return [*super().command()[:5], "--config", str(self.config)]

    def environment(self) -> dict[str, str]:
        return {
            key: text
            for key, text in super().environment().items()
            if not key.startswith("PENSTOCK_") or key == "PENSTOCK_PURE"
        }

    def http(
        self, path: str, who: str, method: str = "GET", body: object = None
    ) -> tuple[int, str]:
        """Status and text; ``who``: the value of ``Authorization``.  All go over one connection."""
        headers = {"Authorization": who, "Content-Type": "application/json"}
        self._line.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self._line.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")

    @property
    def admin(self) -> str:
        """The token of the control file: it costs no hash."""
        control = json.loads((self.data_dir / "control.json").read_text())
        self.canaries["control"] = control["token"]
        return f"Bearer {control['token']}"

    def amqp(self, user: str, password: str) -> None:
        port = self.ports["ssl_port"]
        endpoint = Endpoint("localhost", port, user, password, "/", self.context)
        Connection(endpoint).close()

    def malformed(self, key: str) -> bytes:
        """The answer to a request with a password where no name of a header can be."""
        with (
            socket.create_connection(("127.0.0.1", self.ports[key]), 10) as plain,
            self.context.wrap_socket(plain, server_hostname="localhost") as line,
        ):
            password = self.canary("malformed").encode()
            line.sendall(b"GET / HTTP/1.1\r\nAuthorization %s\r\n\r\n" % password)
            return line.recv(1000)

    def call_again(self) -> None:
        """The connection may have been quiet for too long; the rate is of a second."""
        self._line.close()
        time.sleep(1.1)

    def trail(self) -> list[dict[str, Any]]:
        text = self.http("/api/penstock/audit?limit=500", self.admin)[1]
        return list(json.loads(text)["records"])

    def seen_in_trail(self, action: str, protocol: str) -> int:
        """Records of an action by a protocol, at most the twenty that a minute has."""
        late = time.monotonic() + 10
        while time.monotonic() < late:
            found = [(one["action"], one["protocol"]) for one in self.trail()]
            if found.count((action, protocol)) >= min(HOSTILE, 20):
                return HOSTILE
            time.sleep(0.1)
        return 0

    def shout(self, key: str, data: bytes) -> None:
        with (
            socket.create_connection(("127.0.0.1", self.ports[key]), 10) as plain,
            self.context.wrap_socket(plain, server_hostname="localhost") as line,
        ):
            line.sendall(data)
            line.recv(1000)

    def nsq(self, context: ssl.SSLContext, *commands: bytes) -> list[bytes]:
        """The answers to these commands, behind IDENTIFY and TLS."""
        with socket.create_connection(("127.0.0.1", self.ports["nsq_port"]), 10) as plain:
            plain.sendall(b"  V2" + identify(tls_v1=True, feature_negotiation=True))
            assert b'"tls_v1":true' in _frame(plain)
            with context.wrap_socket(plain, server_hostname="localhost") as line:
                answers = [_frame(line)]
                for command in commands:
                    line.sendall(command)
                    answers.append(_frame(line))
                return answers


def _frame(line: socket.socket) -> bytes:
    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = line.recv(count - len(data))
            assert more
            data += more
        return data

    (size,) = struct.unpack(">i", exactly(4))
    return exactly(size)[4:]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HardenedBroker]:
    with HardenedBroker(tmp_path_factory.mktemp("hardened")) as broker:
        yield broker


def shakes_hands(live: HardenedBroker, key: str, context: ssl.SSLContext) -> bool:
    try:
        if key == "nsq_port":
            return bool(live.nsq(context))
        with (
            socket.create_connection(("127.0.0.1", live.ports[key]), 10) as plain,
            context.wrap_socket(plain, server_hostname="localhost"),
        ):
            return True
    except (ssl.SSLError, ConnectionError):
        return False


def client(live: HardenedBroker, newest: ssl.TLSVersion, ciphers: str = "") -> ssl.SSLContext:
    """That offers versions up to this one, and what today's OpenSSL is else too careful for."""
    context = live.authority.client_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = newest
    context.set_ciphers(f"{ciphers or 'ALL'}:@SECLEVEL=0")
    return context


WEAK = "ALL:COMPLEMENTOFALL:!AESGCM:!CHACHA20"
UNSAFE = "kRSA:aNULL:eNULL:PSK:DHE"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
@pytest.mark.parametrize("key", PORTS)
def test_each_port_with_tls_takes_good_versions_and_cipher_suites_only(
    key: str, live: HardenedBroker
) -> None:
    versions = ssl.TLSVersion
    assert shakes_hands(live, key, client(live, versions.TLSv1_3))
    assert shakes_hands(live, key, client(live, versions.TLSv1_2, "ECDHE+AESGCM"))
    assert not shakes_hands(live, key, client(live, versions.TLSv1_1))
    assert not shakes_hands(live, key, client(live, versions.TLSv1))
    for ciphers in (WEAK, UNSAFE):
        assert not shakes_hands(live, key, client(live, versions.TLSv1_2, ciphers)), ciphers


def test_no_port_without_tls_is_open(live: HardenedBroker) -> None:
    """But for NSQ's, which begins so, and lets a client do nothing but ask for TLS."""
    inodes = {
        os.readlink(path).removeprefix("socket:[").removesuffix("]")
        for path in Path(f"/proc/{live.pid}/fd").iterdir()
        if os.readlink(path).startswith("socket:[")
    }
    listening = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{live.pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening.add(int(fields[1].rpartition(":")[2], 16))
    assert listening == set(live.ports.values())
    with socket.create_connection(("127.0.0.1", live.ports["nsq_port"]), 10) as plain:
        plain.sendall(b"  V2" + b"PUB t\n" + struct.pack(">i", 1) + b"x")
        assert plain.recv(1000)[8:].startswith(b"E_INVALID")


def definitions(live: HardenedBroker) -> object:
    return json.loads(live.http("/api/definitions", live.admin)[1])


CHANGES = (
    ("PUT", "/api/users/hostile"),
    ("DELETE", "/api/vhosts/%2F"),
    ("POST", "/api/definitions"),
    ("PUT", "/api/queues/%2F/hostile"),
)


def test_hostile_requests_change_nothing_and_are_in_the_audit_trail(live: HardenedBroker) -> None:
    """Without credentials, as many at each port; beyond its rate an address is not let in."""
    before = definitions(live)
    for number in range(HOSTILE):
        assert live.http(CHANGES[number % 4][1], "", CHANGES[number % 4][0], {})[0] == 401
    chance = random.Random(7)
    for key in PORTS:
        for _ in range(HOSTILE):
            with suppress(OSError, AssertionError):
                if key == "nsq_port":
                    live.nsq(live.context, b"PUB hostile\n" + struct.pack(">i", 1) + b"x")
                else:
                    live.shout(key, chance.randbytes(200))
    live.call_again()
    assert definitions(live) == before
    assert live.seen_in_trail("login_refused", "http") >= HOSTILE
    # Of an address, a minute has twenty refusals singly, whichever port they came to.
    refused = {record["protocol"] for record in live.trail() if record["answer"] == "refused"}
    assert refused & {"amqp091", "nsq"}


# -- canaries --------------------------------------------------------------------------------------


def log_in_everywhere(live: HardenedBroker) -> None:
    """Right and wrong, by AMQP, HTTP and NSQ; tokens that are none."""
    assert live.http("/api/whoami", basic("operator", live.canary("default-pass")))[0] == 200
    admin = live.admin
    user = {"password": live.canary(ANN), "tags": "monitoring"}
    assert live.http("/api/users/ann", admin, "PUT", user)[0] == 201
    again = {"password": live.canary("changed"), "tags": "monitoring"}
    assert live.http("/api/users/ann", admin, "PUT", again)[0] == 204
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert live.http("/api/permissions/%2F/ann", admin, "PUT", rights)[0] == 201
    bob = {"users": [{"name": "bob", "password": live.canary(BOB), "tags": ""}]}
    assert live.http("/api/definitions", admin, "POST", bob)[0] == 204
    live.amqp("ann", live.canary("changed"))
    with pytest.raises(ClientError):
        live.amqp("ann", live.canary("wrong-amqp"))
    assert live.http("/api/whoami", basic("ann", live.canary("wrong-http")))[0] == 401
    assert live.http("/api/whoami", f"Bearer {live.canary('token')}")[0] == 401
    for key in ("https_port", "prometheus_https_port", "nsq_https_port"):
        assert b" 400 " in live.malformed(key)
    good, bad = (f"ann:{live.canary(kind)}" for kind in ("changed", "wrong-nsq"))
    assert b"permission_count" in live.nsq(live.context, auth(good))[-1]
    assert b"E_AUTH_FAILED" in live.nsq(live.context, auth(bad))[-1]


def make_links(live: HardenedBroker) -> None:
    admin = live.admin
    uri = f"amqps://u:{live.canary('shovel')}@localhost:1/"
    linked = {"password": live.canary("link-password"), "tags": ""}
    assert live.http("/api/users/linked", admin, "PUT", linked)[0] == 201
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert live.http("/api/permissions/%2F/linked", admin, "PUT", rights)[0] == 201
    place = f"localhost:{live.ports['ssl_port']}/?cacertfile={live.authority.certificate}"
    for name, source in (("s", uri), ("linked", f"amqps://linked@{place}")):
        value = {"src-uri": source, "src-queue": "a", "dest-uri": "amqp://", "dest-queue": "b"}
        path = f"/api/parameters/shovel/%2F/{name}"
        assert live.http(path, admin, "PUT", {"value": value})[0] == 201
    upstream = {"value": {"uri": f"amqps://u:{live.canary('upstream')}@localhost:1/"}}
    path = "/api/parameters/federation-upstream/%2F/up"
    assert live.http(path, admin, "PUT", upstream)[0] == 201
    assert (
        live.http("/api/parameters/shovel/%2F/no", admin, "PUT", {"value": {"src-uri": 7}})[0]
        == 400
    )


def states(live: HardenedBroker) -> dict[str, str]:
    """Of shovels."""
    rows = json.loads(live.http("/api/shovels", live.admin)[1])
    return {row["name"]: row["state"] for row in rows}


def pages(live: HardenedBroker, who: str, wanted: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Each path of the API that names a user, virtual host or shovel at most, and its text."""
    described = json.loads(live.http("/api/penstock/openapi.json", who)[1])
    for path, methods in described["paths"].items():
        full = path.replace("{vhost}", "%2F").replace("{user}", "ann").replace("{name}", "s")
        if "get" in methods and "{" not in full and wanted.match(full):
            yield path, live.http(full, who)[1]
    metrics = f"https://localhost:{live.ports['prometheus_https_port']}/metrics"
    with urllib.request.urlopen(metrics, timeout=10, context=live.context) as answer:
        yield "metrics", answer.read().decode()


def listings(live: HardenedBroker) -> Iterator[tuple[str, str]]:
    environment = {"PENSTOCK_DATA_DIR": str(live.data_dir)}
    for line in (
        f"config show --effective --config {live.config}",
        f"config check --config {live.config}",
        *("users", "status", "connections", "permissions", "shovels", "trail -o json"),
    ):
        found = CliRunner().invoke(cli, line.split(), env=environment)
        yield f"penstock {line}", found.output
    for line in ("environment", "report", "status", "list_users", "shovel_status"):
        out, err = io.StringIO(), io.StringIO()
        penstockctl([line], out, err, {**os.environ, **environment})
        yield f"penstockctl {line}", out.getvalue() + err.getvalue()


def processes(live: HardenedBroker) -> Iterator[tuple[str, str]]:
    """Of the broker and its children."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            if str(live.pid) in (path.name, parent):
                for name in ("cmdline", "environ"):
                    yield str(path / name), (path / name).read_bytes().decode("utf-8", "replace")
        except OSError:
            continue


ASKED_FOR = ("/api/definitions", "/api/all-configuration", "/api/parameters")
"""Pages of administrators that give URIs as they were given, as RabbitMQ's."""
OF_ANN = re.compile(r"/api/(overview|nodes|users|whoami|vhosts|shovels|parameters|definitions)")
"""Who may see less; each request with a password is a hash by scrypt."""
IN_URIS = ("shovel", "upstream")


def found_in(live: HardenedBroker, text: str, but: tuple[str, ...] = ()) -> list[str]:
    """Canaries in a text, as they are or as a header has them."""
    return [
        kind
        for kind, canary in live.canaries.items()
        if kind not in but
        and any(
            form in text
            for form in (canary, basic("ann", canary)[6:-4], basic("operator", canary)[6:-4])
        )
    ]


def test_no_secret_is_where_it_was_not_put(live: HardenedBroker) -> None:
    """The last test here: the broker ends with it."""
    log_in_everywhere(live)
    make_links(live)
    late = time.monotonic() + 20
    while states(live).get("linked") != "running":
        assert time.monotonic() < late, states(live)
        time.sleep(0.05)
    places: dict[str, list[str]] = {}
    for path, text in pages(live, live.admin, re.compile("/")):
        asked = path.startswith(ASKED_FOR)
        places[f"operator {path}"] = found_in(live, text, IN_URIS if asked else ())
    for path, text in pages(live, basic("ann", live.canary("changed")), OF_ANN):
        places[f"ann {path}"] = found_in(live, text)
    assert len(places) > 60
    for name, text in (*listings(live), *processes(live), ("output", live.output())):
        places[name] = found_in(live, text)
    put = {"server.pass", "etcd.pass", "backend.pass", "passphrase", "link.pass"}
    put |= {"shovels.json", "oauth.json"}
    live.stop()
    for file in live.directory.rglob("*"):
        if file.is_file() and file.name not in put:
            kept = IN_URIS if "definitions" in file.name else ()  # they are stored with their URIs
            text = file.read_bytes().decode("latin-1")
            places[str(file)] = found_in(live, text, kept)
    assert {name: kinds for name, kinds in places.items() if kinds} == {}
