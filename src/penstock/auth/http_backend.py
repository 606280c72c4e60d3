"""``HttpBackend``: an HTTP server knows the users, as RabbitMQ's ``rabbitmq_auth_backend_http``.

    log-in          user_path      username, password              allow [tags], deny [reason]
    virtual host    vhost_path     username, vhost, ip, tags       allow, deny [reason]
    right           resource_path  username, vhost, resource, name, permission, tags
    topic           topic_path     ... and routing_key

By POST the parameters are a form, by GET a query.  The status is 200 or 201; redirects are not
followed, because a password would go along.  A server that is away, is slow, or says anything else
has allowed nothing: the log says why, the client learns that it cannot be asked.

What one log-in was allowed is remembered for it (``HttpJudge``) and asked anew every
``recheck_ms``: a right that was taken ends what rests on it.  A server that cannot be asked then
leaves what it has allowed.  ``AnswerCache`` is RabbitMQ's ``rabbit_auth_backend_cache``: answers
for all log-ins, for a time.
"""

import hashlib
import hmac
import logging
import secrets
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final, NamedTuple

import aiohttp

from penstock.auth.asking import AskingLoop
from penstock.broker.rules.judges import (
    CONFIGURE,
    TOPIC,
    VHOST,
    Account,
    Backend,
    Credentials,
    Inquiry,
    Judge,
    Question,
)
from penstock.clocks import mono_ms
from penstock.core.clock_types import MonoMs
from penstock.core.errors import AccessRefused, PenstockError, Undecided
from penstock.core.pending import Ticket

GET: Final = "get"
PERMISSIONS: Final = ("configure", "write", "read")
ATTEMPTS: Final = 3
"""Of a request whose connection had been closed by the server while it was idle."""
CONNECTIONS_MAX: Final = 64
PENDING_MAX: Final = 4096
"""Questions under way; the next one is not asked."""
ANSWER_MAX_BYTES: Final = 64 * 1024
PASSWORD_MAX_BYTES: Final = 64 * 1024
KNOWN_MAX: Final = 8192
"""Answers that are remembered for one log-in."""
REFUSAL_KEPT_MS: Final = 1000
RENEWED_AT_ONCE: Final = 16
"""Answers of one log-in that are asked for anew in one second."""
CACHE_MAX: Final = 50_000
LOG_INTERVAL_MS: Final = 10_000
"""Between two lines of the log about servers that cannot be asked."""
NAME: Final = "rabbit_auth_backend_http"
"""As RabbitMQ calls it where a client reads it."""

logger = logging.getLogger("penstock.auth")


class Paths(NamedTuple):
    """URLs."""

    user: str
    vhost: str
    resource: str
    topic: str


class HttpOptions(NamedTuple):
    """``disclosure``: clients read the reason of a refused right."""

    paths: Paths
    method: str = GET
    request_timeout_ms: int = 15_000
    connection_timeout_ms: int = 15_000
    disclosure: bool = False
    recheck_ms: int = 60_000
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    """Of the certificate; "" = the host of the URL."""


class CannotAsk(PenstockError):
    """The server is away, or its answer is none; the text is for the log."""


class Reply(NamedTuple):
    """``text``: the tags of a user, or the reason of a refusal."""

    allowed: bool
    text: str


def reply_in(body: str, about_user: bool = True) -> Reply:
    """Raises CannotAsk for what is neither ``allow`` nor ``deny``; only a user has tags."""
    word, _, text = body.strip().partition(" ")
    allowed = word.lower() == "allow"
    if (not allowed and word.lower() != "deny") or (allowed and text and not about_user):
        raise CannotAsk(f"the answer is neither 'allow' nor 'deny': {body[:40]!r}")
    return Reply(allowed, text.strip())


class AnswerCache:
    """Answers by question, for ``ttl_ms``; of refusals only with ``refusals``.  On one loop.

    The key of a question has a keyed hash of a password, not the password.
    """

    def __init__(self, ttl_ms: int, refusals: bool, now_ms: Callable[[], MonoMs] = mono_ms) -> None:
        self._ttl_ms = ttl_ms
        self._refusals = refusals
        self._now_ms = now_ms
        self._salt = secrets.token_bytes(32)
        self._replies: dict[tuple[object, ...], tuple[MonoMs, Reply]] = {}

    def key(self, path: str, fields: dict[str, str]) -> tuple[object, ...]:
        shown = tuple((name, fields[name]) for name in fields if name != "password")
        password = fields.get("password")
        if password is None:
            return (path, shown)
        secret = password.encode("utf-8", "surrogateescape")
        return (path, shown, hmac.digest(self._salt, secret, hashlib.sha256))

    def find(self, key: tuple[object, ...]) -> Reply | None:
        found = self._replies.get(key)
        if found is None or self._now_ms() - found[0] < self._ttl_ms:
            return None if found is None else found[1]
        del self._replies[key]
        return None

    async def forget(self) -> None:
        self._replies.clear()

    def put(self, key: tuple[object, ...], reply: Reply) -> None:
        if not reply.allowed and not self._refusals:
            return
        self._replies.pop(key, None)
        if len(self._replies) >= CACHE_MAX:
            del self._replies[next(iter(self._replies))]
        self._replies[key] = (self._now_ms(), reply)


