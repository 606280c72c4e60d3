"""The HTTP backend by itself: what it asks, and what it makes of each kind of answer."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.auth.asking import AskingLoop
from penstock.auth.http_backend import (
    NAME,
    AnswerCache,
    CannotAsk,
    HttpBackend,
    HttpOptions,
    Paths,
    Reply,
    reply_in,
)
from penstock.broker.rules.judges import (
    CONFIGURE,
    READ,
    TOPIC,
    VHOST,
    WRITE,
    Credentials,
    Inquiry,
    Judge,
    Question,
    Source,
)
from penstock.core.clock_types import MonoMs
from penstock.core.errors import AccessRefused, Undecided
from penstock.core.pending import Ticket
from tests.helpers.auth_server import Answer, Asked, AuthServer
from tests.helpers.certificates import MISSING, Authority

FROM = Source("amqp", "PLAIN", "10.0.0.7", False)
QUEUE = Question("queue", "/", "q", READ)


class Asking:
    """A backend of its own for each set of options, on one loop."""

    def __init__(self) -> None:
        self.loop = AskingLoop(lambda: None)

    def backend(self, url: str, cache: AnswerCache | None = None, **options: object) -> HttpBackend:
        paths = Paths(*(f"{url}/{path}" for path in ("user", "vhost", "resource", "topic")))
        return HttpBackend(HttpOptions(paths)._replace(**options), self.loop, cache)


@pytest.fixture
def asking() -> Iterator[Asking]:
    made = Asking()
    yield made
    made.loop.stop()


def done(ticket: Ticket) -> None:
    until = time.monotonic() + 20
    while not ticket.done:
        assert time.monotonic() < until
        time.sleep(0.002)


def log_in(backend: HttpBackend, name: str = "ann", password: str | None = "secret") -> Inquiry:
    inquiry = backend.authenticate(Credentials(name, password, FROM))
    done(inquiry)
    return inquiry


def judge_of(backend: HttpBackend) -> Judge:
    account = log_in(backend).account
    assert account is not None
    assert account.judge is not None
    return account.judge


def refusal(judge: Judge, question: Question) -> str | None:
    """What the client reads; None = it is allowed."""
    while True:
        try:
            judge.check(question)
        except Undecided as undecided:
            done(undecided.ticket)
        except AccessRefused as error:
            return str(error)
        else:
            return None


# -- what is asked -----------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["get", "post"])
def test_the_questions_are_those_of_rabbitmq(asking: Asking, method: str) -> None:
    with AuthServer(lambda _: "allow administrator Monitoring") as server:
        backend = asking.backend(server.url, method=method)
        account = log_in(backend, "ann & bob", "p=&ä").account
        assert account is not None
        assert account.judge is not None
        assert account.tags == ["administrator", "monitoring"]
        # Tags are of a user: as the answer to a right they are nonsense.
        told = refusal(account.judge, Question(VHOST, "/", address="10.0.0.7"))
        assert told == f", backend {NAME} cannot be asked"
        server.judge = lambda _: "allow"
        for question in (
            Question("queue", "v", "q", CONFIGURE),
            Question("exchange", "v", "amq.default", WRITE),
            Question(TOPIC, "v", "x", READ, "a.b"),
        ):
            assert refusal(account.judge, question) is None
    own = {"username": "ann & bob"}
    tags = {"tags": "administrator monitoring"}
    assert [one.method for one in server.asked] == [method.upper()] * 5
    assert [(one.path, one.fields) for one in server.asked] == [
        ("user", own | {"password": "p=&ä"}),
        ("vhost", own | {"vhost": "/", "ip": "10.0.0.7"} | tags),
        (
            "resource",
            own
            | {"vhost": "v", "resource": "queue", "name": "q", "permission": "configure"}
            | tags,
        ),
        (
            "resource",
            own
            | {"vhost": "v", "resource": "exchange", "name": "amq.default", "permission": "write"}
            | tags,
        ),
        (
            "topic",
            own
            | {"vhost": "v", "resource": "topic", "name": "x", "permission": "read"}
            | tags
            | {"routing_key": "a.b"},
        ),
    ]


def test_a_log_in_without_a_password_is_asked_without(asking: Asking) -> None:
    with AuthServer(lambda _: "allow") as server:
        assert log_in(asking.backend(server.url), "CN=ann", None).account is not None
        assert server.asked == [Asked("GET", "user", {"username": "CN=ann"})]


def test_an_empty_password_is_refused_unasked(asking: Asking) -> None:
    with AuthServer(lambda _: "allow") as server:
        assert log_in(asking.backend(server.url), password="").account is None
        assert server.asked == []


# -- what is answered --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, reply",
    [
        ("allow", Reply(True, "")),
        (" Allow  a b \n", Reply(True, "a b")),
        ("deny", Reply(False, "")),
        ("deny the disk is full", Reply(False, "the disk is full")),
    ],
)
def test_answers(body: str, reply: Reply) -> None:
    assert reply_in(body) == reply


@pytest.mark.parametrize("body", ["", "allowed", "yes", "<html>", "deny\nallow", "allow\0"])
def test_nonsense_allows_nothing(body: str) -> None:
    with pytest.raises(CannotAsk):
        reply_in(body)


@pytest.mark.parametrize(
    "answer, reason",
    [
        ("maybe", "neither 'allow' nor 'deny'"),
        (Answer("allow", 500), "status 500"),
        (Answer("allow", 202), "status 202"),
        (Answer("allow", 302, "/auth/other"), "status 302"),
        ("allow " + "x" * 70_000, "more than 65536 bytes"),
        ("deny no such user", "denied by the HTTP backend: no such user"),
        ("deny", "denied by the HTTP backend"),
    ],
)
def test_a_log_in_that_is_not_allowed(asking: Asking, answer: str | Answer, reason: str) -> None:
    with AuthServer(lambda _: answer) as server:
        inquiry = log_in(asking.backend(server.url))
        assert inquiry.account is None
        assert reason in inquiry.reason
        assert len(server.asked) == 1


def test_a_server_that_is_away_or_slow_allows_nothing(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    waits = threading.Event()
    with AuthServer(lambda _: (waits.wait(20) and "allow") or "") as server:
        slow = log_in(asking.backend(server.url, request_timeout_ms=100), password="secret-xyz")
        waits.set()
    gone = log_in(asking.backend(server.url), password="secret-xyz")
    assert (slow.account, gone.account) == (None, None)
    assert "no answer in time" in slow.reason
    assert "cannot be asked" in gone.reason
    assert "secret-xyz" not in caplog.text + slow.reason + gone.reason
    assert "cannot be asked: no answer in time" in caplog.text


@pytest.mark.parametrize("disclosure", [True, False])
def test_a_right_that_is_refused(asking: Asking, disclosure: bool) -> None:
    def answer(asked: Asked) -> str | Answer:
        if asked.path == "user":
            return "allow"
        return "deny not you" if asked.fields["name"] == "q" else Answer("", 503)

    with AuthServer(answer) as server:
        judge = judge_of(asking.backend(server.url, disclosure=disclosure))
        told = f" by backend {NAME}: not you" if disclosure else ""
        assert refusal(judge, QUEUE) == told
        assert refusal(judge, QUEUE._replace(name="p")) == f", backend {NAME} cannot be asked"


def test_what_was_allowed_is_not_asked_again(asking: Asking) -> None:
    with AuthServer(lambda _: "allow") as server:
        judge = judge_of(asking.backend(server.url))
        for _ in range(5):
            assert refusal(judge, QUEUE) is None
        assert len(server.asked) == 2


# -- what was allowed and is not any more ------------------------------------------------------


def test_a_right_that_was_taken_is_noticed(asking: Asking) -> None:
    with AuthServer(lambda _: "allow") as server:
        judge = judge_of(asking.backend(server.url, recheck_ms=1))
        assert refusal(judge, QUEUE) is None
        assert refusal(judge, QUEUE._replace(permission=CONFIGURE)) is None
        server.judge = lambda _: "deny"
        assert looked(judge)
        assert refusal(judge, QUEUE) == ""
        taken = [one.fields.get("permission") for one in server.asked[3:]]
        assert "configure" not in taken


def test_a_server_that_goes_away_takes_no_right(asking: Asking) -> None:
    with AuthServer(lambda _: "allow") as server:
        judge = judge_of(asking.backend(server.url, recheck_ms=1))
        assert refusal(judge, QUEUE) is None
    assert not looked(judge)
    assert refusal(judge, QUEUE) is None


def looked(judge: Judge) -> bool:
    """Is something lost, when all has been asked for anew?"""
    lost = [judge.look(MonoMs(1 << 50))]
    until = time.monotonic() + 0.7
    while time.monotonic() < until and not any(lost):
        time.sleep(0.02)
        lost.append(judge.look(MonoMs(0)))
    return any(lost)


# -- the cache ---------------------------------------------------------------------------------


def test_the_cache_keeps_answers_for_all_log_ins(asking: Asking) -> None:
    with AuthServer(lambda _: "allow") as server:
        backend = asking.backend(server.url, AnswerCache(60_000, False))
        for _ in range(3):
            assert refusal(judge_of(backend), QUEUE) is None
        assert [one.path for one in server.asked] == ["user", "resource"]
        assert log_in(backend, password="other").account is not None
        assert len(server.asked) == 3


def test_what_the_cache_keeps_can_be_forgotten(asking: Asking) -> None:
    with AuthServer(lambda _: "allow") as server:
        backend = asking.backend(server.url, AnswerCache(60_000, False))
        for _ in range(2):
            assert log_in(backend).account is not None
        assert (len(server.asked), backend.requests()) == (1, (1, 0))
        backend.forget()
        assert log_in(backend).account is not None
        assert (len(server.asked), backend.requests()) == (2, (2, 0))


@pytest.mark.parametrize("refusals", [True, False])
def test_an_answer_ages_and_a_refusal_may_be_kept(refusals: bool) -> None:
    now = [0]
    cache = AnswerCache(1000, refusals, lambda: MonoMs(now[0]))
    yes, no = (cache.key("u", {"username": name, "password": "secret"}) for name in "yn")
    assert b"secret" not in repr(yes).encode()
    cache.put(yes, Reply(True, "a"))
    cache.put(no, Reply(False, ""))
    now[0] = 999
    assert cache.find(yes) == Reply(True, "a")
    assert (cache.find(no) is not None) == refusals
    now[0] = 1000
    assert cache.find(yes) is None


# -- TLS ---------------------------------------------------------------------------------------


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_the_certificate_of_the_server_is_checked(asking: Asking, tmp_path: Path) -> None:
    made = Authority(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*made.sign("server", "/CN=server", "DNS:localhost"))
    with AuthServer(lambda _: "allow", served) as server:
        knows = made.client_context()
        assert log_in(asking.backend(server.url, tls=knows)).account is not None
        other = log_in(asking.backend(server.url, tls=ssl.create_default_context()))
        assert other.account is None
        assert "cannot be asked" in other.reason


def test_questions_have_a_bound(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.auth.http_backend.PENDING_MAX", 1)
    held = threading.Event()
    with AuthServer(lambda _: (held.wait(10) and "allow") or "deny") as server:
        backend = asking.backend(server.url)
        first = backend.authenticate(Credentials("ann", "secret", FROM))
        second = backend.authenticate(Credentials("bob", "secret", FROM))
        assert second.done
        assert second.account is None
        held.set()
        done(first)
        assert first.account is not None
