"""Patterns of strangers: what is common passes, what could take long is refused before it runs."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core import patterns

GOOD = (
    "",
    "^amq\\.",
    ".*",
    "^(orders|bills)\\..*",
    "^(?!amq\\.).*",
    "^a.b-[0-9]+$",
    "(foo|bar)",
    "^q[0-9]{1,3}$",
    "^([a-z]+\\.)*dlq$",
    "^[^.]+\\.[^.]+\\.[^.]+\\.[^.]+$",
    "^(a|b|cd)*$",
    "^ha\\.|^mirrored\\.",
    "[0-9]{1,3}(\\.[0-9]{1,3}){3}",
    "^amq\\.gen-.{22}$",
    "(?i)^Grün",
    "\\bx\\b",
    ".*\\.events\\..*",
    "^.*\\.events\\..*\\.v[0-9]+$",
)
BAD = (
    "(a+)+$",
    "(a*)*$",
    "(a|a)*$",
    "(a|ab|ba)*$",
    "(.|x)+y",
    "(a?){60}a{60}",
    "(a{0,50}){0,50}$",
    "a?" * 40 + "a" * 40,
    "(a|a)" * 40 + "$",
    "(?:.*.*)*x",
    "(?=(a+)+$)a",
    "(?i:(k1|\u212a2)*)$",
    ".*.*.*x",
    "^.*.*.*.*x",
    "(?m)^.*.*.*x",
    "(a)\\1",
    "(a)?(?(1)b|c)",
    "(",
    "a{99999999999999999999}",
    "(" * 400 + ")" * 400 + "a" * 300,
    "a" * 1001,
    "(" * 90 + "a" + "b)*" * 90,
    "(" * 90 + "a" + "|b)*" * 90,
    "(" * 60 + "a" + "a)*" * 60,
)


@pytest.mark.parametrize("pattern", GOOD)
def test_what_is_common_passes(pattern: str) -> None:
    patterns.check(pattern)
    patterns.compiled(pattern, re.IGNORECASE)


@pytest.mark.parametrize("pattern", BAD)
def test_what_could_take_long_is_refused(pattern: str) -> None:
    with pytest.raises(patterns.Refused):
        patterns.check(pattern)
    assert not patterns.found(pattern, "a")


def test_without_pythons_parser_the_text_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "_parser", None)
    patterns.compiled.cache_clear()
    patterns.check("^amq\\.gen")
    patterns.check("^(orders|bills)\\..*")
    for pattern in ("(a+)+$", "(a|a)*", ".*.*.*x", "(a)\\1"):
        with pytest.raises(patterns.Refused):
            patterns.check(pattern)
    patterns.compiled.cache_clear()


PARTS = st.recursive(
    st.sampled_from(("a", "b", ".", "[ab]", "[^a]", "\\w", "a?", "^", "$", "\\b")),
    lambda inner: st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(("*", "+", "?", "{2,9}", "+?"))),
        st.builds("(?={})".format, inner),
    ),
    max_leaves=8,
)


@given(PARTS, st.sampled_from(("a" * 255, "ab" * 127 + "!", "a" * 254 + "b", "b" * 200 + "!")))
def test_what_passes_answers_soon(pattern: str, name: str) -> None:
    try:
        expression = patterns.compiled(pattern)
    except patterns.Refused:
        return
    began_s = time.process_time()
    for tail in ("", "!x"):
        with_tail = patterns._if_good(pattern + tail)
        if with_tail is not None:
            with_tail.search(name)
    expression.search(name)
    assert time.process_time() - began_s < 1.0
