"""``OauthBackend`` with a thread of its own: at once, after a fetch, refused with the reason."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from penstock.auth.oauth2 import backend as backend_module
from penstock.auth.oauth2 import fetching
from penstock.auth.oauth2.backend import OauthBackend
from penstock.broker.rules.judges import (
    EXCHANGE,
    QUEUE,
    TOPIC,
    VHOST,
    Credentials,
    Inquiry,
    Judge,
    Question,
    Source,
)
from penstock.core.errors import AccessRefused
from tests.helpers.oauth_issuer import claims, public_jwk, signed
from tests.helpers.oauth_server import Issuer

CONFIGURE, WRITE, READ = 0, 1, 2


class Loop:
    """An event loop in a thread; ``rung``: how often the data loop was woken."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.rung = 0
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self.loop)

    def wake(self) -> None:
        self.rung += 1

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    yield issuer
    issuer.close()


def make(issuer: Issuer, loop: Loop, **options: object) -> OauthBackend:
    setting = {"resource_server_id": "rabbitmq", "issuer": issuer.url, **options}
    return OauthBackend(json.dumps(setting), loop.start, loop.wake)


def token(issuer: Issuer, *scopes: str, key_id: str = "k", number: int = 0, **others: Any) -> str:
    content = claims(*scopes, **{"iss": issuer.url, "exp": time.time() + 60, **others})
    return signed(content, "RS256", key_id, number)


def asked(password: str | None) -> Credentials:
    return Credentials("", password, Source("amqp", "PLAIN", "10.0.0.1", False))


def ended(inquiry: Inquiry) -> Inquiry:
    until = time.monotonic() + 10
    while not inquiry.done and time.monotonic() < until:
        time.sleep(0.002)
    assert inquiry.done
    return inquiry


def judge_of(inquiry: Inquiry) -> Judge:
    account = ended(inquiry).account
    assert account is not None, inquiry.reason
    assert account.judge is not None
    return account.judge


def test_the_log_warns_of_users_who_are_the_same_by_name(
    issuer: Issuer, loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    other = {"issuer": issuer.url, "username_prefix": "other:"}
    servers = {"second": {"oauth_provider_id": "other"}}
    make(issuer, loop, oauth_providers={"other": other}, resource_servers=servers)
    assert backend_module.SHARED_NAMES not in caplog.text
    del other["username_prefix"]
    make(issuer, loop, oauth_providers={"other": other}, resource_servers=servers)
    assert backend_module.SHARED_NAMES in caplog.text


def test_the_first_token_waits_for_the_keys_and_the_next_does_not(
    issuer: Issuer, loop: Loop
) -> None:
    backend = make(issuer, loop)
    text = token(issuer, "rabbitmq.tag:monitoring", "rabbitmq.tag:management")
    first = ended(backend.authenticate(asked(text)))
    second = backend.authenticate(asked(text))
    assert second.done
    for inquiry in (first, second):
        assert inquiry.account is not None
        assert (inquiry.account.name, inquiry.account.tags) == ("ann", ["management", "monitoring"])
        assert 0 < inquiry.account.expires_at_ms - time.time() * 1000 <= 60_000
    assert issuer.asked.count("/realm/keys") == 1


def test_what_a_token_allows(issuer: Issuer, loop: Loop) -> None:
    judge = judge_of(
        make(issuer, loop).authenticate(
            asked(token(issuer, "rabbitmq.read:%2F/q*", "rabbitmq.write:*/x/a.*"))
        )
    )
    for allowed in (
        Question(VHOST, "/"),
        Question(QUEUE, "/", "q1", READ),
        Question(EXCHANGE, "/", "x", WRITE),
        Question(EXCHANGE, "v", "x", WRITE),
        Question(TOPIC, "/", "x", WRITE, "a.b"),
        *(Question(VHOST, f"v{number}") for number in range(100)),
    ):
        judge.check(allowed)
    for refused in (
        Question(QUEUE, "/", "q1", CONFIGURE),
        Question(QUEUE, "v", "q1", READ),
        Question(TOPIC, "/", "x", WRITE, "b.a"),
        Question(TOPIC, "/", "q", READ, "a.b"),
    ):
        with pytest.raises(AccessRefused):
            judge.check(refused)
    nothing = judge_of(make(issuer, loop).authenticate(asked(token(issuer))))
    with pytest.raises(AccessRefused):
        nothing.check(Question(VHOST, "/"))


@pytest.mark.parametrize(
    "others, why",
    [
        ({"exp": time.time() - 1}, "expired"),
        ({"aud": "other"}, "another resource server"),
        ({"iss": "https://evil"}, "another issuer"),
        ({"number": 1}, "signature"),
    ],
)
def test_a_token_is_refused_with_the_reason(
    issuer: Issuer, loop: Loop, others: dict[str, Any], why: str
) -> None:
    inquiry = ended(make(issuer, loop).authenticate(asked(token(issuer, **others))))
    assert inquiry.account is None
    assert why in inquiry.reason


def test_a_password_or_none_is_no_token(issuer: Issuer, loop: Loop) -> None:
    backend = make(issuer, loop)
    assert ended(backend.authenticate(asked("guest"))).reason == "the password is no token"
    assert ended(backend.authenticate(asked(None))).reason == "there is no token"


def test_keys_rotate_while_clients_come(
    issuer: Issuer, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new key is fetched for the first token that names it; the old one is not taken then."""
    backend = make(issuer, loop)
    judge_of(backend.authenticate(asked(token(issuer))))
    issuer.keys = [public_jwk("RS256", "new", 1)]
    new = token(issuer, key_id="new", number=1)
    early = backend.authenticate(asked(new))
    assert early.done, "keys were fetched a moment ago"
    assert early.reason == "the token's key is not known"
    monkeypatch.setattr(fetching, "AGAIN_S", 0.0)
    judge_of(backend.authenticate(asked(new)))
    old = backend.authenticate(asked(token(issuer)))
    assert ended(old).reason == "the token's key is not known"


def test_a_provider_that_does_not_answer_refuses_in_time(
    issuer: Issuer, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(backend_module, "WAITING_MAX", 3)
    issuer.fault = "endless"
    backend = make(issuer, loop)
    every = [backend.authenticate(asked(token(issuer))) for _ in range(5)]
    reasons = [ended(inquiry).reason for inquiry in every]
    assert reasons.count("too many tokens wait for keys") == 2
    assert reasons.count("the token's key is not known") == 3
    assert loop.rung == 3


def test_a_judge_takes_the_next_token(issuer: Issuer, loop: Loop) -> None:
    judge = judge_of(make(issuer, loop).authenticate(asked(token(issuer))))
    renewed = judge.renew(token(issuer, "rabbitmq.read:*/*"))
    assert renewed is not None
    judge_of(renewed).check(Question(QUEUE, "/", "q", READ))
    again = judge.renew("nonsense")
    assert again is not None
    assert ended(again).account is None


def test_a_hundred_unknown_keys_are_one_request(issuer: Issuer, loop: Loop) -> None:
    backend = make(issuer, loop)
    judge_of(backend.authenticate(asked(token(issuer))))
    for number in range(100):
        inquiry = backend.authenticate(asked(token(issuer, key_id=f"k{number}")))
        assert inquiry.done
    assert issuer.asked.count("/realm/keys") == 1
