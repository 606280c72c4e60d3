"""A node as its operator has it: service manager, log, maintenance, reload, end.

One broker for most tests, with a rabbitmq.conf and a notify socket as systemd would give it.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import pty
import re
import shlex
import signal
import socket
import ssl
import subprocess
import termios
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pika
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.client.amqp import ClientError, Connection, ConnectionClosed, Endpoint
from penstock.client.endpoint import ConnectionLost
from penstock.protocols.amqp.codec.properties import Properties
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import MISSING, Authority
from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.helpers.peer_nodes import wait_for

CONF = """\
default_user = ann
default_pass = secret
default_user_tags.administrator = true
nodename = rabbit@here
log.console.level = debug
log.exchange = true
connection_max = 50
cluster_partition_handling = autoheal
"""


class Manager:
    """The other end of a notify socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))

    def next(self, word: str, timeout_s: float = 10.0) -> str:
        """The next message with this word; fails when none comes in time."""
        until = time.monotonic() + timeout_s
        while True:
            self._socket.settimeout(max(0.01, until - time.monotonic()))
            text = self._socket.recv(4096).decode()
            if word in text:
                return text

    def drain(self) -> None:
        self._socket.setblocking(False)
        try:
            while True:
                self._socket.recv(4096)
        except BlockingIOError:
            pass

    def close(self) -> None:
        self._socket.close()


class Operated(LiveBroker):
    """Its user is ann, from the file."""

    def __init__(self, directory: Path) -> None:
        self.conf = directory / "rabbitmq.conf"
        self.conf.write_text(CONF)
        self.manager = Manager(directory / "notify")
        super().__init__(
            directory,
            environment={
                "RABBITMQ_CONFIG_FILE": str(self.conf),
                "NOTIFY_SOCKET": str(self.manager.path),
                "WATCHDOG_USEC": "400000",
                "PENSTOCK_EVENT_LOG": "false",
            },
        )

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint("127.0.0.1", self.amqp_port, "ann", "secret", "/")

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        login = base64.b64encode(b"ann:secret").decode()
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.http_url + path, data, method=method)
        request.add_header("Authorization", f"Basic {login}")
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def line_with(self, words: str) -> str:
        """The newest line of the ring with these words; waits for it."""
        for _ in range(250):
            _, found = self.ask("GET", "/api/penstock/log?lines=2000")
            lines = [line for line in found["lines"] if words in line]
            if lines:
                return str(lines[-1])
            time.sleep(0.02)
        raise AssertionError(f"no line with {words!r} in:\n" + "\n".join(found["lines"]))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operated]:
    broker = Operated(tmp_path_factory.mktemp("operated"))
    broker.start()
    yield broker
    broker.stop()
    broker.manager.close()


def test_the_manager_is_told(node: Operated) -> None:
    node.manager.next("READY=1")
    assert "WATCHDOG=1" in node.manager.next("WATCHDOG=1")


def test_the_file_is_obeyed_and_said(node: Operated) -> None:
    assert f"warning: file {node.conf}, line 8: cluster_partition_handling" in node.output()
    assert node.ask("GET", "/api/overview")[1]["node"] == "rabbit@here"


def test_lines_about_a_connection(node: Operated) -> None:
    with Connection(node.endpoint) as connection:
        connection.channel()
    accepted = node.line_with("accepting AMQP connection (127.0.0.1:")
    assert "[info] <connection>" in accepted
    assert accepted.endswith("user 'ann' authenticated and granted access to vhost '/'")
    node.line_with("closing connection (127.0.0.1:")
    assert "<connection>" in node.output()


