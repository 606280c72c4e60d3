"""A client of the management API, as the commands use it: address, user, one request at a time.

The standard library only, since a command must start in a tenth of a second.  Both programs,
``penstock`` and ``penstockctl``, stand on this file; each has its own words for what goes wrong.
"""

import json
from base64 import b64encode
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

if TYPE_CHECKING:
    from ssl import SSLContext

DEFAULT_URL: Final = "http://127.0.0.1:15672"
TIMEOUT_S: Final = 10.0


class BadAddress(ValueError):
    """That is no address of a management API."""


class NobodyAnswers(Exception):
    """The text says why, in the words of the operating system."""


class TooLate(NobodyAnswers):
    """A server is there, but has not answered in the time that was given."""


class NotJson(Exception):
    """Something answers there, but no management API."""


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    def json(self) -> Any:
        """None for an empty body; raises NotJson."""
        if not self.body:
            return None
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise NotJson from error

    def reason(self) -> str:
        """Why not, as the API says it; "" when it does not."""
        try:
            said = json.loads(self.body)
        except ValueError:
            return ""
        found = said.get("reason") if isinstance(said, dict) else None
        return "" if found is None else str(found)


class Login(NamedTuple):
    """A user and a password, or the token of a control file."""

    user: str = ""
    password: str = ""
    token: str = ""

    def header(self) -> str:
        if self.token:
            return f"Bearer {self.token}"
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()


class Trust(NamedTuple):
    """TLS to a management API: whose certificate is believed, and which one is shown."""

    cacertfile: str = ""
    """Of the authority; "" = those of the system."""
    certfile: str = ""
    keyfile: str = ""
    node_certfile: str = ""
    """Of this machine's node: its first certificate is believed, whatever the host is called."""

    def context(self) -> "SSLContext":
        """Raises BadAddress for files that cannot be used."""
        # A command without TLS starts sooner.
        from penstock.client.endpoint import tls_context  # noqa: PLC0415

        names = ("cacertfile", "certfile", "keyfile")
        options = {name: file for name, file in zip(names, self[:3], strict=True) if file}
        try:
            return tls_context(options, self.node_certfile)
        except ValueError as error:
            raise BadAddress(str(error)) from error


class ManagementClient:
    def __init__(self, url: str, who: Login, trust: Trust | None = None) -> None:
        """Raises BadAddress.  ``trust``: for an address of ``https``."""
        try:
            parts = urlsplit(url if "://" in url else f"http://{url}")
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise BadAddress(f"{url!r}: {error}") from error
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadAddress(f"{url!r} is no address like {DEFAULT_URL}")
        if parts.username is not None:
            who = Login(unquote(parts.username), unquote(parts.password or ""))
            url = url.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1)
        self.url = url
        self.who = who
        self._prefix = parts.path.rstrip("/")
        self._host, self._port = parts.hostname, port
        self._tls = (trust or Trust()).context() if parts.scheme == "https" else None

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: dict[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> Answer:
        """``body``: bytes as they are, anything else as JSON; raises NobodyAnswers."""
        connection = (
            HTTPConnection(self._host, self._port, timeout=timeout_s)
            if self._tls is None
            else HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._tls)
        )
        try:
            answer = self._ask(connection, method, path, body, headers)
            return Answer(answer.status, answer.read())
        except TimeoutError as error:
            raise TooLate(f"no answer within {timeout_s:g} s") from error
        except (OSError, HTTPException) as error:
            raise NobodyAnswers(str(error) or type(error).__name__) from error
        finally:
            connection.close()

    def _ask(
        self,
        connection: HTTPConnection,
        method: str,
        path: str,
        body: object,
        headers: dict[str, str] | None,
    ) -> HTTPResponse:
        sent = {"Authorization": self.who.header(), "Accept": "application/json"}
        if body is not None:
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        # As bytes: the library would take no character beyond Latin-1.
        encoded = {name: value.encode() for name, value in sent.items()}
        carried = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, self._prefix + path, carried, encoded)
        return connection.getresponse()


def path_of(*parts: str) -> str:
    """``path_of("queues", "/", "q")`` is ``/api/queues/%2F/q``."""
    return "/api/" + "/".join(quote(part, safe="") for part in parts)
