"""``queue('orders')`` in a query: found where a table may stand, and replaced by a view's name.

In: the text of a query.  Out: the text with view names, and which queues or topics they are.

Spark has no table functions in Python that are a data source, so the text is rewritten; not by a
pattern, which would also hit strings and comments, but on the tokens of Spark's SQL.  A call
counts where a table may stand: behind FROM or JOIN, or behind a comma of the same FROM.  Anywhere
else ``queue(...)`` is left alone, and Spark says what it thinks of such a function.

The columns a query names are found the same way (``columns``), because Spark does not tell a
Python source which of them it needs, and a count should not transfer bodies.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.core.errors import PenstockError


class BadSql(PenstockError):
    """What is written is no use of ``ARGUMENTS``, or not a query."""


class Token(NamedTuple):
    kind: str  # word, string, quoted (an identifier), sign, number
    text: str
    start: int
    end: int


class SqlSource(NamedTuple):
    """``kind`` one of ``ARGUMENTS``; ``names`` what stands between the parentheses."""

    kind: str
    names: tuple[str, ...]


class Rewritten(NamedTuple):
    text: str
    views: dict[str, SqlSource]
    words: frozenset[str]  # all identifiers, in lower case
    starred: bool  # a star that may mean all columns


ARGUMENTS = {
    "queue": ("queue('name')", 1, 1),
    "stream": ("stream('name')", 1, 1),
    "topic": ("topic('name', 'channel')", 2, 2),
}
BEGINNINGS = ("select", "with", "from", "values", "explain", "(")
TABLES_END = frozenset(
    (
        *("select", "where", "group", "having", "order", "limit", "window", "union", "except"),
        *("intersect", "minus", "sort", "cluster", "distribute", "offset", "qualify"),
    )
)
VIEW_PREFIX = "penstock_view_"

_PARTS = re.compile(
    r"""
      (?P<space> \s+ | --[^\n]* )
    | (?P<comment> /\* )
    | (?P<string> r'[^']*' | r"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" )
    | (?P<quoted> `(?:[^`]|``)*` )
    | (?P<number> [0-9]+ (?![A-Za-z0-9_]) (?:\.[0-9]+)? )
    | (?P<word> [^\W]+ )
    | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)


def tokens(text: str) -> list[Token]:
    """What is left without white space and comments."""
    found = []
    at = 0
    while at < len(text):
        match = _PARTS.match(text, at)
        assert match is not None
        assert match.lastgroup is not None
        kind = match.lastgroup
        end = match.end()
        if kind == "comment":
            end = _end_of_comment(text, at)
        elif kind == "sign" and match[0] in "'\"`":
            raise BadSql(f"the quotation mark at {_where(text, at)} is not closed")
        elif kind != "space":
            found.append(Token(kind, match[0], at, end))
        at = end
    return found


def rewrite(text: str) -> Rewritten:
    """Raises BadSql."""
    found = tokens(text)
    while found and found[-1].text == ";":
        text = text[: found.pop().start]
    if not found or found[0].text.lower() not in BEGINNINGS:
        raise BadSql("a query begins with SELECT or WITH; nothing else is run")
    if _writes(found):
        raise BadSql("a query reads: INSERT is not run, not even behind WITH")
    views: dict[str, SqlSource] = {}
    pieces = []
    at = 0
    for first, last, place in _calls(text, found):
        name = next((view for view, known in views.items() if known == place), None)
        if name is None:
            name = f"{VIEW_PREFIX}{len(views)}"
            views[name] = place
        pieces += [text[at : found[first].start], name]
        at = found[last].end
    rewritten = "".join([*pieces, text[at:]])
    found = tokens(rewritten)
    return Rewritten(rewritten, views, _words(found), _starred(found))


def _writes(found: list[Token]) -> bool:
    return any(
        one.text.lower() == "insert" and other.text.lower() in ("into", "overwrite")
        for one, other in pairwise(found)
        if one.kind == "word"
    )


