"""The record of who has copies of a queue: what each change makes of it, and its JSON."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from penstock.cluster.agreement.coordinator import node_of
from penstock.cluster.agreement.queue_views import (
    PARTIAL,
    SYNCED,
    BadView,
    QueueView,
    first_ruled_view,
    first_view,
    view_from_json,
    view_to_json,
)
from penstock.cluster.agreement.reigns import BEGINNING, Holding, Position


def three() -> QueueView:
    return first_view("a@h/1").with_member("b@h/1").with_member("c@h/1").with_synced("b@h/1")


def test_a_new_queue_has_its_master_only() -> None:
    view = first_view("a@h/1")
    assert (view.version, view.term, view.master) == (1, 1, "a@h/1")
    assert (view.members, view.synced) == (["a@h/1"], ["a@h/1"])


def test_mirrors_join_as_the_youngest_and_are_synced_later() -> None:
    view = three()
    assert view.members == ["a@h/1", "b@h/1", "c@h/1"]
    assert view.synced == ["a@h/1", "b@h/1"]
    assert view.version == 4


def test_who_is_promoted_begins_a_term_and_the_former_master_is_out() -> None:
    view = three().promoted("b@h/1", heard_all=True, graceful=False)
    assert (view.term, view.master) == (2, "b@h/1")
    assert view.members == ["b@h/1", "c@h/1"]
    assert view.synced == ["b@h/1"]
    assert view.recoverable == {"a@h": PARTIAL}
    assert view.heard_all


def test_synchronised_mirrors_stay_so_only_if_the_new_master_had_everything() -> None:
    both = three().with_synced("c@h/1")
    assert both.promoted("b@h/1", heard_all=True, graceful=True).synced == ["b@h/1", "c@h/1"]
    assert both.promoted("b@h/1", heard_all=False, graceful=True).synced == ["b@h/1"]


def test_news_name_the_master_and_what_became_of_each_copy() -> None:
    one, two = first_view("a@h/1"), first_view("a@h/1").with_member("b@h/1")
    assert told(two, one) == ["b@h mirrors it, and fetches what it lacks"]
    synced = two.with_synced("b@h/1")
    assert told(synced, two) == ["b@h is synchronised"]
    assert told(synced.behind("b@h/1"), synced) == ["b@h is not waited for"]
    assert told(synced.without("b@h/1"), synced) == ["b@h has no copy that counts"]
    promoted = synced.promoted("b@h/1", heard_all=True, graceful=False)
    assert told(promoted, synced) == ["b@h is the master", "a@h has no copy that counts"]
    down = synced.went_down(graceful=False)
    assert told(down, synced) == ["it is down"]
    up = down.promoted("a@h/2", heard_all=True, graceful=False)
    assert told(up, down) == ["a@h is the master"]
    assert told(up, up) == []


def told(view: QueueView, before: QueueView) -> list[str]:
    return [str(news) for news in view.news_since(before)]


def test_down_says_what_each_had_and_a_promotion_makes_that_worthless() -> None:
    down = three().went_down(graceful=True)
    assert down.recoverable == {"a@h": SYNCED, "b@h": SYNCED, "c@h": PARTIAL}
    assert (down.master, down.members, down.graceful) == ("", [], True)
    up = down.promoted("b@h/2", heard_all=False, graceful=False)
    assert up.recoverable == {"a@h": PARTIAL, "c@h": PARTIAL}
    assert (up.term, up.master) == (2, "b@h/2")


def test_a_mirror_goes_with_or_without_what_it_had() -> None:
    assert three().without("b@h/1").recoverable == {"b@h": PARTIAL}
    assert three().without("b@h/1", keeps_data=False).recoverable == {}
    assert three().without("b@h/1").without("c@h/1").forgot("c@h").recoverable == {"b@h": PARTIAL}


def test_another_life_of_a_node_joins_in_place_of_what_could_come_back() -> None:
    view = three().without("b@h/1").with_member("b@h/2")
    assert view.recoverable == {}
    assert view.members == ["a@h/1", "c@h/1", "b@h/2"]


@pytest.mark.parametrize("seed", range(20))
def test_any_life_of_a_view_survives_json(seed: int) -> None:
    rng = random.Random(seed)
    view = first_view("n0@h/0")
    for step in range(30):
        version = view.version
        mirrors = view.mirrors()
        fresh = f"n{rng.randrange(6)}@h/{step}"
        joined = {node_of(member) for member in view.members}
        if view.master == "":
            view = view.promoted(fresh, heard_all=False, graceful=False)
        elif rng.random() < 0.4 and node_of(fresh) not in joined:
            view = view.with_member(fresh)
        elif mirrors:
            member = rng.choice(mirrors)
            how = rng.randrange(3)
            if how == 0:
                view = view.without(member)
            elif how == 1 and member not in view.synced:
                view = view.with_synced(member)
            elif how == 2:
                view = view.promoted(member, heard_all=rng.random() < 0.5, graceful=False)
        elif rng.random() < 0.2:
            view = view.went_down(graceful=rng.random() < 0.5)
        assert view.version in (version, version + 1)
        again = view_from_json(view_to_json(view))
        assert again == view


def voting() -> QueueView:
    """A queue with a majority whose master a/1 is gone; b has voted."""
    view = first_ruled_view("a@h/1", ("a@h", "b@h", "c@h"), ("a@h", "b@h", "c@h"))
    assert view.reign is not None
    at = Position(1, 7)
    return view.ruled(view.reign.voted("b@h/1", Holding(at, at)))


def test_a_vote_and_an_election_are_one_view_each() -> None:
    view = voting()
    assert (view.version, view.term, view.master, view.former) == (2, 2, "", "a@h/1")
    assert view.members == view.synced == []
    assert view.reign is not None
    after = view.ruled(view.reign.voted("c@h/4", Holding(Position(1, 6), Position(1, 9))))
    assert (after.term, after.master, after.former) == (2, "b@h/1", "a@h/1")
    assert after.members == after.synced == ["b@h/1"]
    assert told(view, first_ruled_view("a@h/1", ("a@h", "b@h", "c@h"), ("a@h", "b@h", "c@h"))) == []
    assert told(after, view) == ["b@h is the master"]
    for one in (view, after, after.wanting(("b@h", "d@h"))):
        assert view_from_json(view_to_json(one)) == one


def test_a_copy_counts_that_votes_or_is_wanted() -> None:
    view = voting().wanting(("a@h", "d@h"))
    assert [node for node in "abcde" if view.counts_on(f"{node}@h")] == ["a", "b", "c", "d"]
    assert view.reign is not None
    larger = view.ruled(view.reign.voted("a@h/2", Holding(BEGINNING, BEGINNING)))
    assert larger.reign is not None
    changed = larger.ruled(larger.reign.with_copies(("a@h", "b@h", "c@h", "d@h")))
    assert told(changed, larger) == ["d@h is synchronised"]
    assert told(larger, changed) == ["d@h has no copy that counts"]


def test_the_view_of_a_queue_without_a_reign_is_as_it_was_before() -> None:
    assert json.loads(view_to_json(three())).keys().isdisjoint({"reign", "wanted"})


def of_reign(**values: Any) -> str:
    value = json.loads(view_to_json(voting()))
    reign = value["reign"] | values
    return json.dumps(value | {"reign": {k: v for k, v in reign.items() if v is not None}})


@pytest.mark.parametrize(
    "text",
    [
        of_reign(votes=None),
        of_reign(colour="red"),
        of_reign(term=2),
        of_reign(copies=["a@h", "b@h", "b@h"]),
        of_reign(copies=["a@h", 7]),
        of_reign(copies="ab"),
        of_reign(votes=[["b@h/1", [[1, 7], [1, True]]]]),
        of_reign(votes=[["d@h/1", [[1, 7], [1, 7]]]]),
        of_reign(votes=[["b@h/1", [[1, 7], [1, 7], [1, 7]]]]),
        of_reign(votes=[["b@h/1", [[0, -1], [1, 7]]]]),
        of_reign(votes=[["b@h/1", [[1, 7], [1, 7]]], ["c@h/1", [[1, 7], [1, 7]]]]),
        of_reign(is_exact="yes"),
        of_reign(ends=[[2, 0]]),
        of_reign(ends=[]),
        json.dumps(json.loads(view_to_json(voting())) | {"master": "a@h/1"}),
        json.dumps(json.loads(view_to_json(voting())) | {"wanted": "ab"}),
        json.dumps(json.loads(view_to_json(voting())) | {"recoverable": {"b@h": SYNCED}}),
        json.dumps({k: v for k, v in json.loads(view_to_json(voting())).items() if k != "wanted"}),
        json.dumps(json.loads(view_to_json(three())) | {"wanted": []}),
    ],
)
def test_what_is_no_reign_is_refused(text: str) -> None:
    with pytest.raises(BadView):
        view_from_json(text)


def changed(**values: Any) -> str:
    return json.dumps(json.loads(view_to_json(three())) | values)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        changed(colour="red"),
        changed(version="4"),
        changed(term=True),
        changed(members=["a@h/1"]),
        changed(synced=["b@h/1"]),
        changed(master="d@h/1"),
        changed(master=""),
        changed(members=["a@h/1", "b@h/1", "c@h/1", "c@h/2"]),
        changed(members=["a@h/1", "b@h/1", 7]),
        changed(recoverable={"c@h": PARTIAL}),
        changed(recoverable={"d@h": "lost"}),
        changed(synced=["a@h/1", "b@h/1", "b@h/1"]),
    ],
)
def test_what_is_no_view_is_refused(text: str) -> None:
    with pytest.raises(BadView):
        view_from_json(text)
