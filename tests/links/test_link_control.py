"""Which links a node runs: what it looks through for that, and how much of it in a turn."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from penstock.links.link import Link
from penstock.node import link_control
from penstock.node.link_control import LinkControl
from penstock.storage.definitions.parameters import ParameterRecord
from tests.helpers.connection_pair import QuietBroker

QUEUES = 40


class Control:
    """Of a node with federated queues; its links do not start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Link, "start", lambda _link: True)
        self.now_ms = 10_000
        monkeypatch.setattr(link_control, "mono_ms", lambda: self.now_ms)
        self.node = QuietBroker()
        self.broker = self.node.broker
        self.client = self.node.client()
        for number in range(QUEUES):
            self.client.call("queue.declare", queue=f"q{number}", durable=True)
        settings: Any = SimpleNamespace(
            default_user="guest",
            shovel_topology_predeclared=False,
            shovel_delete_after_duration_floor_s=0,
            static_shovels="",
            value_of=lambda _key: "",
        )
        unused: Any = None
        administration = Administration(self.broker, 16)
        self.control = LinkControl(self.broker, unused, unused, administration, settings)
        value = {"uri": "amqp://there"}
        self.broker.parameters.put(
            ParameterRecord("up", value, "/", "federation-upstream", "guest")
        )
        administration.put_policy(
            "/", Policy("p", "^q", "queues", 0, {"federation-upstream": "up"})
        )

    def look(self) -> list[str]:
        """The federated queues that have a link after another turn."""
        self.now_ms += 1
        self.control.look()
        return [str(row["queue"]) for row in self.control.federation_links()]


def test_queues_are_looked_through_in_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time for more each turn looks at one; the links change when all were looked at."""
    monkeypatch.setattr(link_control, "LOOK_AT_ONCE_S", 0)
    control = Control(monkeypatch)
    turns = 0
    while not control.look():
        turns += 1
        assert turns < 2 * QUEUES
    assert turns >= QUEUES
    assert sorted(control.look()) == sorted(f"q{number}" for number in range(QUEUES))
    control.client.call("queue.delete", queue="q7")
    control.now_ms += 2000
    for _ in range(2 * QUEUES):
        assert len(control.look()) in (QUEUES, QUEUES - 1)
    assert "q7" not in control.look()


def test_in_a_turn_with_time_all_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_control, "LOOK_AT_ONCE_S", 10)
    assert len(Control(monkeypatch).look()) == QUEUES
