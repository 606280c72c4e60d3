"""A browser that another site's page sends here is refused; tools are not asked."""

from __future__ import annotations

import json
import socket
from http.cookies import SimpleCookie
from pathlib import Path

import pytest

from penstock.management.http.browsers import refusal
from tests.management.conftest import Served

SCRIPT = {"X-Requested-With": "XMLHttpRequest"}
HERE = "broker.example:15672"


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "Cross-Site", "Origin": f"http://{HERE}"},
        {"Origin": "http://evil.example"},
        {"Origin": "http://broker.example:8080"},
        {"Origin": "http://broker.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"},
        {"Origin": f"http://{HERE}@evil.example"},
        {"Origin": "http://broker.example:x"},
        {"Origin": "http://[::1"},
        {"Origin": "http://evil.example,http://broker.example:15672"},
    ],
)
def test_another_page_changes_nothing(method: str, headers: dict[str, str]) -> None:
    assert "may change nothing" in refusal(method, {"Host": HERE} | headers, False)
    assert refusal("GET", {"Host": HERE} | headers, False) == ""


@pytest.mark.parametrize(
    "host, headers",
    [
        (HERE, {}),
        (HERE, {"Sec-Fetch-Site": "same-origin", "Origin": f"http://{HERE}"}),
        (HERE, {"Sec-Fetch-Site": "none"}),
        (HERE, {"Origin": "http://BROKER.example:15672"}),
        ("broker.example", {"Origin": "https://broker.example"}),
        ("broker.example:443", {"Origin": "https://broker.example"}),
        ("[::1]:15672", {"Origin": "http://[::1]:15672"}),
    ],
)
def test_our_own_page_and_tools_go_on(host: str, headers: dict[str, str]) -> None:
    assert refusal("PUT", {"Host": host} | headers, False) == ""


@pytest.mark.parametrize(
    "host, is_us",
    [
        ("localhost:15672", True),
        ("127.0.0.1:15672", True),
        ("10.1.2.3", True),
        ("[::1]:15672", True),
        (socket.gethostname(), True),
        ("evil.example:15672", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("[::1", False),
        ("evil.example[::1]", False),
        ("[::1]evil.example", False),
        ("[::1].evil.example:15672", False),
        ("localhost@evil.example", False),
        ("evil.example@localhost", False),
        ("localhost:evil", False),
        ("", False),
    ],
)
def test_on_this_machine_a_browser_names_this_machine(host: str, is_us: bool) -> None:
    """With a GET of a page whose name was made to mean this machine it sends nothing but Host."""
    for more in ({"Sec-Fetch-Site": "same-origin"}, {}):
        assert (refusal("GET", {"Host": host, **more}, True) == "") is is_us
        assert refusal("GET", {"Host": host, **more}, False) == ""


def test_a_tool_that_names_no_host_is_no_browser() -> None:
    assert refusal("GET", {}, True) == ""
    assert refusal("DELETE", {}, True) == ""


@pytest.mark.parametrize("host", ["broker.example", "BROKER.example:443", "other.example"])
def test_a_proxy_on_this_machine_hands_on_names_that_are_set(host: str) -> None:
    names = frozenset({"broker.example", "other.example"})
    browser = {"Host": host, "Sec-Fetch-Site": "same-origin", "Origin": f"https://{host.lower()}"}
    assert refusal("PUT", browser, True, names) == ""
    assert "may change nothing" in refusal("PUT", browser | {"Origin": "http://a.b"}, True, names)
    assert "http_host_names" in refusal("GET", browser | {"Host": "evil.example"}, True, names)


def test_the_names_are_a_setting(tmp_path: Path) -> None:
    served = Served(tmp_path, http_host_names="Broker.Example, other.example:8443")
    try:
        for host, status in (
            ("broker.example", 200),
            ("other.example:8443", 200),
            ("evil.example", 403),
        ):
            browser = {"Host": host, "Sec-Fetch-Site": "same-origin"}
            assert served.request("GET", "/api/whoami", headers=browser).status == status
    finally:
        served.stop()


def test_the_answer_says_why(served: Served) -> None:
    path = "/api/queues/%2F/forged"
    raw = served.request("PUT", path, b"{}", {"Origin": "http://evil.example"})
    assert raw.status == 403
    answer = json.loads(raw.body)
    assert answer["error"] == "forbidden"
    assert "http://evil.example" in answer["reason"]
    assert raw.headers["Server"] == "Penstock"
    assert served.ask(path).status == 404
    rebound = {"Host": "evil.example", "Sec-Fetch-Site": "same-origin"}
    assert served.request("GET", "/api/whoami", headers=rebound).status == 403
    own = {"Origin": f"http://127.0.0.1:{served.port}", "Sec-Fetch-Site": "same-origin"}
    assert served.request("PUT", path, b"{}", own).status == 201


def test_another_page_declares_no_queue_by_the_aliveness_test(served: Served) -> None:
    """Not with a password that the browser keeps, not with its session, by no spelling of the path.

    Over HTTP to another machine a browser does not send Sec-Fetch-Site, so an image of another page
    is as a tool's request, if the browser keeps a password: SECURITY.md says so.
    """
    path, cross = "/api/aliveness-test/%2F", {"Sec-Fetch-Site": "cross-site"}
    (kept,) = SimpleCookie(
        served.request("POST", "/api/penstock/session").headers["Set-Cookie"]
    ).values()
    cookie = {"Cookie": f"{kept.key}={kept.value}"}
    for method in ("GET", "HEAD"):
        for spelt in (path, f"{path}/", "/api/%61liveness-test/%2F"):
            assert served.request(method, spelt, headers=cross).status == 403
    assert served.request("GET", path, headers={"Origin": "http://evil.example"}).status == 403
    assert served.raw(path, cookie | cross).status == 403
    assert served.raw(path, cookie).status == 401  # a script of ours has a header of its own
    assert served.ask("/api/queues/%2F/aliveness-test").status == 404
    own = {"Sec-Fetch-Site": "same-origin"}
    assert served.raw(path, cookie | own | SCRIPT).status == 200
    for headers in ({}, own, {"Sec-Fetch-Site": "none"}):
        assert served.request("GET", path, headers=headers).status == 200
