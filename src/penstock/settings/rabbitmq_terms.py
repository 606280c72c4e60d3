"""RabbitMQ's classic configuration, ``rabbitmq.config`` and ``advanced.config``, as lines.

In: the text of a file of Erlang terms, ``[{Application, [{Key, Value}]}].``  Out: the lines of a
``rabbitmq.conf`` that say the same, so that what a key means stands in one place,
``rabbitmq_keys``.  Lists become numbered keys, lists of pairs deeper keys:

    {rabbit, [{ssl_options, [{certfile, "c"}]}]}          ssl_options.certfile = c
    {rabbit, [{auth_mechanisms, ['PLAIN']}]}              auth_mechanisms.1 = PLAIN
    {rabbitmq_management, [{listener, [{port, 15672}]}]}  management.listener.port = 15672

Keys whose form differs are in ``SPECIAL``.  Raises SettingInvalid with the line.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from penstock.core.errors import SettingInvalid
from penstock.settings.erlang_reader import (
    Atom,
    Term,
    TermsInvalid,
    Tuple,
    Unfit,
    is_encrypted,
    read_terms,
)
from penstock.settings.kinds import ENCRYPTED
from penstock.settings.static_shovels import static_shovels

SUFFIX: Final = ".config"
PREFIXES: Final[Mapping[str, str]] = {
    "rabbit": "",
    "rabbitmq_auth_backend_cache": "auth_cache.",
    "rabbitmq_auth_backend_http": "auth_http.",
    "rabbitmq_management": "management.",
    "rabbitmq_prometheus": "prometheus.",
    "rabbitmq_shovel": "shovel.",
}
"""Application ─► how its keys begin in a rabbitmq.conf; the others have no effect here."""
RENAMED: Final[Mapping[str, str]] = {"tcp_config": "tcp", "ssl_config": "ssl"}
PAIR: Final = 2


class Entry(NamedTuple):
    """A line of the other form; in a key, a dot that is part of a name is NUL.

    ``note``: why the value is another than the file has, "" = it is the same.
    """

    line: int
    key: str
    value: str
    note: str = ""


Pairs = Iterator[tuple[str, str]]


def entries_of(where: str, text: str) -> Iterator[Entry]:
    """In the order of the file; ``where`` names it in errors."""
    try:
        terms = read_terms(text)
    except TermsInvalid as error:
        raise SettingInvalid(f"{where}, line {error.line}: {error}") from error
    if not terms:
        return
    applications = terms[0]
    if len(terms) > 1 or not isinstance(applications, list):
        raise SettingInvalid(f"{where}: it is not one list [{{Application, [{{Key, Value}}]}}].")
    for application in applications:
        name, settings, line = _pair(where, application, 1)
        if name not in PREFIXES:
            yield Entry(line, name, "(its settings)")
            continue
        if not isinstance(settings, list):
            raise SettingInvalid(f"{where}, line {line}: {name} has no list of settings")
        for setting in settings:
            yield from _entries(where, PREFIXES[name], *_pair(where, setting, line))


def _pair(where: str, term: Term, line: int) -> tuple[str, Term, int]:
    """``{name, value}`` and its line; an atom alone is true, as in Erlang's property lists."""
    if isinstance(term, Atom):
        return term.name, Atom("true"), line
    if isinstance(term, Tuple) and len(term.items) == PAIR and isinstance(term.items[0], Atom):
        return term.items[0].name, term.items[1], term.line
    at = term.line if isinstance(term, Tuple) else line
    raise SettingInvalid(f"{where}, line {at}: {written(term)} is no {{name, value}}")


def _entries(where: str, prefix: str, name: str, value: Term, line: int) -> Iterator[Entry]:
    key = prefix + RENAMED.get(name, name)
    try:
        if key == "vm_memory_high_watermark" and _is_above_one(value):
            note = "RabbitMQ takes a share above 1 as 1.0"
            yield Entry(line, f"{key}.relative", "1.0", note)
            return
        pairs = SPECIAL[key](value) if key in SPECIAL else _flat(key, value)
        for one, text in pairs:
            yield Entry(line, one, text)
    except Unfit as error:
        shown = "(hidden)" if "pass" in name else written(value)
        why = f"{key}: {error}" if error.args else f"{key} cannot be {shown}"
        raise SettingInvalid(f"{where}, line {line}: {why}") from None


def _is_above_one(value: Term) -> bool:
    return isinstance(value, int | float) and value > 1


# -- values ------------------------------------------------------------------------------------


def _flat(key: str, value: Term) -> Pairs:
    """A value by itself, a list by numbers, a list of pairs by names."""
    if not isinstance(value, list):
        yield key, _text(value)
        return
    for number, item in enumerate(value, 1):
        if isinstance(item, Tuple):
            name, inner = _named(item)
            yield from _flat(f"{key}.{RENAMED.get(name, name)}", inner)
        elif not isinstance(item, Atom) or key not in OPTIONS:  # `binary` alone is no setting
            yield f"{key}.{number}", _text(item)


OPTIONS: Final = ("tcp_listen_options", "ssl_options")


def _named(item: Term) -> tuple[str, Term]:
    if not isinstance(item, Tuple) or len(item.items) != PAIR:
        raise Unfit
    if not isinstance(item.items[0], Atom | str | int):
        raise Unfit
    return _text(item.items[0]).replace(".", "\0"), item.items[1]


def _text(value: Term) -> str:
    if isinstance(value, Atom):
        return value.name
    if is_encrypted(value):
        return f"{ENCRYPTED}{value.items[1]}"
    if isinstance(value, Tuple | list):
        return written(value)
    return str(value)


