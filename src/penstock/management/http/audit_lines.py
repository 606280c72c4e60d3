"""A log line for each change over HTTP: the user, and the change.

[info] <policy> user 'ann' from 10.0.0.7: PUT /api/policies/%2F/ha: 201
"""

import logging
from collections.abc import Mapping
from typing import Final

from aiohttp import web

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

PER_MESSAGE: Final = ("publish", "get")
"""These end paths that change no more than a publish of any client does."""


def audit(request: web.Request, user: str, status: int) -> None:
    """To be called when the change is done."""
    parts = request.rel_url.raw_path.rstrip("/").split("/")
    if parts[-1] in PER_MESSAGE:
        return
    category = CATEGORIES.get(parts[2] if len(parts) > 2 else "", "")
    logger = logging.getLogger(f"penstock.{category}" if category else "penstock")
    logger.info(
        "user '%s' from %s: %s %s: %d",
        user,
        request.remote,
        request.method,
        request.rel_url.raw_path,
        status,
    )
