"""``penstock nsqd`` and ``penstock nsqlookupd`` in the place of the real ones, with clients."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import nsq  # noqa: F401 - the program imports it
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from tests.helpers.broker_process import free_port
from tests.helpers.live_broker import LiveBroker
from tests.helpers.nsq_broker import Answer, Real, ask, eventually, real
from tests.helpers.raw_nsq import MAGIC, MESSAGE, message_in, pub, split_frames

PYNSQ = Path(__file__).parents[1] / "interop" / "pynsq_program.py"


class Program(LiveBroker):
    """``penstock NAME`` with these words, as a script starts it."""

    def __init__(self, name: str, *words: str, directory: Path | None = None) -> None:
        super().__init__(directory)
        self._words = [name, *words]

    def command(self) -> list[str]:
        return [sys.executable, "-m", "penstock", "--debug", *self._words]

    def environment(self) -> dict[str, str]:
        """No setting comes from it."""
        found = super().environment()
        return {key: found[key] for key in found if not key.startswith("PENSTOCK_NSQ")}


class Pair:
    """An nsqd that is registered at an nsqlookupd, both of ours."""

    def __init__(self, directory: Path) -> None:
        self.port, self.api_port = free_port(), free_port()
        self.lookup_tcp_port, self.lookup_port = free_port(), free_port()
        self.lookupd = Program(
            "nsqlookupd",
            f"-tcp-address=127.0.0.1:{self.lookup_tcp_port}",
            f"-http-address=127.0.0.1:{self.lookup_port}",
        )
        self.config = directory / "nsqd.cfg"
        self.config.write_text(f'tcp_address = "127.0.0.1:{self.port}"\nmax_msg_size = 200000\n')
        self.nsqd = Program(
            *("nsqd", f"--config={self.config}", "--data-path", str(directory / "data")),
            *(f"--http-address=127.0.0.1:{self.api_port}", "-https-address="),
            *("-broadcast-address", "127.0.0.1", "--mem-queue-size=7"),
            f"--lookupd-tcp-address=127.0.0.1:{self.lookup_tcp_port}",
        )

    def post(self, path: str, body: bytes = b"") -> Answer:
        return ask(self.api_port, "POST", path, body)

    def look(self, path: str) -> Answer:
        return ask(self.lookup_port, "GET", path)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    pair = Pair(tmp_path_factory.mktemp("nsqd"))
    (pair.config.parent / "data").mkdir(mode=0o700)
    with pair.lookupd, pair.nsqd:
        yield pair


def test_only_the_ports_of_nsqd_are_open(pair: Pair) -> None:
    output = pair.nsqd.output()
    assert f"NSQ         127.0.0.1:{pair.port}\n" in output
    assert f"NSQ         http://127.0.0.1:{pair.api_port}/\n" in output
    assert "amqp://" not in output
    assert "nsqlookupd" not in output
    assert "warning: mem-queue-size = 7: memory is shared" in output
    found = ask(pair.api_port, "GET", "/config/max_msg_size")
    assert found.body == "200000"
    output = pair.lookupd.output()
    assert f"nsqlookupd  http://127.0.0.1:{pair.lookup_port}/\n" in output
    assert "amqp://" not in output
    assert "  NSQ " not in output
    assert " (temporary)\n  recovered " in output
    assert "  config      no file\n" in output
    assert f"  config      {pair.config}\n" in pair.nsqd.output()


def test_help_has_the_defaults() -> None:
    said = " ".join(CliRunner().invoke(cli, ["nsqd", "--help"]).stdout.split())
    assert "nsq_port, nsq_unix_socket [default: 0.0.0.0, 4150]" in said
    assert "Sets data_dir [default: .]" in said
    assert "Sets nsq_msg_timeout_ms [default: 60000]" in said


def test_options_are_changed_by_an_administrator_only(pair: Pair) -> None:
    change = pair.api_port, "PUT", "/config/log_level", b"info"
    assert ask(*change).status == 403
    assert ask(*change, login="guest:guest").body == "2"


def test_it_is_registered(pair: Pair) -> None:
    assert pair.post("/topic/create?topic=registered").status == 200
    found = eventually(lambda: pair.look("/lookup?topic=registered").data.get("producers"))
    assert [(one["broadcast_address"], one["tcp_port"], one["http_port"]) for one in found] == [
        ("127.0.0.1", pair.port, pair.api_port)
    ]


def test_pynsq_works(pair: Pair) -> None:
    command = [sys.executable, str(PYNSQ), f"127.0.0.1:{pair.port}", "pynsq", "{}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == 100


@pytest.mark.nsqd
def test_nsq_to_file_and_nsqadmin_find_it(pair: Pair, tmp_path: Path) -> None:
    where = f"-lookupd-http-address=127.0.0.1:{pair.lookup_port}"
    command = [real("nsq_to_file"), "-topic=filed", f"-output-dir={tmp_path}", where]
    assert pair.post("/topic/create?topic=filed").status == 200
    eventually(lambda: pair.look("/lookup?topic=filed").data.get("producers"))
    archiver = subprocess.Popen([*command, "-sync-interval=1s"], stderr=subprocess.DEVNULL)
    port = free_port()
    admin = Real("nsqadmin", port, f"-http-address=127.0.0.1:{port}", where)
    try:
        assert pair.post("/mpub?topic=filed", b"one\ntwo").body == "OK"
        read = lambda: "".join(one.read_text() for one in tmp_path.rglob("*.log"))  # noqa: E731
        assert eventually(lambda: read() == "one\ntwo\n", 20)
        found = ask(port, "GET", "/api/topics/filed").data
        assert [one["channel_name"] for one in found["channels"]] == ["nsq_to_file"]
    finally:
        archiver.terminate()
        archiver.wait(10)
        admin.stop()


@pytest.mark.nsqd
def test_the_real_nsqd_registers_at_our_nsqlookupd(pair: Pair, tmp_path: Path) -> None:
    port, api_port = free_port(), free_port()
    other = Real(
        *("nsqd", port, f"--tcp-address=127.0.0.1:{port}", f"--data-path={tmp_path}"),
        *(f"--http-address=127.0.0.1:{api_port}", "--broadcast-address=127.0.0.1"),
        f"--lookupd-tcp-address=127.0.0.1:{pair.lookup_tcp_port}",
    )
    try:
        assert ask(api_port, "POST", "/topic/create?topic=real", b"").status == 200
        found = eventually(lambda: pair.look("/lookup?topic=real").data.get("producers"))
        assert [one["tcp_port"] for one in found] == [port]
    finally:
        other.stop()


def exchange_over(sock: socket.socket) -> bytes:
    """The body of a message that was published and taken on this connection."""
    sock.settimeout(20)
    sock.sendall(MAGIC + pub("t", b"over a socket") + b"SUB t c\nRDY 1\n")
    rest = b""
    while True:
        rest += sock.recv(65536)
        frames, _ = split_frames(rest)
        for frame in frames:
            if frame.type == MESSAGE:
                return message_in(frame.data).body


def test_unix_sockets(pair: Pair, tmp_path: Path) -> None:
    """nsqd listens on a path where an address is one; what it registers has to be said then."""
    words = (
        *(f"--tcp-address={tmp_path / 'nsqd.sock'}", f"--http-address={tmp_path / 'http.sock'}"),
        *("--broadcast-tcp-port=7", "--broadcast-http-port=8", f"--data-path={tmp_path / 'd'}"),
        *(f"--lookupd-tcp-address=127.0.0.1:{pair.lookup_tcp_port}", "--https-address="),
    )
    with Program("nsqd", *words) as broker:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(tmp_path / "nsqd.sock"))
            assert exchange_over(sock) == b"over a socket"
        connection = HTTPConnection("localhost")
        with socket.socket(socket.AF_UNIX) as connection.sock:
            connection.sock.connect(str(tmp_path / "http.sock"))
            connection.request("GET", "/config/http_address")
            assert connection.getresponse().read().decode() == str(tmp_path / "http.sock")
        found = eventually(lambda: pair.look("/lookup?topic=t").data.get("producers"))
        assert [(one["tcp_port"], one["http_port"]) for one in found] == [(7, 8)]
        assert f"{tmp_path / 'http.sock'} (Unix socket, HTTP)" in broker.output()
    assert not list(tmp_path.glob("*.sock"))


def test_clients_of_other_machines_need_no_log_in_and_may_do_nothing_else(tmp_path: Path) -> None:
    """As with nsqd; an address of this machine that is not loopback stands for another one."""
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        address = probe.getsockname()[0]
    port = free_port()
    words = (f"--tcp-address=:{port}", "--http-address=", "--https-address=")
    with Program("nsqd", *words, f"--data-path={tmp_path}") as broker:
        with socket.create_connection((address, port)) as sock:
            assert exchange_over(sock) == b"over a socket"
        assert f"NSQ at 0.0.0.0:{port} needs no log-in: everything that user may" in broker.output()


@pytest.mark.parametrize("name", ["nsqd", "nsqlookupd"])
@pytest.mark.parametrize("word", ["-version", "--version"])
def test_the_version(name: str, word: str) -> None:
    result = CliRunner().invoke(cli, [name, word])
    assert result.exit_code == 0
    assert result.output.startswith(f"{name} v1.3.0 (penstock ")


@pytest.mark.parametrize("word", ["-h", "-help", "--help"])
def test_the_help(word: str) -> None:
    result = CliRunner().invoke(cli, ["nsqd", word])
    assert result.exit_code == 0
    assert "--max-rdy-count" in result.output


def test_a_wrong_flag_ends_with_2() -> None:
    result = CliRunner().invoke(cli, ["nsqd", "--mem-queue-sise=5"])
    assert result.exit_code == 2
    assert (
        "error: flag: there is no -mem-queue-sise; did you mean -mem-queue-size?" in result.output
    )
    assert "fix: `penstock nsqd --help` lists the flags" in result.output
