"""What the value of a runtime parameter may be, by component, in RabbitMQ's words.

A component is a table: key ─► how its value is checked, and is it needed?  A check returns what is
wrong, "" = nothing.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from penstock.broker.rules.erlang_terms import term
from penstock.core.amqp_uri import AmqpUri, parse_amqp_uri
from penstock.core.errors import PreconditionFailed

SHOVEL: Final = "shovel"
UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"
URI_KEYS: Final = ("src-uri", "dest-uri", "uri")
NAME_MAX_BYTES: Final = 255
PREFETCH_MAX: Final = 65_535

Check = Callable[[str, object], str]
"""(key, value) ─► what is wrong."""


class Key(NamedTuple):
    check: Check
    is_needed: bool = False


def _text(key: str, value: object) -> str:
    return "" if isinstance(value, str) else f"{key} should be binary, actually was {term(value)}"


def _name(key: str, value: object) -> str:
    if not isinstance(value, str):
        return _text(key, value)
    size = len(value.encode("utf-8", "surrogateescape"))
    if size <= NAME_MAX_BYTES:
        return ""
    return f"{key} should be less than 255 bytes, actually was {size}"


def _truth(key: str, value: object) -> str:
    if isinstance(value, bool):
        return ""
    return f"{key} should be boolean, actually was {term(value)}"


def _number(key: str, value: object) -> str:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0:
        return ""
    return f"{key} should be a number, actually was {term(value)}"


def _prefetch(key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PREFETCH_MAX:
        return ""
    return f"{key} should be a number from 0 to {PREFETCH_MAX}, actually was {term(value)}"


def _seconds(key: str, value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return ""
    return f"{key} should be a positive integer (seconds), actually was {term(value)}"


def _one_of(*words: str) -> Check:
    def check(key: str, value: object) -> str:
        if not isinstance(value, str):
            return _text(key, value)
        if value in words:
            return ""
        return f"{key} should be one of {term(list(words))}, actually was {term(value)}"

    return check


def _table(key: str, value: object) -> str:
    return "" if isinstance(value, dict) else f"{key} not a list {term(value)}"


def _uris(key: str, value: object) -> str:
    uris = value if isinstance(value, list) else [value]
    if not uris:
        return f"{key} should name at least one URI"
    for uri in uris:
        if not isinstance(uri, str):
            return _text(key, uri)
        try:
            parse_amqp_uri(uri)
        except ValueError as error:
            return f"{key} is not a valid URI: {error}"
    return ""


def _delete_after(key: str, value: object) -> str:
    if value in ("never", "queue-length") and isinstance(value, str):
        return ""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return ""
    return (
        f'{key} should be a number greater than or equal to 0, "never" or "queue-length",'
        f" actually was {term(value)}"
    )


PROPERTIES: Final[Mapping[str, Key]] = {
    **dict.fromkeys(("content_type", "content_encoding", "correlation_id", "reply_to"), Key(_text)),
    **dict.fromkeys(("expiration", "message_id", "type", "user_id", "app_id"), Key(_text)),
    **dict.fromkeys(("delivery_mode", "priority", "timestamp"), Key(_number)),
    "cluster_id": Key(_text),
}


def _properties(key: str, value: object) -> str:
    return "\n".join(_wrong_in(key, PROPERTIES, value))


PROTOCOL_KEYS: Final = ("src-protocol", "dest-protocol")
OTHER_PROTOCOLS: Final = ("amqp10", "local")
"""Of RabbitMQ's shovels, with keys of their own."""
SHOVEL_KEYS: Final[Mapping[str, Key]] = {
    "src-uri": Key(_uris, is_needed=True),
    "dest-uri": Key(_uris, is_needed=True),
    "src-protocol": Key(_one_of("amqp091")),
    "dest-protocol": Key(_one_of("amqp091")),
    "src-queue": Key(_name),
    "src-queue-args": Key(_table),
    "src-exchange": Key(_text),
    "src-exchange-key": Key(_text),
    "src-consumer-args": Key(_table),
    "src-consumer-name": Key(_text),
    "src-prefetch-count": Key(_prefetch),
    "prefetch-count": Key(_prefetch),
    "src-delete-after": Key(_delete_after),
    "delete-after": Key(_delete_after),
    "src-delete-after-duration": Key(_seconds),
    "src-predeclared": Key(_truth),
    "dest-queue": Key(_name),
    "dest-queue-args": Key(_table),
    "dest-exchange": Key(_text),
    "dest-exchange-key": Key(_text),
    "dest-predeclared": Key(_truth),
    "dest-publish-properties": Key(_properties),
    "publish-properties": Key(_properties),
    "dest-add-forward-headers": Key(_truth),
    "add-forward-headers": Key(_truth),
    "dest-add-timestamp-header": Key(_truth),
    "add-timestamp-header": Key(_truth),
    "ack-mode": Key(_one_of("no-ack", "on-publish", "on-confirm")),
    "reconnect-delay": Key(_number),
}


