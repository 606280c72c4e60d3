"""HTTP answers of nsqd and nsqlookupd: a table of endpoints, and the form of their results.

    request ─► table ─► endpoint ─► text, JSON or nothing ─► answer
                                 └► HttpRefused ─► {"message": ...}

A text is answered as it is, an object as JSON in the form Go's encoder gives it, None as nothing.
Every answer but that of ``/ping`` says ``X-NSQ-Content-Type``.  Queries are read as Go reads them:
a broken escape or a semicolon makes the whole request invalid, and the first of several values
counts.
"""

import asyncio
import heapq
import json
import logging
import re
import socket
from collections.abc import Awaitable, Callable
from functools import cached_property
from typing import Final
from urllib.parse import unquote_to_bytes

from aiohttp import BasicAuth, web

from penstock.broker.oauth.tokens import bearer_token
from penstock.broker.rules.judges import NAMELESS
from penstock.core.errors import AccessRefused, AuthRequired, BrokerError, LoginRefused
from penstock.management.http.browsers import guard
from penstock.management.http.request_notes import server_logger
from penstock.protocols.nsq.shared import NsqClient
from penstock.settings.listener_table import is_loopback

VERSION: Final = "1.3.0"
"""The release of NSQ whose API this is; nsqadmin and clients compare it."""
JSON_TYPE: Final = "application/json; charset=utf-8"
TEXT_TYPE: Final = "text/plain; charset=utf-8"
NSQ_TYPE: Final = {"X-NSQ-Content-Type": "nsq; version=1.0"}
REASONS: Final = {413: "Request Entity Too Large"}
"""As Go spells them; Python has words of its own since 3.13."""
_BROKEN_ESCAPE: Final = re.compile(r"%(?![0-9a-fA-F]{2})")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}

_SCALAR: Final = json.JSONEncoder(ensure_ascii=False).encode
PIECE: Final = 5_000
"""So many names are sorted, or looked up by the data loop, at once."""

log = logging.getLogger("penstock.nsq")


server_log = server_logger("penstock.nsq.http")


class HttpRefused(Exception):
    """An error as nsqd words it."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Plain(str):
    """A text whose answer carries no header of NSQ's (``/ping``)."""

    __slots__ = ()


class ApiCall:
    """One request, as endpoints see it.

    ``option``: the last part of the path, where the table has a ``*``.
    """

    def __init__(
        self,
        request: web.Request,
        query: dict[str, str] | None,
        option: str = "",
        certified: str = "",
    ) -> None:
        """``certified``: the user that the client's certificate names, "" = none."""
        self.request = request
        self._certified = certified
        self.option = option
        self._query = query

    @property
    def query(self) -> dict[str, str]:
        if self._query is None:
            raise HttpRefused(400, "INVALID_REQUEST")
        return self._query

    @cached_property
    def visitor(self) -> NsqClient:
        """Raises HttpRefused for a log-in that is none."""
        peer = self.request.remote or ""
        is_local = is_loopback(peer) or _came_by_unix_socket(self.request)
        shown = self.request.headers.get("Authorization")
        if shown is None:
            return NsqClient(peer, is_local, "", "", self._certified, self.request.secure)
        if token := bearer_token(shown):
            return NsqClient(peer, is_local, NAMELESS, token, "", self.request.secure)
        try:
            login = BasicAuth.decode(shown, encoding="utf-8")
        except ValueError as error:
            raise HttpRefused(401, "INVALID_AUTHORIZATION") from error
        return NsqClient(peer, is_local, login.login, login.password, "", self.request.secure)

    def boolean(self, name: str, default: bool) -> bool:
        return _BOOLEANS.get(self.query.get(name, ""), default)

    def argument(self, name: str) -> str:
        """Raises HttpRefused when it is not there."""
        value = self.query.get(name)
        if value is None:
            raise HttpRefused(400, f"MISSING_ARG_{name.upper()}")
        return value

    async def body(self, limit: int, error: str) -> bytes:
        """All of it; more than the limit is refused with 413 before it is all read."""
        length = self.request.content_length
        if length is not None and length > limit:
            raise HttpRefused(413, error)
        parts: list[bytes] = []
        size = 0
        async for part in self.request.content.iter_any():
            size += len(part)
            if size > limit:
                raise HttpRefused(413, error)
            parts.append(part)
        return b"".join(parts)


def _came_by_unix_socket(request: web.Request) -> bool:
    """Not told by a missing address: a TCP client that is gone already has none either."""
    sock = None if request.transport is None else request.transport.get_extra_info("socket")
    return sock is not None and sock.family == socket.AF_UNIX


class Encoded(str):
    """JSON, made piece by piece of what is large."""

    __slots__ = ()


Endpoint = Callable[[ApiCall], Awaitable[object]]
Table = dict[str, dict[str, Endpoint]]
"""By path, then by method.  A path that ends in ``/*`` matches any one part there."""


def parse_query(text: str) -> dict[str, str] | None:
    """The first value of each name; None when Go would not read it."""
    found: dict[str, str] = {}
    for piece in text.split("&"):
        if ";" in piece or _BROKEN_ESCAPE.search(piece):
            return None
        if piece:
            name, _, value = piece.partition("=")
            found.setdefault(_unescaped(name), _unescaped(value))
    return found


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "surrogateescape")


def go_json(value: object) -> str:
    """As Go's encoder writes it: no spaces, whole numbers without a point, HTML escaped."""
    text = _encoded(value)
    text = text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return text.encode("utf-8", "replace").decode()


