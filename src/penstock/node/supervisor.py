"""``Supervisor``: several nodes on one machine behind the same ports, started by one command.

    parent   the coordinator's store, or etcd elsewhere; starts the nodes, and those that died again
    nodes    processes of their own with a data directory each below the given one; the kernel
             spreads new connections over them (SO_REUSEPORT)

In: the settings; the words of the command line, which every node gets with a few of its own at the
end; the environment, which has the secrets of the command line.  Out: an exit code when all nodes
have ended.  A node that cannot start because of its settings ends all of them; a node that dies
later is started again, after a pause that grows.

The nodes end when their parent does, however that happens: the kernel tells them (PDEATHSIG), so
that no node is left that holds a data directory and knows no coordinator.

The management API, Prometheus' port and NSQ's HTTP ports say what one node does, so they are not
shared: the first node has those that were asked for, the next ones the numbers behind them, and
NSQ's HTTP only the first.
"""

import ctypes
import logging
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from penstock.clocks import mono_ms
from penstock.node.cluster.member import LOCAL
from penstock.node.coordination.server import CoordinationServer
from penstock.node.data_dir import lock_data_dir
from penstock.node.inspection.logs import Logs
from penstock.node.systemd import Notifier
from penstock.settings.settings import Settings

READY: Final = "ready in "
START_TIMEOUT_S: Final = 120.0
LOOK_S: Final = 0.1
PAUSE_S: Final = 1.0
PAUSE_MOST_S: Final = 30.0
STEADY_S: Final = 60.0
"""A node that ran for so long is started again without much ado."""
_SET_PDEATHSIG: Final = 1
OF_ONE_PROCESS: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

logger = logging.getLogger("penstock.supervisor")


