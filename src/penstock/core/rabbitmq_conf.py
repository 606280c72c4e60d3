"""``rabbitmq.conf``: RabbitMQ's configuration file, as a source of our settings.

In: the text of the file, or of several (lines of ``key = value``, ``#`` begins a comment).  Out:
values of our settings with the line each came from, and warnings.  ``rabbitmq_keys`` has the keys.

Nothing is ignored in silence: a key RabbitMQ knows and this broker does not obey is named with its
line and the reason, a key nobody knows stops the start with the nearest name, and so does a value
that RabbitMQ would not take.  Of a key that stands twice the last line counts, as there.
"""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from penstock.core.errors import SettingInvalid
from penstock.core.rabbitmq_keys import FIXED, GATHERED, IGNORED, OBEYED
from penstock.core.setting_kinds import Value

LINE: Final = re.compile(r"\s*([A-Za-z0-9_$@/.\\-]+)\s*=\s*(.*?)\s*")
STRONGER: Final = (
    ("vm_memory_high_watermark.relative", "vm_memory_high_watermark.absolute"),
    ("disk_free_limit.relative", "disk_free_limit.absolute"),
    ("loopback_users", "loopback_users."),
    ("listeners.tcp", "listeners.tcp."),
    ("listeners.ssl", "listeners.ssl."),
)
"""A key, and the one or the ones (with a dot at the end) that do not count beside it."""
HIDDEN: Final = frozenset({"default_pass"})


class Line(NamedTuple):
    """One that says something; in a key, a dot that is part of a name is NUL."""

    place: int  # in the order of all files
    where: str
    key: str
    value: str


class Translated(NamedTuple):
    """What a file says: our settings, the line of each, and what it says in vain."""

    values: dict[str, Value]
    places: dict[str, str]
    warnings: list[str]


def translate(files: Sequence[tuple[str, str]]) -> Translated:
    """Of files by name and text, the later ones winning; raises SettingInvalid with the line."""
    return _Translation().run(files)


def row_of(key: str) -> str:
    """The row of ``rabbitmq_keys`` a key belongs to, "" = none."""
    parts = key.split(".")
    for rows in (OBEYED, GATHERED, FIXED, IGNORED):
        for row in rows:
            if not row.endswith("*") and _fits(row.split("."), parts):
                return row
    wide = [row for row in IGNORED if row.endswith(".*") and key.startswith(row[:-1])]
    return max(wide, key=len, default="")


def _fits(row: list[str], parts: list[str]) -> bool:
    return len(row) == len(parts) and all(
        one == other or (one.startswith("$") and other != "")
        for one, other in zip(row, parts, strict=True)
    )


