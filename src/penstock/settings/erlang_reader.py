"""Erlang terms as they stand in a file: the form of ``rabbitmq.config`` and ``advanced.config``.

In: text.  Out: the terms of the file, each ended by a dot, as values of Python:

    atom            ``Atom``            number    int, float
    string, binary  str                 list      list
    tuple           ``Tuple``, with the line it begins in

Read is what ``file:consult`` reads, but for maps, functions, references and bit syntax, which no
configuration has.  Source: Erlang/OTP's reference manual, "Data Types".
"""

import re
from typing import Final, NamedTuple, TypeGuard

DEPTH_MAX: Final = 100
TOKEN: Final = re.compile(
    r"""(?P<space>(?:\s|%[^\n]*)+)
    |(?P<float>[+-]?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?)
    |(?P<based>[+-]?[0-9]+\#[0-9A-Za-z]+)
    |(?P<integer>[+-]?[0-9]+(?:_[0-9]+)*)
    |(?P<atom>[a-z][A-Za-z0-9_@]*)
    |(?P<quoted>'(?:[^'\\]|\\.)*')
    |(?P<string>"(?:[^"\\]|\\.)*")
    |(?P<mark><<|>>|/utf8|[][{},.])""",
    re.VERBOSE | re.DOTALL,
)
ESCAPE: Final = re.compile(
    r"\\(?:x\{([0-9A-Fa-f]{1,6})\}|x([0-9A-Fa-f]{2})|([0-7]{1,3})|(.))", re.DOTALL
)
NAMED: Final = {
    "b": "\b",
    "d": "\x7f",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "s": " ",
    "t": "\t",
    "v": "\v",
}


class TermsInvalid(ValueError):
    """The text is no list of terms; ``line`` begins with 1."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


class Unfit(ValueError):
    """A term has not the form it must have; the text, if there is one, says which."""


class Atom(NamedTuple):
    name: str


class Tuple(NamedTuple):
    """``items``: terms; ``line``: that of the brace."""

    items: "list[Term]"
    line: int


Term = Atom | Tuple | int | float | str | list["Term"]


def is_encrypted(term: Term) -> TypeGuard[Tuple]:
    """``{encrypted, <<"...">>}``: a value that RabbitMQ decrypts."""
    return (
        isinstance(term, Tuple)
        and len(term.items) == 2
        and term.items[0] == Atom("encrypted")
        and isinstance(term.items[1], str)
    )


class _Token(NamedTuple):
    kind: str  # a group of TOKEN, or "end"
    text: str
    line: int


def read_terms(text: str) -> list[Term]:
    """Raises TermsInvalid."""
    return _Reader(text).file()


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def file(self) -> list[Term]:
        found: list[Term] = []
        while self._now().kind != "end":
            found.append(self._term(0))
            self._expect(".")
        return found

    # -- tokens --------------------------------------------------------------------------

    def _now(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _refusal(self, token: _Token) -> TermsInvalid:
        what = "the end of the file" if token.kind == "end" else repr(token.text[:40])
        return TermsInvalid(token.line, f"syntax error before {what}")

    def _expect(self, mark: str) -> None:
        token = self._now()
        if token.text != mark or token.kind != "mark":
            raise self._refusal(token)
        self._at += 1

    def _is_mark(self, mark: str) -> bool:
        token = self._now()
        return token.kind == "mark" and token.text == mark

    # -- terms ---------------------------------------------------------------------------

    def _term(self, depth: int) -> Term:
        token = self._next()
        if depth > DEPTH_MAX:
            raise TermsInvalid(token.line, f"more than {DEPTH_MAX} terms within each other")
        if token.kind == "mark":
            return self._compound(token, depth)
        if token.kind == "string":
            return self._string(token)
        if token.kind == "atom":
            return Atom(token.text)
        if token.kind == "quoted":
            return Atom(_unescaped(token))
        if token.kind == "float":
            return float(token.text)
        if token.kind in ("integer", "based"):
            return _integer(token)
        raise self._refusal(token)

    def _compound(self, token: _Token, depth: int) -> Term:
        if token.text == "{":
            return Tuple(self._items("}", depth), token.line)
        if token.text == "[":
            return self._items("]", depth)
        if token.text == "<<":
            return self._binary()
        raise self._refusal(token)

    def _items(self, end: str, depth: int) -> "list[Term]":
        found: list[Term] = []
        if not self._is_mark(end):
            found.append(self._term(depth + 1))
            while self._is_mark(","):
                self._at += 1
                found.append(self._term(depth + 1))
        self._expect(end)
        return found

    def _string(self, token: _Token) -> str:
        """Strings that follow each other are one."""
        parts = [_unescaped(token)]
        while self._now().kind == "string":
            parts.append(_unescaped(self._next()))
        return "".join(parts)

    def _binary(self) -> str:
        text = ""
        if not self._is_mark(">>"):
            token = self._next()
            if token.kind != "string":
                raise self._refusal(token)
            text = self._string(token)
            if self._is_mark("/utf8"):
                self._at += 1
        self._expect(">>")
        return text


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at, line = 0, 1
    while at < len(text):
        match = TOKEN.match(text, at)
        if match is None:
            raise TermsInvalid(
                line, f"syntax error before {text[at : at + 20].split(maxsplit=1)[0]!r}"
            )
        kind = str(match.lastgroup)
        if kind != "space":
            found.append(_Token(kind, match[0], line))
        line += match[0].count("\n")
        at = match.end()
    return [*found, _Token("end", "", line)]


def _unescaped(token: _Token) -> str:
    def meant(match: re.Match[str]) -> str:
        wide, narrow, octal, letter = match.groups()
        if letter is not None:
            return NAMED.get(letter, letter)
        code = int(octal, 8) if octal is not None else int(wide or narrow, 16)
        if code > 0x10FFFF:
            raise TermsInvalid(token.line, f"{match[0]} is no character")
        return chr(code)

    return ESCAPE.sub(meant, token.text[1:-1])


def _integer(token: _Token) -> int:
    """``12`` or ``16#ff``."""
    base, mark, digits = token.text.partition("#")
    if not mark:
        base, digits = "10", token.text
    try:
        number = int(digits, abs(int(base)))
    except ValueError as error:
        raise TermsInvalid(token.line, f"{token.text[:40]} is no number") from error
    return -number if base.startswith("-") else number
