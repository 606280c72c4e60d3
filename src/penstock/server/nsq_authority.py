"""Asks servers, as nsqd's ``--auth-http-address`` does, who an NSQ client is and what it may do.

    GET address/auth?remote_ip=…&tls=…&secret=…&common_name=…
    200 {"ttl": s, "identity": …, "identity_url": …, "authorizations": [
            {"topic": pattern, "channels": [pattern], "permissions": ["subscribe", "publish"]}]}

Threads ask; the loop is woken when one has an answer.  One address of several is asked first, at
random, and the next one when it fails.  Why it failed is in the log: a client is told nothing.
"""

import json
import logging
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from penstock.core.errors import PenstockError
from penstock.server.nsq_rights import PUBLISH, SUBSCRIBE, Grant, Identified, Inquiry
from penstock.server.nsq_shared import Authority

TIMEOUT_S: Final = 5.0
ANSWER_MAX_BYTES: Final = 1024 * 1024
THREADS: Final = 4
ACCEPT: Final = "application/vnd.nsq; version=1.0"

logger = logging.getLogger("penstock.nsq")


class AnswerInvalid(PenstockError):
    """A server answered, but not as it should."""


class HttpAuthority(Authority):
    """See the head of this file; ``wake`` makes the loop look at inquiries."""

    def __init__(self, addresses: tuple[str, ...], wake: Callable[[], None]) -> None:
        self._addresses = list(addresses)
        self._wake = wake
        self._threads = ThreadPoolExecutor(THREADS, "nsq-auth")

    def ask(self, remote_ip: str, tls: bool, secret: str, common_name: str) -> Inquiry:
        inquiry = Inquiry()
        fields = {
            "common_name": common_name,
            "remote_ip": remote_ip,
            "secret": secret.encode("utf-8", "surrogateescape"),
            "tls": "true" if tls else "false",
        }
        self._threads.submit(self._ask, inquiry, urlencode(fields))
        return inquiry

    def _ask(self, inquiry: Inquiry, query: str) -> None:
        try:
            inquiry.answer = self._ask_any(query)
        finally:
            inquiry.done = True
            self._wake()

    def _ask_any(self, query: str) -> Identified | None:
        for address in random.sample(self._addresses, len(self._addresses)):
            try:
                return identified_in(_ask_one(address, query))
            except (OSError, ValueError, re.error, AnswerInvalid) as error:
                logger.warning("failed to auth against %s: %s", address, error)
        return None


def _ask_one(address: str, query: str) -> bytes:
    endpoint = address if "://" in address else f"http://{address}/auth"
    request = Request(f"{endpoint}?{query}", headers={"Accept": ACCEPT})  # noqa: S310 - as configured
    with urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310 - as above
        body: bytes = answer.read(ANSWER_MAX_BYTES)
    return body


def identified_in(body: bytes) -> Identified:
    """Raises AnswerInvalid, ValueError or re.error."""
    answer = json.loads(body)
    if not isinstance(answer, dict):
        raise AnswerInvalid("the answer is no JSON object")
    ttl_s = answer.get("ttl", 0)
    if not isinstance(ttl_s, int) or ttl_s <= 0:
        raise AnswerInvalid(f"invalid TTL {ttl_s!r} (must be >0)")
    grants = [_grant(entry) for entry in answer.get("authorizations") or []]
    return Identified(
        str(answer.get("identity", "")), str(answer.get("identity_url", "")), grants, ttl_s * 1000
    )


def _grant(entry: Any) -> Grant:
    if not isinstance(entry, dict):
        raise AnswerInvalid("an authorization is no JSON object")
    permissions = _texts(entry, "permissions")
    for permission in permissions:
        if permission not in (PUBLISH, SUBSCRIBE):
            raise AnswerInvalid(f"unknown permission {permission}")
    topic = entry.get("topic", "")
    if not isinstance(topic, str):
        raise AnswerInvalid("a topic is no text")
    return Grant(topic, _texts(entry, "channels"), permissions)


def _texts(entry: dict[str, Any], key: str) -> list[str]:
    found = entry.get(key) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise AnswerInvalid(f"{key} is no list of texts")
    return found
