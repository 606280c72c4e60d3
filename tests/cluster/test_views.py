"""``View``: neighbours, the next one, and what is kept of it."""

from __future__ import annotations

import pytest

from penstock.cluster.ring.views import NO_VIEW, BadView, View, from_json, joined_view, who_reports


def view(text: str, version: int = 7) -> View:
    """ "a†bc": a and c live, b is dead."""
    members = tuple(text.replace("†", ""))
    dead = frozenset(text[at + 1] for at, sign in enumerate(text) if sign == "†")
    return View(version, members, dead)


# view, member, left, right, aliases
NEIGHBOURS = [
    ("a", "a", "a", "a", ""),
    ("ab", "a", "b", "b", ""),
    ("abc", "b", "a", "c", ""),
    ("abc", "a", "c", "b", ""),
    ("a†bc", "c", "a", "a", "b"),
    ("a†bc", "a", "c", "c", ""),
    ("†ab†c", "b", "b", "b", "ca"),
    ("†abc†d", "b", "c", "c", "da"),
    ("a†b†cd", "d", "a", "a", "bc"),
]


@pytest.mark.parametrize("text, member, left, right, aliases", NEIGHBOURS)
def test_neighbours(text: str, member: str, left: str, right: str, aliases: str) -> None:
    seen = view(text)
    assert seen.left_of(member) == left
    assert seen.right_of(member) == right
    assert "".join(seen.aliases_of(member)) == aliases


def test_every_change_is_one_version_higher() -> None:
    joined = view("ab").with_joined("c", "a")
    assert joined == view("acb", 8)
    assert joined.with_dead("a") == view("†acb", 9)
    assert joined.with_dead("a").without("a") == view("cb", 10)
    assert view("ab").with_dead("b").same_version(8) == view("a†b", 8)


def test_a_joiner_leaves_the_dead_to_those_who_had_them() -> None:
    seen = view("a†bc").with_joined("d", "a")
    assert seen.aliases_of("c") == ["b"]
    assert seen.aliases_of("d") == []


# view, who died, place, the view proposed
JOINS = [
    ("", "", 5, "x"),
    ("ab", "", 0, "axb"),
    ("ab", "", 3, "abx"),
    ("ab", "a", 0, "†abx"),
    ("ab", "ab", 0, "x"),
    ("†a", "", 0, "x"),
]


@pytest.mark.parametrize("text, died, place, proposed", JOINS)
def test_joining(text: str, died: str, place: int, proposed: str) -> None:
    assert joined_view(view(text), "x", place, set(died)) == view(proposed, 8)


def test_where_there_is_no_view_it_is_the_first() -> None:
    assert joined_view(NO_VIEW, "x", 0, set()) == View(1, ("x",))


@pytest.mark.parametrize("died, reporter", [("b", "c"), ("bc", "d"), ("bcd", "a"), ("abcd", "b")])
def test_who_reports(died: str, reporter: str) -> None:
    assert who_reports(view("abcd"), "b", set(died)) == reporter


@pytest.mark.parametrize("text", ["a", "a†bc", "†a"])
def test_it_is_kept_and_read_again(text: str) -> None:
    assert from_json(view(text).to_json()) == view(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"version":1,"members":["a"]}',
        '{"version":0,"members":["a"],"dead":[]}',
        '{"version":true,"members":["a"],"dead":[]}',
        '{"version":1,"members":"a","dead":[]}',
        '{"version":1,"members":["a","a"],"dead":[]}',
        '{"version":1,"members":[1],"dead":[]}',
        '{"version":1,"members":[""],"dead":[]}',
        '{"version":1,"members":["a"],"dead":["b"]}',
        '{"version":1,"members":["a"],"dead":[],"more":1}',
    ],
)
def test_what_is_no_view_is_refused(text: str) -> None:
    with pytest.raises(BadView):
        from_json(text)
