"""The quick start of docs/nsq.md, block by block; only the ports differ."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import nsq  # noqa: F401
from click.testing import CliRunner

from penstock.cli.main import cli
from tests.helpers.live_broker import REPOSITORY
from tests.helpers.nsq_broker import NsqBroker

PAGE = (REPOSITORY / "docs" / "nsq.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- quick-start: (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)
BLOCKS = dict(BLOCK.findall(PAGE))
(SHOWN,) = re.findall(r"^```text\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_blocks_are_there() -> None:
    assert list(BLOCKS) == ["publish", "consume", "amqp"]


def test_the_quick_start(tmp_path: Path) -> None:
    with NsqBroker() as broker:
        for line in BLOCKS["publish"].splitlines():
            assert curl(line, broker) == "OK"
        consume = BLOCKS["consume"].replace("127.0.0.1:4150", f"127.0.0.1:{broker.tcp_port}")
        assert run(consume, tmp_path) == SHOWN == "first attempt 1\nsecond attempt 1\n"
        place = {"PENSTOCK_DATA_DIR": str(broker.data_dir)}
        commands = re.findall(r"^    penstock (queue.*)$", PAGE, re.MULTILINE)
        assert len(commands) == 3
        for line in commands:
            result = CliRunner().invoke(cli, shlex.split(line), env=place)
            assert result.exit_code == 0, result.output
        with_port = BLOCKS["amqp"].replace('"127.0.0.1")', f'"127.0.0.1", {broker.amqp_port})')
        assert run(with_port, tmp_path) == "third\n"


def curl(line: str, broker: NsqBroker) -> str:
    """What the command would do, for machines that have no curl."""
    program, flag, body, url = shlex.split(line)
    assert (program, flag) == ("curl", "-d")
    url = url.replace(":4151", f":{broker.api_port}")
    with urllib.request.urlopen(url, body.encode(), timeout=10) as answer:
        return str(answer.read().decode())


def run(program: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
