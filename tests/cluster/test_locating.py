"""On which node a new queue has its home: what the declaration says, what policies say, who runs.

Where chance decides, the test is the chance.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.administration import Administration
from penstock.broker.rules.policies import Policy
from penstock.cluster.agreement import metadata as md
from penstock.cluster.agreement.agreed import Agreed
from penstock.cluster.agreement.locating import Locating
from penstock.core.errors import Unavailable
from tests.helpers.connection_pair import QuietBroker

LOCATOR = "x-queue-master-locator"
HA = {"ha-mode": "nodes", "ha-params": ["c", "b"]}


class Place:
    """The node ``a`` of a cluster of a, b and c, of which the last two have some masters."""

    def __init__(self) -> None:
        self.node = QuietBroker()
        self.vhost = self.node.broker.vhosts["/"]
        self.agreed = Agreed()
        self.locating = Locating(self.agreed, "a")
        self.running = ["a", "b", "c"]
        self.drained: set[str] = set()
        self.locating.nodes = lambda: self.running
        self.locating.is_drained = lambda node: node in self.drained
        self.locating.chance = lambda count: count - 1
        for number, home in enumerate("aab"):
            self.declared(f"known {number}", home)

    def declared(self, name: str, home: str) -> None:
        meta = md.QueueMeta("/", name, name, home, True, False, {}, "")
        self.agreed.put(md.key_of(meta), 1, meta)

    def policy(self, definition: dict[str, Any]) -> None:
        policy = Policy("p", "^q", "queues", 0, definition)
        Administration(self.node.broker, 64).put_policy("/", policy)

    def home(
        self, locator: str = "", *, name: str = "q", durable: bool = True, owner: object = None
    ) -> str:
        arguments: dict[str, object] = {LOCATOR: locator} if locator else {}
        return self.locating.home_of(self.vhost, name, durable, owner, arguments)


@pytest.fixture
def place() -> Place:
    return Place()


def test_each_locator(place: Place) -> None:
    assert place.home() == "a"
    assert place.home("client-local") == "a"
    assert place.home("min-masters") == "c"
    assert place.home("random") == "c"
    place.locating.chance = lambda _count: 1
    assert place.home("random") == "b"


def test_who_declares_may_be_on_another_node(place: Place) -> None:
    place.locating.client_node = "b"
    assert place.home() == "b"
    assert place.home("min-masters") == "c", "the fewest, wherever the client is"
    place.drained = {"b"}
    assert place.home() == "a"


def test_the_argument_wins_over_the_policy_and_that_over_the_setting(place: Place) -> None:
    place.locating.default = "min-masters"
    assert place.home() == "c"
    place.locating.chance = lambda _count: 1
    place.policy({"queue-master-locator": "random"})
    assert place.home() == "b"
    assert place.home("client-local") == "a"
    assert place.home(name="not by policy") == "c"


def test_masters_are_counted_as_queues_come_and_go(place: Place) -> None:
    place.declared("one more", "c")
    place.declared("one more", "c")  # the same again
    assert place.home("min-masters") == "b", "as many as c, and before it"
    place.agreed.delete(md.path(md.QUEUES, "/", "one more"))
    place.agreed.delete(md.path(md.QUEUES, "/", "one more"))
    assert place.home("min-masters") == "c"
    for number in range(2):
        place.agreed.delete(md.path(md.QUEUES, "/", f"known {number}"))
    assert place.home("min-masters") == "a", "of equals the client's"


def test_masters_that_moved_count_where_they_are(place: Place) -> None:
    place.locating.viewed = lambda: {("/", "known 0"): "c", ("/", "unknown"): "b"}
    assert place.home("min-masters") == "a", "one each"
    place.locating.viewed = lambda: {("/", f"known {number}"): "c" for number in range(3)}
    place.drained = {"a"}
    assert place.home("min-masters") == "b"
    assert place.agreed.homes == {"a": 2, "b": 1}


def test_exclusive_queues_are_with_their_client(place: Place) -> None:
    place.policy({"queue-master-locator": "random"} | HA)
    assert place.home("min-masters", owner=object()) == "a"


def test_a_list_of_nodes_is_for_queues_that_can_be_mirrored(place: Place) -> None:
    place.policy(HA)
    assert place.home() == "c", "the first of the list"
    assert place.home("min-masters") == "c"
    place.declared("x", "c")
    place.declared("y", "c")
    assert place.home("min-masters") == "b"
    assert place.home(durable=False) == "a"
    place.running = ["a", "b"]
    assert place.home() == "b", "the one of them that runs"
    place.running = ["a"]
    assert place.home() == "a", "none of them runs"


def test_a_node_that_is_drained_or_away_has_no_new_masters(place: Place) -> None:
    place.drained = {"c"}
    assert place.home("min-masters") == "b"
    assert place.home("random") == "b"
    place.policy(HA)
    assert place.home() == "b"
    place.drained = {"a", "b", "c"}
    assert place.home("min-masters") == "a", "it has to be somewhere"
    place.drained, place.running = {"a"}, ["a", "b"]
    assert place.home("client-local", name="other") == "b"


def test_a_node_alone_has_them_all() -> None:
    node = QuietBroker()
    locating = Locating(Agreed(), "a")
    for locator in ("client-local", "min-masters", "random"):
        vhost = node.broker.vhosts["/"]
        assert locating.home_of(vhost, "q", True, None, {LOCATOR: locator}) == "a"


QUORUM: dict[str, object] = {"x-queue-type": "quorum"}


def first_copies(place: Place, **arguments: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Those that vote, and all that are wanted."""
    place.locating.lives = lambda: {node: f"{node}/1" for node in place.running}
    place.locating.known = lambda: ["a", "b", "c", "d"]
    view = place.locating.first_view("b", QUORUM | arguments)
    assert view is not None
    assert view.reign is not None
    assert view.master == "b/1"
    return view.reign.copies, view.wanted


def test_a_quorum_queue_has_three_copies_unless_it_says_how_many(place: Place) -> None:
    three = ("b", "c", "a")
    assert first_copies(place) == (three, three)
    assert first_copies(place, **{"x-quorum-initial-group-size": 1}) == (("b",), ("b",))
    all_four = {"x-quorum-initial-group-size": 9}
    assert first_copies(place, **all_four) == (three, (*three, "d"))
    place.running = ["a", "b"]
    assert first_copies(place) == (("b", "a"), ("b", "a", "c"))


def test_any_other_queue_has_no_view_at_first(place: Place) -> None:
    place.locating.lives = lambda: {"a": "a/1"}
    assert place.locating.first_view("a", {}) is None
    with pytest.raises(Unavailable, match="node 'b', where the queue is to be, has gone"):
        place.locating.first_view("b", QUORUM)
