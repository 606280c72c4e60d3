"""Static shovels of ``advanced.config``, as values that dynamic ones have.

    {rabbitmq_shovel, [{shovels, [{NAME, [{source, […]}, {destination, […]}, {ack_mode, …}]}]}]}

In: the term of ``shovels``, each of today's form or of the one before 3.7 (``sources``,
``destinations``).  Out: for each name the keys of a parameter of the component ``shovel``; in
``src-declarations`` and ``dest-declarations``, which a parameter cannot have, stand
``[method, {argument: value}]`` as the client takes them.  Raises Unfit.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from penstock.settings.erlang_reader import Atom, Term, Tuple, Unfit, is_encrypted
from penstock.settings.kinds import ENCRYPTED

ACK_MODES: Final = {"no_ack": "no-ack", "on_publish": "on-publish", "on_confirm": "on-confirm"}
SOURCE: Final[Mapping[str, str]] = {
    "uris": "src-uri",
    "queue": "src-queue",
    "prefetch_count": "src-prefetch-count",
    "delete_after": "src-delete-after",
    "consumer_name": "src-consumer-name",
    "consumer_args": "src-consumer-args",
    "protocol": "src-protocol",
    "declarations": "src-declarations",
}
DESTINATION: Final[Mapping[str, str]] = {
    "uris": "dest-uri",
    "publish_properties": "dest-publish-properties",
    "publish_fields": "",
    "add_forward_headers": "dest-add-forward-headers",
    "add_timestamp_header": "dest-add-timestamp-header",
    "protocol": "dest-protocol",
    "declarations": "dest-declarations",
}
FIELDS: Final = {"exchange": "dest-exchange", "routing_key": "dest-exchange-key"}
OLD_SOURCE: Final = ("queue", "prefetch_count", "delete_after")
OLD_DESTINATION: Final = (
    *("publish_fields", "publish_properties", "add_forward_headers", "add_timestamp_header"),
)
METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "queue.declare": ("queue", "passive", "durable", "exclusive", "auto_delete", "arguments"),
    "exchange.declare": (
        *("exchange", "type", "passive", "durable", "auto_delete", "internal", "arguments"),
    ),
    "queue.bind": ("queue", "exchange", "routing_key", "arguments"),
    "exchange.bind": ("destination", "source", "routing_key", "arguments"),
}
"""What may be declared, and by which arguments."""
UNUSED: Final = ("ticket", "nowait")
BOUND: Final = {"queue": "", "routing_key": "", "arguments": {}}
TRIPLE: Final = 3

Value = dict[str, Any]


def static_shovels(term: Term) -> dict[str, Value]:
    return {name: _within(name, _shovel, one) for name, one in _pairs(term).items()}


def _within(name: str, read: Callable[[Term], Any], term: Term) -> Any:
    try:
        return read(term)
    except Unfit as error:
        raise Unfit(f"{name}: {error}") from None


def _shovel(term: Term) -> Value:
    config = _pairs(term)
    is_old = "source" not in config
    if is_old:
        config = _of_today(config)
    value: Value = {"ack-mode": "on-confirm" if is_old else "no-ack"}
    for key, one in config.items():
        if key == "ack_mode":
            if _plain(one) not in ACK_MODES:
                raise Unfit(f"ack_mode is one of {', '.join(ACK_MODES)}")
            value["ack-mode"] = ACK_MODES[_plain(one)]
        elif key == "reconnect_delay":
            value["reconnect-delay"] = _plain(one)
        elif key not in SIDES:
            raise Unfit(f"{key} is not known")
    for side, keys in SIDES.items():
        value |= _side(side, keys, config.get(side, []))
    return value


def _side(side: str, keys: Mapping[str, str], term: Term) -> Value:
    value: Value = {keys["declarations"]: []}
    for key, one in _within(side, _pairs, term).items():
        if key not in keys:
            raise Unfit(f"{side}: {key} is not known")
        value |= _within(f"{side}: {key}", partial(_key, keys, key), one)
    return value


SIDES: Final[Mapping[str, Mapping[str, str]]] = {"source": SOURCE, "destination": DESTINATION}


def _of_today(old: Mapping[str, Term]) -> dict[str, Term]:
    """The form before 3.7, in which the two sides shared what they have today each."""
    rest = {key: one for key, one in old.items() if key in ("ack_mode", "reconnect_delay")}
    known = {*rest, *OLD_SOURCE, *OLD_DESTINATION, "sources", "destinations"}
    if not old.keys() <= known:
        raise Unfit(f"{', '.join(sorted(old.keys() - known))} is not known")
    sides = (("source", "sources", OLD_SOURCE), ("destination", "destinations", OLD_DESTINATION))
    for side, before, keys in sides:
        found = _within(before, _pairs, old.get(before, []))
        if "broker" in found:
            found["uris"] = [found.pop("broker")]
        if "brokers" in found:
            found["uris"] = found.pop("brokers")
        found |= {key: old[key] for key in keys if key in old}
        rest[side] = [Tuple([Atom(key), one], 0) for key, one in found.items()]
    return rest


def _key(keys: Mapping[str, str], key: str, term: Term) -> Value:
    if key == "publish_fields":
        found = _plain_pairs(term)
        if not found.keys() <= FIELDS.keys():
            raise Unfit(f"one of {', '.join(FIELDS)}")
        return {FIELDS[name]: one for name, one in found.items()}
    if key == "declarations":
        return {keys[key]: [_declaration(one) for one in _list(term)]}
    if key == "consumer_args":
        return {keys[key]: _table(term)}
    if key == "publish_properties":
        return {keys[key]: _plain_pairs(term)}
    if key == "uris":
        return {keys[key]: [_plain(one) for one in ([term] if is_encrypted(term) else _list(term))]}
    return {keys[key]: _plain(term)}


def _declaration(term: Term) -> list[object]:
    """``'queue.declare'`` alone, or with its arguments."""
    if isinstance(term, Atom):
        term = Tuple([term, []], 0)
    ((method, given),) = _pairs([term]).items()
    if method not in METHODS:
        raise Unfit(f"{method}: one of {', '.join(METHODS)}")
    found = {name: one for name, one in _pairs(given).items() if name not in UNUSED}
    if not found.keys() <= set(METHODS[method]):
        raise Unfit(f"{method} has no {', '.join(sorted(found.keys() - set(METHODS[method])))}")
    values = {
        name: _table(one) if name == "arguments" else _plain(one) for name, one in found.items()
    }
    if "type" in values:
        values["kind"] = values.pop("type")
    if method.endswith(".bind"):
        values = {name: one for name, one in BOUND.items() if name in METHODS[method]} | values
    return [method, values]


# -- terms -------------------------------------------------------------------------------------


def _list(term: Term) -> list[Term]:
    if not isinstance(term, list):
        raise Unfit("a list is needed")
    return term


def _pairs(term: Term) -> dict[str, Term]:
    """A property list, in which an atom alone is true."""
    found: dict[str, Term] = {}
    for item in _list(term):
        one: Term = Atom("true")
        if isinstance(item, Atom):
            name = item.name
        elif isinstance(item, Tuple) and len(item.items) == 2 and isinstance(item.items[0], Atom):
            name, one = item.items[0].name, item.items[1]
        else:
            raise Unfit("each item is {name, value}")
        if name in found:
            raise Unfit(f"{name} stands twice")
        found[name] = one
    return found


def _plain_pairs(term: Term) -> Value:
    return {name: _plain(one) for name, one in _pairs(term).items()}


def _plain(term: Term) -> Any:
    if isinstance(term, Atom):
        return {"true": True, "false": False}.get(term.name, term.name)
    if is_encrypted(term):
        return f"{ENCRYPTED}{term.items[1]}"
    if isinstance(term, Tuple | list):
        raise Unfit("text or a number is needed")
    return term


def _table(term: Term) -> Value:
    """An AMQP table, ``[{<<"x-max-length">>, long, 1000}]``."""
    found: Value = {}
    for item in _list(term):
        if not isinstance(item, Tuple) or len(item.items) != TRIPLE:
            raise Unfit("each argument is {name, type, value}")
        name, kind, one = item.items
        nested = isinstance(kind, Atom) and kind.name == "table"
        found[str(_plain(name))] = _table(one) if nested else _plain(one)
    return found
