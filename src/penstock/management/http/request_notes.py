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
from aiohttp.typedefs import Handler, Middleware

from penstock.core.event_book import NODE, Actor, EventBook
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
        changes = request.method not in READING
        if actor.user and parts[-1] != "publish" and (changes or parts[3:4] == ["messages"]):
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
    """On the data loop."""
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