def test_lines_about_what_went_wrong(node: Operated) -> None:
    with Connection(node.endpoint) as connection:
        with pytest.raises(ClientError):
            connection.channel().queue_declare("gone", passive=True)
        line = node.line_with("Channel error on connection (127.0.0.1:")
        assert "[error] <channel>" in line
        assert line.endswith(
            ", vhost: '/', user: 'ann'), channel 1: operation queue.declare caused a channel"
            " exception not_found: no queue 'gone' in vhost '/'"
        )
    with pytest.raises(ClientError):
        Connection(Endpoint("127.0.0.1", node.amqp_port, "eve", "x", "/"))
    line = node.line_with("login refused")
    assert "[error] <connection> Error on AMQP connection (127.0.0.1:" in line
    said = ", state: starting): PLAIN login refused: user 'eve' - invalid credentials"
    assert line.endswith(said)
    with pytest.raises(ClientError):
        Connection(Endpoint("127.0.0.1", node.amqp_port, "ann", "secret", "nowhere"))
    line = node.line_with("caused a connection exception")
    assert line.endswith(
        "connection.open caused a connection exception not_allowed: vhost nowhere not found"
    )


def test_the_level_of_a_category_can_be_changed(node: Operated) -> None:
    level = "/api/penstock/log-level"
    assert node.ask("GET", level)[1] == {"level": "info", "categories": {}}
    assert node.ask("PUT", level, {"level": "debug", "category": "channel"}) == (204, None)
    with Connection(node.endpoint) as connection:
        connection.channel()
    assert "[debug] <channel>" in node.line_with(": channel 1 opened")
    assert node.ask("GET", level)[1]["categories"] == {"channel": "debug"}
    assert node.ask("PUT", level, {"level": "", "category": "channel"})[0] == 204
    assert node.ask("PUT", level, {"level": "loud"})[0] == 400
    assert node.ask("PUT", level, {"level": "debug", "category": "x"})[0] == 400
    assert node.ask("GET", "/api/penstock/log?lines=0")[0] == 400


def test_changes_over_http_are_said(node: Operated) -> None:
    assert node.ask("PUT", "/api/vhosts/audited", {})[0] == 201
    line = node.line_with("/api/vhosts/audited")
    assert "[info] <vhost> user 'ann' from 127.0.0.1: PUT /api/vhosts/audited: 201" in line


def test_the_log_exchange(node: Operated) -> None:
    """Its consumer is a client like any other; lines about the log's own queue end somewhere."""
    node.line_with("[")  # there is a log, so there is an exchange after the next turn
    parameters = pika.ConnectionParameters(
        "127.0.0.1", node.amqp_port, "/", pika.PlainCredentials("ann", "secret")
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("lines", exclusive=True)
        channel.queue_bind("lines", "amq.rabbitmq.log", "#")
        node.ask("PUT", "/api/vhosts/logged", {})
        found = (
            (method, properties)
            for method, properties, body in channel.consume("lines", inactivity_timeout=10)
            if method is None or b"/api/vhosts/logged" in body
        )
        method, properties = next(found)
        assert method is not None, "no line came"
        assert method.routing_key == "info"
        assert properties.content_type == "text/plain"
        assert properties.headers == {
            "level": "info",
            "category": "vhost",
            "node": "rabbit@here",
        }
        # Even with every line there is, they come to an end.
        node.ask("PUT", "/api/penstock/log-level", {"level": "debug"})
        for count, (more, _, _) in enumerate(channel.consume("lines", inactivity_timeout=0.6)):
            assert count < 100, "lines make lines"
            if more is None:
                break
        node.ask("PUT", "/api/penstock/log-level", {"level": "info"})
        channel.cancel()


GUIDE = (REPOSITORY / "docs" / "guide" / "operate.md").read_text(encoding="utf-8")


def test_the_guides_commands(node: Operated) -> None:
    """As they stand, but for the addresses and the file's place."""
    blocks = re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL)
    text = "".join(blocks).replace("/etc/penstock/rabbitmq.conf", str(node.conf))
    environment = {
        "PENSTOCK_HTTP_URL": node.http_url,
        "PENSTOCK_USER": "ann",
        "PENSTOCK_PASSWORD": "secret",
    }
    said = {}
    for line in text.splitlines():
        if line.startswith("penstock "):
            result = CliRunner().invoke(cli, shlex.split(line)[1:], env=environment)
            assert result.exit_code == 0, result.output
            said[line.split()[1]] = result.output
        elif line.startswith("curl "):
            words = shlex.split(line)
            method, body, url = (
                words[words.index("-X") + 1],
                words[words.index("-d") + 1],
                words[-1],
            )
            assert words[words.index("-u") + 1] == "ann:secret"
            path = url.removeprefix("http://127.0.0.1:15672")
            assert node.ask(method, path, json.loads(body))[0] == 204
    assert set(said) == {"config", "drain", "revive"}
    assert "connection" in node.ask("GET", "/api/penstock/log-level")[1]["categories"]
    node.ask("PUT", "/api/penstock/log-level", {"level": "", "category": "connection"})


