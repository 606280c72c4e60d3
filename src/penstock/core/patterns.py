"""Regular expressions from clients: only those that match in bounded time.

``re`` tries one way after the other and holds the interpreter meanwhile: ``(a+)+$`` on a name of
thirty letters is the end of a node.  ``check`` therefore reads what Python's own parser made of the
expression and counts, from above, the ways in which it could try to match a name of ``NAME_MAX``
letters; what may need more than ``WAYS_MAX`` of them is refused with a text that says why.

A repetition is a choice only where its next round and what stands behind it can begin alike:
``[0-9]+-[0-9]+`` has one way, ``.*x`` has 256.  One that stands inside another multiplies by itself
for every round of the outer one, which no limit allows.  Letters are told apart as ASCII without
regard to case, all others are one: that errs on the safe side under every flag.

Measured with names of 255 bytes: ``.*.*x`` and ``.*[a-z]*1`` (three times 256) take 2 to 4 ms,
``.*.*.*x`` (four times) 280 ms.
"""

import functools
import re
from collections.abc import Iterable
from typing import Any, Final

try:
    from re import _parser  # type: ignore[attr-defined]
except ImportError:  # nothing promises it
    _parser = None

LENGTH_MAX: Final = 1000
NAME_MAX: Final = 255
CHOICES: Final = NAME_MAX + 1
WAYS_MAX: Final = CHOICES**3
FAR_TOO_MANY: Final = WAYS_MAX**2
KEPT: Final = 1024

OTHER: Final = 1 << 128
"""Every letter that is not ASCII."""
ALL: Final = (OTHER << 1) - 1
FOLDED: Final = "kKsSiI"
"""Letters that without regard to case are also letters beyond ASCII."""
CATEGORIES: Final = {
    "DIGIT": "0123456789",
    "SPACE": " \t\n\r\f\v",
    "WORD": "0123456789_ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
}
REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")

Items = list[tuple[Any, Any]]


class Refused(ValueError):
    """It is no regular expression, or one that could take too long."""


def check(pattern: str) -> None:
    """Raises Refused."""
    compiled(pattern, int(re.ASCII))


@functools.lru_cache(maxsize=KEPT)
def compiled(pattern: str, flags: int = int(re.ASCII)) -> re.Pattern[str]:
    """Ready to be searched for; raises Refused."""
    if len(pattern) > LENGTH_MAX:
        raise Refused(f"longer than {LENGTH_MAX} characters")
    try:
        expression = re.compile(pattern, flags)
        is_slow = _is_slow_text(pattern) if _parser is None else _is_slow(pattern, flags)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refused(str(error) or "nested too deeply") from None
    if is_slow:
        raise Refused(
            "could take too long: too many repetitions that can match the same letters, within or"
            " beside each other, or a reference to what was matched before"
            " (an expression that begins with ^ may have more)"
        )
    return expression


def found(pattern: str, name: str) -> bool:
    """Is it in that name?  One that would be refused is found nowhere."""
    expression = _if_good(pattern)
    return expression is not None and expression.search(name) is not None


@functools.lru_cache(maxsize=KEPT)
def _if_good(pattern: str) -> re.Pattern[str] | None:
    try:
        return compiled(pattern)
    except Refused:
        return None


def _is_slow_text(pattern: str) -> bool:
    """Without Python's parser: nothing repeated but single letters, and that not often."""
    return (
        re.search(r"\)[*+?{]|\\[1-9]|\(\?P=|\(\?\(", pattern) is not None
        or len(re.findall(r"[*+?{|]", pattern)) > 2
    )


def _is_slow(pattern: str, flags: int) -> bool:
    tree = _parser.parse(pattern, flags)
    items: Items = list(tree)
    starts = 1 if _is_anchored(items, tree.state.flags) else CHOICES
    count = _Count()
    ways, _ = count.sequence(items, 0)
    return not count.is_known or starts * ways * count.walk > WAYS_MAX


def _is_anchored(items: Items, flags: int) -> bool:
    """Does it match at the beginning of the name only?"""
    if flags & re.MULTILINE or not items:
        return False
    kind, value = items[0]
    name = str(kind)
    if name == "SUBPATTERN":
        _, on, _, inner = value
        return not on & re.MULTILINE and _is_anchored(list(inner), flags)
    if name == "BRANCH":
        return all(_is_anchored(list(branch), flags) for branch in value[1])
    return name == "AT" and str(value) in ("AT_BEGINNING", "AT_BEGINNING_STRING")