def columns(query: Rewritten, known: Sequence[str], default: Sequence[str]) -> tuple[str, ...]:
    """Which columns of a source the query can need, in the source's order."""
    named = [name for name in known if name in query.words]
    if query.starred:
        return tuple(name for name in known if name in default or name in named)
    return tuple(named) or (known[0],)


# -- finding ---------------------------------------------------------------------------------


def _calls(text: str, found: list[Token]) -> list[tuple[int, int, SqlSource]]:
    """(first token, last token, what) of each call where a table may stand."""
    calls = []
    tables = [False]  # by depth of parentheses: are we in a list of tables?
    for at, token in enumerate(found):
        word = token.text.lower() if token.kind == "word" else ""
        if token.text == "(":
            # A parenthesis behind FROM holds tables, or a query that says so itself.
            tables.append(_may_be_table(found, at, tables))
        elif token.text == ")" and len(tables) > 1:
            tables.pop()
        elif word == "from" and not _is_distinct(found, at):
            tables[-1] = True
        elif word in TABLES_END:
            tables[-1] = False
        elif word in ARGUMENTS and _opens(found, at + 1) and _may_be_table(found, at, tables):
            calls.append(_call(text, found, at))
    return calls


def _may_be_table(found: list[Token], at: int, tables: list[bool]) -> bool:
    if at == 0:
        return False
    before = found[at - 1].text.lower()
    if before in ("from", "join"):
        return before == "join" or not _is_distinct(found, at - 1)
    return before in (",", "(", "lateral") and tables[-1]


def _is_distinct(found: list[Token], at: int) -> bool:
    """``a is distinct from b`` compares."""
    return at > 0 and found[at - 1].text.lower() == "distinct"


def _opens(found: list[Token], at: int) -> bool:
    return at < len(found) and found[at].text == "("


def _call(text: str, found: list[Token], at: int) -> tuple[int, int, SqlSource]:
    kind = found[at].text.lower()
    form, least, most = ARGUMENTS[kind]
    names: list[str] = []
    place = at + 2
    while True:
        if place + 1 >= len(found) or found[place].kind != "string":
            raise BadSql(f"at {_where(text, found[at].start)}: write {form} with names in quotes")
        names.append(_unquoted(text, found[place]))
        separator = found[place + 1].text
        if separator == ")":
            break
        if separator != ",":
            raise BadSql(f"at {_where(text, found[place + 1].start)}: write {form}")
        place += 2
    if not least <= len(names) <= most or not all(names):
        raise BadSql(f"at {_where(text, found[at].start)}: write {form}")
    return at, place + 1, SqlSource(kind, tuple(names))


def _unquoted(text: str, token: Token) -> str:
    """The value of a literal, as far as names need it."""
    if token.text[0] in "rR":
        return token.text[2:-1]
    quote = token.text[0]
    inner = token.text[1:-1].replace(quote * 2, quote)
    if not re.fullmatch(r"(?:[^\\]|\\[\\'\"])*", inner, re.DOTALL):
        raise BadSql(
            f"at {_where(text, token.start)}: write the name without escapes, or as r'...'"
        )
    return re.sub(r"\\(.)", r"\1", inner)


def _words(found: list[Token]) -> frozenset[str]:
    plain = {token.text.lower() for token in found if token.kind == "word"}
    quoted = {t.text[1:-1].replace("``", "`").lower() for t in found if t.kind == "quoted"}
    return frozenset(plain | quoted)


def _starred(found: list[Token]) -> bool:
    """All columns are meant, or may be; of stars only that of ``count(*)`` cannot."""
    for at, token in enumerate(found):
        if token.text.lower() == "natural":
            return True
        counted = at >= 2 and found[at - 1].text == "(" and found[at - 2].text.lower() == "count"
        if token.text == "*" and not counted:
            return True
    return False


def _end_of_comment(text: str, at: int) -> int:
    """Comments in brackets nest, as Spark's do."""
    depth = 0
    for match in re.compile(r"/\*|\*/").finditer(text, at):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    raise BadSql(f"the comment at {_where(text, at)} is not closed")


def _where(text: str, at: int) -> str:
    line = text.count("\n", 0, at) + 1
    return f"line {line}, column {at - text.rfind(chr(10), 0, at)}"