def test_drain_and_revive(node: Operated) -> None:
    environment = {
        "PENSTOCK_HTTP_URL": node.http_url,
        "PENSTOCK_USER": "ann",
        "PENSTOCK_PASSWORD": "secret",
    }
    with Connection(node.endpoint) as connection:
        result = CliRunner().invoke(cli, ["drain", "--wait", "--timeout", "1"], env=environment)
        assert result.exit_code == 1
        assert "waiting for 1 clients" in result.stderr
        assert node.ask("GET", "/healthz/ready") == (
            503,
            {"status": "failed", "reason": "draining"},
        )
        with pytest.raises(ConnectionLost):
            Connection(node.endpoint)
        connection.channel().queue_declare("goes-on")  # who is in works on
    result = CliRunner().invoke(cli, ["drain", "--wait"], env=environment)
    assert result.output == "no new clients are let in; 0 connected\n"
    result = CliRunner().invoke(cli, ["revive"], env=environment)
    assert result.output == "clients are let in; 0 connected\n"
    assert node.ask("GET", "/healthz/ready")[0] == 200
    assert node.ask("GET", "/healthz/startup")[0] == 200
    Connection(node.endpoint).close()


def test_reload_is_all_or_nothing(node: Operated) -> None:
    node.manager.drain()
    node.conf.write_text(
        CONF.replace("connection_max = 50", "connection_max = x") + "heartbeat = 5"
    )
    os.kill(node.pid, signal.SIGHUP)
    node.manager.next("RELOADING=1")
    assert "MONOTONIC_USEC=" not in node.manager.next("READY=1")
    assert "connection_max = x; allowed" in node.line_with("settings were not reloaded")
    Connection(node.endpoint).close()
    node.conf.write_text(
        CONF.replace("connection_max = 50", "connection_max = 1") + "heartbeat = 5"
    )
    os.kill(node.pid, signal.SIGHUP)
    assert node.line_with("settings were reloaded").endswith("changed: connection_max")
    assert node.line_with("count from the next start on").endswith(": heartbeat_s")
    with Connection(node.endpoint), pytest.raises(ClientError, match="connection"):
        Connection(node.endpoint)
    node.conf.write_text(CONF)
    os.kill(node.pid, signal.SIGHUP)
    node.manager.next("READY=1")


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_renewed_certificate_comes_in_with_a_reload(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("broker", "/CN=localhost")
    ports = free_port(), free_port()
    arguments = ("--ssl-port", str(ports[0]), "--ssl-certfile", certificate, "--ssl-keyfile", key)
    nsq = ("--nsq-http-port", str(free_port()), "--nsq-https-port", str(ports[1]))

    def shown() -> str:
        found = {ssl.get_server_certificate(("127.0.0.1", port), timeout=10) for port in ports}
        assert len(found) == 1
        return found.pop()

    with LiveBroker(tmp_path / "node", arguments + nsq) as broker:
        old = shown()
        new = Path(authority.sign("renewed", "/CN=localhost")[0]).read_text()
        Path(certificate).write_text("torn")
        os.kill(broker.pid, signal.SIGHUP)
        while "settings were not reloaded" not in broker.output():
            time.sleep(0.02)
        assert shown() == old
        Path(certificate).write_text(new)
        Path(key).write_text((tmp_path / "renewed.key").read_text())
        os.kill(broker.pid, signal.SIGHUP)
        while "settings were reloaded" not in broker.output():
            time.sleep(0.02)
        assert shown() == new


def test_only_administrators_may(node: Operated) -> None:
    request = urllib.request.Request(node.http_url + "/api/penstock/drain", b"{}", method="POST")
    with pytest.raises(HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    caught.value.close()
    assert caught.value.code == 401


def read_until_closed(connection: Connection) -> None:
    while True:
        connection.process(5)


def test_a_stop_tells_clients_and_a_second_signal_ends_it(tmp_path: Path) -> None:
    """The client does not answer the 320, so an orderly stop would wait for it."""
    manager = Manager(tmp_path / "notify")
    environment = {"NOTIFY_SOCKET": str(manager.path)}
    with LiveBroker(tmp_path, environment=environment) as broker:
        endpoint = Endpoint.parse(broker.url)
        connection = Connection(endpoint)
        channel = connection.channel()
        channel.queue_declare("kept", durable=True)
        channel.confirm_select()
        persistent = Properties(delivery_mode=2)
        channel.publish(b"x", routing_key="kept", properties=persistent)
        channel.wait_for_confirms()
        deaf = socket.create_connection(("127.0.0.1", broker.amqp_port))
        deaf.sendall(b"AMQP\0\0\x09\x01")
        wait_for(lambda: "accepting AMQP connection" in broker.output())
        begun = time.monotonic()
        os.kill(broker.pid, signal.SIGTERM)
        with pytest.raises(ConnectionClosed, match="320"):
            read_until_closed(connection)
        os.kill(broker.pid, signal.SIGTERM)
        assert broker.process is not None
        assert broker.process.wait(10) == 0
        assert time.monotonic() - begun < 2.5
        assert "EXTEND_TIMEOUT_USEC=60000000" in manager.next("STOPPING=1")
        assert "a second signal: the node ends at once" in broker.output()
        broker.process = None
        deaf.close()
        broker.start()
        with Connection(endpoint) as again:
            found = again.channel().queue_declare("kept", passive=True)
            assert found.number("message_count") == 1
    manager.close()


def test_a_stop_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """The client never answers the 320, and is waited for."""
    with LiveBroker(tmp_path, ("--stop-timeout-s", "1")) as broker:
        connection = Connection(Endpoint.parse(broker.url))
        os.kill(broker.pid, signal.SIGTERM)
        assert broker.process is not None
        assert broker.process.wait(10) == 0
        assert "the stop takes longer than 1 s: the node ends at once" in broker.output()
        broker.process = None
        with pytest.raises(ClientError):
            read_until_closed(connection)
        connection.close()


def test_a_node_whose_terminal_is_gone_stops(tmp_path: Path) -> None:
    """It would be nobody's otherwise; without a terminal SIGHUP is about settings."""
    broker = LiveBroker(tmp_path)
    ours, theirs = pty.openpty()
    with (tmp_path / "out").open("wb") as out:
        process = subprocess.Popen(
            broker.command(),
            env=broker.environment(),
            stdin=theirs,
            stdout=out,
            stderr=out,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads
        )
    os.close(theirs)
    while b"ready in" not in (tmp_path / "out").read_bytes():
        assert process.poll() is None
        time.sleep(0.02)
    os.close(ours)
    assert process.wait(10) == 0


def test_stop_over_http(tmp_path: Path) -> None:
    """Its log says that it begins and that it has ended, as with SIGTERM (B63 of the review)."""
    with LiveBroker(tmp_path) as broker:
        request = urllib.request.Request(broker.http_url + "/api/penstock/stop", b"", method="POST")
        login = base64.b64encode(b"guest:guest").decode()
        request.add_header("Authorization", f"Basic {login}")
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 204
        assert broker.process is not None
        assert broker.process.wait(10) == 0
        broker.process = None
        said = [line.partition("> ")[2] for line in broker.output().splitlines()]
        assert "stopping: clients are told, and what is open is finished" in said
        assert said[-1] == "stopped"
