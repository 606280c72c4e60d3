"""Queues that are not durable end with their node, some time after it has gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock.cluster.agreement.coordinator import Event
from penstock.cluster.agreement.lost_transients import AT_ONCE, LostTransients
from tests.helpers.quiet_cluster import QuietMembers, ask, told_to

PATIENCE_MS = 6000


class Town(QuietMembers):
    """``a`` and ``b`` see to what the other leaves behind."""

    def __init__(self, directory: Path) -> None:
        self.transients: dict[str, LostTransients] = {}
        super().__init__(directory)

    def start(self, name: str) -> None:
        super().start(name)
        self.transients[name] = LostTransients(
            self.common[name].changes,
            self.memberships[name],
            PATIENCE_MS,
        )

    def kill(self, name: str) -> None:
        del self.transients[name]
        super().kill(name)

    def heard(self, name: str, events: Sequence[Event]) -> None:
        super().heard(name, events)
        if name in self.transients:
            self.transients[name].turn(self.now_ms)

    def wait(self, ms: int) -> None:
        self.run(ms // 10)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path)
    yield town
    town.run()
    town.check()


def declare(town: Town, node: str, *names: str, durable: bool) -> None:
    client = town.quiet[node].client()
    for name in names:
        (told,) = ask(town, client, "queue.declare", queue=name, durable=durable)
        assert told.name == "queue.declare-ok"


def test_they_go_and_their_names_are_free(town: Town) -> None:
    declare(town, "b", "durable", durable=True)
    declare(town, "b", "passing", durable=False)
    declare(town, "a", "of a", durable=False)
    client = town.quiet["a"].client()
    ask(town, client, "basic.consume", queue="passing", consumer_tag="c")
    town.lose("b")
    town.wait(PATIENCE_MS - 2000)
    assert "passing" in town.vhost("a").queues
    town.wait(4000)
    assert set(town.vhost("a").queues) == {"durable", "of a"}
    assert ("basic.cancel", "c") in [
        (told.name, told.fields.get("consumer_tag")) for told in told_to(client)
    ]
    declare(town, "a", "passing", durable=False)


def test_many_go_in_several_proposals(town: Town) -> None:
    declare(town, "b", *[f"q{number}" for number in range(AT_ONCE * 2 + 1)], durable=False)
    town.lose("b")
    town.wait(PATIENCE_MS + 2000)
    assert town.vhost("a").queues == {}


def test_those_of_a_node_that_was_cut_off_for_a_while_stay(town: Town) -> None:
    """Its lease has ended, and it lives."""
    declare(town, "b", "passing", durable=False)
    town.common["b"].changes.coordinator.cut_off = True  # type: ignore[attr-defined]
    while "b" in town.memberships["a"].running():
        town.wait(100)
    town.wait(PATIENCE_MS - 2000)
    town.common["b"].changes.coordinator.cut_off = False  # type: ignore[attr-defined]
    town.wait(1500)
    town.memberships["b"].rejoin("again")
    town.wait(PATIENCE_MS * 2)
    assert town.memberships["a"].running() == ["a", "b"]
    assert "passing" in town.vhost("a").queues


def test_who_is_the_eldest_then_does_it(town: Town) -> None:
    declare(town, "a", "passing", durable=False)
    assert town.memberships["b"].eldest() == "a"
    town.kill("a")
    town.wait(PATIENCE_MS * 2)
    assert town.memberships["b"].eldest() == "b"
    assert town.vhost("b").queues == {}