def _shovel(name: str, value: object) -> list[str]:
    if not isinstance(value, dict):
        return _wrong_in(name, SHOVEL_KEYS, value)
    ends = [key for key in PROTOCOL_KEYS if value.get(key) in OTHER_PROTOCOLS]
    if ends:  # which has other keys than these
        return [SHOVEL_KEYS[key].check(key, value[key]) for key in ends]
    wrong: list[str] = []
    if "src-exchange" in value and "src-queue" in value:
        wrong.append("Cannot specify 'src-exchange' and 'src-queue'")
    if "src-exchange" not in value and "src-queue" not in value:
        wrong.append("Must specify 'src-exchange' or 'src-queue'")
    if "dest-exchange" in value and "dest-queue" in value:
        wrong.append("Cannot specify 'dest-exchange' and 'dest-queue'")
    after = value.get("src-delete-after", value.get("delete-after"))
    if isinstance(after, int) and value.get("ack-mode") == "no-ack":
        wrong.append("Cannot specify 'no-ack' and numerical 'delete-after'")
    return wrong + _wrong_in(name, SHOVEL_KEYS, value)


UPSTREAM_OPTIONS: Final[Mapping[str, Key]] = {
    "exchange": Key(_text),
    "queue": Key(_name),
    "consumer-tag": Key(_text),
    "prefetch-count": Key(_prefetch),
    "reconnect-delay": Key(_number),
    "max-hops": Key(_number),
    "expires": Key(_number),
    "message-ttl": Key(_number),
    "trust-user-id": Key(_truth),
    "ack-mode": Key(_one_of("no-ack", "on-publish", "on-confirm")),
    "resource-cleanup-mode": Key(_one_of("default", "never")),
    "queue-type": Key(_one_of("classic", "quorum")),
    "bind-nowait": Key(_truth),
    "channel-use-mode": Key(_one_of("multiple", "single")),
}
UPSTREAM_KEYS: Final = {"uri": Key(_uris, is_needed=True), **UPSTREAM_OPTIONS}
SET_KEYS: Final = {"upstream": Key(_text, is_needed=True), "uri": Key(_uris), **UPSTREAM_OPTIONS}


def _upstream(name: str, value: object) -> list[str]:
    return _wrong_in(name, UPSTREAM_KEYS, value)


def _upstream_set(name: str, value: object) -> list[str]:
    if not isinstance(value, list):
        return [f"{name} should be list, actually was {term(value)}"]
    return [line for one in value for line in _wrong_in(name, SET_KEYS, one)]


COMPONENTS: Final[Mapping[str, Callable[[str, object], list[str]]]] = {
    SHOVEL: _shovel,
    UPSTREAM: _upstream,
    UPSTREAM_SET: _upstream_set,
}


def check_parameter(component: str, name: str, value: object) -> None:
    """Raises PreconditionFailed with all that is wrong, a line each."""
    if component not in COMPONENTS:
        raise PreconditionFailed(f"component {component} not found")
    wrong = COMPONENTS[component](name, value)
    if wrong:
        raise PreconditionFailed("\n".join(wrong))


def uris_of(value: object) -> list[AmqpUri]:
    """Those that can be read, of a value that was checked or is to be."""
    if isinstance(value, list):
        return [uri for one in value for uri in uris_of(one)]
    found: list[AmqpUri] = []
    for uri in [one for key in URI_KEYS for one in _listed(value, key)]:
        with suppress(ValueError):
            found.append(parse_amqp_uri(uri))
    return found


def without_credentials(value: object) -> object:
    """For users who may not see passwords."""
    if isinstance(value, list):
        return [without_credentials(one) for one in value]
    if not isinstance(value, dict):
        return value
    shown = {
        key: [parse_amqp_uri(uri).shown() for uri in _listed(value, key)]
        for key in URI_KEYS
        if key in value
    }
    return value | {
        key: uris if isinstance(value[key], list) else uris[0] for key, uris in shown.items()
    }


def _listed(value: object, key: str) -> list[str]:
    found = value.get(key, []) if isinstance(value, dict) else []
    uris = found if isinstance(found, list) else [found]
    return [uri for uri in uris if isinstance(uri, str)]


def _wrong_in(name: str, keys: Mapping[str, Key], value: object) -> list[str]:
    if not isinstance(value, dict):
        return [f"{name} not a list {term(value)}"]
    missing = [key for key, row in keys.items() if row.is_needed and key not in value]
    wrong = [f'Key "{key}" not found in {name}' for key in missing]
    odd = {key: one for key, one in value.items() if key not in keys}
    if odd:
        wrong.append(f"Unrecognised terms {_pairs(odd)} in {name}")
    found = [keys[key].check(key, one) for key, one in value.items() if key in keys]
    return wrong + [line for line in found if line]


def _pairs(table: dict[str, object]) -> str:
    return f"[{','.join(f'{{{term(key)},{term(value)}}}' for key, value in table.items())}]"
