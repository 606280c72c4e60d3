"""Requests to etcd's v3 gateway: JSON over HTTP, to the first member that answers.

In: a path below ``/v3/`` and a body.  Out: the answer, or an exception that says what may be
believed: ``NotReached`` (nothing has happened), ``AnswerLost`` (it may have), ``EtcdRefusal`` (it
has not, and etcd says why).  One endpoint is in use at a time; when it does not answer the
next one is, and ``on_doubt`` tells the followers of streams.

A login is renewed when etcd has forgotten it.  Tried and dropped: gRPC, which asks
for a large package with a thread pool of its own, for three requests and two streams.
"""

import asyncio
import json
import os
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from penstock.core.json_reading import json_of
from penstock.runtime.http_asking import ASKING, PLAIN, AnswerTooLong, read_answer

Row = dict[str, Any]

ENDED: Final = 5
"""gRPC's NOT_FOUND: the lease that was named is not there."""
UNAUTHENTICATED: Final = 16
UNSURE: Final = frozenset((1, 2, 4, 13, 14, 15))
"""gRPC's codes that leave open whether something has happened: CANCELLED, UNKNOWN,
DEADLINE_EXCEEDED, INTERNAL, UNAVAILABLE, DATA_LOSS.  etcd says UNAVAILABLE without a leader."""
TIMEOUT_S: Final = 2.0
WITH_OTHERS_S: Final = 1.0
"""The same where there is another endpoint to ask."""
CONNECT_S: Final = 1.0
ANSWER_MAX_BYTES: Final = 256 * 1024 * 1024
"""And a row of a stream: 500 keys with values of half a megabyte."""
ANSWER_SHOWN_CHARS: Final = 120


class EtcdFailed(Exception):
    """Its text is a sentence for people."""


class NotReached(EtcdFailed):
    """Nothing was sent."""


class AnswerLost(EtcdFailed):
    """It may have been done, or may still be."""


