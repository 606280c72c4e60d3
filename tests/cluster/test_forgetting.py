"""A node that never comes back is forgotten, and so are the queues of which nobody has a copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cluster.agreement.coordinator import Change
from penstock.cluster.agreement.forgetting import (
    AT_ONCE,
    FORGETS,
    GOES,
    LATER,
    STAYS,
    Forgetting,
    KnownView,
    fate_of,
)
from penstock.cluster.agreement.membership import MemberRecord, member_to_json
from penstock.cluster.agreement.queue_views import (
    QueueView,
    first_ruled_view,
    first_view,
    view_to_json,
)
from penstock.core.errors import NotFound, PreconditionFailed
from tests.helpers.quiet_cluster import QuietMembers, ask
from tests.helpers.requests import Request

DOWN = first_view("b/1").with_member("a/1").went_down(graceful=False)
ALONE = first_view("b/1").went_down(graceful=True)
MIRRORED = first_view("b/1").with_member("a/1").with_synced("a/1")
PROMOTED = MIRRORED.promoted("a/1", heard_all=True, graceful=False)

RULED = first_ruled_view("a/1", ("a", "c"), ("a", "b", "c"))


@pytest.mark.parametrize(
    "home, view, fate",
    [
        ("a", None, STAYS),
        ("b", None, GOES),
        ("b", MIRRORED, LATER),  # nobody has been promoted yet
        ("b", PROMOTED, FORGETS),  # its home says nothing any more
        ("a", first_view("a/1").with_member("b/1"), LATER),
        ("b", first_view("a/1"), STAYS),
        ("b", DOWN, FORGETS),
        ("a", ALONE, GOES),
        ("b", first_view("c/1").went_down(graceful=True), STAYS),
        ("b", RULED, FORGETS),
        ("b", RULED.forgot("b"), STAYS),
        ("b", first_ruled_view("b/1", ("b",), ("b",)), GOES),
    ],
)
def test_what_becomes_of_a_queue(home: str, view: QueueView | None, fate: int) -> None:
    assert fate_of(home, view, "b") == fate


class Town(QuietMembers):
    """``a`` may forget."""

    def __init__(self, directory: Path) -> None:
        self.views: dict[tuple[str, str], KnownView] = {}
        super().__init__(directory)

    def forgetting(self) -> Forgetting:
        return Forgetting(
            self.common["a"].changes,
            self.memberships["a"],
            lambda vhost, name: self.views.get((vhost, name)),
        )

    def forgets(self, node: str = "b") -> Request:
        return Request(self.common["a"].changes.ask(), lambda: self.forgetting().forget(node))

    def forget(self) -> None:
        forgets = self.forgets()
        while not forgets.is_decided():
            self.run(1)


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    town = Town(tmp_path)
    yield town
    town.run()
    town.check()


def declare(town: Town, node: str, *names: str) -> None:
    client = town.quiet[node].client()
    for name in names:
        ask(town, client, "queue.declare", queue=name, durable=True)
        ask(town, client, "queue.bind", queue=name, exchange="amq.direct", routing_key="k")


def put(town: Town, key: str, value: str) -> int:
    """In the store itself, as if another node had proposed it; the revision."""
    lease = town.common["a"].changes.coordinator.lease  # type: ignore[attr-defined]
    revision = town.store.model.change(lease, [Change(key, value)])
    town.store.tell()
    return revision


def test_a_node_that_runs_or_is_unknown_is_not_forgotten(town: Town) -> None:
    with pytest.raises(PreconditionFailed, match="b is running"):
        town.forgets("b").again()
    with pytest.raises(PreconditionFailed, match="a cannot forget itself"):
        town.forgets("a").again()
    with pytest.raises(NotFound, match="c is not a node"):
        town.forgets("c").again()


def test_its_queues_go_and_those_of_others_stay(town: Town) -> None:
    declare(town, "a", "of a")
    declare(town, "b", "of b", "too")
    town.lose("b")
    town.forget()
    town.run()
    assert set(town.vhost("a").queues) == {"of a"}
    assert town.memberships["a"].known() == ["a"]
    assert not [key for key in town.store.model.keys if "of%20b" in key]


def test_more_queues_than_go_at_once(town: Town) -> None:
    client = town.quiet["b"].client()
    for number in range(AT_ONCE * 2 + 1):
        ask(town, client, "queue.declare", queue=f"q{number}", durable=True)
    town.lose("b")
    town.forget()
    town.run()
    assert town.vhost("a").queues == {}
    assert "nodes/b" not in town.store.model.keys


def test_a_view_forgets_it_and_a_queue_nobody_else_has_goes(town: Town) -> None:
    declare(town, "b", "down", "alone", "mirrored")
    town.lose("b")
    views = {"down": DOWN, "alone": ALONE, "mirrored": PROMOTED}
    for name, view in views.items():
        revision = put(town, f"views/%2F/{name}", view_to_json(view))
        town.views["/", name] = KnownView(view, revision)
    town.forget()
    town.run()
    assert set(town.vhost("a").queues) == {"down", "mirrored"}
    for name in ("down", "mirrored"):
        held = town.store.model.keys[f"views/%2F/{name}"].value
        assert held == view_to_json(views[name].forgot("b"))


def test_a_view_that_is_about_to_change_is_waited_for(town: Town) -> None:
    declare(town, "b", "q")
    town.lose("b")
    town.views["/", "q"] = KnownView(MIRRORED, 1)
    forgets = town.forgets()
    for _ in range(5):
        assert not forgets.is_decided()
        town.run(1)
    assert "nodes/b" in town.store.model.keys


def test_a_node_that_comes_back_meanwhile_keeps_its_queues(town: Town) -> None:
    declare(town, "b", "q")
    town.lose("b")
    forgets = town.forgets()
    assert not forgets.is_decided()  # it is on its way
    record = MemberRecord("b", "back", {}, "1", town.now_ms)
    put(town, "members/b", member_to_json(record))

    def until_it_is_told() -> None:
        while not forgets.is_decided():
            town.run(1)

    with pytest.raises(PreconditionFailed, match="b is running"):
        until_it_is_told()
    assert "q" in town.vhost("a").queues


def test_a_forgotten_node_that_starts_again_joins_as_a_new_one(town: Town) -> None:
    declare(town, "b", "q")
    town.lose("b")
    town.forget()
    town.start("b")
    assert town.memberships["a"].known() == ["a", "b"]
    assert town.vhost("b").queues == {}
