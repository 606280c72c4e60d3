"""Scopes and wildcards against a slow definition, and on RabbitMQ's documented examples."""

from __future__ import annotations

import time
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.oauth.scopes import SCOPE_MAX_CHARS, Scopes, Wildcard, WildcardInvalid
from penstock.broker.rules.judges import CONFIGURE, READ, WRITE

FEW = st.text("ab*/%+ é", max_size=8)


def slowly(pattern: list[str | None], name: str) -> bool:
    """None is any sequence of characters, another entry one character."""
    if not pattern:
        return name == ""
    if pattern[0] is None:
        return any(slowly(pattern[1:], name[at:]) for at in range(len(name) + 1))
    return name[:1] == pattern[0] and slowly(pattern[1:], name[1:])


def written(pattern: list[str | None]) -> str:
    return "".join("*" if one is None else quote(one, "") for one in pattern)


@given(st.lists(st.one_of(st.none(), st.sampled_from("ab*/%+ é")), max_size=7), FEW)
def test_a_wildcard_matches_as_its_definition_says(pattern: list[str | None], name: str) -> None:
    assert Wildcard(written(pattern)).matches(name) == slowly(pattern, name)


@pytest.mark.parametrize(
    "pattern, name, matches",
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("fo*", "foo", True),
        ("foo*", "foo", True),
        ("*oo", "foo", True),
        ("*foo", "foofoo", True),
        ("barfoo*", "foo", False),
        ("a*a", "a", False),
        ("some*long*string", "some long string", True),
        ("some*other*string", "some long string", False),
        ("*+*+*", "some string", False),
        ("s*z*str*", "some long string", False),
        ("pattern+with++plus++spaces", "pattern with  plus  spaces", True),
        ("case+with+%2a+special+%2f+characters", "case with * special / characters", True),
        ("CaseSensitive", "casesensitive", False),
        ("line+%2a*", "line * with * special * characters", True),
        ("%C3%A9", "é", True),
    ],
)
def test_rabbitmqs_examples_of_wildcards(pattern: str, name: str, matches: bool) -> None:
    assert Wildcard(pattern).matches(name) == matches


@pytest.mark.parametrize("pattern", ["%", "a%2", "%zz*", "string with unescaped % character"])
def test_a_percent_without_digits_is_no_wildcard(pattern: str) -> None:
    with pytest.raises(WildcardInvalid):
        Wildcard(pattern)


def test_a_wildcard_of_many_stars_matches_in_linear_time() -> None:
    wildcard = Wildcard("*a" * 2000 + "b")
    began = time.perf_counter()
    for _ in range(100):
        assert not wildcard.matches("a" * 255)
    assert time.perf_counter() - began < 2


def grants(*scopes: str, vhost: str = "/", **claims: object) -> set[tuple[int, str]]:
    """Of some names: what may be done with which."""
    found = Scopes(scopes, claims).in_vhost(vhost)
    names = ("q", "q/1", "ann", "ann-q", "*", "x")
    every = [(right, name) for right in (CONFIGURE, WRITE, READ) for name in names]
    return set() if found is None else {one for one in every if found.allows(*one)}


def test_a_scope_grants_one_permission_on_what_it_names() -> None:
    assert grants("read:%2F/q") == {(READ, "q")}
    assert grants("write:*/q%2F1") == {(WRITE, "q/1")}
    assert grants("configure:%2F/an*") == {(CONFIGURE, "ann"), (CONFIGURE, "ann-q")}
    assert grants("read:*/%2A") == {(READ, "*")}
    assert grants("read:v/*") == set()
    assert Scopes(["read:v/*"], {}).in_vhost("/") is None


@pytest.mark.parametrize(
    "scope",
    [
        *("", "read", "read:", "read:*", "read:*/*/*/*", "Read:*/*", "delete:*/*", "tag:read:*/*"),
        *("read:*/%", "read:%zz/*", "read:*/*/%1", " read:*/*", "read:{/*", "read:{a.b}/*"),
        *("x" * SCOPE_MAX_CHARS + "read:*/*", "read:*/*" + "*" * SCOPE_MAX_CHARS),
    ],
)
def test_what_is_no_scope_grants_nothing(scope: str) -> None:
    assert Scopes([scope], {"a.b": "*"}).in_vhost("/") is None


def test_routing_keys_need_a_scope_with_a_third_part() -> None:
    """As in RabbitMQ, where the scope of two parts is not enough on topic exchanges."""
    two = Scopes(["write:*/x"], {}).in_vhost("/")
    three = Scopes(["write:*/x/a.*"], {}).in_vhost("/")
    assert two is not None
    assert three is not None
    assert two.allows(WRITE, "x")
    assert three.allows(WRITE, "x")
    assert not two.allows_topic(WRITE, "x", "a.b")
    assert three.allows_topic(WRITE, "x", "a.b")
    assert not three.allows_topic(WRITE, "x", "b.a")
    assert not three.allows_topic(WRITE, "y", "a.b")
    assert not three.allows_topic(READ, "x", "a.b")


def test_variables_stand_for_claims_and_the_virtual_host() -> None:
    assert grants("read:{vhost}/{sub}-*", sub="ann") == {(READ, "ann-q")}
    assert grants("read:*/{missing}*", vhost="v") == set()
    assert grants("read:*/{x}") == {(READ, "x")}, "a claim that is missing is its own name"
    assert grants("read:*/{x}", x=["q"]) == {(READ, "x")}
    assert grants("read:*/q}") == set()


def test_a_claim_inserts_a_name_and_no_pattern() -> None:
    """RabbitMQ inserts text: a user who may choose a name such as ``*`` gets every queue."""
    assert grants("read:*/{sub}", sub="*") == {(READ, "*")}
    assert grants("read:{sub}/x", sub="*/*/") == set()
    assert grants("read:*/{sub}", sub="q/1") == {(READ, "q/1")}
    assert grants("read:*/{sub}", sub="{x}") == set()


def test_many_insertions_grant_nothing() -> None:
    long = Scopes(["read:*/" + "{a}" * 1000], {"a": "b" * 4096})
    began = time.perf_counter()
    assert long.in_vhost("/") is None
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize("place", ["*", "tenant-{}-*"])
def test_very_many_virtual_hosts_are_asked_about_fast(place: str) -> None:
    """The management API asks about all there are."""
    scopes = Scopes([f"read:{place.format(number)}/q{number}" for number in range(300)], {})
    began = time.thread_time()
    for number in range(1000):
        assert scopes.may_enter(f"vhost-{number}") is (place == "*")
    assert time.thread_time() - began < 0.5


def test_tags_are_scopes_of_their_own() -> None:
    scopes = Scopes(["tag:monitoring", "tag:administrator", "read:*/*", "tag:monitoring"], {})
    assert scopes.tags == ["administrator", "monitoring"]


@given(st.lists(st.text("readwit:*/%{}+ab", max_size=30), max_size=5), FEW, FEW)
def test_scopes_of_any_text_never_fail(scopes: list[str], vhost: str, name: str) -> None:
    every = Scopes(scopes, {"a": name})
    found = every.in_vhost(vhost)
    assert every.may_enter(vhost) is (found is not None)
    if found is not None:
        found.allows(READ, name)
        found.allows_topic(WRITE, name, vhost)
