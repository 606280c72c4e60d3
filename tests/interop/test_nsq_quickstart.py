"""The quick start of docs/nsq.md, block by block; only the ports differ."""

from __future__ import annotations

import re
import shlex
import urllib.request
from pathlib import Path

import nsq  # noqa: F401
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from tests.helpers.live_broker import REPOSITORY
from tests.helpers.nsq_broker import NsqBroker
from tests.helpers.pages import blocks_of, interrupted, pasted
from tests.spark.spark_tools import require_spark

PAGE = (REPOSITORY / "docs" / "nsq.md").read_text(encoding="utf-8")
BLOCKS = blocks_of("docs/nsq.md", "quick-start")


def test_the_blocks_are_there() -> None:
    assert list(BLOCKS) == ["publish", "consume", "archive", "amqp"]


def test_the_quick_start(tmp_path: Path) -> None:
    with NsqBroker() as broker:
        for line in BLOCKS["publish"].splitlines():
            assert curl(line, broker) == "OK"
        assert consumed(broker, tmp_path) == ["first attempt 1\n", "second attempt 1\n"]
        place = {"PENSTOCK_DATA_DIR": str(broker.data_dir)}
        commands = re.findall(r"^    penstock (queue.*)$", PAGE, re.MULTILINE)
        assert len(commands) == 3
        for line in commands:
            result = CliRunner().invoke(cli, shlex.split(line), env=place)
            assert result.exit_code == 0, result.output
        curl(BLOCKS["archive"].splitlines()[1], broker)
        with_port = BLOCKS["amqp"].replace('"127.0.0.1")', f'"127.0.0.1", {broker.amqp_port})')
        assert pasted(f"python - <<'END'\n{with_port}END\n", tmp_path, {}) == "third\n"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_channel_lands_in_a_table(tmp_path: Path) -> None:
    require_spark()
    make_topic = "curl -X POST 'http://127.0.0.1:4151/topic/create?topic=orders'"
    with NsqBroker() as broker:
        assert curl(make_topic, broker) == ""
        make, publish, *rest = BLOCKS["archive"].splitlines()
        assert curl(make, broker) == ""
        assert curl(publish, broker) == "OK"
        told = pasted("\n".join(rest), tmp_path, {"PENSTOCK_URL": broker.url})
        assert told.splitlines()[-1] == "[b'third']"
        assert "prints `[b'third']`" in PAGE


def consumed(broker: NsqBroker, directory: Path) -> list[str]:
    """The two lines that the page tells of; then the consumer is ended as by Ctrl-C."""
    block = BLOCKS["consume"].replace("127.0.0.1:4150", f"127.0.0.1:{broker.tcp_port}")
    lines = interrupted(block, directory, 2)
    assert all(f"`{line.strip()}`" in PAGE for line in lines)
    return lines


def curl(line: str, broker: NsqBroker) -> str:
    """What the command would do, for machines that have no curl."""
    program, flag, value, url = shlex.split(line)
    assert program == "curl"
    assert (flag, value) == ("-X", "POST") or flag == "-d"
    url = url.replace(":4151", f":{broker.api_port}")
    body = value.encode() if flag == "-d" else b""
    with urllib.request.urlopen(url, body, timeout=10) as answer:
        return str(answer.read().decode())
