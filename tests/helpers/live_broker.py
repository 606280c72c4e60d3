"""Penstock as a process: ``python -m penstock serve`` on free ports with a directory of its own.

The start screen is the contract: the last line begins with ``ready in``, and from then on
clients may connect.  ``broker_for_tests`` is the one place that decides which broker the
tests talk to; ``PENSTOCK_TEST_URL`` names another one: an AMQP URL of a running broker, or
the word ``rabbitmq`` for a private node of the RabbitMQ that is installed here.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path

from tests.helpers.broker_process import (
    HERE,
    BrokerFailed,
    BrokerProcess,
    ExternalBroker,
    Place,
    free_port,
)
from tests.helpers.rabbit import RabbitServer

REPOSITORY = Path(__file__).resolve().parents[2]
READY_LINE = re.compile(r"^ready in ", re.MULTILINE)
NO_NSQ = {
    "PENSTOCK_NSQ_PORT": "0",
    "PENSTOCK_NSQ_HTTP_PORT": "0",
    "PENSTOCK_NSQ_HTTPS_PORT": "0",
    "PENSTOCK_NSQLOOKUPD_TCP_PORT": "0",
    "PENSTOCK_NSQLOOKUPD_HTTP_PORT": "0",
    "PENSTOCK_PROMETHEUS_PORT": "0",
}
PASSED_ON = {"PENSTOCK_PURE", "PENSTOCK_REQUIRE_COMPILED"}


class LiveBroker(BrokerProcess):
    """One Penstock; ``arguments`` are added to its command line."""

    name = "penstock"

    def __init__(
        self,
        directory: Path | None = None,
        arguments: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        ready_timeout_s: float = 20.0,
        place: Place = HERE,
    ) -> None:
        super().__init__(directory, ready_timeout_s, place)
        self.http_port = free_port()
        self.data_dir = self.directory / "data"
        self._arguments = arguments
        self.more_environment = environment or {}

    @property
    def http_url(self) -> str:
        return f"http://{self.place.address}:{self.http_port}"

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "penstock", "--debug", "serve"),
            *("--data-dir", str(self.data_dir), "--bind", self.place.address),
            *("--amqp-port", str(self.amqp_port), "--http-port", str(self.http_port)),
            *self._arguments,
        ]

    def environment(self) -> dict[str, str]:
        """Settings of the caller's shell must not reach the broker; the build choice must."""
        kept = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("PENSTOCK_") or key in PASSED_ON
        }
        path = [str(REPOSITORY / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        given = {"PYTHONPATH": os.pathsep.join(path)}
        if self.place is not HERE:  # its clients are on another machine
            given["PENSTOCK_PLAIN_TEXT_PASSWORDS"] = "true"
        return kept | NO_NSQ | given | self.more_environment

    def is_ready(self) -> bool:
        return READY_LINE.search(self.output()) is not None

    def _judge_exit(self, code: int) -> None:
        super()._judge_exit(code)
        if "Traceback (most recent call last)" in self.output():
            raise BrokerFailed(f"penstock reported an error of its own:\n{self.output()}")


class MemoryAbove:
    """A high watermark so many bytes above what a broker without messages takes.

    That differs by the release of Python and by the build, and is measured when first asked for.
    """

    def __init__(self, spare_bytes: int) -> None:
        self._spare_bytes = spare_bytes

    def __str__(self) -> str:
        return str(_idle_bytes() + self._spare_bytes)


@functools.cache
def _idle_bytes() -> int:
    with LiveBroker() as broker:
        status = Path(f"/proc/{broker.pid}/status").read_text()
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def broker_for_tests(directory: Path | None = None) -> BrokerProcess:
    """The broker under test, not started yet."""
    other = os.environ.get("PENSTOCK_TEST_URL", "")
    if other == "rabbitmq":
        return RabbitServer(directory)
    if other:
        return ExternalBroker(other)
    return LiveBroker(directory)
