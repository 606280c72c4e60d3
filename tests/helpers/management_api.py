"""Requests to a node's management API, as guest."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

GUEST: Final = "Basic " + b64encode(b"guest:guest").decode()
TIMEOUT_S: Final = 10.0


def request(url: str, body: object = None, method: str = "") -> Request:
    """GET, or PUT with a body, which is sent as JSON."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": GUEST, "Content-Type": "application/json"}
    return Request(url, data, headers, method=method or ("GET" if body is None else "PUT"))


def text_of(url: str, body: object = None, method: str = "") -> str:
    """Raises urllib.error.HTTPError for what is refused."""
    with urlopen(request(url, body, method), timeout=TIMEOUT_S) as answer:
        return str(answer.read().decode())


def manage(url: str, body: object = None, method: str = "") -> Any:
    """What the node answered, None if that is empty; raises urllib.error.HTTPError."""
    text = text_of(url, body, method)
    return json.loads(text) if text else None


def status_of(url: str, body: object = None, method: str = "") -> tuple[int, str]:
    """Status and text, also of what is refused."""
    try:
        with urlopen(request(url, body, method), timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
