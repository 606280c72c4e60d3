"""``rabbitmq.conf``: RabbitMQ's configuration file, as a source of our settings.

In: the text of the file, or of several (lines of ``key = value``, ``#`` begins a comment; a name
that ends in ``.config`` has Erlang terms, which ``rabbitmq_terms`` makes such lines of).  Out:
values of our settings with the line each came from, and warnings.  ``rabbitmq_keys`` has the keys.

Nothing is ignored in silence: a key RabbitMQ knows and this broker does not obey is named with its
line and the reason, apart from the others where it asks for security that is not in force.  An
unknown key stops the start with the nearest name, and so does a value that RabbitMQ would not take;
an unknown key of the Erlang terms is a warning, for RabbitMQ does not look at those.  Of a key that
stands twice the last line counts, as there.
"""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.core.errors import SettingInvalid
from penstock.settings.kinds import Value
from penstock.settings.rabbitmq_keys import (
    FIXED,
    GATHERED,
    IGNORED,
    OBEYED,
    SEEDS,
    SYNONYMS,
    TERMS_ONLY,
    UNSAFE,
)
from penstock.settings.rabbitmq_terms import SUFFIX, entries_of

LINE: Final = re.compile(r"\s*([A-Za-z0-9_$@/.\\-]+)\s*=\s*(.*?)\s*")
STRONGER: Final = (
    ("vm_memory_high_watermark.relative", "vm_memory_high_watermark.absolute"),
    ("disk_free_limit.relative", "disk_free_limit.absolute"),
    ("loopback_users", "loopback_users."),
    ("listeners.tcp", "listeners.tcp."),
    ("listeners.ssl", "listeners.ssl."),
)
"""A key, and the one or the ones (with a dot at the end) that do not count beside it."""
HIDDEN: Final = frozenset(
    {"default_pass", "ssl_options.password", "management.ssl.password", "shovel.shovels"}
)
HIDDEN_KEYS: Final = r"default_users\..*\.password"
TLS_VERSIONS: Final = ("tlsv1.2", "tlsv1.3")
LISTS: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "auth_mechanisms.": (
        frozenset({"PLAIN", "AMQPLAIN"}),
        "PLAIN and AMQPLAIN are offered all the same",
    ),
}
"""How the keys of a list begin ─► what is offered here anyway: a list without it is stricter."""


class Line(NamedTuple):
    """One that says something; in a key, a dot that is part of a name is NUL."""

    place: int  # in the order of all files
    where: str
    key: str
    value: str
    is_term: bool = False
    note: str = ""


