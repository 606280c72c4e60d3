"""Sessions of the web UI: a token in a cookie, which ends with the rights it stands for (L5)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from http.client import HTTPConnection
from http.cookies import SimpleCookie

import pytest

from penstock.broker.rules.access import HASHING, User
from penstock.broker.rules.judges import Account, Judge, Question
from penstock.broker.rules.rights import open_to
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.errors import AccessRefused
from penstock.management.http import endpoints, lists
from penstock.management.http.access import Visitor
from penstock.management.http.ui_sessions import (
    AGE_MAX_S,
    IDLE_MAX_S,
    SESSIONS_MAX,
    SESSIONS_OF_USER_MAX,
    UiSessions,
)
from penstock.settings.entry import AddressRules
from tests.management.conftest import Raw, Served

SCRIPT = {"X-Requested-With": "XMLHttpRequest"}
SESSION = "/api/penstock/session"


def log_in(served: Served, name: str, password: str, **more: str) -> Raw:
    given = base64.b64encode(f"{name}:{password}".encode()).decode()
    return served.request("POST", SESSION, headers={"Authorization": f"Basic {given}"} | more)


def cookie_of(answer: Raw) -> dict[str, str]:
    """The headers with which a script of the UI shows it."""
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    return {"Cookie": f"{cookie.key}={cookie.value}"} | SCRIPT


def session(served: Served, name: str = "guest", password: str = "guest") -> dict[str, str]:
    answer = log_in(served, name, password)
    assert answer.status == 204
    return cookie_of(answer)


def status(served: Served, headers: dict[str, str], path: str = "/api/whoami") -> int:
    return served.raw(path, headers).status


def test_a_session_stands_for_its_user(served: Served) -> None:
    answer = log_in(served, "guest", "guest")
    (cookie,) = SimpleCookie(answer.headers["Set-Cookie"]).values()
    assert cookie["httponly"]
    assert cookie["samesite"] == "Strict"
    assert cookie["path"] == "/api/"
    assert not cookie["secure"]
    assert not cookie["expires"] + cookie["max-age"]  # it ends with the browser
    assert str(served.port) in cookie.key  # another broker of this host has one of its own
    assert "guest" not in cookie.value
    found = served.raw("/api/whoami", cookie_of(answer))
    assert json.loads(found.body)["name"] == "guest"


def test_a_proxy_with_tls_gets_a_secure_cookie(served: Served) -> None:
    answer = log_in(served, "guest", "guest", Origin="https://localhost", Host="localhost")
    assert "; Secure" in answer.headers["Set-Cookie"]


def test_a_session_begins_with_a_password_only(served: Served) -> None:
    assert log_in(served, "guest", "wrong").status == 401
    assert "Set-Cookie" not in log_in(served, "guest", "wrong").headers
    shown = session(served) | {"Authorization": "Bearer x"}
    assert served.request("POST", SESSION, headers=shown).status == 401
    assert send(served, "POST", SESSION, session(served)) == 400


def send(served: Served, method: str, path: str, headers: dict[str, str]) -> int:
    """Without basic authentication."""
    connection = HTTPConnection("127.0.0.1", served.port, timeout=10)
    connection.request(method, path, b"{}", headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_cookie_alone_opens_nothing(served: Served) -> None:
    """A page at another port of this host has the browser send it, but not the header."""
    shown = session(served)
    assert status(served, {"Cookie": shown["Cookie"]}) == 401
    assert status(served, shown | {"Cookie": shown["Cookie"] + "x"}) == 401
    assert status(served, shown) == 200


def test_another_site_neither_logs_in_nor_changes_anything(served: Served) -> None:
    elsewhere = {"Origin": "http://evil.example", "Host": "localhost"}
    assert log_in(served, "guest", "guest", **elsewhere).status == 403
    shown = session(served)
    assert send(served, "PUT", "/api/queues/%2F/forged", shown | elsewhere) == 403
    assert send(served, "PUT", "/api/queues/%2F/forged", shown) == 201


def test_a_browser_opens_no_window_over_that_of_the_ui(served: Served) -> None:
    assert "WWW-Authenticate" not in served.raw("/api/whoami", SCRIPT).headers
    assert "WWW-Authenticate" in served.raw("/api/whoami").headers


def test_log_out_ends_it(served: Served) -> None:
    shown = session(served)
    other = session(served)
    answer = served.request("DELETE", SESSION, headers=shown)
    assert answer.status == 204
    assert "max-age=0" in answer.headers["Set-Cookie"].lower()
    assert status(served, shown) == 401
    assert status(served, other) == 200


def test_a_new_log_in_of_a_browser_ends_its_session(served: Served) -> None:
    shown = session(served)
    assert log_in(served, "guest", "guest", **shown).status == 204
    assert status(served, shown) == 401


def put(served: Served, path: str, body: dict[str, str]) -> None:
    answer = served.request("PUT", path, json.dumps(body).encode())
    assert answer.status in (201, 204), answer


def rights(served: Served, read: str) -> None:
    body = {"configure": "", "write": "", "read": read}
    put(served, "/api/permissions/%2F/ann", body)


ENDS: dict[str, Callable[[Served], object]] = {
    "password": lambda served: put(
        served, "/api/users/ann", {"password": "other", "tags": "management"}
    ),
    "same password, hashed anew": lambda served: put(
        served, "/api/users/ann", {"password": "first", "tags": "management"}
    ),
    "tags": lambda served: put(
        served, "/api/users/ann", {"password_hash": HASH[0], "tags": "management,monitoring"}
    ),
    "rights changed": lambda served: rights(served, "q.*"),
    "rights taken": lambda served: served.request("DELETE", "/api/permissions/%2F/ann"),
    "deleted": lambda served: served.request("DELETE", "/api/users/ann"),
    "deleted and made anew": lambda served: (
        served.request("DELETE", "/api/users/ann"),
        _make_ann(served, HASH[0]),
    ),
}
HASH = [""]


def _make_ann(served: Served, password_hash: str = "") -> None:
    password = {"password_hash": password_hash} if password_hash else {"password": "first"}
    put(served, "/api/users/ann", password | {"tags": "management"})
    rights(served, ".*")
    HASH[0] = served.get("/api/users/ann")["password_hash"]


@pytest.mark.parametrize("change", ENDS)
def test_it_ends_when_the_user_changes(served: Served, change: str) -> None:
    _make_ann(served)
    shown = session(served, "ann", "first")
    assert status(served, shown, "/api/queues/%2F") == 200
    ENDS[change](served)
    assert status(served, shown, "/api/queues/%2F") == 401
    assert status(served, shown) == 401


def test_a_gained_right_and_a_deleted_virtual_host_end_no_session(served: Served) -> None:
    shown = session(served)
    put(served, "/api/vhosts/passing", {})
    permission = {"configure": ".*", "write": ".*", "read": ".*"}
    put(served, "/api/permissions/passing/guest", permission)
    assert status(served, shown, "/api/queues/passing") == 200
    assert served.request("DELETE", "/api/vhosts/passing").status == 204
    assert status(served, shown) == 200


# -- users of other backends ----------------------------------------------------------------


class Forgetful(Judge):
    """A backend that allows everything until it is asked anew."""

    def __init__(self) -> None:
        self.allows = True

    def check(self, question: Question) -> None:
        if not self.allows:
            raise AccessRefused("")

    def look(self, now_ms: MonoMs) -> bool:
        self.allows = False
        return True


def begun(served: Served, user: User, entered: tuple[str, ...] = ()) -> dict[str, str]:
    token = served.management._context.sessions.begin(Visitor(user, entered))
    return {"Cookie": f"penstock_session_{served.port}={token}"} | SCRIPT


def test_its_rights_are_asked_for_anew(served: Served) -> None:
    account = Account("ann", ["management"], Forgetful())
    shown = begun(served, User("ann", "", account.tags, account=account), ("/",))
    assert status(served, shown, "/api/queues/%2F") == 401


def test_a_user_of_another_backend_comes_from_where_it_may_only(served: Served) -> None:
    """As one of the broker's own, whose session is looked at likewise."""
    account = Account("ann", ["management"], Open())
    shown = begun(served, User("ann", "", account.tags, account=account), ("/",))
    entry = served.node.broker.users.entry
    assert status(served, shown) == 200
    served.on_loop(lambda: entry.renew(True, AddressRules(("user:ann deny 127.0.0.0/8",))))
    try:
        assert status(served, shown) == 401
    finally:
        served.on_loop(lambda: entry.renew(True, AddressRules(())))
    assert status(served, shown) == 401, "the session is over"


