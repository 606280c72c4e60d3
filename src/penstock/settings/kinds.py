"""The kinds of settings: what a value may be, and how each source spells it.

In: a raw value of a TOML file, or the text of a variable or flag.  Out: the value, or None when it
is not of this kind; who asked makes the refusal.  ``settings`` declares one object of these per
setting.
"""

import re
from collections.abc import Callable
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from penstock.core.capacity import (
    DiskLimit,
    MemoryLimit,
    parse_disk_limit,
    parse_memory_limit,
    parse_number,
)

Value = bool | int | float | str | tuple[str, ...]
V = TypeVar("V")

ENVIRONMENT_PREFIX: Final = "PENSTOCK_"
NAME_MAX_BYTES: Final = 255
"""A short string on the wire: user and virtual host names must fit one."""


class Values(Protocol):
    """What a setting is read from: the merged and checked values."""

    def value_of(self, key: str) -> Value: ...


class Kind(Generic[V]):
    """One declared setting, whose value is read as V; the kinds below add type and bounds.

    ``kept_as``: the Python type of its checked value.  ``type_name``: that for documents.
    """

    kept_as: type = str
    type_name: str
    unit = ""

    def __init__(self, default: Value, doc: str) -> None:
        self.default = default
        self.doc = doc
        self.key = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.key = name

    def __get__(self, settings: Values, owner: type) -> V:
        value = settings.value_of(self.key)
        assert isinstance(value, self.kept_as)
        return cast(V, value)

    @property
    def environment_name(self) -> str:
        return ENVIRONMENT_PREFIX + self.key.upper()

    @property
    def flag(self) -> str:
        return "--" + self.key.replace("_", "-")

    def allowed(self) -> str:
        """What may be written, as the end of 'allowed: ...'."""
        raise NotImplementedError

    def from_text(self, text: str) -> Value | None:
        """The value an environment variable or flag spells; None = not of this type."""
        return text

    def from_toml(self, raw: object) -> Value | None:
        """The value a TOML file holds; None = not of this type: a truth is no number."""
        return cast(Value, raw) if type(raw) is self.kept_as else None

    def within_bounds(self, value: Value) -> bool:
        return isinstance(value, self.kept_as)


Setting: TypeAlias = Kind[Any]
"""Of any kind."""


class Integer(Kind[int]):
    """A whole number; the unit is the last word of the key."""

    kept_as = int
    type_name = "integer"

    def __init__(self, default: int, minimum: int, maximum: int, doc: str, unit: str = "") -> None:
        super().__init__(default, doc)
        self.minimum = minimum
        self.maximum = maximum
        self.unit = unit

    def allowed(self) -> str:
        return f"a whole number from {self.minimum} to {self.maximum}"

    def from_text(self, text: str) -> int | None:
        return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) else None

    def within_bounds(self, value: Value) -> bool:
        return isinstance(value, int) and self.minimum <= value <= self.maximum


class Number(Kind[float]):
    kept_as = float
    type_name = "number"

    def __init__(self, default: float, maximum: float, doc: str) -> None:
        super().__init__(default, doc)
        self.maximum = maximum

    def allowed(self) -> str:
        return f"a number from 0 to {self.maximum:g}"

    def from_text(self, text: str) -> float | None:
        return parse_number(text)

    def from_toml(self, raw: object) -> float | None:
        return float(raw) if isinstance(raw, int | float) and not isinstance(raw, bool) else None

    def within_bounds(self, value: Value) -> bool:
        return isinstance(value, float) and 0 <= value <= self.maximum


class _Limit(Kind[V]):
    """Kept as it was written; ``parse`` reads it: see ``capacity``."""

    parse: Callable[[str], V | None]
    words: str

    def __get__(self, settings: Values, owner: type) -> V:
        limit = self.parse(str(settings.value_of(self.key)))
        assert limit is not None
        return limit

    def allowed(self) -> str:
        return self.words

    def from_toml(self, raw: object) -> str | None:
        return written_size(raw)

    def within_bounds(self, value: Value) -> bool:
        return self.parse(str(value)) is not None


class MemoryWatermark(_Limit[MemoryLimit]):
    type_name = "a share, or bytes"
    parse = staticmethod(parse_memory_limit)
    words = (
        "a share from 0 to 1 such as 0.4; or bytes, at least 1000000, also with a unit such as"
        " 256MiB or 4GB (k and kiB are 1024, kB is 1000; likewise M, G, T)"
    )


class FreeDisk(_Limit[DiskLimit]):
    type_name = "bytes, or a rule"
    parse = staticmethod(parse_disk_limit)
    words = (
        "auto; bytes, also with a unit such as 500MiB or 2GB (k and kiB are 1024, kB is 1000;"
        " likewise M, G, T); mem_relative 1.0: that many times the memory"
    )


