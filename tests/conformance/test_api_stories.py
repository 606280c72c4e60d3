"""Default queue types, and what may be declared again: as RabbitMQ 4.3.6."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conformance.api_stories import PLAIN, QUORUM, RECORDED, RELAXED, STORIES, tell
from tests.helpers.live_broker import LiveBroker

ARGUMENTS = {
    PLAIN: (),
    RELAXED: ("--quorum-relaxed-checks-on-redeclaration", "true"),
    QUORUM: ("--default-queue-type", "quorum"),
}


@pytest.fixture(scope="module", params=ARGUMENTS)
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, list[str]]]:
    """The transcripts of all stories of one setting."""
    setting = str(request.param)
    with LiveBroker(tmp_path_factory.mktemp(setting), ARGUMENTS[setting]) as broker:
        port = urlsplit(broker.http_url).port
        assert port is not None
        names = [name for name, (wanted, _) in STORIES.items() if wanted == setting]
        yield {name: tell(broker.url, port, name) for name in names}


def test_are_as_in_rabbitmq(told: dict[str, list[str]]) -> None:
    recorded = json.loads(Path(RECORDED).read_text())
    assert told
    for name, lines in told.items():
        assert (name, lines) == (name, recorded[name])


def test_every_story_is_recorded() -> None:
    assert set(json.loads(Path(RECORDED).read_text())) == set(STORIES)
