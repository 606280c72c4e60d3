"""Notes of requests over HTTP: a log line for each change, and an event that tells its answer.

    [info] <policy> user 'ann' from 10.0.0.7: PUT /api/policies/%2F/ha: 201

Noted are all methods but GET, and a GET that shows messages.  A change that was made is an event of
its own already (``queue_declared`` …): then there is the line only.
"""

import json
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from penstock.broker.rules.bounded_events import TOLD_MAX
from penstock.core.events.book import NODE, Actor, EventBook
from penstock.management.http.access import asking_now

CATEGORIES: Final[Mapping[str, str]] = {
    "policies": "policy",
    "operator-policies": "policy",
    "users": "user",
    "permissions": "user",
    "topic-permissions": "user",
    "user-limits": "user",
    "vhosts": "vhost",
    "vhost-limits": "vhost",
    "queues": "queue",
    "connections": "connection",
}
"""The first word of a path below ``/api`` ─► the category; anything else is the node's."""

READING: Final = ("GET", "HEAD", "OPTIONS")
SHOWS_MESSAGES: Final = "/api/queues/{vhost}/{name}/messages"
PUBLISHES: Final = "/api/exchanges/{vhost}/{name}/publish"
REASON_MAX_BYTES: Final = 4096
"""An answer with a reason is no longer."""


def note_requests(
    book: EventBook, call_on_loop: Callable[[Callable[[], object]], Future[Any]]
) -> Middleware:
    """The middleware; it belongs before the one that makes answers of errors."""

    @web.middleware
    async def noted(request: web.Request, handler: Handler) -> web.StreamResponse:
        asking_now.set(NODE)
        answer = await handler(request)
        actor = asking_now.get()
        parts = request.rel_url.raw_path.rstrip("/").split("/")[2:] or [""]
        # Which endpoint it is only the route says: a path may be spelt in many ways.
        resource = request.match_info.route.resource
        route = "" if resource is None else resource.canonical
        changes = request.method not in READING
        is_noted = changes or route.startswith(SHOWS_MESSAGES)
        if actor.user and is_noted and not route.startswith(PUBLISHES):
            if changes and parts[-1] != "get":
                _log(request, actor, parts[0], answer.status)
            call_on_loop(partial(_note, book, actor, request, answer))
        return answer

    return noted


def _log(request: web.Request, actor: Actor, noun: str, status: int) -> None:
    category = CATEGORIES.get(noun, "")
    logger = logging.getLogger(f"penstock.{category}" if category else "penstock")
    path = request.rel_url.raw_path
    logger.info(
        "user '%s' from %s: %s %s: %d", actor.user, actor.address, request.method, path, status
    )


def _note(book: EventBook, actor: Actor, request: web.Request, answer: web.StreamResponse) -> None:
    is_refused = answer.status >= web.HTTPBadRequest.status_code
    if is_refused or not actor.has_acted:
        reason = _reason(answer) if is_refused else None
        values = (request.method, request.rel_url.raw_path, answer.status, reason)
        book.note("request_answered", values, actor)


def _reason(answer: web.StreamResponse) -> str | None:
    """Of a refusal, if its body has one."""
    body = answer.body if isinstance(answer, web.Response) else None
    if not isinstance(body, bytes) or len(body) > REASON_MAX_BYTES:
        return None
    try:
        return str(json.loads(body)["reason"])
    except (ValueError, TypeError, KeyError):
        return None


class NoRequest(logging.Filter):
    """Of what is no HTTP, and is answered with 400: one line without its octets.

    aiohttp would write a traceback with them, and among them may be a password.  A peer without
    credentials can cause such lines as fast as it connects, so they are bounded as those of
    log-ins are:
    ``TOLD_MAX`` lines in a minute; the next line after it says how many there would have been.
    """

    def __init__(self) -> None:
        super().__init__()
        self._minute = 0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, HttpProcessingError):
            return True
        untold = self._count_one(int(record.created) // 60)
        if self._count <= TOLD_MAX:
            logger = logging.getLogger(record.name)
            more = f"; {untold} more before" if untold > 0 else ""
            logger.info("%s: no HTTP: %s%s", record.getMessage(), type(error).__name__, more)
        return False

    def _count_one(self, minute: int) -> int:
        """How many of an earlier minute had no line, if this is the first of another one."""
        untold = 0
        if minute != self._minute:
            untold = self._count - TOLD_MAX
            self._minute, self._count = minute, 0
        self._count += 1
        return untold


def server_logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    if not logger.filters:
        logger.addFilter(NoRequest())
    return logger
