"""pynsq, unmodified: the official client, which begins a new snappy stream for every command."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nsq  # noqa: F401
import pytest

from tests.helpers.certificates import MISSING, Authority
from tests.helpers.nsq_live import NsqLiveBroker

pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

PROGRAM = Path(__file__).parent / "pynsq_program.py"
LAYERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "tls": {"tls_v1": True},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True, "deflate_level": 1},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NsqLiveBroker]:
    authority = Authority(tmp_path_factory.mktemp("certificates"))
    with NsqLiveBroker(authority=authority) as running:
        yield running


def exchange(broker: NsqLiveBroker, topic: str, options: dict[str, Any]) -> list[tuple[str, int]]:
    arguments = [sys.executable, str(PROGRAM), broker.nsq_address, topic, json.dumps(options)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [(body, attempts) for body, attempts in json.loads(done.stdout)]


@pytest.mark.parametrize("layers", list(LAYERS))
def test_everything_over_every_layer(broker: NsqLiveBroker, layers: str) -> None:
    got = exchange(broker, f"pynsq-{layers}", LAYERS[layers])
    expected = [(str(number), 1) for number in range(1, 99)]
    assert sorted(got) == sorted([*expected, ("0", 2), ("x" * 100_000, 1)])


def test_secrets() -> None:
    with NsqLiveBroker(nsq_auth_required="true") as broker:
        assert len(exchange(broker, "pynsq-secret", {"auth_secret": "guest:guest"})) == 100