class _Translation:
    """Of all files together."""

    def __init__(self) -> None:
        self._found = Translated({}, {}, [])
        self._names: dict[str, list[str]] = {}
        self._listeners: dict[str, dict[str, Line]] = {"tcp": {}, "ssl": {}}
        self._proxied: Line | None = None

    def run(self, files: Sequence[tuple[str, str]]) -> Translated:
        last: dict[str, Line] = {}
        place = 0
        for name, text in files:
            for line in _lines(name, text, place):
                last[line.key] = line
            place += len(text.splitlines())
        self._strike(last)
        for line in sorted(last.values()):
            self._take(line)
        self._take_together(last)
        return self._found

    def _strike(self, last: dict[str, Line]) -> None:
        """Where two keys say something of the same thing, the same one counts as there."""
        for strong, weak in STRONGER:
            if strong not in last:
                continue
            wide = weak.endswith(".")
            for key in [one for one in last if one == weak or (wide and one.startswith(weak))]:
                self._warn(last.pop(key), f"{strong} counts")

    # -- what is wrong -------------------------------------------------------------------

    def _where(self, line: Line) -> str:
        shown = "(hidden)" if line.key in HIDDEN else line.value
        return f"{line.where}: {_written(line.key)} = {shown}"

    def _refuse(self, line: Line, allowed: str) -> SettingInvalid:
        return SettingInvalid(f"{self._where(line)}; allowed: {allowed}")

    def _warn(self, line: Line, why: str) -> None:
        self._found.warnings.append(f"{self._where(line)}: no effect here: {why}")

    def _set(self, line: Line, key: str, value: Value) -> None:
        self._found.values[key] = value
        self._found.places[key] = line.where

    # -- keys ----------------------------------------------------------------------------

    def _take(self, line: Line) -> None:
        row = row_of(line.key)
        if row in OBEYED:
            key, kind = OBEYED[row]
            value = kind.read(line.value)
            if value is None:
                raise self._refuse(line, kind.allowed)
            self._set(line, key, value)
        elif row in GATHERED:
            self._gather(row, line)
        elif row in FIXED:
            wanted, why = FIXED[row]
            if line.value != wanted:
                self._warn(line, why)
        elif row:
            self._warn(line, IGNORED[row])
        else:
            raise SettingInvalid(
                f"{line.where}: RabbitMQ has no key {_written(line.key)!r}{_nearest(line.key)}"
            )

    def _gather(self, row: str, line: Line) -> None:
        name = _written(line.key.split(".")[-1])
        if row in ("loopback_users.$user", "default_user_tags.$tag"):
            key = GATHERED[row]
            names = self._names.setdefault(key, [])
            if self._truth(line):
                names.append(name)
            self._set(line, key, tuple(names))
        elif row == "proxy_protocol":
            self._proxied = line if self._truth(line) else None
        elif row in ("listeners.tcp.$name", "listeners.ssl.$name"):
            self._listeners[row.split(".")[1]][name] = line
        elif line.value != "none":
            raise self._refuse(line, "none")
        elif row == "loopback_users":
            self._set(line, row, ())

    def _truth(self, line: Line) -> bool:
        if line.value not in ("true", "false"):
            raise self._refuse(line, "true, false")
        return line.value == "true"

    # -- what several lines say ------------------------------------------------------------

    def _take_together(self, last: dict[str, Line]) -> None:
        values = self._found.values
        self._listen("tcp", "bind", "amqp_port")
        self._listen("ssl", "ssl_bind", "ssl_port")
        if "listeners.tcp" in last:
            self._set(last["listeners.tcp"], "amqp_listener", False)
        if not self._listeners["ssl"]:
            self._without_tls(last)
        if self._proxied is not None:
            both = ("amqp", "amqp/ssl") if "ssl_certfile" in values else ("amqp",)
            self._set(self._proxied, "proxy_protocol", both)

    def _listen(self, kind: str, bind: str, port: str) -> None:
        lines = list(self._listeners[kind].values())
        if not lines:
            return
        first, *others = lines
        for other in others:
            self._warn(other, f"there is one listener of this kind, {_written(first.key)}")
        address, number = self._endpoint(first)
        self._set(first, port, number)
        if address:
            self._set(first, bind, address)
        if kind == "ssl" and "ssl_certfile" not in self._found.values:
            raise SettingInvalid(f"{self._where(first)}; it needs ssl_options.certfile")

    def _endpoint(self, line: Line) -> tuple[str, int]:
        address, _, port = line.value.rpartition(":")
        address = address.removeprefix("[").removesuffix("]")
        if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
            raise self._refuse(line, "a port, or an IP address, a colon and a port")
        return address, int(port)

    def _without_tls(self, last: dict[str, Line]) -> None:
        """RabbitMQ opens no TLS port unless it is listed."""
        for line in sorted(last.values()):
            if line.key.startswith("ssl_options.") and row_of(line.key) in OBEYED:
                key = OBEYED[line.key][0]
                if self._found.values.pop(key, None) is not None:
                    self._warn(line, "no listeners.ssl is named, so there is no TLS port")


def _lines(name: str, text: str, place: int) -> Iterator[Line]:
    for number, written in enumerate(text.splitlines(), 1):
        bare = written.partition("#")[0]
        if not bare.strip():
            continue
        where = f"file {name}, line {number}"
        found = LINE.fullmatch(bare)
        if found is None:
            raise SettingInvalid(f"{where}: {bare.strip()!r} is no 'key = value'")
        yield Line(place + number, where, found[1].replace("\\.", "\0"), found[2])


def _written(key: str) -> str:
    return key.replace("\0", ".")


def _nearest(key: str) -> str:
    exact = [row for rows in (OBEYED, GATHERED, FIXED, IGNORED) for row in rows if "*" not in row]
    near = difflib.get_close_matches(key, exact, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
