"""The topic trie: against RabbitMQ's recorded answers and against a naive matcher."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.routing.topic_trie import TopicTrie, split_words
from tests.routing.recorded_rabbitmq import TOPIC_MATCHES, TOPIC_PATTERNS

# Few words, so that patterns and keys meet; empty words and odd ones among them.
words = st.sampled_from(["a", "b", "", "ab", "ü", "*", "#"])
keys = st.lists(words, max_size=6).map(".".join)


def naive_match(pattern: list[str], key: list[str]) -> bool:
    if not pattern:
        return not key
    if pattern[0] == "#":
        return naive_match(pattern[1:], key) or (bool(key) and naive_match(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and naive_match(pattern[1:], key[1:])


def found(trie: TopicTrie, key: str) -> list[object]:
    matches: list[object] = []
    trie.match(key, None, matches)
    return matches


@pytest.mark.parametrize("key", TOPIC_MATCHES)
def test_matches_as_rabbitmq_did(key: str) -> None:
    trie = TopicTrie()
    for pattern in TOPIC_PATTERNS:
        trie.add(pattern, pattern, {})
    matches = found(trie, key)
    assert sorted(map(str, matches)) == sorted(TOPIC_MATCHES[key])


def test_the_naive_matcher_is_right() -> None:
    for key, patterns in TOPIC_MATCHES.items():
        matching = [p for p in TOPIC_PATTERNS if naive_match(split_words(p), split_words(key))]
        assert matching == patterns


@given(st.lists(keys, max_size=12, unique=True), st.lists(keys, min_size=1, max_size=6), st.data())
def test_agrees_with_the_naive_matcher_while_bindings_come_and_go(
    patterns: list[str], published: list[str], data: st.DataObject
) -> None:
    trie = TopicTrie()
    queues = {pattern: object() for pattern in patterns}
    for pattern in patterns:
        trie.add(queues[pattern], pattern, {})
    bound = list(patterns)
    while True:
        for key in published:
            words_of_key = split_words(key)
            expected = [queues[p] for p in bound if naive_match(split_words(p), words_of_key)]
            matches = found(trie, key)
            assert len(matches) == len(expected)
            assert set(map(id, matches)) == set(map(id, expected))
        if not bound:
            break
        leaving = data.draw(st.sampled_from(bound))
        bound.remove(leaving)
        trie.remove(queues[leaving], leaving, {})
    assert not trie.root.is_needed(), "nodes are left behind"


def test_a_destination_with_several_matching_patterns_is_found_once() -> None:
    trie = TopicTrie()
    queue = object()
    for pattern in ("a.b", "a.*", "#", "#.b", "#.#"):
        trie.add(queue, pattern, {})
    assert found(trie, "a.b") == [queue]


def test_a_destination_bound_twice_stays_until_both_bindings_are_gone() -> None:
    trie = TopicTrie()
    queue = object()
    trie.add(queue, "a.#", {"version": 1})
    trie.add(queue, "a.#", {"version": 2})
    trie.remove(queue, "a.#", {"version": 1})
    assert found(trie, "a.b") == [queue]
    trie.remove(queue, "a.#", {"version": 2})
    assert found(trie, "a.b") == []


@pytest.mark.timeout(20)
def test_many_hashes_do_not_multiply() -> None:
    """A backtracking matcher would try about 10^30 ways here."""
    trie = TopicTrie()
    queue = object()
    trie.add(queue, ".".join(["#", "a"] * 60), {})
    trie.add(queue, ".".join(["#"] * 120), {})
    trie.add(queue, ".".join(["#", "*"] * 60), {})
    assert found(trie, ".".join("a" * 59 + "b" * 68)) == [queue]
    trie.remove(queue, ".".join(["#"] * 120), {})
    trie.remove(queue, ".".join(["#", "*"] * 60), {})
    assert found(trie, ".".join("a" * 59 + "b" * 68)) == []
    assert found(trie, ".".join("b" * 60 + "a" * 60)) == [queue]


@pytest.mark.timeout(20)
def test_thousands_of_other_patterns_do_not_slow_a_match() -> None:
    trie = TopicTrie()
    for i in range(20_000):
        trie.add(object(), f"stock.{i}.*.price", {})
    queue = object()
    trie.add(queue, "stock.77.#", {})
    for _ in range(20_000):
        assert len(found(trie, "stock.77.x.price")) == 2
