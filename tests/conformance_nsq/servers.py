"""The servers that cases ask for, of both families: nsqd and nsqlookupd, and Penstock.

A case says ``small`` and means: a server whose limits are low.  ``SERVERS`` says what that is in
the words of nsqd's flags; ``Penstock`` translates each flag into the setting of the same meaning,
so a flag without one is an error and not a difference nobody sees.
"""

from __future__ import annotations

import socket
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
        given = [f"--{flag}={value}" for flag, value in self._flags.items()]
        return [
            *(str(self._program), f"--data-path={self.directory}"),
            f"--tcp-address=127.0.0.1:{self.port}",
            f"--http-address=127.0.0.1:{self.http_port}",
            f"--https-address=127.0.0.1:{self.https_port}",
            *("--broadcast-address=127.0.0.1", *given),
        ]

    def is_ready(self) -> bool:
        return answers(self.port) and answers(self.http_port)


class NsqlookupdProcess(NsqdProcess):
    name = "nsqlookupd"

    def command(self) -> list[str]:
        return [
            str(self._program.with_name("nsqlookupd")),
            f"--tcp-address=127.0.0.1:{self.port}",
            f"--http-address=127.0.0.1:{self.http_port}",
            "--broadcast-address=127.0.0.1",
        ]


class PenstockNsq(LiveBroker):
    """Penstock with its NSQ listeners."""

    def __init__(self, flags: dict[str, str], lookup: bool) -> None:
        self.port, self.nsq_http_port = free_port(), free_port()
        self.nsq_https_port = free_port()
        lookup_ports = (self.port, self.nsq_http_port) if lookup else (0, 0)
        nsq_ports = (0, 0) if lookup else (self.port, self.nsq_http_port)
        super().__init__(
            arguments=(
                *("--ssl-port", "0"),  # a free one, where there is TLS
                *("--nsq-port", str(nsq_ports[0]), "--nsq-http-port", str(nsq_ports[1])),
                *("--nsq-https-port", str(0 if lookup else self.nsq_https_port)),
                *("--nsqlookupd-tcp-port", str(lookup_ports[0])),
                *("--nsqlookupd-http-port", str(lookup_ports[1])),
                *(word for flag, value in flags.items() for word in _setting(flag, value)),
            )
        )

    @property
    def ports(self) -> Ports:
        return self.port, self.nsq_http_port, self.nsq_https_port


# nsqd's flag -> our setting's flag; durations are whole milliseconds there.
_SETTINGS: Final = {
    "max-msg-size": "--nsq-max-msg-size-bytes",
    "max-body-size": "--nsq-max-body-size-bytes",
    "max-msg-timeout": "--nsq-max-msg-timeout-ms",
    "max-req-timeout": "--nsq-max-req-timeout-ms",
    "max-rdy-count": "--nsq-max-rdy-count",
    "max-channel-consumers": "--nsq-max-channel-consumers",
    "max-heartbeat-interval": "--nsq-max-heartbeat-interval-ms",
    "max-output-buffer-size": "--nsq-max-output-buffer-size-bytes",
    "max-output-buffer-timeout": "--nsq-max-output-buffer-timeout-ms",
    "max-deflate-level": "--nsq-max-deflate-level",
    "deflate": "--nsq-deflate",
    "snappy": "--nsq-snappy",
    "auth-http-address": "--nsq-auth-http-addresses",
    "statsd-address": "--nsq-statsd-address",
    "statsd-interval": "--nsq-statsd-interval-s",
    "statsd-prefix": "--nsq-statsd-prefix",
    "tls-cert": "--ssl-certfile",
    "tls-key": "--ssl-keyfile",
    "tls-required": "--nsq-tls-required",
    "tls-root-ca-file": "--ssl-cacertfile",
}
_WITHOUT: Final = {"mem-queue-size"}
"""Flags that say nothing here; ``differences.py`` says why."""
_WHOLE: Final = {
    "--nsq-tls-required=true": ("--nsq-tls-required", "yes"),
    "--tls-client-auth-policy=require-verify": (
        *("--ssl-verify", "verify_peer"),
        *("--ssl-fail-if-no-peer-cert", "true"),
    ),
}


def _setting(flag: str, value: str) -> tuple[str, ...]:
    if flag in _WITHOUT:
        return ()
    name = _SETTINGS.get(flag, f"--{flag}")
    if name.endswith("-ms"):
        value = str(int(value.removesuffix("s")) * 1000)
    if name.endswith("-s"):
        value = value.removesuffix("s")
    return _WHOLE.get(f"{name}={value}", (name, value))


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