class _Count:
    """Counts ways from the end of an expression to its beginning."""

    def __init__(self) -> None:
        self.is_known = True
        self.walk = 1  # letters that a repetition without a choice runs over at each visit

    def sequence(self, items: Items, follow: int) -> tuple[int, int]:
        """Its ways, and the letters it may begin with when ``follow`` can stand behind it."""
        ways = 1
        for kind, value in reversed(items):
            some, follow = self._item(str(kind), value, follow)
            ways = min(ways * some, FAR_TOO_MANY)
        return ways, follow

    def _item(self, kind: str, value: Any, follow: int) -> tuple[int, int]:
        letters = _letters(kind, value)
        if letters is not None:
            return 1, letters
        if kind == "AT":
            return 1, follow | (1 << ord("\n") if str(value) == "AT_END" else 0)
        if kind == "SUBPATTERN":
            return self.sequence(list(value[3]), follow)
        if kind == "ATOMIC_GROUP":
            return self.sequence(list(value), follow)
        if kind in ("ASSERT", "ASSERT_NOT"):
            ways, _ = self.sequence(list(value[1]), 0)
            return ways, follow
        if kind == "BRANCH":
            return self._branch([list(branch) for branch in value[1]], follow)
        if kind in REPEATS:
            least, most, inner = value
            return self._repeat(int(least), int(most), inner, follow)
        self.is_known = False  # what refers to what was matched before, and what is new
        return 1, ALL

    def _branch(self, branches: list[Items], follow: int) -> tuple[int, int]:
        found = [self.sequence(branch, follow) for branch in branches]
        begins = 0
        is_choice = False
        for _, letters in found:
            is_choice = is_choice or begins & letters != 0
            begins |= letters
        counts = [ways for ways, _ in found]
        return (sum(counts) if is_choice else max(counts)), begins

    def _repeat(self, least: int, most: int, inner: Any, follow: int) -> tuple[int, int]:
        if most == 0:
            return 1, follow
        body: Items = list(inner)
        shortest = int(inner.getwidth()[0])
        # What may follow a round: the next round, or what stands behind them all.
        begins = _begins(body, 0)
        around = begins | follow
        ways, _ = self.sequence(body, around if most > 1 else follow)
        rounds = min(most, max(NAME_MAX // max(shortest, 1), 1))
        if rounds > least and (begins & follow or shortest == 0):
            choices = rounds - least + 1
        else:
            choices = 1
            if rounds > 1:
                self.walk = max(self.walk, min(rounds * max(shortest, 1), NAME_MAX))
        if ways > 1:
            choices *= ways ** min(rounds, FAR_TOO_MANY.bit_length())
        return min(choices, FAR_TOO_MANY), around if least == 0 or shortest == 0 else begins


def _begins(items: Items, follow: int) -> int:
    """The letters it may begin with; asks for each item once, however deep it stands."""
    for kind, value in reversed(items):
        name = str(kind)
        letters = _letters(name, value)
        if letters is not None:
            follow = letters
        elif name == "AT":
            follow |= 1 << ord("\n") if str(value) == "AT_END" else 0
        elif name == "SUBPATTERN":
            follow = _begins(list(value[3]), follow)
        elif name == "ATOMIC_GROUP":
            follow = _begins(list(value), follow)
        elif name == "BRANCH":
            found = 0
            for branch in value[1]:
                found |= _begins(list(branch), follow)
            follow = found
        elif name in REPEATS:
            least, most, inner = value
            begins = _begins(list(inner), 0) if int(most) else 0
            is_needed = int(least) and int(inner.getwidth()[0])
            follow = begins if is_needed else begins | follow
        elif name not in ("ASSERT", "ASSERT_NOT"):
            follow = ALL
    return follow


# -- letters -------------------------------------------------------------------------------


def _letters(kind: str, value: Any) -> int | None:
    """Those a single letter's place may take; None: it is no such place."""
    if kind in ("ANY", "ANY_ALL"):
        return ALL
    if kind == "LITERAL":
        return _widened(_letter(value))
    if kind == "NOT_LITERAL":
        return ALL & ~(_letter(value) & ~OTHER)
    if kind == "IN":
        return _set(value)
    return None


def _set(members: Iterable[tuple[Any, Any]]) -> int:
    is_negated = False
    letters = 0
    for kind, value in members:
        name = str(kind)
        if name == "NEGATE":
            is_negated = True
        elif name == "LITERAL":
            letters |= _letter(value)
        elif name == "RANGE":
            for letter in range(value[0], min(value[1], 127) + 1):
                letters |= 1 << letter
            if value[1] > 127:
                letters |= OTHER
        else:
            letters |= _category(str(value))
    return ALL & ~(letters & ~OTHER) if is_negated else _widened(letters)


def _category(name: str) -> int:
    """Of a set that is not negated too much does no harm, of one that is it must not happen:
    beyond ASCII nothing is ever taken out.
    """
    known = CATEGORIES.get(name.removeprefix("CATEGORY_").removeprefix("NOT_"))
    if known is None:
        return ALL
    letters = sum(1 << ord(letter) for letter in known)
    return (ALL & ~letters) if name.startswith("CATEGORY_NOT_") else letters | OTHER


def _letter(code: int) -> int:
    return 1 << code if code < 128 else OTHER


def _widened(letters: int) -> int:
    """With what they match when case does not count."""
    wide = letters
    for upper in range(ord("A"), ord("Z") + 1):
        both = 1 << upper | 1 << (upper + 32)
        if letters & both:
            wide |= both
    folded = sum(1 << ord(letter) for letter in FOLDED)
    if letters & folded:
        wide |= OTHER
    return wide | folded if letters & OTHER else wide
