"""``penstock definitions``: out of one broker, and in again, with what was left out said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli.admin.definitions import definitions
from tests.helpers.live_broker import LiveBroker


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    with LiveBroker(tmp_path_factory.mktemp("broker")) as running:
        yield running.http_url


def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str]:
    result = CliRunner().invoke(definitions, arguments, input=stdin)
    return result.exit_code, result.output


def test_out_to_a_file_and_in_again(url: str, tmp_path: Path) -> None:
    queue = {"name": "q", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    body = json.dumps({"queues": [queue]}).encode()
    assert run("import", "--url", url, stdin=body) == (0, "")
    file = tmp_path / "all.json"
    assert run("export", str(file), "--url", url) == (0, "")
    assert json.loads(file.read_text())["queues"] == [queue]
    assert run("import", str(file), "--url", url) == (0, "")
    code, output = run("export", "--vhost", "/", "--url", url)
    assert (code, json.loads(output)["queues"][0]["name"]) == (0, "q")


def test_what_is_left_out_is_named_and_fails(url: str) -> None:
    body = b'{"queues": [{"name": "s", "arguments": {"x-queue-mode": "odd"}}]}'
    code, output = run("import", "--vhost", "/", "--url", url, stdin=body)
    assert code == 1
    assert "left out: queue 's' in vhost '/': invalid arg 'x-queue-mode'" in output
    assert "1 left out" in output


def test_nonsense_is_refused(url: str) -> None:
    code, output = run("import", "--url", url, stdin=b"x")
    assert code == 1
    assert "failed_to_parse_json" in output
