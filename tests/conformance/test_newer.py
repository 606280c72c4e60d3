"""Where RabbitMQ 4.3.6 differs from 3.10.8: the list is complete, and what is decided holds."""

from __future__ import annotations

from pathlib import Path

from tests.conformance import record
from tests.conformance.api_stories import VhostWorld
from tests.conformance.differences import in_order
from tests.conformance.newer import LAST_DEATH, NEWER
from tests.conformance.runner import run_cases
from tests.helpers.live_broker import LiveBroker

RECORDS = Path(__file__).parent / "recorded"
OLD = record.read(RECORDS / "rabbitmq-3.10.8")
NEW = record.read(RECORDS / "rabbitmq-4.3.6")
LETTERS = ("letters.expired", "letters.expired_by_the_queue")


def test_the_list_is_complete() -> None:
    both = OLD.keys() & NEW.keys()
    differ = {
        name
        for name in both
        if in_order(OLD[name]) != [LAST_DEATH.sub("", line) for line in in_order(NEW[name])]
    }
    listed = [name for newer in NEWER for name in newer.cases]
    assert sorted(listed) == sorted(differ)


def test_the_setting_decides(tmp_path: Path) -> None:
    names = [name for newer in NEWER if newer.decided for name in newer.cases]
    with LiveBroker(tmp_path, ("--compatibility", "4")) as broker:
        told = run_cases(broker.url, [*names, *LETTERS])
        world = VhostWorld(broker.url, broker.http_port)
        queue = world.name("q")
        world.declare(world.client(), queue)
        world.show_queue("%2F", queue)
        world.close()
    assert world.transcript()[-1] == "<q> is classic {'x-queue-type': 'classic'}"
    for name, outcome in told.items():
        assert not outcome.error
        assert (name, in_order(outcome.lines)) == (name, in_order(NEW[name]))
