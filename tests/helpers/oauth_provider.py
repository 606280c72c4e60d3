"""A provider that logs the users of a browser in: authorisation code with PKCE, refresh, log-out.

Its user has a session there already: it asks for no password.
"""

from __future__ import annotations

import hashlib
import json
import time
from base64 import urlsafe_b64encode
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from tests.helpers.oauth_issuer import claims, signed
from tests.helpers.oauth_server import ANY_PAGE, JSON, Issuer

CLIENT_ID = "penstock-ui"
PORTAL = """<!doctype html><form method="post" action="{place}/api/login">
<input type="hidden" name="access_token" value="{token}"><button>Open the broker</button></form>"""


class LoginProvider(Issuer):
    """``claims``: of the next token; ``lives_s``: for how long it is valid; ``refuses``: an error
    of OAuth 2 instead of a code; ``portal``: the broker to which its page sends a token.
    """

    def __init__(self) -> None:
        super().__init__()
        self.claims: dict[str, Any] = {}
        self.lives_s = 600.0
        self.gives_refresh = True
        self.refuses = ""
        self.portal = ""
        self.refreshed = 0
        self.ended: dict[str, str] = {}
        self._codes: dict[str, dict[str, str]] = {}
        self.document = {
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "end_session_endpoint": f"{self.url}/end",
        }

    def token(self) -> str:
        content = {"iss": self.url, "exp": time.time() + self.lives_s, **self.claims}
        return signed(claims(**content))

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        path = urlsplit(request.path).path.removeprefix("/realm")
        asked = dict(parse_qsl(urlsplit(request.path).query))
        if path == "/authorize":
            return self._authorize(request, asked)
        if path == "/token":
            length = int(request.headers["Content-Length"])
            return self._give(request, dict(parse_qsl(request.rfile.read(length).decode())))
        if path == "/end":
            self.ended = asked
            return self._move(request, asked["post_logout_redirect_uri"])
        if path == "":
            page = PORTAL.format(place=self.portal, token=self.token())
            return self._send(request, page.encode(), 200, ("Content-Type", "text/html"))
        return super().answer(request)

    def _move(self, request: BaseHTTPRequestHandler, address: str) -> None:
        self._send(request, b"", 302, ("Location", address))

    def _authorize(self, request: BaseHTTPRequestHandler, asked: dict[str, str]) -> None:
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT_ID)
        assert asked["code_challenge_method"] == "S256"
        back = {"state": asked["state"]}
        if self.refuses:
            back |= {"error": self.refuses, "error_description": "the user may not"}
        else:
            back["code"] = f"code-{len(self._codes)}"
            self._codes[back["code"]] = asked
        self._move(request, f"{asked['redirect_uri']}?{urlencode(back)}")

    def _give(self, request: BaseHTTPRequestHandler, form: dict[str, str]) -> None:
        if form["grant_type"] == "refresh_token":
            is_right = form["refresh_token"] == f"refresh-{self.refreshed}"
            self.refreshed += 1
        else:
            asked = self._codes.pop(form["code"], {})
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            challenge = urlsafe_b64encode(digest).decode().rstrip("=")
            is_right = (asked.get("code_challenge"), asked.get("redirect_uri")) == (
                challenge,
                form["redirect_uri"],
            )
        if not is_right or form["client_id"] != CLIENT_ID:
            return self._send(request, b'{"error":"invalid_grant"}', 400, JSON, ANY_PAGE)
        found = {"access_token": self.token(), "id_token": "an ID token", "token_type": "Bearer"}
        if self.gives_refresh:
            found["refresh_token"] = f"refresh-{self.refreshed}"
        content = json.dumps({**found, "expires_in": self.lives_s})
        return self._send(request, content.encode(), 200, JSON, ANY_PAGE)
