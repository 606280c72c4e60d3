"""Erlang terms are read as Erlang reads them, and what is wrong names its line."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.settings.erlang_reader import Atom, TermsInvalid, Tuple, read_terms


@pytest.mark.parametrize(
    "text, term",
    [
        ("abc_D@1.", Atom("abc_D@1")),
        ("'PLAIN'.", Atom("PLAIN")),
        (r"'a\'b'.", Atom("a'b")),
        ("12.", 12),
        ("-1_000.", -1000),
        ("16#fF.", 255),
        ("-2#101.", -5),
        ("0.4.", 0.4),
        ("1.5e-3.", 0.0015),
        ('"a\\"b\\n\\x{fc}\\374\\xFC".', 'a"b\nüüü'),
        ('"one" " and "\n "another".', "one and another"),
        ('<<"guest">>.', "guest"),
        ('<<"ü"/utf8>>.', "ü"),
        ("<<>>.", ""),
        ("[].", []),
        ("{}.", Tuple([], 1)),
        ("% before\n\n{a, [1 % within ]\n ,2]}.", Tuple([Atom("a"), [1, 2]], 3)),
    ],
)
def test_a_term(text: str, term: object) -> None:
    assert read_terms(text) == [term]


def test_a_file_has_as_many_terms_as_dots() -> None:
    assert read_terms("") == read_terms("% nothing\n") == []
    assert read_terms("a.\nb.") == [Atom("a"), Atom("b")]


@pytest.mark.parametrize(
    "text, line, words",
    [
        ("[{rabbit, [}].", 1, "before '}'"),
        ("[a,\n b,\n].", 3, "before ']'"),
        ("[a]", 1, "before the end of the file"),
        ("\nhello = 1", 2, "before '='"),
        ("Variable.", 1, "before 'Variable.'"),
        ("{a, 'b}.", 1, 'before "\'b}."'),
        ("<<1>>.", 1, "before '1'"),
        ("1#1.", 1, "1#1 is no number"),
        ('"\\x{999999}".', 1, "is no character"),
        ("[" * 200, 1, "more than 100"),
    ],
)
def test_what_is_wrong_names_its_line(text: str, line: int, words: str) -> None:
    with pytest.raises(TermsInvalid) as caught:
        read_terms(text)
    assert caught.value.line == line
    assert words in str(caught.value)


@given(st.text("[]{}<>,.'\"%a1#\\x \n-_", max_size=40))
def test_any_text_is_terms_or_is_refused(text: str) -> None:
    with suppress(TermsInvalid):
        assert isinstance(read_terms(text), list)
