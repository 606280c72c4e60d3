"""Log-ins: mechanisms, passwords, limits and what is agreed on, as RabbitMQ 4.3.6 has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conformance.log_in_stories import CONFIGURATIONS, RECORDED, STORIES, tell
from tests.helpers.live_broker import LiveBroker

pytestmark = pytest.mark.slow

OTHERWISE: dict[str, tuple[tuple[str, str], ...]] = {
    "anonymous": (("; tune 2047 131072 60", "; closed"),),
    "limits_of_users": (
        ("user limit of 0", "user limit of (0)"),
        ("user limit of 1", "user limit of (1)"),
        ("400 bad_request: ['no_such_user', '<nobody>']", "404 Object Not Found: Not Found"),
    ),
    "tuned_against_defaults": (
        ("tune-ok 1 8191 1; open '/'; closed", "tune-ok 1 8191 1; open '/'; connection.open-ok"),
        ("tune-ok 1 4096 1; open '/'; closed", "tune-ok 1 4096 1; open '/'; connection.open-ok"),
    ),
    "tuned_against_no_limits": (
        ("tune 0 0 0;", "tune 65535 134217728 0;"),
        ("8191 1; open '/'; closed", "8191 1; open '/'; connection.open-ok"),
        ("4096 1; open '/'; closed", "4096 1; open '/'; connection.open-ok"),
        ("tune-ok 0 0 0; open '/'; connection.open-ok", "tune-ok 0 0 0; open '/'; closed"),
        ("tune-ok 1 0 0; open '/'; connection.open-ok", "tune-ok 1 0 0; open '/'; closed"),
        ("tune-ok 0 8192 0; open '/'; connection.open-ok", "tune-ok 0 8192 0; open '/'; closed"),
        ("4294967295 0; open '/'; connection.open-ok", "4294967295 0; open '/'; closed"),
    ),
    "users_without_a_password": (("-> 500", "-> 400 bad_request: password is no text"),),
}
"""Story ─► what RabbitMQ says, and Penstock instead; docs/differences.md says why."""
OTHERWISE["tuned_against_small_offers"] = OTHERWISE["tuned_against_defaults"]


@pytest.fixture(scope="module", params=CONFIGURATIONS)
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[str]]]:
    """The transcripts of all stories of one configuration."""
    configuration = str(request.param)
    directory = tmp_path_factory.mktemp(configuration)
    file = directory / "rabbitmq.conf"
    file.write_text(CONFIGURATIONS[configuration])
    names = [name for name, (wanted, _) in STORIES.items() if wanted == configuration]
    running = LiveBroker(directory, ("--config", str(file)), ready_timeout_s=40.0)
    running.may_wait_for_processor = True
    with running as broker:
        port = urlsplit(broker.http_url).port
        assert port is not None
        with ThreadPoolExecutor(len(names)) as pool:
            lines = pool.map(partial(tell, broker.url, port), names)
            yield dict(zip(names, lines, strict=True))


def test_are_as_in_rabbitmq(told: dict[str, list[str]]) -> None:
    recorded = json.loads(Path(RECORDED).read_text())
    assert told
    for name, lines in told.items():
        assert (name, lines) == (name, [_ours(name, line) for line in recorded[name]])


def _ours(story: str, line: str) -> str:
    for theirs, ours in OTHERWISE.get(story, ()):
        line = line.replace(theirs, ours)
    return line


def test_every_difference_is_there() -> None:
    recorded = json.loads(Path(RECORDED).read_text())
    for name, differences in OTHERWISE.items():
        told = "\n".join(recorded[name])
        assert [theirs for theirs, _ in differences if theirs not in told] == []


def test_every_story_is_recorded() -> None:
    assert set(json.loads(Path(RECORDED).read_text())) == set(STORIES)