class HttpBackend(Backend):
    """See the head of this file.  Made on the data loop, asks on the loop of ``asking``."""

    def __init__(
        self, options: HttpOptions, asking: AskingLoop, cache: AnswerCache | None = None
    ) -> None:
        self.name = "http"
        self._answered = self._failed = 0
        self.options: Final = options
        self._asking = asking
        self._cache = cache
        self._session: aiohttp.ClientSession | None = None  # once something was asked
        self._pending = 0
        self._logged_ms = MonoMs(-LOG_INTERVAL_MS)
        self._unlogged = 0

    # -- on the data loop ------------------------------------------------------------------

    def authenticate(self, asked: Credentials) -> Inquiry:
        inquiry = Inquiry()
        fields = {"username": asked.name}
        if asked.password is not None:
            fields["password"] = asked.password
        if asked.password == "" or len(asked.password or "") > PASSWORD_MAX_BYTES:
            inquiry.deny("the password is empty or too long")  # it may be an anonymous log-in there
        else:
            self.ask(self._authenticate(inquiry, fields), inquiry, inquiry.give_up)
        return inquiry

    def ask(
        self, question: Coroutine[Any, Any, None], ticket: Ticket, refuse: Callable[[str], None]
    ) -> None:
        """Start a question, which ends the ticket; ``refuse``: it is one too many."""
        if self._pending >= PENDING_MAX:
            question.close()
            refuse("too many questions are under way")
            return
        self._pending += 1
        self._asking.run(self._asked(question, ticket, refuse))

    def requests(self) -> tuple[int, int]:
        return self._answered, self._failed

    def forget(self) -> None:
        if self._cache is not None:
            self._asking.run(self._cache.forget())

    # -- on the asking loop ----------------------------------------------------------------

    async def _asked(
        self, question: Coroutine[Any, Any, None], ticket: Ticket, refuse: Callable[[str], None]
    ) -> None:
        try:
            await question
        except Exception:
            logger.exception("internal error while the HTTP backend was asked")
        finally:
            self._pending -= 1
            if not ticket.done:
                refuse("internal error")
            self._asking.wake()

    async def _authenticate(self, inquiry: Inquiry, fields: dict[str, str]) -> None:
        name = fields["username"]
        try:
            reply = await self.reply(self.options.paths.user, fields)
        except CannotAsk as error:
            inquiry.give_up(f"the HTTP backend cannot be asked: {error}")
            return
        if not reply.allowed:
            inquiry.deny("denied by the HTTP backend" + (f": {reply.text}" if reply.text else ""))
            return
        tags = reply.text.lower().split()
        inquiry.allow(Account(name, tags, HttpJudge(self, name, tags)))

    async def reply(self, path: str, fields: dict[str, str]) -> Reply:
        """Raises CannotAsk, which the log has said then."""
        cache = self._cache
        key = () if cache is None else cache.key(path, fields)
        found = None if cache is None else cache.find(key)
        if found is not None:
            return found
        try:
            about_user = path == self.options.paths.user
            reply = reply_in(await self._fetched(path, fields), about_user)
            self._answered += 1
        except CannotAsk as error:
            self._failed += 1
            self._log(path, error)
            raise
        if cache is not None:
            cache.put(key, reply)
        return reply

    async def _fetched(self, path: str, fields: dict[str, str]) -> str:
        for attempt in range(ATTEMPTS + 1):
            try:
                return await self._request(path, fields)
            except aiohttp.ServerDisconnectedError as error:
                if attempt == ATTEMPTS:
                    raise CannotAsk(str(error)) from error
            except TimeoutError as error:
                raise CannotAsk("no answer in time") from error
            except (aiohttp.ClientError, OSError, ValueError) as error:
                raise CannotAsk(_without_query(error)) from error
        raise AssertionError

    async def _request(self, path: str, fields: dict[str, str]) -> str:
        session = self._session
        if session is None:
            session = self._session = self._new_session()
            self._asking.at_end(session.close)
        is_get = self.options.method == GET
        async with session.request(
            self.options.method.upper(),
            path,
            params=fields if is_get else None,
            data=None if is_get else fields,
            allow_redirects=False,
            server_hostname=self.options.server_name or None,
        ) as answer:
            if answer.status not in (200, 201):
                raise CannotAsk(f"status {answer.status}")
            body = bytearray()
            async for part in answer.content.iter_any():
                body += part
                if len(body) > ANSWER_MAX_BYTES:
                    raise CannotAsk(f"the answer has more than {ANSWER_MAX_BYTES} bytes")
        return body.decode("utf-8", "replace")

    def _new_session(self) -> aiohttp.ClientSession:
        options = self.options
        connector = aiohttp.TCPConnector(limit=CONNECTIONS_MAX, ssl=options.tls or True)
        timeout = aiohttp.ClientTimeout(
            total=options.request_timeout_ms / 1000,
            sock_connect=options.connection_timeout_ms / 1000,
        )
        return aiohttp.ClientSession(
            connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
        )

    def _log(self, path: str, error: CannotAsk) -> None:
        now_ms = mono_ms()
        if now_ms - self._logged_ms < LOG_INTERVAL_MS:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} more since the last such line)" if self._unlogged else ""
        logger.error("HTTP backend: %s cannot be asked: %s%s", path, error, more)
        self._logged_ms = now_ms
        self._unlogged = 0


