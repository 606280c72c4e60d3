"""The servers that cases ask for, of both families: nsqd and nsqlookupd, and Penstock.

A case says ``small`` and means: a server whose limits are low.  ``SERVERS`` says what that is in
the words of nsqd's flags, which `penstock nsqd` takes as nsqd does.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final

from tests.conformance_nsq.auth_service import AuthService
from tests.conformance_nsq.case import Place
from tests.conformance_nsq.statsd_listener import StatsdListener
from tests.helpers.broker_process import BrokerProcess, free_port
from tests.helpers.certificates import Authority
from tests.helpers.live_broker import LiveBroker

LOOKUP: Final = "lookup"
Ports = tuple[int, int, int]
"""For clients, HTTP and HTTPS."""

SERVERS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "small": {
        "max-msg-size": "100",
        "max-body-size": "400",
        "max-msg-timeout": "3s",
        "max-req-timeout": "2s",
        "max-rdy-count": "5",
        "max-channel-consumers": "1",
        "max-heartbeat-interval": "5s",
        "max-output-buffer-size": "1000",
        "max-output-buffer-timeout": "1s",
        "max-deflate-level": "3",
    },
    "tiny": {"mem-queue-size": "3"},
    "bare": {"deflate": "false", "snappy": "false"},
    "auth": {"auth-http-address": "<auth>"},
    "statsd": {"statsd-address": "<statsd>", "statsd-interval": "2s", "statsd-prefix": "nsq.x"},
    "tls": {"tls-cert": "<certificate>", "tls-key": "<key>"},
    "tls-required": {
        "tls-cert": "<certificate>",
        "tls-key": "<key>",
        "tls-required": "true",
    },
    "tls-client": {
        "tls-cert": "<certificate>",
        "tls-key": "<key>",
        "tls-root-ca-file": "<authority>",
        "tls-client-auth-policy": "require-verify",
    },
    LOOKUP: {},
}


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def nsqd_words(ports: Ports, flags: dict[str, str]) -> list[str]:
    port, http_port, https_port = ports
    return [
        f"--tcp-address=127.0.0.1:{port}",
        f"--http-address=127.0.0.1:{http_port}",
        f"--https-address=127.0.0.1:{https_port}",
        "--broadcast-address=127.0.0.1",
        *(f"--{flag}={value}" for flag, value in flags.items()),
    ]


def lookup_words(port: int, http_port: int) -> list[str]:
    return [
        f"--tcp-address=127.0.0.1:{port}",
        f"--http-address=127.0.0.1:{http_port}",
        "--broadcast-address=127.0.0.1",
    ]


class NsqdProcess(BrokerProcess):
    """One nsqd, with a directory of its own."""

    name = "nsqd"

    def __init__(self, program: Path, flags: dict[str, str]) -> None:
        super().__init__()
        self._program = program
        self._flags = flags
        self.port, self.http_port = self.amqp_port, free_port()
        self.https_port = free_port()

    @property
    def ports(self) -> Ports:
        return self.port, self.http_port, self.https_port

    def command(self) -> list[str]:
        data_path = f"--data-path={self.directory}"
        return [str(self._program), data_path, *nsqd_words(self.ports, self._flags)]

    def is_ready(self) -> bool:
        return answers(self.port) and answers(self.http_port)


class NsqlookupdProcess(NsqdProcess):
    name = "nsqlookupd"

    def command(self) -> list[str]:
        program = str(self._program.with_name("nsqlookupd"))
        return [program, *lookup_words(self.port, self.http_port)]


class PenstockNsq(LiveBroker):
    """Penstock in nsqd's place, or in nsqlookupd's: with their flags."""

    def __init__(self, flags: dict[str, str], lookup: bool) -> None:
        # Clients of this machine may change options then, as with nsqd.
        super().__init__(environment={"PENSTOCK_NSQ_USER": ""})
        self.port, self.nsq_http_port = free_port(), free_port()
        self.nsq_https_port = free_port()
        self._flags = flags
        self._lookup = lookup

    @property
    def ports(self) -> Ports:
        return self.port, self.nsq_http_port, self.nsq_https_port

    def command(self) -> list[str]:
        program = [sys.executable, "-m", "penstock", "--debug"]
        if self._lookup:
            return [*program, "nsqlookupd", *lookup_words(self.port, self.nsq_http_port)]
        data_path = f"--data-path={self.data_dir}"
        return [*program, "nsqd", data_path, *nsqd_words(self.ports, self._flags)]


class Family:
    """Serves any of ``SERVERS``; the context ends it."""

    name = ""

    @contextmanager
    def serve(self, server: str) -> Iterator[Place]:
        with ExitStack() as stack:
            flags = dict(SERVERS[server])
            certificates, auth, statsd = "", None, None
            if "tls-cert" in flags:
                certificates = stack.enter_context(tempfile.TemporaryDirectory(prefix="nsq-tls-"))
                _certificates(Path(certificates), flags)
            if "auth-http-address" in flags:
                auth = stack.enter_context(AuthService())
                flags["auth-http-address"] = auth.address
            if "statsd-address" in flags:
                statsd = stack.enter_context(StatsdListener())
                flags["statsd-address"] = statsd.address
            ports = stack.enter_context(self.process(flags, server == LOOKUP))
            yield Place(*ports, certificates, auth, statsd)

    def process(self, flags: dict[str, str], lookup: bool) -> AbstractContextManager[Ports]:
        raise NotImplementedError


def _certificates(directory: Path, flags: dict[str, str]) -> None:
    """An authority, the server's pair and a client's pair."""
    authority = Authority(directory)
    certificate, key = authority.sign("server", "/CN=localhost", "DNS:localhost,IP:127.0.0.1")
    authority.sign("client", "/CN=visitor")
    files = {"<certificate>": certificate, "<key>": key, "<authority>": str(authority.certificate)}
    for flag, value in flags.items():
        flags[flag] = files.get(value, value)


class Nsqd(Family):
    """The real ones, from the directory of the nsqd named."""

    name = "nsqd"

    def __init__(self, program: Path) -> None:
        self._program = program.resolve()

    @contextmanager
    def process(self, flags: dict[str, str], lookup: bool) -> Iterator[Ports]:
        kind = NsqlookupdProcess if lookup else NsqdProcess
        with kind(self._program, flags) as running:
            yield running.ports


class Penstock(Family):
    name = "penstock"

    @contextmanager
    def process(self, flags: dict[str, str], lookup: bool) -> Iterator[Ports]:
        with PenstockNsq(flags, lookup) as running:
            yield running.ports