def _encoded(value: object) -> str:
    """One value at a time: json's encoder would keep the interpreter from the data loop until a
    long answer is done.
    """
    if isinstance(value, dict):
        fields = [f"{_SCALAR(key)}:{_encoded(one)}" for key, one in value.items()]
        return f"{{{','.join(fields)}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join([_encoded(one) for one in value])}]"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return _SCALAR(value)


def pieces(names: list[str]) -> list[list[str]]:
    """The same names, some thousand at a time."""
    return [names[at : at + PIECE] for at in range(0, len(names), PIECE)]


def sorted_in_pieces(names: list[str]) -> list[str]:
    """The names in order: a long sort would keep the interpreter from the data loop, a merge of
    short ones does not.
    """
    return list(heapq.merge(*map(sorted, pieces(names))))


def answer(result: object) -> web.Response:
    if isinstance(result, Plain):
        return web.Response(text=str(result), headers={"Content-Type": TEXT_TYPE})
    if isinstance(result, Encoded):
        return web.Response(text=str(result), headers={**NSQ_TYPE, "Content-Type": JSON_TYPE})
    if isinstance(result, str):
        return web.Response(text=result, headers={**NSQ_TYPE, "Content-Type": TEXT_TYPE})
    if result is None:
        return web.Response(headers=NSQ_TYPE)
    return web.Response(text=go_json(result), headers={**NSQ_TYPE, "Content-Type": JSON_TYPE})


def refusal(status: int, text: str) -> web.Response:
    headers = {**NSQ_TYPE, "Content-Type": JSON_TYPE}
    if status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="Penstock NSQ"'
    body = go_json({"message": text})
    return web.Response(text=body, status=status, reason=REASONS.get(status), headers=headers)


def application(
    table: Table,
    host_names: frozenset[str],
    tls_at: int | None = None,
    login_of: Callable[[web.BaseRequest], str | None] = lambda _request: None,
) -> web.Application:
    """Serves what the table says; ``tls_at``: nothing, but the port where one is to come.

    ``host_names``: see ``http.browsers``; pages of other sites are refused here as there.
    ``login_of``: the user that the client's certificate names.
    """

    async def serve(request: web.Request) -> web.Response:
        if tls_at is not None:
            return _tls_required(tls_at)
        path, _, query = request.raw_path.partition("?")
        methods, option = _find(table, path)
        if methods is None:
            return _redirect(table, request.method, path) or refusal(404, "NOT_FOUND")
        endpoint = methods.get(request.method)
        if endpoint is None:
            return _other_method(request.method, methods)
        call = ApiCall(request, parse_query(query), option, login_of(request) or "")
        return await _served(endpoint, call)

    # Bodies are read in pieces, each endpoint up to its own limit.
    no_other_pages = guard(host_names, lambda why: refusal(403, f"FORBIDDEN {why}"))
    made = web.Application(middlewares=[no_other_pages])
    made.router.add_route("*", "/{path:.*}", serve)
    return made


def _find(table: Table, path: str) -> tuple[dict[str, Endpoint] | None, str]:
    methods = table.get(path)
    if methods is not None:
        return methods, ""
    folder, _, option = path.rpartition("/")
    return (table.get(folder + "/*"), option) if option else (None, "")


def _tls_required(https_port: int) -> web.Response:
    text = f'{{"message": "TLS_REQUIRED", "https_port": {https_port}}}'
    headers = {**NSQ_TYPE, "Content-Type": JSON_TYPE}
    return web.Response(text=text, status=403, headers=headers)


def _redirect(table: Table, method: str, path: str) -> web.Response | None:
    """To the path that was meant, as Go's router guesses: no other slashes, no capitals."""
    there = "/" + "/".join(part for part in path.lower().split("/") if part)
    if there == path or method not in table.get(there, {}):
        return None
    where = {"Location": there}
    if method != "GET":
        return web.Response(status=307, headers=where)
    where["Content-Type"] = "text/html; charset=utf-8"
    text = f'<a href="{there}">Moved Permanently</a>.\n\n'
    return web.Response(status=301, headers=where, text=text)


def _other_method(method: str, methods: dict[str, Endpoint]) -> web.Response:
    allow = {"Allow": ", ".join(sorted([*methods, "OPTIONS"]))}
    if method == "OPTIONS":
        return web.Response(headers=allow)
    response = refusal(405, "METHOD_NOT_ALLOWED")
    response.headers.update(allow)
    return response


async def _served(endpoint: Endpoint, call: ApiCall) -> web.Response:
    try:
        return answer(await endpoint(call))
    except HttpRefused as error:
        return refusal(error.status, error.text)
    except LoginRefused as error:
        await asyncio.sleep(error.delay_ms / 1000)
        return refusal(403, f"ACCESS_REFUSED {error}")
    except AuthRequired as error:
        return refusal(401, f"ACCESS_REFUSED {error}")
    except AccessRefused as error:
        return refusal(403, f"ACCESS_REFUSED {error}")
    except TimeoutError:
        return refusal(503, "TIMEOUT")
    except (web.RequestPayloadError, ConnectionError):  # the latter's client is gone
        return refusal(400, "INVALID_REQUEST")
    except BrokerError as error:
        return refusal(400, f"INVALID_REQUEST {error}")
    except Exception:
        log.exception("%s %s failed", call.request.method, call.request.raw_path)
        return refusal(500, "INTERNAL_ERROR")
