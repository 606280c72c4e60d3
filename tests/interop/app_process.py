"""An application as a process of its own: what it logs, and the ways it may end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

REPOSITORY = Path(__file__).resolve().parents[2]
ANSWER_S = 30
STOP_S = 60
"""A child of Celery's pool waits 30 s when the signal comes before its parent reads its result."""


class AppProcess:
    """``python -m`` the arguments, or a program; ``INTEROP_BROKER_URL``: the broker's."""

    def __init__(
        self,
        url: str,
        name: str,
        directory: Path,
        arguments: list[str],
        program: Sequence[str] = (sys.executable, "-m"),
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.name = name
        self._log = directory / f"{name}.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*program, *arguments],
                cwd=directory,
                env=os.environ
                | {
                    "INTEROP_BROKER_URL": url,
                    "PYTHONPATH": str(REPOSITORY),
                    "PYTHONUNBUFFERED": "1",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str, times: int = 1) -> None:
        deadline = time.monotonic() + ANSWER_S
        while len(re.findall(pattern, self.log())) < times:
            assert self.process.poll() is None, f"{self.name} left:\n{self.log()}"
            assert time.monotonic() < deadline, f"no {pattern!r} in:\n{self.log()}"
            time.sleep(0.05)

    def stop(self) -> None:
        """Warm shutdown: it finishes what it has and says goodbye to the broker."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(STOP_S) == 0, self.log()

    def kill(self) -> None:
        """SIGKILL to it and everything it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
