"""Permissions, topics, identities and limits: Penstock says what RabbitMQ 3.10.8 said.

Both load ``restricted_definitions`` at boot and are told the stories of ``restricted.py``.
``python -m tests.conformance.test_restricted`` records RabbitMQ's side again.
"""

from __future__ import annotations

import json
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
RECORDED = Path(__file__).parent / "recorded" / "restricted" / "rabbitmq-3.10.8.json"


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


@pytest.fixture(scope="module")
def restricted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    directory = tmp_path_factory.mktemp("restricted")
    file = directory / "definitions.json"
    file.write_text(json.dumps(definitions()))
    with LiveBroker(directory, ("--load-definitions", str(file))) as running:
        yield running


@pytest.mark.parametrize("name", STORIES)
def test_is_refused_as_by_rabbitmq(name: str, restricted: LiveBroker) -> None:
    told = tell(restricted.url, name)
    wanted = json.loads(RECORDED.read_text())[name]
    if name == "topics_of_copies_88":
        wanted = with_copies_refused(wanted)
    assert told == wanted


def test_every_story_is_recorded() -> None:
    assert set(json.loads(RECORDED.read_text())) == set(STORIES)


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
    assert told_by_rabbitmq() == json.loads(RECORDED.read_text())


def told_by_rabbitmq() -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "definitions.json"
        file.write_text(json.dumps(definitions()))
        with rabbit.RabbitServer(Path(name), config=f"load_definitions = {file}\n") as running:
            return {story: tell(running.url, story) for story in STORIES}


def record() -> None:
    told = told_by_rabbitmq()
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    RECORDED.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    record()