def written(value: Term) -> str:
    if isinstance(value, Tuple):
        return "{" + ",".join(map(written, value.items)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    return f'"{value}"' if isinstance(value, str) else _text(value)


def _list(value: Term) -> list[Term]:
    if not isinstance(value, list):
        raise Unfit
    return value


def _tagged(value: Term) -> tuple[str, str]:
    """``{absolute, "1GB"}``."""
    if not isinstance(value, Tuple) or len(value.items) != PAIR:
        raise Unfit
    word, of = value.items
    return _text(word), _text(of)


# -- keys of another form ------------------------------------------------------------------


def _watermark(value: Term) -> Pairs:
    if isinstance(value, int | float):
        yield "vm_memory_high_watermark.relative", _text(value)
        return
    word, size = _tagged(value)
    if word != "absolute":
        raise Unfit
    yield "vm_memory_high_watermark.absolute", size


def _disk(value: Term) -> Pairs:
    if isinstance(value, Tuple):
        word, of = _tagged(value)
        kinds = {"mem_relative": "relative", "absolute": "absolute"}
        if word not in kinds:
            raise Unfit
        yield f"disk_free_limit.{kinds[word]}", of
    else:
        yield "disk_free_limit.absolute", _text(value)


def _listeners(kind: str) -> Callable[[Term], Pairs]:
    def read(value: Term) -> Pairs:
        items = _list(value)
        if not items:
            yield f"listeners.{kind}", "none"
        for number, item in enumerate(items, 1):
            if isinstance(item, Tuple):
                if len(item.items) < PAIR:
                    raise Unfit
                address, port = _text(item.items[0]), _text(item.items[1])
                text = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            else:
                text = _text(item)
            yield f"listeners.{kind}.{number}", text

    return read


def _names(key: str, when_empty: str) -> Callable[[Term], Pairs]:
    def read(value: Term) -> Pairs:
        items = _list(value)
        if not items and when_empty:
            yield key, when_empty
        for item in items:
            name = _text(item).replace(".", "\0")
            yield f"{key}.{name}", "true"

    return read


def _permissions(value: Term) -> Pairs:
    items = _list(value)
    if len(items) != len(KINDS):
        raise Unfit
    for kind, item in zip(KINDS, items, strict=True):
        yield f"default_permissions.{kind}", _text(item)


KINDS: Final = ("configure", "write", "read")


def _credit(key: str) -> Callable[[Term], Pairs]:
    """``{Initial, MoreAfter}``."""

    def read(value: Term) -> Pairs:
        initial, more_after = _tagged(value)
        yield f"{key}.initial", initial
        yield f"{key}.more_after", more_after

    return read


def _backends(value: Term) -> Pairs:
    """``rabbit_auth_backend_internal``, or one for log-in and one for rights."""
    for number, item in enumerate(_list(value), 1):
        if isinstance(item, Tuple):
            authn, authz = _tagged(item)
            yield f"auth_backends.{number}.authn", authn
            yield f"auth_backends.{number}.authz", authz
        else:
            yield f"auth_backends.{number}", _text(item)


def _cached(value: Term) -> Pairs:
    for key, text in _backends([value]):
        yield key.replace("auth_backends.1", "auth_cache.cached_backend"), text


def _log(value: Term) -> Pairs:
    for item in _list(value):
        name, inner = _named(item)
        for part in _list(inner):
            what, of = _named(part)
            if name == "categories":
                yield from _flat(f"log.{what}", of)
            elif what in ("enabled", "file"):
                yield f"log.{name}", _text(of)
            else:
                yield from _flat(f"log.{name}.{what}", of)


def _log_levels(value: Term) -> Pairs:
    for item in _list(value):
        category, level = _tagged(item)
        yield f"log.{category}.level", level


def _decoder(value: Term) -> Pairs:
    """How encrypted values are opened; the passphrase may be ``{file, Name}``."""
    for item in _list(value):
        name, inner = _named(item)
        if name != "passphrase":
            yield f"config_entry_decoder.{name}", _text(inner)
        elif isinstance(inner, Tuple):
            word, path = _tagged(inner)
            if word != "file":
                raise Unfit
            yield "config_entry_decoder.passphrase", f"file:{path}"
        elif inner == Atom("prompt"):
            raise Unfit("a passphrase is not asked for: {file, Name} has it, or config_passphrase")
        elif inner != Atom("undefined"):
            yield "config_entry_decoder.passphrase", f"plain:{_text(inner)}"


def _shovels(value: Term) -> Pairs:
    yield "shovel.shovels", json.dumps(static_shovels(value))


SPECIAL: Final[Mapping[str, Callable[[Term], Pairs]]] = {
    "vm_memory_high_watermark": _watermark,
    "disk_free_limit": _disk,
    "tcp_listeners": _listeners("tcp"),
    "ssl_listeners": _listeners("ssl"),
    "loopback_users": _names("loopback_users", "none"),
    "default_user_tags": _names("default_user_tags", ""),
    "default_permissions": _permissions,
    "credit_flow_default_credit": _credit("credit_flow_default_credit"),
    "msg_store_credit_disc_bound": _credit("msg_store_credit_disc_bound"),
    "auth_backends": _backends,
    "auth_cache.cached_backend": _cached,
    "config_entry_decoder": _decoder,
    "log": _log,
    "log_levels": _log_levels,
    "shovel.shovels": _shovels,
}
"""Key ─► the lines it becomes."""
