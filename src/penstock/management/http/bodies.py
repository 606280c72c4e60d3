"""Bodies of requests, read and checked, and answers in JSON.

What a body lacks or has wrong is a ``BadQuery`` with RabbitMQ's words.
"""

import json
import math
from typing import Any, Final

from aiohttp import web

from penstock.core.json_reading import json_of
from penstock.management.http.listing import BadQuery

BODY_MAX_BYTES: Final = 256 * 1024 * 1024
"""Of definitions, which only administrators send."""
ASKED_MAX_BYTES: Final = 1024 * 1024
"""Of everything else but messages: no other thread runs while JSON is read."""
SHORT_BYTES_MAX: Final = 255
NESTING_MAX: Final = 100
INTEGER_END: Final = 2**63
DIGITS_MAX: Final = 19
ERLANG_COLUMNS: Final = 80
"""What is longer Erlang prints in several lines."""
HALF_A_PAIR: Final = b"\\ud"
SPELT: Final = {"true": True, "false": False}


# -- what they say -------------------------------------------------------------------------


async def json_value(request: web.Request) -> Any:
    """What a request carries; raises BadQuery when it is no JSON, or too much of it."""
    return parsed(await body_of(request), "not_json")


async def body_of(request: web.Request, most_bytes: int = ASKED_MAX_BYTES) -> bytes:
    """Raises BadQuery for more than that, and for what is compressed."""
    must_be_plain(request)
    if (request.content_length or 0) > most_bytes:
        raise too_large(most_bytes)
    try:
        return await request.clone(client_max_size=most_bytes).read()
    except web.HTTPRequestEntityTooLarge as error:  # it did not say how long it is
        raise too_large(most_bytes) from error


def too_large(most_bytes: int, what: str = "body") -> BadQuery:
    return BadQuery(f"{what} has more than {most_bytes} bytes", status=413)


def must_be_plain(request: web.Request) -> None:
    """Raises BadQuery for a compressed body: a few bytes may become very many."""
    encoding = request.headers.get("Content-Encoding", "identity").lower()
    if encoding != "identity":
        reason = f"a body with Content-Encoding {encoding} is not read: send it as it is"
        raise BadQuery(reason, status=415)


def parsed(body: bytes, reason: str) -> Any:
    """The JSON it is; raises BadQuery with that reason when it is none."""
    try:
        value = json_of(body, no_number, finite)
        if HALF_A_PAIR in body.lower():
            check_writable(value)
    except (ValueError, RecursionError) as error:
        raise BadQuery(reason) from error
    return value


def no_number(name: str) -> None:
    """NaN and infinity, which Python reads and JSON has not."""
    raise ValueError(name)


def finite(digits: str) -> float:
    """A number that JSON can write again; raises ValueError for what overflows, such as 1e999."""
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(digits)
    return value


def check_writable(value: object) -> None:
    """Python takes half a character.  Bytes of names that are no UTF-8 are spelt so here; anything
    else could not be written down again: raises ValueError.
    """
    json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")


async def json_body(request: web.Request) -> dict[str, Any]:
    """The object a request carries, none being an empty one; raises BadQuery for anything else."""
    return object_in(await body_of(request)) if request.can_read_body else {}


def object_in(body: bytes) -> dict[str, Any]:
    """Raises BadQuery when it is none."""
    asked = parsed(body, "not_json")
    if not isinstance(asked, dict):
        raise BadQuery("not_json")
    return asked


def must_have(asked: dict[str, Any], *keys: str) -> None:
    """Raises BadQuery with RabbitMQ's words for the keys that are missing."""
    missing = [f"{{key_missing,{key}}}" for key in keys if key not in asked]
    if missing:
        raise BadQuery(f"[{','.join(missing)}]")


def flag(value: object) -> bool:
    """A truth, or its name, which is how ``rabbitmqadmin`` sends it."""
    found = SPELT.get(value) if isinstance(value, str) else value
    if not isinstance(found, bool):
        raise BadQuery(["not_boolean", str(value)])
    return found


def number(value: object) -> int:
    """A whole number, or its digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < DIGITS_MAX:
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadQuery(["not_integer", value])
    return value


def text(key: str, value: object) -> str:
    if not isinstance(value, str):
        raise BadQuery(f"{key} is no text: {value}")
    try:
        value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:  # JSON can spell what is no letter
        raise BadQuery(f"{key} is no UTF-8") from error
    return value


def name_of(what: str, given: str) -> str:
    """A name or key as AMQP reads it: without line ends, and no longer than its strings."""
    name = text(what, given).replace("\r", "").replace("\n", "")
    size = len(name.encode("utf-8", "surrogateescape"))
    if size > SHORT_BYTES_MAX:
        # RabbitMQ's words, the line end included.
        told = f"{what} should be less than 255 bytes, actually was {size}\n"
        raise BadQuery(told)
    return name


def arguments_in(asked: dict[str, Any]) -> dict[str, object]:
    """Of what is declared; some clients spell an empty table as an empty list."""
    arguments = asked.get("arguments")
    if arguments in (None, [], ""):
        return {}
    if not isinstance(arguments, dict):
        raise BadQuery(f"arguments are no object: {arguments}")
    check_fields(arguments)
    return arguments


def check_fields(table: Any, depth: int = 0) -> None:
    """What AMQP could not carry is refused: keys, numbers and depth have an end there."""
    if depth > NESTING_MAX:
        raise BadQuery("arguments are nested too deeply")
    values = table.values() if isinstance(table, dict) else table
    for key in table if isinstance(table, dict) else ():
        name_of("key", key)
    for value in values:
        if isinstance(value, dict | list):
            check_fields(value, depth + 1)
        elif isinstance(value, str):
            text("field", value)
        elif isinstance(value, int) and not -INTEGER_END <= value < INTEGER_END:
            raise BadQuery(f"number out of range: {value}")


def required(asked: dict[str, Any], *keys: str) -> list[Any]:
    """The values of these; RabbitMQ's words when some are missing."""
    missing = [f"{{key_missing,{key}}}" for key in keys if key not in asked]
    if missing:
        told = f"[{','.join(missing)}]"
        if len(told) >= ERLANG_COLUMNS:
            told = told.replace("},", "},\n ")
        raise BadQuery(told)
    return [asked[key] for key in keys]


# -- what they are told --------------------------------------------------------------------


def to_json(value: object) -> bytes:
    """Numbers that JSON has not, which earlier releases let in, are null."""
    try:
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        return json.dumps(_without_infinities(value), separators=(",", ":")).encode()


def _without_infinities(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_infinities(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_infinities(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def response_of(result: object) -> web.StreamResponse:
    """What an endpoint returned: an answer; whether what was put is new; or None, it is done."""
    if isinstance(result, web.StreamResponse):
        return result
    assert result is None or isinstance(result, bool)
    return web.Response(status=201 if result else 204)


def json_response(value: object, status: int = 200) -> web.Response:
    return web.Response(body=to_json(value), status=status, content_type="application/json")
