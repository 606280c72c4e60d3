"""The brokers of the NSQ benchmarks: nsqd, and Penstock with its NSQ listeners.

Each runs on 127.0.0.1 with a directory of its own that goes away with it.  Penstock is held to its
cores; nsqd has its defaults and all cores, unless ``cores`` says otherwise.
"""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from typing import Final

from penstock.client.procstat import ProcessGauge
from tests.conformance_nsq.servers import NsqdProcess
from tests.helpers.broker_process import free_port
from tests.helpers.live_broker import LiveBroker

DURABLE: Final = "durable"
FAST: Final = "fast"
NSQD: Final = "nsqd"
NAMES: Final = {DURABLE: "Penstock, durable", FAST: "Penstock, fast", NSQD: "nsqd"}


class BenchedPenstock(LiveBroker):
    """Penstock on its cores, in the publish mode that is asked for."""

    def __init__(self, cores: str, pure: bool, mode: str = DURABLE, *more: str) -> None:
        self.port, self.nsq_http_port = free_port(), free_port()
        self._cores = cores
        super().__init__(
            arguments=(
                *("--nsq-port", str(self.port), "--nsq-http-port", str(self.nsq_http_port)),
                *("--nsqlookupd-tcp-port", "0", "--nsqlookupd-http-port", "0"),
                *("--nsq-publish-mode", mode, *more),
            ),
            environment={"PENSTOCK_PURE": "1"} if pure else {"PENSTOCK_REQUIRE_COMPILED": "1"},
        )

    def command(self) -> list[str]:
        return ["taskset", "-c", self._cores, *super().command()]


class BenchedNsqd(NsqdProcess):
    """nsqd with its defaults."""

    def __init__(self, program: Path, cores: str = "") -> None:
        super().__init__(program.resolve(), {"log-level": "fatal"})
        self.nsq_http_port = self.http_port
        self._cores = cores

    def command(self) -> list[str]:
        pinning = ["taskset", "-c", self._cores] if self._cores else []
        return [*pinning, *super().command()]


Benched = BenchedPenstock | BenchedNsqd


def post(broker: Benched, path: str, body: bytes = b"") -> None:
    """A request to the HTTP API that must succeed."""
    url = f"http://127.0.0.1:{broker.nsq_http_port}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, body, method="POST"), timeout=60):
        pass


class Meter:
    """CPU seconds and resident memory of a broker since it was made."""

    def __init__(self, broker: Benched) -> None:
        self._gauge = ProcessGauge(broker.pid, tree=True)
        self._cpu_s = sum(self._gauge.cpu_s())

    def cpu_s(self) -> float:
        return sum(self._gauge.cpu_s()) - self._cpu_s

    def rss_mb(self) -> float:
        return self._gauge.sample_rss() / 1e6


def all_cores() -> str:
    return ",".join(map(str, sorted(os.sched_getaffinity(0))))