class EtcdRefusal(EtcdFailed):
    """It was not done."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class EtcdOptions:
    """``endpoints``: host:port of each member.  Files of TLS: "" = not that.

    ``secret``: that of the cluster.  ``seal_records``: those that release 0.1 wrote get checksums.
    Where etcd asks for users, its gateway takes no client certificate that has a common name.
    """

    endpoints: tuple[str, ...]
    secret: bytes = field(repr=False)
    cluster_name: str = "penstock"
    lease_ttl_s: int = 3
    user: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    seal_records: bool = False

    def context(self) -> ssl.SSLContext | None:
        """Raises EtcdFailed, which names the file that cannot be used."""
        if not self.tls:
            return None
        files = self.ca_file
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
            if self.certificate_file:
                files = f"{self.certificate_file} with {self.key_file or 'its own key'}"
                context.load_cert_chain(self.certificate_file, self.key_file or None)
        except (OSError, ssl.SSLError) as error:
            raise EtcdFailed(f"{files}: {error}") from error
        return context


class EtcdHttp:
    """Made on the event loop that uses it.  ``failing``: why nothing answers, "" = it does.

    ``on_doubt`` is called when streams that are open may be dead without saying so: another
    endpoint is in use, or etcd answers again after it did not.
    """

    def __init__(self, options: EtcdOptions, on_doubt: Callable[[], None] = lambda: None) -> None:
        self.options = options
        self.failing = ""
        self.failing_since_s = 0.0
        self._on_doubt = on_doubt
        self._at = 0
        self._cluster = ""
        self._token = ""
        self._login = asyncio.Lock()
        self._tls = options.context()
        connector = aiohttp.TCPConnector(limit=0)
        self._session = aiohttp.ClientSession(connector=connector, **PLAIN)

    async def close(self) -> None:
        await self._session.close()

    @property
    def endpoint(self) -> str:
        return self.options.endpoints[self._at]

    def failed_for_s(self) -> float:
        return time.monotonic() - self.failing_since_s if self.failing else 0.0

    async def call(self, path: str, body: Row, timeout_s: float = 0.0) -> Row:
        """From the endpoint in use."""
        endpoint = self.endpoint
        usual_s = TIMEOUT_S if len(self.options.endpoints) == 1 else WITH_OTHERS_S
        try:
            answer = await self._with_login(endpoint, path, body, timeout_s or usual_s)
            self._check_cluster(answer)
        except (NotReached, AnswerLost) as error:
            self.gave_up(endpoint, str(error))
            raise
        except EtcdRefusal:
            self.answered()
            raise
        self.answered()
        return answer

    def _check_cluster(self, answer: Row) -> None:
        """Revisions and leases of another etcd mean nothing here."""
        header = answer.get("header") or answer.get("result", {}).get("header", {})
        cluster = str(header.get("cluster_id", ""))
        self._cluster = self._cluster or cluster
        if cluster != self._cluster:
            raise NotReached(
                f"it belongs to another etcd ({cluster}) than the one that was joined"
                f" ({self._cluster}): its data was replaced, or the endpoints do not go together"
            )

    def answered(self) -> None:
        if self.failing:
            self.failing = ""
            self._on_doubt()

    def gave_up(self, endpoint: str, why: str) -> None:
        """It did not answer: the next one is tried, unless another request has moved on already."""
        if not self.failing:
            self.failing_since_s = time.monotonic()
        self.failing = f"{endpoint}: {why}"
        if endpoint == self.endpoint and len(self.options.endpoints) > 1:
            self._at = (self._at + 1) % len(self.options.endpoints)
            self._on_doubt()

    # -- one request ---------------------------------------------------------------------

    async def _with_login(self, endpoint: str, path: str, body: Row, timeout_s: float) -> Row:
        used = await self._token_for(endpoint)
        try:
            return await self._post(endpoint, path, body, timeout_s)
        except EtcdRefusal as refusal:
            if refusal.code != UNAUTHENTICATED or not used:
                raise
        self.forget_login(used)
        await self._token_for(endpoint)
        return await self._post(endpoint, path, body, timeout_s)

    def forget_login(self, token: str = "") -> None:
        if token in ("", self._token):
            self._token = ""

    async def _token_for(self, endpoint: str) -> str:
        options = self.options
        if not options.user:
            return ""
        async with self._login:
            if not self._token:
                asked = {"name": options.user, "password": options.password}
                answer = await self._post(endpoint, "auth/authenticate", asked, TIMEOUT_S)
                self._token = str(answer.get("token", ""))
            return self._token

    def _request(self, endpoint: str, path: str, body: Row, timeout: aiohttp.ClientTimeout) -> Any:
        headers = {"Authorization": self._token} if self._token else {}
        if path == "watch":
            # A member that has lost the others would otherwise keep quiet, and so would we.
            headers["Grpc-Metadata-hasleader"] = "true"
        scheme = "http" if self._tls is None else "https"
        return self._session.post(
            f"{scheme}://{endpoint}/v3/{path}",
            data=json.dumps(body).encode(),
            headers=headers,
            timeout=timeout,
            ssl=True if self._tls is None else self._tls,
            **ASKING,
        )

    async def _post(self, endpoint: str, path: str, body: Row, timeout_s: float) -> Row:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_S)
        try:
            async with self._request(endpoint, path, body, timeout) as response:
                data = await read_answer(response, ANSWER_MAX_BYTES)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotReached(_words(error)) from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise AnswerLost(_words(error)) from error
        return understood(data)

    # -- streams -------------------------------------------------------------------------

    async def stream(self, path: str, body: Row, on_row: Callable[[Row], None]) -> None:
        """Until it ends; every row that comes goes to ``on_row``.  Raises ``EtcdFailed``."""
        endpoint = self.endpoint
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        try:
            await self._token_for(endpoint)
            async with self._request(endpoint, path, body, timeout) as response:
                await _rows(response.content, on_row)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self.gave_up(endpoint, _words(error))
            raise NotReached(_words(error)) from error
        except (NotReached, AnswerLost) as error:
            self.gave_up(endpoint, str(error))
            raise


async def _rows(content: aiohttp.StreamReader, on_row: Callable[[Row], None]) -> None:
    """A row is a line, and may be long.  Raises AnswerTooLong."""
    parts: list[bytes] = []
    size = 0
    async for chunk in content.iter_any():
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            row = b"".join((*parts, line))
            parts, size = [], 0
            if row:
                on_row(understood(row))
        parts.append(rest)
        size += len(rest)
        if size > ANSWER_MAX_BYTES:
            raise AnswerTooLong(f"a row of its answer has more than {ANSWER_MAX_BYTES} bytes")


def understood(data: bytes) -> Row:
    """What it says, or an exception: a fault is a row of its own kind.

    It has the field ``error``, a text or a row of its own, and from etcd 3.5 on neither but
    ``code`` and ``message``.
    """
    row = None
    with suppress(ValueError):
        row = json_of(data)
    if not isinstance(row, dict):
        shown = data.decode("utf-8", "replace").strip()[:ANSWER_SHOWN_CHARS]
        raise NotReached(f"it does not answer like etcd's v3 gateway, it says {shown!r}")
    fault = row.get("error", row.get("message") if "code" in row else None)
    if fault is None:
        return row
    said = fault if isinstance(fault, dict) else row
    code = int(said.get("grpc_code") or said.get("code") or 2)
    text = str(said.get("message") or fault)
    if code in UNSURE:
        raise AnswerLost(text)
    raise EtcdRefusal(code, text)


def _words(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLError):
        return f"TLS failed: {error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno  # of a name that is not known it is negative
        return os.strerror(number).lower() if number and number > 0 else str(error.os_error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection"
    return str(error) or type(error).__name__
