"""Who may use NSQ without a log-in: clients on this machine, and as a user that a setting names."""

from __future__ import annotations

from base64 import b64encode
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import pytest

from penstock.node.node import Node
from penstock.protocols.nsq.http import answers as nsq_answers
from penstock.settings.settings import load_settings
from tests.helpers.broker_process import free_port
from tests.helpers.nsq_pair import PEER, NsqBroker
from tests.protocols.nsq.test_nsq_guests import Services

REFUSED = b"E_UNAUTHORIZED AUTH failed for PUB on"
PUB = b"PUB t\n\0\0\0\1x"
ANN = 'default_user = "ann"\ndefault_pass = "secret"\n'


def node_of_ann(settings: str = "") -> NsqBroker:
    """A broker whose default user may log in from everywhere, as a container's."""
    node = NsqBroker(ANN + settings)
    users = node.broker.users.users
    users["ann"] = users.pop("guest")
    users["ann"].name = "ann"
    return node


def test_without_a_login_only_this_machine_is_let_in() -> None:
    node = node_of_ann()
    node.broker.events.on = True
    (answer,) = node.nsq_client(loopback=False).ask(PUB)
    assert REFUSED in answer
    ((_, _, (address, _, _, why), _),) = [
        one for one in node.broker.events.take() if "login" in one[1]
    ]
    assert address == PEER[0]
    assert str(why).startswith("NSQ clients of other machines must authenticate")
    assert node.nsq_client().ask(PUB) == [b"OK"]


def test_a_user_that_is_named_lets_others_in() -> None:
    node = node_of_ann('nsq_user = "ann"\n')
    assert node.nsq_client(loopback=False).ask(PUB) == [b"OK"]


class OpenServices(Services):
    """NSQ's HTTP ports of a broker whose clients come from another machine."""

    def __init__(self, directory: Path, **more: str) -> None:
        self.http, self.lookup = free_port(), free_port()
        given = {
            "data_dir": str(directory / "data"),
            "bind": "127.0.0.1",
            "default_user": "ann",
            "default_pass": "secret",
            "nsq_http_port": str(self.http),
            "nsqlookupd_http_port": str(self.lookup),
            "nsqlookupd_tcp_port": "0",
            "plain_text_passwords": "true",
            **more,
        }
        self.node = Node(load_settings(None, {}, given))
        self._run()

    def ask(self, method: str, path: str, login: str = "", body: bytes = b"", **more: str) -> int:
        """The status of the answer; ``more``: headers."""
        headers = {name.replace("_", "-"): value for name, value in more.items()}
        if login:
            headers["Authorization"] = f"Basic {b64encode(login.encode()).decode()}"
        with closing(HTTPConnection("127.0.0.1", self.http, timeout=10)) as connection:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            answer.read()
            wanted = answer.getheader("WWW-Authenticate")
            assert (wanted == 'Basic realm="Penstock NSQ"') == (answer.status == 401)
            return answer.status


CHANGES = [
    ("POST", "/pub?topic=t", b"x"),
    ("POST", "/mpub?topic=t", b"x"),
    ("POST", "/topic/create?topic=t", b""),
    ("POST", "/topic/empty?topic=kept", b""),
    ("POST", "/topic/pause?topic=kept", b""),
    ("POST", "/topic/delete?topic=kept", b""),
    ("GET", "/stats", b""),
    ("GET", "/info", b""),
    ("GET", "/config/data_path", b""),
    ("PUT", "/config/log_level", b"fatal"),
    ("PUT", "/config/nsqlookupd_tcp_addresses", b'["127.0.0.1:1"]'),
]


@pytest.mark.parametrize("required", [False, True], ids=["", "nsq_auth_required"])
def test_from_another_machine_http_wants_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, required: bool
) -> None:
    services = OpenServices(tmp_path, nsq_auth_required=str(required).lower())
    try:
        monkeypatch.setattr(nsq_answers, "is_loopback", lambda _address: False)
        assert services.ask("POST", "/topic/create?topic=kept", "ann:secret") == 200
        for method, path, body in CHANGES:
            answer = services.ask(method, path, body=body)
            assert answer in (401, 403), path
        for method, path, body in CHANGES[-5:]:  # more are answered late
            assert services.ask(method, path, "ann:wrong", body) == 403, path
        for method, path, body in CHANGES:
            if method != "PUT":
                assert services.ask(method, path, "ann:secret", body) == 200, path
    finally:
        services.stop()


def test_authentication_that_is_required_is_required_here_too(tmp_path: Path) -> None:
    services = OpenServices(tmp_path, nsq_auth_required="true")
    try:
        for method, path, body in CHANGES:
            if "kept" not in path:
                assert services.ask(method, path, body=body) == 401, path
        assert services.ask("POST", "/pub?topic=t", "ann:secret", b"x") == 200
        assert services.ask("POST", "/pub?topic=t", "no login", b"x") == 401
    finally:
        services.stop()


def test_changes_of_the_node_need_a_login_from_elsewhere_for_every_nsq_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = OpenServices(tmp_path, nsq_user="ann")
    try:
        assert services.ask("GET", "/config/log_level") == 200
        monkeypatch.setattr(nsq_answers, "is_loopback", lambda _address: False)
        assert services.ask("POST", "/pub?topic=t", body=b"x") == 200
        assert services.ask("PUT", "/config/log_level", body=b"fatal") == 401
        assert services.ask("PUT", "/config/log_level", "ann:secret", b"info") == 200
    finally:
        services.stop()


def test_the_registry_stays_on_this_machine() -> None:
    assert load_settings(None, {}, {"bind": "0.0.0.0"}).nsqlookupd_bind == "127.0.0.1"


BROWSERS = [
    {"Host": "evil.example:4151"},
    {"Origin": "http://evil.example"},
    {"Sec_Fetch_Site": "cross-site"},
]


@pytest.mark.parametrize("headers", BROWSERS, ids=lambda one: next(iter(one)))
def test_pages_of_other_sites_are_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    services = OpenServices(tmp_path)
    try:
        for port in (services.http, services.lookup):
            services.http = port
            assert services.ask("POST", "/topic/create?topic=t") == 200
            assert services.ask("POST", "/topic/create?topic=t", **headers) == 403
    finally:
        services.stop()