class Translated(NamedTuple):
    """What a file says: our settings, the line of each, and what it says in vain.

    ``unsafe``: likewise, but security is lower than the file asks for.
    """

    values: dict[str, Value]
    places: dict[str, str]
    warnings: list[str]
    unsafe: list[str]


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
        self._found = Translated({}, {}, [], [])
        self._names: dict[str, list[str]] = {}
        self._seeds: dict[str, dict[str, dict[str, Value]]] = {}
        self._listeners: dict[str, dict[str, Line]] = {"tcp": {}, "ssl": {}}
        self._versions: list[Line] = []
        self._proxied: Line | None = None
        self._has_tls = False

    def run(self, files: Sequence[tuple[str, str]]) -> Translated:
        last: dict[str, Line] = {}
        place = 0
        for name, text in files:
            for line in _lines(name, text, place):
                last[line.key] = line
            place += len(text.splitlines())
        self._strike(last)
        self._has_tls = any(key.startswith("listeners.ssl.") for key in last)
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
        is_hidden = line.key in HIDDEN or re.fullmatch(HIDDEN_KEYS, line.key)
        shown = "(hidden)" if is_hidden else line.value
        return f"{line.where}: {_written(line.key)} = {shown}"

    def _refuse(self, line: Line, allowed: str) -> SettingInvalid:
        return SettingInvalid(f"{self._where(line)}; allowed: {allowed}")

    def _warn(self, line: Line, why: str, *, unsafe: bool = False) -> None:
        found = self._found.unsafe if unsafe else self._found.warnings
        found.append(f"{self._where(line)}: no effect here: {why}")

    def _is_unsafe(self, row: str) -> bool:
        """Without a TLS listener nothing that is said of TLS is in force with RabbitMQ, either."""
        return row in UNSAFE and (self._has_tls or not row.startswith("ssl_options."))

    def _set(self, line: Line, key: str, value: Value) -> None:
        self._found.values[key] = value
        self._found.places[key] = line.where

    # -- keys ----------------------------------------------------------------------------

    def _take(self, line: Line) -> None:
        row = row_of(line.key)
        obeyed = OBEYED
        if line.is_term and line.key in TERMS_ONLY:
            row, obeyed = line.key, TERMS_ONLY
        if line.note:
            self._found.warnings.append(f"{self._where(line)}: {line.note}")
        if row in obeyed:
            key, kind = obeyed[row]
            value = kind.read(line.value)
            if value is None:
                raise self._refuse(line, kind.allowed)
            self._set(line, key, value)
        elif row in GATHERED:
            self._gather(row, line)
        elif row in FIXED:
            wanted, why = FIXED[row]
            if SYNONYMS.get(line.value, line.value) != wanted:
                self._warn(line, why, unsafe=self._is_unsafe(row))
        elif row:
            self._warn(line, IGNORED[row], unsafe=self._is_unsafe(row))
        elif line.is_term:
            self._warn(line, "Penstock does not know this application or key")
        else:
            raise SettingInvalid(
                f"{line.where}: Penstock does not know the key {_written(line.key)!r} of"
                f" rabbitmq.conf{_nearest(line.key)}"
            )

    def _gather(self, row: str, line: Line) -> None:
        name = _written(line.key.split(".")[-1])
        if row in SEEDS:
            self._seed(row, line)
        elif row == "cluster_tags.$tag":
            tags = self._names.setdefault("cluster_tags", [])
            tags.append(f"{name}={line.value}")
            self._set(line, "cluster_tags", tuple(tags))
        elif row in ("loopback_users.$user", "default_user_tags.$tag"):
            key = GATHERED[row]
            names = self._names.setdefault(key, [])
            if self._truth(line):
                names.append(name)
            self._set(line, key, tuple(names))
        elif row == "proxy_protocol":
            self._proxied = line if self._truth(line) else None
        elif row == "ssl_options.versions.$version":
            self._versions.append(line)
            if line.value not in TLS_VERSIONS:
                self._warn(line, IGNORED["ssl_options.*"])
        elif row in ("listeners.tcp.$name", "listeners.ssl.$name"):
            self._listeners[row.split(".")[1]][name] = line
        elif line.value != "none":
            raise self._refuse(line, "none")
        elif row == "loopback_users":
            self._set(line, row, ())

    def _seed(self, row: str, line: Line) -> None:
        section, field, kind = SEEDS[row]
        value = kind.read(line.value)
        if value is None:
            raise self._refuse(line, kind.allowed)
        name = _written(line.key.split(".")[row.split(".").index("$name")])
        self._seeds.setdefault(section, {}).setdefault(name, {})[field] = value
        self._set(line, "vhost_defaults", json.dumps(self._seeds))

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
        for prefix, (offered, why) in LISTS.items():
            lines = [line for line in sorted(last.values()) if line.key.startswith(prefix)]
            if lines and not any(line.value in offered for line in lines):
                self._warn(lines[0], why, unsafe=True)
        versions = {line.value for line in self._versions}
        if self._has_tls and "tlsv1.3" in versions and "tlsv1.2" not in versions:
            self._set(self._versions[0], "ssl_min_version", "1.3")
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
    if name.endswith(SUFFIX):
        for entry in entries_of(f"file {name}", text):
            where = f"file {name}, line {entry.line}"
            yield Line(place + entry.line, where, entry.key, entry.value, True, entry.note)
        return
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
