"""Permissions, topics, identities and limits: Penstock says what RabbitMQ said.

Both load ``restricted_definitions`` at boot and are told the stories of ``restricted.py``.
``python -m tests.conformance.test_restricted RELEASE`` records RabbitMQ's side again: 3.10.8, or
4.3.6, whose answers Penstock gives with ``compatibility = 4``.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.case import World
from tests.conformance.restricted import STORIES
from tests.conformance.restricted_definitions import definitions
from tests.helpers import rabbit
from tests.helpers.live_broker import LiveBroker

REFUSED_COPY = (
    (
        'A < channel.close ch=1 code=403 text="ACCESS_REFUSED - access to topic '
        "'xtopics.a' in exchange 'amq.topic' in vhost '/' refused for user 'topics'\" "
        "class_id=60 method_id=40"
    ),
    "A > channel.close-ok ch=1",
)
RECORDS = Path(__file__).parent / "recorded" / "restricted"
RELEASES = {"3.10.8": "3.10", "4.3.6": "4"}
"""And the setting ``compatibility``."""


def recorded(release: str) -> dict[str, list[str]]:
    told: dict[str, list[str]] = json.loads((RECORDS / f"rabbitmq-{release}.json").read_text())
    return told


def with_copies_refused(lines: list[str]) -> list[str]:
    """Penstock is stricter: the keys in CC and BCC need the right to their topics too."""
    told: list[str] = []
    for line in lines:
        if told and "xtopics.a" in told[-1]:
            told.extend(REFUSED_COPY)
        else:
            told.append(line)
    return told


def tell(url: str, name: str) -> list[str]:
    world = World(url)
    try:
        STORIES[name](world)
    finally:
        world.close()
    return world.transcript()


@pytest.fixture(scope="module", params=RELEASES)
def restricted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, LiveBroker]]:
    """The release whose answers it gives, and the broker."""
    release = str(request.param)
    directory = tmp_path_factory.mktemp("restricted")
    file = directory / "definitions.json"
    file.write_text(json.dumps(definitions()))
    settings = ("--load-definitions", str(file), "--compatibility", RELEASES[release])
    broker = LiveBroker(directory, settings, ready_timeout_s=40.0)
    broker.may_wait_for_processor = True
    with broker as running:
        yield release, running


@pytest.mark.parametrize("name", STORIES)
def test_is_refused_as_by_rabbitmq(name: str, restricted: tuple[str, LiveBroker]) -> None:
    release, running = restricted
    wanted = recorded(release)[name]
    if (name, release) == ("topics_of_copies_88", "3.10.8"):
        wanted = with_copies_refused(wanted)
    shown = [line.replace("user limit of 2", "user limit of (2)") for line in wanted]
    assert tell(running.url, name) == shown


@pytest.mark.parametrize("release", RELEASES)
def test_every_story_is_recorded(release: str) -> None:
    assert set(recorded(release)) == set(STORIES)


def test_a_file_that_is_none_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "definitions.json"
    file.write_text("[]")
    with pytest.raises(AssertionError, match="definitions are a JSON object"):
        LiveBroker(tmp_path / "b", ("--load-definitions", str(file))).start()


@pytest.mark.conformance
@pytest.mark.slow
def test_the_record_is_what_rabbitmq_says() -> None:
    if missing := rabbit.missing_reason():
        pytest.skip(missing)
    assert told_by_rabbitmq() == recorded("3.10.8")


def told_by_rabbitmq() -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "definitions.json"
        file.write_text(json.dumps(definitions()))
        with rabbit.RabbitServer(Path(name), config=f"load_definitions = {file}\n") as running:
            return {story: tell(running.url, story) for story in STORIES}


def record(release: str) -> None:
    text = json.dumps(told_by_rabbitmq(), indent=1) + "\n"
    (RECORDS / f"rabbitmq-{release}.json").write_text(text)


if __name__ == "__main__":
    record(*sys.argv[1:])
