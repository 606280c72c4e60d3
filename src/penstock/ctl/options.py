"""A command line as RabbitMQ's programs read it: options anywhere, arguments in their order.

    --vhost v   --vhost=v   -p v   -p=v   --quiet   --no-quiet   --   (only arguments from here on)

A word that begins with a dash and a digit is a number.  Each verb knows its own options; an
option of another verb, a value that is missing or no number, is *invalid*: kept in the order in
which it came, for the message.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

TEXT: Final = "text"
NUMBER: Final = "number"
FLAG: Final = "flag"

COMMON: Final[Mapping[str, str]] = {
    "node": TEXT,
    "quiet": FLAG,
    "silent": FLAG,
    "longnames": FLAG,
    "timeout": NUMBER,
    "vhost": TEXT,
    "formatter": TEXT,
    "help": FLAG,
    "url": TEXT,
    "user": TEXT,
    "password": TEXT,
    "data-dir": TEXT,
}
"""Options of every verb; the last four are ours."""
SHORT: Final[Mapping[str, str]] = {
    "?": "help",
    "n": "node",
    "q": "quiet",
    "s": "silent",
    "l": "longnames",
    "t": "timeout",
    "p": "vhost",
    "N": "number",
    "d": "duration",
    "e": "if-empty implicitly-enabled",
    "u": "if-unused",
    "P": "pid",
    "a": "all",
    "v": "verbose",
    "m": "minimal",
    "E": "enabled",
}
"""A letter, and the options it may stand for: the one that the verb has."""

Value = str | int | bool


class Parsed(NamedTuple):
    words: list[str]
    options: dict[str, Value]
    invalid: list[tuple[str, str]]
    """Option as it was written, and its value, "" when it has none."""


def parse(line: Sequence[str], switches: Mapping[str, str]) -> Parsed:
    """``switches``: names without dashes, and what kind each is."""
    parsed = Parsed([], {}, [])
    rest = list(line)
    while rest:
        word = rest.pop(0)
        if word == "--":
            parsed.words.extend(rest)
            break
        if not word.startswith("-") or word == "-" or _is_number(word):
            parsed.words.append(word)
        else:
            _take(word, rest, switches, parsed)
    return parsed


def _take(word: str, rest: list[str], switches: Mapping[str, str], parsed: Parsed) -> None:
    spelt, equals, value = word.partition("=")
    name, is_on = _name_of(spelt, switches)
    kind = switches.get(name)
    if kind is None:
        parsed.invalid.append((spelt, value))
    elif kind == FLAG:
        if equals and value not in ("true", "false"):
            parsed.invalid.append((spelt, value))
        else:
            parsed.options[name] = is_on if not equals else value == "true"
    else:
        if not equals:
            if not rest or not _is_value(rest[0]):
                parsed.invalid.append((spelt, ""))
                return
            value = rest.pop(0)
        if kind == TEXT:
            parsed.options[name] = value
        elif value.lstrip("-").isdecimal():
            parsed.options[name] = int(value)
        else:
            parsed.invalid.append((spelt, value))


def _name_of(spelt: str, switches: Mapping[str, str]) -> tuple[str, bool]:
    if not spelt.startswith("--"):
        names = SHORT.get(spelt[1:], "").split()
        return next((name for name in names if name in switches), ""), True
    name = spelt[2:]
    if name.startswith("no-") and switches.get(name[3:]) == FLAG:
        return name[3:], False
    return name, True


def _is_value(word: str) -> bool:
    return not word.startswith("-") or word == "-" or _is_number(word)


def _is_number(word: str) -> bool:
    return word[:1] == "-" and word[1:2].isdigit()