class Open(Judge):
    def check(self, question: Question) -> None:
        """Everything is allowed."""


def test_another_backend_is_asked_about_some_virtual_hosts_at_a_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(user: User, vhosts: list[str]) -> list[str]:
        asked.append(len(vhosts))
        return open_to(user, vhosts)

    monkeypatch.setattr(endpoints, "open_to", counted)
    monkeypatch.setattr(lists, "SLICE", 2)
    for name in ("one", "two", "three"):
        put(served, f"/api/vhosts/{name}", {})
    account = Account("ann", ["management"], Open())
    shown = begun(served, User("ann", "", account.tags, account=account))
    found = json.loads(served.raw("/api/vhosts?columns=name", shown).body)
    assert {"/", "one", "two", "three"} <= {row["name"] for row in found}
    assert max(asked) == 2
    for name in ("one", "two", "three"):
        served.request("DELETE", f"/api/vhosts/{name}")


def test_an_upstream_acts_for_no_user_of_the_same_name(served: Served) -> None:
    """Its links would have the rights of the broker's own ann."""
    _make_ann(served)
    account = Account("ann", ["policymaker"], Open())
    shown = begun(served, User("ann", "", account.tags, account=account))
    connection = HTTPConnection("127.0.0.1", served.port, timeout=10)
    value = {"value": {"uri": "amqp://elsewhere.example"}}
    path = "/api/parameters/federation-upstream/%2F/up"
    connection.request("PUT", path, json.dumps(value), shown)
    answer = connection.getresponse()
    assert (answer.status, b"none of the broker's own" in answer.read()) == (400, True)
    connection.close()


