"""docs/quickstart.md, block by block, as a newcomer would run it.

The blocks are taken from the page as they stand.  Only ports differ: the test's broker must
not meet one that is already running, so the environment names them for the commands, and the
one line of Python that connects is given the port.  Everything runs in an empty directory.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.broker_process import free_port
from tests.helpers.live_broker import NO_NSQ, REPOSITORY

PAGE = (REPOSITORY / "docs" / "quickstart.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- quick-start: (\w+) -->\n```(\w+)\n(.*?)```", re.DOTALL)
BLOCKS = {name: text for name, _language, text in BLOCK.findall(PAGE)}
SHOWN = re.findall(r"^```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
LIMIT_S = 120.0
"""The page promises under two minutes."""


def test_the_blocks_are_there() -> None:
    assert list(BLOCKS) == ["serve", "publish", "look", "archive", "read"]


@pytest.mark.spark
@pytest.mark.slow
def test_the_quick_start(tmp_path: Path) -> None:
    begun = time.monotonic()
    amqp_port, http_port = free_port(), free_port()
    environment = {
        **os.environ,
        "PENSTOCK_AMQP_PORT": str(amqp_port),
        "PENSTOCK_HTTP_PORT": str(http_port),
        **NO_NSQ,
        "PENSTOCK_HTTP_URL": f"http://127.0.0.1:{http_port}",
        "PENSTOCK_URL": f"amqp://guest:guest@127.0.0.1:{amqp_port}/%2f",
    }
    broker = subprocess.Popen(
        _shell(BLOCKS["serve"]), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert broker.stdout is not None
        while not (line := broker.stdout.readline()).startswith("ready in "):
            assert line, "the broker ended before it was ready"
        with_port = BLOCKS["publish"].replace('"127.0.0.1")', f'"127.0.0.1", {amqp_port})')
        _run([sys.executable, "-c", with_port], tmp_path, environment)
        seen = _run(_shell(BLOCKS["look"]), tmp_path, environment)
        assert re.search(r"orders\s+yes\s+100\s+0", seen), seen
        assert seen.splitlines()[0] == SHOWN[0].splitlines()[0]
        _run(_shell(BLOCKS["archive"]), tmp_path, environment)
        assert _run([sys.executable, "-c", BLOCKS["read"]], tmp_path, environment) == SHOWN[-1]
        assert re.search(
            r"orders\s+yes\s+0\s+0", _run(_shell(BLOCKS["look"]), tmp_path, environment)
        )
    finally:
        broker.terminate()
        code = broker.wait(10)
        if broker.stdout is not None:
            broker.stdout.close()
    assert code == 0
    assert time.monotonic() - begun < LIMIT_S


def _shell(block: str) -> list[str]:
    """The block with the program of this environment in place of the page's ``.venv/bin``."""
    return [
        "/bin/sh",
        "-c",
        "exec " + block.replace(".venv/bin/", f"{Path(sys.executable).parent}/"),
    ]


def _run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
