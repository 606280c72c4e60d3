"""PostgreSQL as a process, for the catalog of a table: killed and started again by tests.

PostgreSQL refuses to run as root, so tests that run as root start it as an unprivileged user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import pytest

from tests.helpers.broker_process import POLL_S, free_port
from tests.spark.spark_tools import descendants, kill_all

UNPRIVILEGED = "nobody"
START_TIMEOUT_S = 60


class SqlServer:
    """Empty; each ``database`` is made when it is first asked for."""

    def __init__(self) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
        if not found:
            pytest.skip("no PostgreSQL (Debian: apt-get install postgresql)")
        if find_spec("psycopg2") is None:
            pytest.skip("no client of PostgreSQL: make deps-spark")
        self._programs = found[-1].parent
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-sql-"))
        self._as_user: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(UNPRIVILEGED)
            os.chown(self._directory, user.pw_uid, user.pw_gid)
            self._as_user = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--username=postgres", "--auth=trust", "--encoding=UTF8")

    def _run(self, program: str, *words: str) -> None:
        command = [self._programs / program, "-D", self._directory / "data", *words]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, cwd=self._directory, **self._as_user
        )

    def database(self, name: str) -> str:
        """Its address for SQLAlchemy."""
        self._ask(f'CREATE DATABASE "{name}"')
        return f"postgresql+psycopg2://postgres@127.0.0.1:{self._port}/{name}"

    def _ask(self, query: str) -> None:
        import psycopg2

        asked = psycopg2.connect(host="127.0.0.1", port=self._port, user="postgres")
        asked.autocommit = True
        with asked.cursor() as cursor:
            cursor.execute(query)
        asked.close()

    def start(self) -> None:
        import psycopg2

        command = [self._programs / "postgres", "-D", self._directory / "data"]
        command += ["-h", "127.0.0.1", "-p", str(self._port), "-k", self._directory]
        self._process = subprocess.Popen(
            command, stderr=subprocess.DEVNULL, cwd=self._directory, **self._as_user
        )
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                return self._ask("SELECT 1")
            except psycopg2.OperationalError:
                assert time.monotonic() < deadline, "PostgreSQL does not answer"
                time.sleep(POLL_S)

    def kill(self) -> None:
        """With all its processes: it does not start while one is left."""
        if self._process is not None:
            kill_all(descendants(self._process.pid))
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
