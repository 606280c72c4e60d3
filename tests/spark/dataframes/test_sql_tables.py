"""Where ``queue(...)`` is a table, and where it only looks like one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.dataframes.sql_tables import BadSql, SqlSource, columns, rewrite, tokens

V0, V1 = "penstock_view_0", "penstock_view_1"


@pytest.mark.parametrize(
    "query,expected",
    [
        ("select * from queue('a')", f"select * from {V0}"),
        ("select * from queue('a') o;", f"select * from {V0} o"),
        ("SELECT 1 FROM QUEUE ( \"a\" ) AS o", f"SELECT 1 FROM {V0} AS o"),
        ("select 1 from queue('a') x join queue('b') y", f"select 1 from {V0} x join {V1} y"),
        ("select 1 from queue('a') x, queue('b') y", f"select 1 from {V0} x, {V1} y"),
        ("select 1 from queue('a') x join queue('a') y", f"select 1 from {V0} x join {V0} y"),
        ("select 1 from (queue('a') x join t)", f"select 1 from ({V0} x join t)"),
        (
            "select 1 from t join u on f(t.a, 1) = u.a, queue('a')",
            f"select 1 from t join u on f(t.a, 1) = u.a, {V0}",
        ),
        (
            "with w as (select 1 from queue('a')) select * from w /* queue('b') */",
            f"with w as (select 1 from {V0}) select * from w /* queue('b') */",
        ),
        (
            "select 'from queue(''b'')' from queue('a') -- from queue('c')",
            f"select 'from queue(''b'')' from {V0} -- from queue('c')",
        ),
        (
            "select 1 from -- the orders\n queue /* in */ ('a')",
            f"select 1 from -- the orders\n {V0}",
        ),
        (
            "select exists (select 1 from queue('a') where x in (select y from queue('b')))",
            f"select exists (select 1 from {V0} where x in (select y from {V1}))",
        ),
        ("select 1 from /* a /* nested */ */ queue('a')",
         f"select 1 from /* a /* nested */ */ {V0}"),
    ],
)  # fmt: skip
def test_calls_in_the_place_of_a_table_become_views(query: str, expected: str) -> None:
    assert rewrite(query).text == expected


@pytest.mark.parametrize(
    "query",
    [
        "select queue('a') from t",
        "select queue from t",
        "select * from queue",
        "select f(a, queue('a')) from t",
        "select extract(year from ts), queue('a') from t",
        "select 1 from t where a is distinct from queue('a')",
        "select 1 from t where a in (1, queue('a'))",
        "select 1 from t group by a, queue('a')",
        "select 1 from `queue`('a')",
        "select \"from queue('a')\" from t",
        "select r'\\' from t -- 'from queue('",
    ],
)
def test_everything_else_is_left_alone(query: str) -> None:
    assert rewrite(query) [:2] == (query, {})  # fmt: skip


def test_names_are_read_as_sql_reads_them() -> None:
    query = r"""select 1 from queue('it''s') join queue("a\\b") join queue(r'\d')
        join topic('t','c') join queue('naïve — ☃')"""
    assert [*rewrite(query).views.values()] == [
        SqlSource("queue", ("it's",)),
        SqlSource("queue", ("a\\b",)),
        SqlSource("queue", ("\\d",)),
        SqlSource("topic", ("t", "c")),
        SqlSource("queue", ("naïve — ☃",)),
    ]


@pytest.mark.parametrize(
    "query,complaint",
    [
        ("", "begins with SELECT"),
        ("drop table x", "begins with SELECT"),
        ("insert into t select * from queue('a')", "begins with SELECT"),
        ("with a as (select 1) insert into t select * from a", "a query reads"),
        ("with a as (select 1) INSERT /* */ OVERWRITE DIRECTORY '/x' select 1", "a query reads"),
        ("select 1 from queue()", r"column 15: write queue\('name'\)"),
        ("select 1 from queue('')", "write queue"),
        ("select 1\nfrom queue('a', 'b')", "line 2, column 6"),
        ("select 1 from queue(name)", "names in quotes"),
        ("select 1 from queue('a'", "write queue"),
        ("select 1 from topic('a', 'b', 'c')", "write topic"),
        ("select 1 from topic('a')", "write topic"),
        ("select 1 from queue('a\\n')", "without escapes"),
        ("select 'open", "not closed"),
        ("select /* open", "not closed"),
    ],
)
def test_mistakes_are_told_with_their_place(query: str, complaint: str) -> None:
    with pytest.raises(BadSql, match=complaint):
        rewrite(query)


def test_only_columns_that_are_named_are_read() -> None:
    known = ("seq_id", "body", "headers", "properties_raw")
    default = known[:-1]

    def needed(query: str) -> tuple[str, ...]:
        return columns(rewrite(query), known, default)

    assert needed("select count(*) from queue('a')") == ("seq_id",)
    assert needed("select Body, x.`headers` from queue('a') x") == ("body", "headers")
    assert needed("select 'body' from queue('a') -- headers") == ("seq_id",)
    assert needed("select *, properties_raw from queue('a')") == known
    assert needed("select a.* from queue('a') a") == default
    assert needed("select seq_id * 2 from queue('a')") == default  # a star too many costs little
    assert needed("select seq_id from queue('a') natural join t") == default


@given(st.text(alphabet="ab '\"`\\/*-\n(),;.selctfromqu1", max_size=60))
def test_tokens_are_all_there_or_the_text_is_refused(text: str) -> None:
    try:
        found = tokens(text)
    except BadSql:
        return
    assert all(text[t.start : t.end] == t.text for t in found)
    assert [*found] == sorted(found, key=lambda t: t.start)
