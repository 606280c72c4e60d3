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
from typing import Any, Final, NamedTuple

from penstock.core.errors import SettingInvalid
from penstock.settings.kinds import ENCRYPTED, Value
from penstock.settings.rabbitmq_keys import (
    BACKEND_PREFIX,
    BACKENDS,
    CACHED,
    FIXED,
    GATHERED,
    HTTPS,
    HTTPS_WORDS,
    IGNORED,
    JSON_SETTINGS,
    KNOWN_BACKENDS,
    NOT_INHERITED,
    OAUTH2,
    OBEYED,
    OLD_TLS,
    OTHER_BACKENDS,
    SEEDS,
    TERMS_ONLY,
    TLS_VERSIONS,
    UNSAFE,
)
from penstock.settings.rabbitmq_terms import SUFFIX, entries_of

LINE: Final = re.compile(r"([A-Za-z0-9_$@/.\\-]+)\s*=\s*(.*)")
STRONGER: Final = (
    ("vm_memory_high_watermark.relative", "vm_memory_high_watermark.absolute"),
    ("disk_free_limit.relative", "disk_free_limit.absolute"),
    ("loopback_users", "loopback_users."),
    ("listeners.tcp", "listeners.tcp."),
    ("listeners.ssl", "listeners.ssl."),
)
"""A key, and the one or the ones (with a dot at the end) that do not count beside it."""
HIDDEN: Final = frozenset(
    {
        *("default_pass", "ssl_options.password", "auth_http.ssl_options.password"),
        *("shovel.shovels", "config_entry_decoder.passphrase"),
    }
)
HIDDEN_KEYS: Final = (
    r"(default_users|management|prometheus)\..*\.password|management\..*oauth_client_secret"
)
SSL_OPTIONS: Final = "ssl_options."
MANAGEMENT_SSL: Final = "management.listener.ssl"
LISTS: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    "auth_mechanisms.": (
        frozenset({"PLAIN", "AMQPLAIN"}),
        "PLAIN and AMQPLAIN are offered all the same",
    )
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
    def __init__(self) -> None:
        self._found = Translated({}, {}, [], [])
        self._names: dict[str, list[str]] = {}
        self._seeds: dict[str, dict[str, dict[str, Value]]] = {}
        self._json: dict[str, dict[str, Any]] = {}  # settings that are JSON
        self._listeners: dict[str, dict[str, Line]] = {"tcp": {}, "ssl": {}}
        self._tls: dict[str, list[Line]] = {}  # by how their keys begin
        self._backends: dict[str, dict[int, list[str]]] = {}
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
            if line.value != wanted:
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
        elif row in BACKENDS or row in CACHED:
            self._gather_backend(row, line)
        elif row in OAUTH2:
            self._token_key(row, line)
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
        elif row == MANAGEMENT_SSL:
            self._truth(line)
        elif prefix := next((one for one in (SSL_OPTIONS, *HTTPS) if row.startswith(one)), ""):
            self._tls.setdefault(prefix, []).append(line)
        elif row in ("listeners.tcp.$name", "listeners.ssl.$name"):
            self._listeners[row.split(".")[1]][name] = line
        elif line.value != "none":
            raise self._refuse(line, "none")
        elif row == "loopback_users":
            self._set(line, row, ())

    def _seed(self, row: str, line: Line) -> None:
        section, field, kind = SEEDS[row]
        value = kind.read(line.value)
        if value is None or (field == "password" and str(value).startswith(ENCRYPTED)):
            raise self._refuse(line, f"{kind.allowed}, not encrypted")
        name = _written(line.key.split(".")[row.split(".").index("$name")])
        self._seeds.setdefault(section, {}).setdefault(name, {})[field] = value
        self._set(line, "vhost_defaults", json.dumps(self._seeds))

    def _gather_backend(self, row: str, line: Line) -> None:
        """One of a chain: both parts of a pair, or one that stands for both."""
        name = line.value.removeprefix(BACKEND_PREFIX)
        name = "oauth2" if name == "oauth" else name
        if name in OTHER_BACKENDS:
            raise SettingInvalid(
                f"{self._where(line)}; Penstock has no such backend: let an HTTP server ask it,"
                " and name that by auth_backends.1 = http and auth_http.user_path"
            )
        if name not in KNOWN_BACKENDS or (name == "cache" and row in CACHED):
            raise self._refuse(line, ", ".join(KNOWN_BACKENDS))
        number = line.key.split(".")[1]
        place = 0 if row in CACHED else int(number) if number.isdecimal() else -1
        if place < 0:
            raise SettingInvalid(f"{self._where(line)}: a place in the chain is a whole number")
        setting = GATHERED[row]
        pair = self._backends.setdefault(setting, {}).setdefault(place, ["", ""])
        parts = [0, 1] if row in (BACKENDS[0], CACHED[0]) else [row.endswith(".authz")]
        for part in parts:
            if pair[part]:
                raise SettingInvalid(f"{self._where(line)}: another line has said that")
            pair[part] = name
        chain = self._backends[setting]
        entries = tuple(_entry(*chain[one]) for one in sorted(chain))
        self._set(line, setting, entries[0] if row in CACHED else entries)

    def _token_key(self, row: str, line: Line) -> None:
        value = OAUTH2[row].read(line.value)
        if value is None:
            raise self._refuse(line, OAUTH2[row].allowed)
        prefix, *levels, last = [_written(part) for part in line.key.split(".")]
        setting = JSON_SETTINGS[prefix]
        place = self._json.setdefault(setting, {})
        for level in levels:
            place = place.setdefault(level, {})
            if not isinstance(place, dict):
                raise self._refuse(line, f"nothing: {level} has a value of its own")
        place[last] = value
        self._set(line, setting, json.dumps(self._json[setting]))

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
        lines = self._tls.pop(SSL_OPTIONS, [])
        for word in self._words(SSL_OPTIONS, lines):
            if self._has_tls:
                name, _, value = word.partition("=")
                self._set(lines[0], f"ssl_{name}", value)
        listener_ssl = last.get(MANAGEMENT_SSL)
        if listener_ssl is None or listener_ssl.value != "true":
            for line in self._tls.pop(f"{MANAGEMENT_SSL}_opts.", []):
                self._warn(line, f"{MANAGEMENT_SSL} is not true")
        else:
            self._serve_by_tls(f"{MANAGEMENT_SSL}_opts.", [listener_ssl], last)
        for prefix in HTTPS:
            if prefix in self._tls:
                self._serve_by_tls(prefix, [], last)
        if self._proxied is not None:
            both = ("amqp", "amqp/ssl") if "ssl_certfile" in values else ("amqp",)
            self._set(self._proxied, "proxy_protocol", both)

    def _serve_by_tls(self, prefix: str, begun: list[Line], last: dict[str, Line]) -> None:
        """A listener for HTTP that its lines, or ``begun``, ask for."""
        listener, lines = HTTPS[prefix], self._tls.pop(prefix, [])
        first = (begun or lines)[0]
        words = (*NOT_INHERITED, *self._words(prefix, lines))
        self._set(first, listener.overrides, words)
        ports = [line for line in lines if line.key == f"{prefix}port"]
        if begun and "http_port" in self._found.values:
            self._set(first, listener.port, self._found.values.pop("http_port"))
        else:
            number = self._endpoint(ports[0])[1] if ports else listener.usual_port
            self._set((ports or [first])[0], listener.port, number)
        if begun or not any(key.startswith(listener.plain) for key in last):
            self._set(first, *listener.closed)

    def _words(self, prefix: str, lines: list[Line]) -> list[str]:
        """What lines say of TLS, as entries of a list of ours (``settings/tls``)."""
        words, versions, ciphers = [], set(), []
        for line in lines:
            key = line.key.removeprefix(prefix)
            if key == "port":
                continue
            if key == "ip":
                self._set(line, "https_bind", line.value)
            elif key.startswith("versions."):
                if line.value in TLS_VERSIONS:
                    versions.add(TLS_VERSIONS[line.value])
                else:
                    self._warn(line, OLD_TLS)
            elif key.startswith("ciphers."):
                if line.value.startswith("TLS_"):
                    self._warn(line, "the cipher suites of TLS 1.3 are always offered")
                else:
                    ciphers.append(line.value)
            else:
                value = HTTPS_WORDS[key].read(line.value)
                if value is None:
                    raise self._refuse(line, HTTPS_WORDS[key].allowed)
                words.append(f"{key}={str(value).lower() if isinstance(value, bool) else value}")
        if versions:
            words += [f"min_version={min(versions)}", f"max_version={max(versions)}"]
        return words + ([f"ciphers={':'.join(ciphers)}"] if ciphers else [])

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
        bare = written.partition("#")[0].strip()
        if not bare:
            continue
        where = f"file {name}, line {number}"
        found = LINE.fullmatch(bare)
        if found is None:
            raise SettingInvalid(f"{where}: {bare!r} is no 'key = value'")
        yield Line(place + number, where, found[1].replace("\\.", "\0"), found[2])


def _entry(authn: str, authz: str) -> str:
    """Of the setting ``auth_backends``; a part that is not named is the other one."""
    authn, authz = authn or authz, authz or authn
    return authn if authn == authz else f"{authn}/{authz}"


def _written(key: str) -> str:
    return key.replace("\0", ".")


def _nearest(key: str) -> str:
    exact = [row for rows in (OBEYED, GATHERED, FIXED, IGNORED) for row in rows if "*" not in row]
    near = difflib.get_close_matches(key, exact, n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""