def of_two_backends(served: Served, expires_at_ms: int = 0) -> User:
    """Another backend has checked the password; tags of both, rights of the broker's own user."""
    _make_ann(served)
    own = served.node.broker.users.users["ann"]
    tags = ["monitoring", *own.tags]
    account = Account("ann", tags, None, WallMs(expires_at_ms), own)
    return User("ann", "", tags, account=account)


@pytest.mark.parametrize("change", ["tags", "rights taken", "deleted and made anew"])
def test_of_a_user_of_two_backends(served: Served, change: str) -> None:
    shown = begun(served, of_two_backends(served))
    for _ in range(2):
        assert status(served, shown, "/api/queues/%2F") == 200
        assert status(served, shown, "/api/shovels") == 200  # for the tag monitoring
    ENDS[change](served)
    assert status(served, shown) == 401


def test_of_a_user_of_two_backends_it_ends_with_the_token(served: Served) -> None:
    shown = begun(served, of_two_backends(served, 1))
    assert b"expired" in served.raw("/api/whoami", shown).body


# -- the clock, and how many ----------------------------------------------------------------


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def visitor(name: str = "ann") -> Visitor:
    return Visitor(User(name, "", ["management"]))


def use(sessions: UiSessions, token: str) -> None:
    before = sessions.find(token)
    assert before is not None
    sessions.used(token, before, visitor())


def test_it_ends_when_it_was_not_used() -> None:
    clock = Clock()
    sessions = UiSessions(clock)
    token = sessions.begin(visitor())
    clock.now_s = IDLE_MAX_S
    use(sessions, token)
    clock.now_s = 2 * IDLE_MAX_S
    assert sessions.find(token)
    clock.now_s += 1
    assert sessions.find(token) is None
    clock.now_s -= 1
    assert sessions.find(token) is None  # it does not come back


def test_it_ends_however_much_it_is_used() -> None:
    clock = Clock()
    sessions = UiSessions(clock)
    token = sessions.begin(visitor())
    while clock.now_s < AGE_MAX_S:
        use(sessions, token)
        clock.now_s += IDLE_MAX_S / 2
    clock.now_s += 1
    assert sessions.find(token) is None


def test_the_session_unused_longest_makes_room() -> None:
    sessions = UiSessions(Clock())
    own = [sessions.begin(visitor()) for _ in range(SESSIONS_OF_USER_MAX)]
    use(sessions, own[0])
    sessions.begin(visitor())
    assert sessions.find(own[0])
    assert sessions.find(own[1]) is None
    for number in range(SESSIONS_MAX):
        sessions.begin(visitor(f"user{number}"))
    assert not any(sessions.find(token) for token in own)


def test_a_session_that_ended_meanwhile_stays_ended() -> None:
    sessions = UiSessions(Clock())
    before = visitor()
    token = sessions.begin(before)
    sessions.end(token)
    sessions.used(token, before, visitor())
    assert sessions.find(token) is None


def of_token(name: str = "ann") -> Visitor:
    account = Account(name, ["management"], Judge(), WallMs(1))
    return Visitor(User(name, "", ["management"], account=account))


def test_a_session_goes_on_beside_a_second_password_until_one_is_dropped() -> None:
    """It is not known with which of the two the session began."""
    ann = User("ann", "b2xk", ["management"])
    before = Visitor(ann)
    ann.change("bmV3 b2xk", f"{HASHING} {HASHING}", ["management"])
    assert before.is_still(ann, ())
    ann.renew_hash("b2xk", "bmV3ZXI")
    ann.change("bmV3 bmV3ZXI", f"{HASHING} {HASHING}", ["management"])
    assert before.is_still(ann, ()), "the same password by another hash"
    between = Visitor(ann)
    ann.change("bmV3", HASHING, ["management"])
    assert not between.is_still(ann, ())


def test_a_new_token_of_the_same_user_goes_on_with_the_session() -> None:
    sessions = UiSessions(Clock())
    old, new = of_token(), of_token()
    token = sessions.begin(old)
    assert sessions.begin(new, token) == token
    sessions.used(token, old, old)  # a request that was under way does not bring the old one back
    assert sessions.find(token) is new
    assert sessions.begin(of_token("bob"), token) != token
    assert sessions.find(token) is None


def test_a_log_in_with_a_password_always_begins_another_session() -> None:
    sessions = UiSessions(Clock())
    token = sessions.begin(visitor())
    assert sessions.begin(visitor(), token) != token
    assert sessions.find(token) is None


def test_a_hash_that_was_to_be_renewed_is_no_excuse_for_another_password() -> None:
    ann = User("ann", "b2xk", ["management"])
    before = Visitor(ann)
    ann.renew_hash("b2xk", "bmV3ZXI")
    ann.change("b3RoZXI", HASHING, ["management"])
    assert not before.is_still(ann, ())


def test_a_session_that_goes_on_is_no_log_in(served: Served) -> None:
    shown = session(served)
    before = served.on_loop(served.node.broker.users.counts)["http"]
    for _ in range(3):
        assert status(served, shown) == 200
    assert served.on_loop(served.node.broker.users.counts)["http"] == before