def _without_query(error: Exception) -> str:
    """An error of a request by GET may show its URL, and so a password."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"{type(error).__name__}: {error.os_error}"
    return type(error).__name__


class _Answer(Ticket):
    """To one question; ``refusal``: what the client reads of it."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = False
        self.failed = False
        self.refusal = ""
        self.asked_ms = mono_ms()
        self.is_used = False

    def use(self) -> None:
        """A verb has read it."""
        self.is_used = True

    def replied(self, reply: Reply, disclosure: bool) -> None:
        self.allowed = reply.allowed
        if disclosure and reply.text:
            self.refusal = f" by backend {NAME}: {reply.text}"
        self.answer()

    def refuse(self, _why: str) -> None:
        """It could not be asked."""
        self.failed = True
        self.refusal = f", backend {NAME} cannot be asked"
        self.answer()

    def is_stale_refusal(self) -> bool:
        """Refusals are kept as long as a verb that asks several questions may take."""
        is_refusal = self.done and self.is_used and not self.allowed
        return is_refusal and mono_ms() - self.asked_ms > REFUSAL_KEPT_MS

    def stands(self) -> None:
        """It could not be asked for anew."""
        self.asked_ms = mono_ms()


class HttpJudge(Judge):
    """What the server allows one user, from one log-in on; on the data loop."""

    def __init__(self, backend: HttpBackend, user: str, tags: list[str]) -> None:
        self._backend = backend
        self._user = user
        self._tags = " ".join(tags)
        self._known: dict[Question, _Answer] = {}
        self._renewals: dict[Question, _Answer] = {}

    def check(self, question: Question) -> None:
        answer = self._known.get(question)
        if answer is None or answer.is_stale_refusal():
            if len(self._known) >= KNOWN_MAX:
                del self._known[next(iter(self._known))]
            answer = self._known[question] = self._ask(question)
        if not answer.done:
            raise Undecided(answer)
        answer.use()
        if not answer.allowed:
            raise AccessRefused(answer.refusal)

    def look(self, now_ms: MonoMs) -> bool:
        lost = self._take_renewals()
        recheck_ms = self._backend.options.recheck_ms
        if recheck_ms > 0 and not self._renewals:
            old = [
                question
                for question, answer in self._known.items()
                if answer.done and now_ms - answer.asked_ms >= recheck_ms
            ]
            for question in old[:RENEWED_AT_ONCE]:
                is_refused = not self._known[question].allowed
                if is_refused or question.permission == CONFIGURE:  # nothing rests on it
                    del self._known[question]
                else:
                    self._renewals[question] = self._ask(question)
        return lost

    def _take_renewals(self) -> bool:
        """Is something not allowed any more?"""
        lost = False
        for question, answer in list(self._renewals.items()):
            if not answer.done:
                continue
            del self._renewals[question]
            known = self._known.get(question)
            if known is None:
                continue
            if answer.failed:
                known.stands()
            elif answer.allowed:
                self._known[question] = answer
            else:
                del self._known[question]
                lost = True
        return lost

    def _ask(self, question: Question) -> _Answer:
        answer = _Answer()
        self._backend.ask(self._asked(question, answer), answer, answer.refuse)
        return answer

    async def _asked(self, question: Question, answer: _Answer) -> None:
        backend = self._backend
        try:
            reply = await backend.reply(*self._request(question))
        except CannotAsk as error:
            answer.refuse(str(error))
            return
        answer.replied(reply, backend.options.disclosure)

    def _request(self, question: Question) -> tuple[str, dict[str, str]]:
        """The URL, and the parameters in RabbitMQ's order."""
        paths = self._backend.options.paths
        fields = {"username": self._user, "vhost": question.vhost}
        if question.kind == VHOST:
            return paths.vhost, fields | {"ip": question.address, "tags": self._tags}
        fields |= {
            "resource": question.kind,
            "name": question.name,
            "permission": PERMISSIONS[question.permission],
            "tags": self._tags,
        }
        if question.kind != TOPIC:
            return paths.resource, fields
        return paths.topic, fields | {"routing_key": question.routing_key}