class NodeProcess:
    """One node: its command, and the process of the moment."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self.lines: list[str] = []  # of its start screen
        self.ready = threading.Event()
        self.process: subprocess.Popen[str] | None = None
        self._started_s = 0.0
        self._again_at_s = 0.0  # when to start it again; 0 = it runs
        self._pause_s = PAUSE_S
        self._command = list(command)
        self._environment = dict(environment)

    def start(self) -> None:
        self.lines = []
        self.ready.clear()
        self._again_at_s = 0.0
        self._started_s = time.monotonic()
        libc = ctypes.CDLL(None)
        self.process = process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            # A terminal's Ctrl-C is for the parent, which tells the nodes in its own time.
            start_new_session=True,
            preexec_fn=lambda: libc.prctl(_SET_PDEATHSIG, signal.SIGTERM),  # noqa: PLW1509
        )
        assert process.stdout is not None
        reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        reader.start()

    def _read(self, stdout: IO[str]) -> None:
        for line in stdout:
            self.lines.append(line.rstrip("\n"))
            if line.startswith(READY):
                self.ready.set()
        stdout.close()

    def ended(self) -> int | None:
        """Its exit code, if it ran and does not any more."""
        return None if self.process is None else self.process.poll()

    def look_after(self, now_s: float) -> None:
        """Start it again when it has ended, after a pause that grows while it ends early."""
        code = self.ended()
        if code is None:
            return
        if self._again_at_s == 0.0:
            if now_s - self._started_s > STEADY_S:
                self._pause_s = PAUSE_S
            self._again_at_s = now_s + self._pause_s
            logger.error("%s ended (%d): started again in %.0f s", self.name, code, self._pause_s)
            self._pause_s = min(2 * self._pause_s, PAUSE_MOST_S)
        elif now_s >= self._again_at_s:
            self.start()

    def signal(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


class Supervisor:
    """``words``: of the command line, behind ``penstock serve``; ``environment``: of each node."""

    def __init__(
        self, settings: Settings, words: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._settings = settings
        self._words = list(words)
        self._environment = {k: v for k, v in environment.items() if k not in OF_ONE_PROCESS}
        self._reserved: list[socket.socket] = []
        self._stopping = False
        self._scratch = tempfile.TemporaryDirectory(prefix="penstock-")
        self._store: CoordinationServer | None = None
        self._nodes: list[NodeProcess] = []
        self._own_words: list[str] = []

    def run(self) -> int:
        """Raises OSError and what ``lock_data_dir`` raises."""
        began_s = time.monotonic()
        settings = self._settings
        lock = lock_data_dir(settings.data_dir)
        notifier = Notifier(os.environ)
        try:
            self._own_words = self._common_words()
            self._nodes = [self._node(number) for number in range(1, settings.nodes + 1)]
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, self._signalled)
            code = self._start_all()
            if code is None:
                sys.stdout.write(self._screen(time.monotonic() - began_s))
                sys.stdout.flush()
                notifier.ready(f"{settings.nodes} nodes")
                code = self._watch(notifier)
            return code
        finally:
            self._end_all()
            if self._store is not None:
                self._store.stop()
            self._scratch.cleanup()
            notifier.close()
            for sock in self._reserved:
                sock.close()
            os.close(lock)

    # -- what nodes are told ---------------------------------------------------------------

    def _common_words(self) -> list[str]:
        settings = self._settings
        words = ["--nodes=1", "--shares-ports=true"]
        words.append(f"--amqp-port={self._port(settings.amqp_port, settings.bind)}")
        if settings.cluster_etcd_endpoints:
            return words
        secret = Path(settings.data_dir) / "cluster.secret"
        if not secret.exists():
            handle = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as file:
                file.write(secrets.token_hex(32) + "\n")
        place = os.path.join(self._scratch.name, "coordination")
        file_name = os.path.join(settings.data_dir, "coordination.db")
        self._store = CoordinationServer(file_name, place, settings.cluster_lease_ttl_s * 1000)
        self._store.start()
        words += [f"--cluster-etcd-endpoints={LOCAL}{place}", f"--cluster-secret-file={secret}"]
        return [*words, "--cluster-bind=127.0.0.1", "--cluster-address=127.0.0.1"]

    def _port(self, wanted: int, address: str) -> int:
        """One that all nodes can have: a free one is kept free for them."""
        if wanted > 0:
            return wanted
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind((address, 0))
        self._reserved.append(sock)
        return int(sock.getsockname()[1])

    def _node(self, number: int) -> NodeProcess:
        settings = self._settings
        base = settings.node_name or f"penstock@{platform.node()}"
        words = [
            *self._own_words,
            f"--node-name={base}-{number}",
            f"--data-dir={os.path.join(settings.data_dir, f'node-{number}')}",
            f"--http-port={_behind(settings.http_port, number)}",
            f"--prometheus-port={_behind(settings.prometheus_port, number)}",
        ]
        if settings.cluster_etcd_endpoints:
            words.append(f"--cluster-port={_behind(settings.cluster_port, number)}")
        else:
            words.append("--cluster-port=0")
        if number > 1:
            words += ["--nsq-http-port=0", "--nsq-https-port=0", "--unix-socket="]
            words += ["--nsqlookupd-tcp-port=0", "--nsqlookupd-http-port=0"]
        command = [sys.executable, "-m", "penstock", "serve", *self._words, *words]
        return NodeProcess(f"{base}-{number}", command, self._environment)

    # -- life ------------------------------------------------------------------------------

    def _start_all(self) -> int | None:
        """None = all are ready; else the code with which the first of them ended."""
        for node in self._nodes:
            node.start()
        until_s = time.monotonic() + START_TIMEOUT_S
        for node in self._nodes:
            while not node.ready.wait(LOOK_S):
                code = node.ended()
                if code is not None or self._stopping or time.monotonic() > until_s:
                    return 0 if self._stopping else code or 1
        return None

    def _watch(self, notifier: Notifier) -> int:
        while not self._stopping:
            time.sleep(LOOK_S)
            notifier.look(mono_ms())
            for node in self._nodes:
                node.look_after(time.monotonic())
        return 0

    def _signalled(self, number: int, _frame: object) -> None:
        if number != signal.SIGHUP:
            self._stopping = True
        for node in self._nodes:
            node.signal(signal.SIGHUP if number == signal.SIGHUP else signal.SIGTERM)

    def _end_all(self) -> None:
        for node in self._nodes:
            node.signal(signal.SIGTERM)
        for node in self._nodes:
            if node.process is not None:
                node.process.wait()

    def _screen(self, took_s: float) -> str:
        """The first node's, and where the others can be looked at."""
        lines = [line for line in self._nodes[0].lines if not line.startswith(READY)]
        for node in self._nodes[1:]:
            where = next((one for one in node.lines if one.startswith("  management")), "")
            lines.append(f"  and         {node.name}, {where.strip()}")
        return "\n".join([*lines, f"{READY}{took_s * 1000:.0f} ms", ""])


def _behind(port: int, number: int) -> int:
    """The port of the first node, the next one of the second; 0 stays 0."""
    return port + number - 1 if port > 0 else 0


def run_nodes(settings: Settings, words: Sequence[str], environment: Mapping[str, str]) -> int:
    logs = Logs()
    logs.apply(settings)
    return Supervisor(settings, words, environment).run()
