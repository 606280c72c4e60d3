"""Asks HTTP servers for the permissions of NSQ clients, as nsqd's ``--auth-http-address`` does.

    GET address/auth?remote_ip=…&tls=…&secret=…&common_name=…
    200 {"ttl": s, "identity": …, "identity_url": …, "authorizations": [
            {"topic": pattern, "channels": [pattern], "permissions": ["subscribe", "publish"]}]}

Threads ask; the loop is woken when one has an answer.  One address of several is asked first, at
random, and the next one when it fails; redirects are not followed.  The refusal of the log-in says
why all failed, the log once a minute of each address; the client's answer does not.

Every connection may cause a request, so there are bounds: a secret of more than 4 KiB is refused,
and while very many wait for an answer the next one gets none.
"""

import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import BoundedSemaphore
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

from penstock.core.errors import PenstockError
from penstock.core.events.line_limit import LineLimit
from penstock.core.json_reading import json_of
from penstock.protocols.nsq.rights import PUBLISH, SUBSCRIBE, AuthRequest, Grant, Identified
from penstock.protocols.nsq.shared import Authority

TIMEOUT_S: Final = 5.0
ANSWER_MAX_BYTES: Final = 1024 * 1024
THREADS: Final = 4
SECRET_MAX_BYTES: Final = 4096
PENDING_MAX: Final = 256
"""So many questions are under way or wait for a thread."""
ACCEPT: Final = "application/vnd.nsq; version=1.0"

logger = logging.getLogger("penstock.nsq")


class AnswerInvalid(PenstockError):
    """A server answered, but not as it should."""


class _NoRedirects(HTTPRedirectHandler):
    """The secret goes to the servers that the setting names only."""

    def redirect_request(self, *_: Any) -> None:
        """None: the answer is an error."""


_OPENER: Final = build_opener(_NoRedirects)


class HttpAuthority(Authority):
    """See the head of this file; ``wake`` makes the loop look at inquiries."""

    def __init__(self, addresses: tuple[str, ...], wake: Callable[[], None]) -> None:
        self._addresses = list(addresses)
        self._wake = wake
        self._threads = ThreadPoolExecutor(THREADS, "nsq-auth")
        self._free = BoundedSemaphore(PENDING_MAX)
        self._lines = LineLimit()

    def ask(self, remote_ip: str, tls: bool, secret: str, common_name: str) -> AuthRequest:
        inquiry = AuthRequest()
        data = secret.encode("utf-8", "surrogateescape")
        if len(data) > SECRET_MAX_BYTES or not self._free.acquire(blocking=False):
            inquiry.failed("the secret is too long, or too many requests wait")
            self._done(inquiry)
            return inquiry
        fields = {
            "common_name": common_name,
            "remote_ip": remote_ip,
            "secret": data,
            "tls": "true" if tls else "false",
        }
        try:
            asked = self._threads.submit(self._ask, inquiry, urlencode(fields))
        except RuntimeError:  # closed
            self._free.release()
            self._done(inquiry)
        else:
            asked.add_done_callback(partial(self._asked, inquiry))
        return inquiry

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, inquiry: AuthRequest, query: str) -> None:
        if not inquiry.wanted:
            return
        reasons = []
        for address in random.sample(self._addresses, len(self._addresses)):
            try:
                inquiry.answered(identified_in(_ask_one(address, query)))
            except Exception as error:  # noqa: BLE001 - whatever it sent, the next may know
                reasons.append(f"{address}: {error}")
                if self._lines.allows(address, time.monotonic()):
                    logger.warning("failed to auth against %s: %s", address, error)
            else:
                return
        inquiry.failed("; ".join(reasons))

    def _asked(self, inquiry: AuthRequest, _future: Future[None]) -> None:
        self._free.release()
        self._done(inquiry)

    def _done(self, inquiry: AuthRequest) -> None:
        inquiry.end()
        self._wake()


def _ask_one(address: str, query: str) -> bytes:
    endpoint = address if "://" in address else f"http://{address}/auth"
    request = Request(f"{endpoint}?{query}", headers={"Accept": ACCEPT})  # noqa: S310 - as configured
    until_s = time.monotonic() + TIMEOUT_S
    parts: list[bytes] = []
    size = 0
    with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
        while part := answer.read1(ANSWER_MAX_BYTES):
            parts.append(part)
            size += len(part)
            if size > ANSWER_MAX_BYTES or time.monotonic() > until_s:
                raise AnswerInvalid(f"the answer is longer than {ANSWER_MAX_BYTES} bytes or 5 s")
    return b"".join(parts)


def identified_in(body: bytes) -> Identified:
    """Raises AnswerInvalid, ValueError or re.error."""
    answer = json_of(body)
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
