"""A queue over its length limit loses its oldest messages at once, not at the next publish.

It is over the limit after a kill (publishes were journalled, the acknowledgements of what they
pushed out were not), and when a policy lowers the limit (D8 of the review).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from tests.helpers.connection_pair import ClientEnd, QuietBroker

COUNT = 400
LIMIT = 50
KINDS: dict[str, dict[str, Any]] = {
    "classic": {},
    "lazy": {"x-queue-mode": "lazy"},
    "with priorities": {"x-max-priority": 3},
    "deduplicating": {"x-message-deduplication": True},
}


def ready(node: QuietBroker, queue: str = "q") -> int:
    return int(node.broker.vhosts["/"].queues[queue].backing.ready_count())


def lower(node: QuietBroker, **more: Any) -> None:
    definition = {"max-length": LIMIT, **more}
    Administration(node.broker, 64).put_policy("/", Policy("p", "^q$", "queues", 0, definition))


def fill(client: ClientEnd, **arguments: Any) -> None:
    client.call("queue.declare", queue="q", durable=True, arguments=arguments)
    client.call("confirm.select")
    for number in range(COUNT):
        client.publish("", "q", b"%d" % number, run=False, delivery_mode=2)
    client.node.run()


def taken(node: QuietBroker) -> list[int]:
    taker = node.client()
    taker.consume("q", no_ack=True)
    return [int(body) for body in taker.bodies()]


def killed(node: QuietBroker, definitions: str) -> QuietBroker:
    """The start after a kill."""
    node.files.kill()
    node.definitions.close()
    return QuietBroker(node.files, definitions)


@pytest.mark.parametrize("kind", KINDS)
def test_a_start_over_the_limit_drops_the_oldest_before_anything_is_published(
    tmp_path: Path, kind: str
) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    fill(node.client(), **KINDS[kind])
    lower(node)
    node.definitions.commit()  # and the process dies before the turn that would drop messages
    after = killed(node, definitions)
    after.run()
    assert ready(after) == LIMIT
    assert taken(after) == list(range(COUNT - LIMIT, COUNT))
    after.check()


def test_what_a_start_drops_becomes_dead_letters(tmp_path: Path) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    client = node.client()
    client.call("queue.declare", queue="dead", durable=True)
    fill(client, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    lower(node)
    node.definitions.commit()
    after = killed(node, definitions)
    after.run()
    assert (ready(after), ready(after, "dead")) == (LIMIT, COUNT - LIMIT)
    after.check()


def test_a_start_over_a_limit_that_refuses_publishes_drops_nothing(tmp_path: Path) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    fill(node.client())
    lower(node, overflow="reject-publish")
    node.definitions.commit()
    after = killed(node, definitions)
    after.run()
    assert ready(after) == COUNT
    after.check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rests", [False, True], ids=["in memory", "after a start"])
def test_a_lowered_limit_drops_the_oldest_at_once(tmp_path: Path, kind: str, rests: bool) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    fill(node.client(), **KINDS[kind])
    if rests:
        node = killed(node, definitions)
    lower(node)
    node.run()
    assert ready(node) == LIMIT
    assert taken(node) == list(range(COUNT - LIMIT, COUNT))
    node.check()
