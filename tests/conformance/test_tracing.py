"""The firehose: a traced virtual host copies to Penstock's users what RabbitMQ 3.10.8 copied.

Both load ``tracing.definitions`` at boot and are told the stories of ``tracing.py``.
``python -m tests.conformance.test_tracing`` records RabbitMQ's side again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.case import World
from tests.conformance.tracing import STORIES, definitions
from tests.helpers import rabbit
from tests.helpers.live_broker import LiveBroker

RECORDED = Path(__file__).parent / "recorded" / "tracing" / "rabbitmq-3.10.8.json"


DIFFERENCES = {
    # RabbitMQ cuts timestamps to 32 bits.
    "publishes_99": (
        "P <   properties: {'timestamp': 0}",
        "P <   properties: {'timestamp': Typed(letter='l', value=8589934592)}",
    ),
    # RabbitMQ names queues of the default exchange whether they are there or not.
    "unrouted_99": ("P <   routed_queues: ['<missing>']", "P <   routed_queues: []"),
    # The keys in BCC are nobody's business once a message is routed, so nothing keeps them.
    "several_keys_99": (
        "D <   routing_keys: ['<a-q>', '<b-cc>', '<c-bcc>']",
        "D <   routing_keys: ['<a-q>', '<b-cc>']",
    ),
    # What is taken back was never published.
    "a_transaction_taken_back_99": (
        "# a copy of what was taken back: yes",
        "# a copy of what was taken back: no",
    ),
}
"""Story to a line of RabbitMQ's and what Penstock says instead, on purpose."""


def tell(url: str, name: str) -> list[str]:
    world = World(url)
    try:
        STORIES[name](world)
    finally:
        world.close()
    return world.transcript()


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    directory = tmp_path_factory.mktemp("traced")
    file = directory / "definitions.json"
    file.write_text(json.dumps(definitions()))
    with LiveBroker(directory, ("--load-definitions", str(file))) as running:
        yield running


@pytest.mark.parametrize("name", STORIES)
def test_is_copied_as_by_rabbitmq(name: str, traced: LiveBroker) -> None:
    wanted = json.loads(RECORDED.read_text())[name]
    if name in DIFFERENCES:
        theirs, ours = DIFFERENCES[name]
        assert theirs in wanted
        wanted = [ours if line == theirs else line for line in wanted]
    assert tell(traced.url, name) == wanted


def test_every_story_is_recorded() -> None:
    assert set(json.loads(RECORDED.read_text())) == set(STORIES)


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
