"""A broker as a process that a test may start, stop, kill and start again.

``BrokerProcess`` is what tests talk to; ``live_broker.LiveBroker`` runs Penstock behind it,
``rabbit.RabbitServer`` the real RabbitMQ, ``ExternalBroker`` is a broker somebody else runs.
What the process writes goes to a file, so that a test which fails can show it and a broker
that writes a lot never blocks on a full pipe.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, Self
from urllib.parse import urlsplit

POLL_S = 0.01
_taken: set[int] = set()


class BrokerFailed(AssertionError):
    """The broker did not do what its process contract promises; the text holds its output.

    ``exit_code`` is there when it ended by itself; ``late`` = it still ran, and was not ready.
    """

    def __init__(self, text: str, *, exit_code: int | None = None, late: bool = False) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.late = late


class Place(NamedTuple):
    """Where a process runs and answers; ``prefix`` stands before its command."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


HERE = Place()


def free_port() -> int:
    """A port nobody listens on, outside the range the kernel hands to clients.

    A broker that is killed must find its port free again, so a port that the kernel may
    give to any outgoing connection meanwhile will not do.  Each worker of a parallel run has its
    own eighth of the ports.
    """
    chance = random.SystemRandom()
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw7").removeprefix("gw")) % 8
    while True:
        port = chance.randrange(20_000 + worker, 32_000, 8)
        if port in _taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _taken.add(port)
        return port


def processor_s(pid: int) -> float:
    """What a process has used of processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class BrokerProcess:
    """One broker on ports of its own, with a directory of its own; a context manager.

    ``may_wait_for_processor``: ``ready_timeout_s`` is processor time, while it uses any in so long.
    """

    name = "broker"
    stop_timeout_s = 20.0

    def __init__(
        self, directory: Path | None = None, ready_timeout_s: float = 20.0, place: Place = HERE
    ) -> None:
        self.place = place
        self._own_directory = directory is None
        self.directory = (
            Path(tempfile.mkdtemp(prefix="broker-")) if directory is None else directory
        )
        self.ready_timeout_s = ready_timeout_s
        self.may_wait_for_processor = False
        self.amqp_port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._log_path = self.directory / f"{self.name}.out"
        self._log_start = 0

    # What a subclass must say.

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def is_ready(self) -> bool:
        raise NotImplementedError

    # What tests use.

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@{self.place.address}:{self.amqp_port}/%2f"

    @property
    def pid(self) -> int:
        if self.process is None:
            raise BrokerFailed(f"{self.name} is not running")
        return self.process.pid

    def start(self) -> Self:
        assert self.process is None, f"{self.name} already runs"
        self.directory.mkdir(parents=True, exist_ok=True)
        log: IO[bytes]
        with self._log_path.open("ab") as log:
            self._log_start = log.tell()
            self.process = subprocess.Popen(
                [*self.place.prefix, *self.command()],
                cwd=self.directory,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            if self.process is not None:  # else it has died by itself, and the error says how
                self.kill()
            raise
        return self

    def stop(self) -> None:
        """The polite way: SIGTERM, and the process must leave with exit code 0."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(
                f"{self.name} still ran {self.stop_timeout_s:.0f} s after SIGTERM:\n{self.output()}"
            ) from None
        self.process = None
        self._bury(process)
        self._judge_exit(code)

    def kill(self) -> None:
        """SIGKILL to the whole process group; returns when it is gone."""
        process = self._running()
        self._bury(process)
        process.wait(10)
        self.process = None

    def restart(self) -> Self:
        """Start again on the same ports and data; stops it first if it runs."""
        if self.process is not None:
            self.stop()
        return self.start()

    def output(self) -> str:
        """All it has written since it was started last."""
        if not self._log_path.exists():
            return ""
        with self._log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if self.process is None:
                return
            if kind is None:
                self.stop()
            else:
                self.kill()
        finally:
            if self._own_directory:
                shutil.rmtree(self.directory, ignore_errors=True)

    # Inside.

    def _running(self) -> subprocess.Popen[bytes]:
        if self.process is None:
            raise BrokerFailed(f"{self.name} is not running")
        process = self.process
        code = process.poll()
        if code is not None:
            self.process = None
            self._bury(process)
            raise BrokerFailed(
                f"{self.name} died by itself (exit code {code}):\n{self.output()}", exit_code=code
            )
        return process

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self.ready_timeout_s
        used_s = 0.0
        while not self.is_ready():
            process = self._running()
            if time.monotonic() > deadline:
                before_s, used_s = used_s, processor_s(process.pid)
                if self.may_wait_for_processor and before_s < used_s < self.ready_timeout_s:
                    deadline += self.ready_timeout_s
                    continue
                raise BrokerFailed(
                    f"{self.name} was not ready after {self.ready_timeout_s:.0f} s:\n"
                    f"{self.output()}",
                    late=True,
                )
            time.sleep(POLL_S)

    def _judge_exit(self, code: int) -> None:
        if code != 0:
            raise BrokerFailed(
                f"{self.name} left with exit code {code}:\n{self.output()}", exit_code=code
            )

    @staticmethod
    def _bury(process: subprocess.Popen[bytes]) -> None:
        """Nothing of the group survives, not even what the broker itself had started."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class ExternalBroker(BrokerProcess):
    """A broker that runs already; it can be used, not stopped."""

    name = "external"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self.amqp_port = urlsplit(url).port or 5672

    @property
    def url(self) -> str:
        return self._url

    def start(self) -> Self:
        return self

    def stop(self) -> None:
        raise BrokerFailed("this test must stop the broker, and that one is not ours to stop")

    kill = stop
