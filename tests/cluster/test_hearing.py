"""Which nodes hear each other, as they say: to all when it changes, to a new member the present."""

from __future__ import annotations

from penstock.cluster.agreement.hearing import Hearing
from penstock.cluster.agreement.living_nodes import LivingNodes

THREE = {"a": "a/1", "b": "b/1", "c": "c/1"}


def test_a_change_is_said_once_to_every_other_member() -> None:
    hearing = Hearing("a")
    assert hearing.look(THREE, []) == []
    assert hearing.look(THREE, ["c", "b"]) == [("b/1", b"b\nc"), ("c/1", b"b\nc")]
    assert hearing.unheard == {"a": {"b", "c"}}
    assert hearing.look(THREE, ["b", "c"]) == []
    assert hearing.look({**THREE, "b": "b/2"}, ["c", "b"]) == [("b/2", b"b\nc")]
    assert hearing.look(THREE, []) == [("c/1", b"")], "b/1 knows no better"
    assert hearing.unheard == {}


def test_what_a_member_says_goes_with_it() -> None:
    hearing = Hearing("a")
    hearing.look(THREE, [])
    hearing.hear("b/1", b"c")
    assert hearing.unheard == {"b": {"c"}}
    hearing.look({**THREE, "b": "b/2"}, [])
    assert hearing.unheard == {}
    hearing.hear("c/1", b"")
    assert hearing.unheard == {}


def test_a_node_that_joins_again_is_told_anew_and_says_anew() -> None:
    """The others forgot what its life before said, and say nothing to it if they hear all."""
    hearing = Hearing("a")
    hearing.look(THREE, ["c"])
    hearing.hear("b/1", b"a")
    hearing.begin_life()
    assert hearing.unheard == {"a": {"c"}}
    assert hearing.look({**THREE, "a": "a/2"}, ["c"]) == [("b/1", b"c"), ("c/1", b"c")]


def test_two_hear_each_other_unless_one_of_them_says_otherwise() -> None:
    nodes = LivingNodes("a/1", THREE, {}, unheard={"b": {"c"}})
    assert nodes.hear_each_other("a", "b")
    assert not nodes.hear_each_other("b", "c")
    assert not nodes.hear_each_other("c", "b")
    assert not nodes.hear_each_other("a", "d")