def written_size(raw: object) -> str | None:
    """What TOML or JSON holds, as it would be written; None for what is no text or number."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None
    return raw if isinstance(raw, str) else repr(raw)


class Boolean(Kind[bool]):
    kept_as = bool
    type_name = "yes or no"

    def allowed(self) -> str:
        return "true, false"

    def from_text(self, text: str) -> bool | None:
        return {"true": True, "false": False}.get(text)


class Text(Kind[str]):
    """A string of ``min_bytes`` to ``max_bytes`` in UTF-8, or one of ``choices``."""

    def __init__(
        self,
        default: str,
        doc: str,
        min_bytes: int = 1,
        max_bytes: int = 4096,
        choices: tuple[str, ...] = (),
    ) -> None:
        super().__init__(default, doc)
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.choices = choices
        self.type_name = "one of a few words" if choices else "text"

    def allowed(self) -> str:
        if self.choices:
            return ", ".join(choice or "nothing" for choice in self.choices)
        return f"text of {self.min_bytes} to {self.max_bytes} bytes without NUL"

    def within_bounds(self, value: Value) -> bool:
        if not isinstance(value, str) or "\0" in value:
            return False
        if self.choices:
            return value in self.choices
        size_bytes = len(value.encode("utf-8", "surrogateescape"))
        return self.min_bytes <= size_bytes <= self.max_bytes


ENCRYPTED: Final = "encrypted:"
FORMS: Final = ("file:", "command:", ENCRYPTED, "plain:")
"""How a secret begins that stands elsewhere, or that looks like one of these."""


def form_of(text: str) -> str:
    """One of ``FORMS``, "" = the text is the secret itself."""
    return next((form for form in FORMS if text.startswith(form)), "")


def is_plain(text: str) -> bool:
    """Does a secret that is written so stand there itself?"""
    return bool(text) and form_of(text) in ("", "plain:")


class Secret(Text):
    """A password, or a text that may hold one.  Its value is where it is written: see
    ``penstock.secrets.sources``.  No message and no operator is shown it.
    """

    def __init__(self, default: str, doc: str, min_bytes: int = 1, max_bytes: int = 4096) -> None:
        super().__init__(default, doc, min_bytes, max_bytes)
        self.type_name = "secret"

    def allowed(self) -> str:
        return f"{super().allowed()}; or its place: file:, command: or encrypted:"


class Form(NamedTuple):
    """What the entries of a list are: in words, as the end of 'allowed: ...', and by a test."""

    words: str
    fits: Callable[[str], bool]


def _is_name(text: str) -> bool:
    return 1 <= len(text.encode("utf-8", "surrogateescape")) <= NAME_MAX_BYTES


def _is_share(text: str) -> bool:
    number = parse_number(text)
    return number is not None and 0 < number <= 1


NAMES: Final = Form(f"names of 1 to {NAME_MAX_BYTES} bytes", _is_name)
SHARES: Final = Form("numbers above 0 and up to 1, such as 0.99", _is_share)


class _List(Kind[V]):
    """Entries of one form, or some of ``choices``: an array in the file, else with commas."""

    kept_as = tuple

    def __init__(
        self, default: tuple[str, ...], doc: str, choices: tuple[str, ...] = (), form: Form = NAMES
    ) -> None:
        super().__init__(default, doc)
        self.choices = choices
        self.form = form

    def allowed(self) -> str:
        entries = " and ".join(self.choices) or self.form.words
        return f"{entries}: an array in the file, separated by commas elsewhere; empty for none"

    def from_text(self, text: str) -> tuple[str, ...] | None:
        return tuple(name.strip() for name in text.split(",")) if text.strip() else ()

    def from_toml(self, raw: object) -> tuple[str, ...] | None:
        if not isinstance(raw, list):
            return None
        texts = [text for text in map(self.entry, raw) if text is not None]
        return tuple(texts) if len(texts) == len(raw) else None

    def within_bounds(self, value: Value) -> bool:
        if not isinstance(value, tuple):
            return False
        if self.choices:
            return set(value) <= set(self.choices)
        return all(self.form.fits(entry) for entry in value)

    @staticmethod
    def entry(raw: object) -> str | None:
        """What the array holds at one place, as text; None = it is not of this type."""
        return raw if isinstance(raw, str) else None


class NameList(_List[tuple[str, ...]]):
    """Names, or texts of another form."""

    type_name = "list of names"


class Shares(_List[tuple[float, ...]]):
    """Kept as they were written."""

    type_name = "list of shares"
    entry = staticmethod(written_size)

    def __init__(self, default: tuple[str, ...], doc: str) -> None:
        super().__init__(default, doc, form=SHARES)

    def __get__(self, settings: Values, owner: type) -> tuple[float, ...]:
        value = settings.value_of(self.key)
        assert isinstance(value, tuple)
        return tuple(float(text) for text in value)
