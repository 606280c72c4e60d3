"""An etcd that a member cannot use: another server or release, TLS, users and wrong settings."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

import pytest

from penstock.cluster.agreement.coordinator import ACCEPTED, Change
from penstock.node.coordination import etcd_http
from penstock.node.coordination.etcd_coordinator import EtcdCoordinator, EtcdUnavailable, why_wrong
from penstock.node.coordination.etcd_http import EtcdOptions
from tests.cluster.coordinator_worlds import SECRET, EtcdWorld
from tests.helpers import certificates
from tests.helpers.broker_process import free_port
from tests.helpers.etcd import EtcdServer, missing_reason

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing_reason() is not None, reason=str(missing_reason())),
]


def join(options: EtcdOptions) -> str:
    """Why it cannot."""
    member = EtcdCoordinator(options)
    with pytest.raises(EtcdUnavailable) as failure:
        member.start(patience_s=0.3)
    return str(failure.value)


def test_nobody_listens() -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    said = join(EtcdOptions((endpoint,), SECRET))
    assert said == f"etcd at {endpoint} cannot be used: connection refused"


def test_another_server_listens() -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(404, "not here")

        def log_message(self, *_: object) -> None:
            pass

    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        said = join(EtcdOptions((f"127.0.0.1:{other.server_port}",), SECRET))
    finally:
        other.shutdown()
        thread.join()
        other.server_close()
    assert "it does not answer like etcd's v3 gateway" in said


@pytest.mark.parametrize(
    "release, row, code",
    [
        (
            "3.4",
            '{"error":"etcdserver: no such lease","code":5,"message":"the same"}',
            5,
        ),
        ("3.5", '{"code":5, "message":"etcdserver: requested lease not found"}', 5),
        ("a stream", '{"error":{"grpc_code":7,"http_code":403,"message":"permission denied"}}', 7),
    ],
)
def test_a_refusal_is_one_in_the_words_of_each_release(release: str, row: str, code: int) -> None:
    with pytest.raises(etcd_http.EtcdRefusal) as refusal:
        etcd_http.understood(row.encode())
    assert refusal.value.code == code, release


def test_a_redirect_is_not_followed_and_an_answer_has_an_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Other(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.1:1/v3/kv/txn")
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"moved!")

        def log_message(self, *_: object) -> None:
            pass

    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    options = EtcdOptions((f"127.0.0.1:{other.server_port}",), SECRET)
    try:
        assert "it says 'moved!'" in join(options)
        monkeypatch.setattr(etcd_http, "ANSWER_MAX_BYTES", 5)
        assert "its answer has more than 5 bytes" in join(options)
    finally:
        other.shutdown()
        thread.join()
        other.server_close()


def test_another_release_uses_the_prefix(server: EtcdServer) -> None:
    server.put("/penstock/theirs/format", "7")
    said = join(EtcdOptions((server.endpoint,), SECRET, cluster_name="theirs"))
    assert "/penstock/theirs/ has format '7', this release reads '2'" in said


@pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING))
def test_tls_and_passwords(tmp_path: Path) -> None:
    authority = certificates.Authority(tmp_path)
    own = authority.sign("etcd", "/CN=etcd", "IP:127.0.0.1")
    client = authority.sign("node", "/O=node")
    named = authority.sign("named", "/CN=named")
    server = EtcdServer(tmp_path / "etcd", tls=(*own, str(authority.certificate)))
    options = {
        "tls": True,
        "ca_file": str(authority.certificate),
        "certificate_file": client[0],
        "key_file": client[1],
        "lease_ttl_s": 2,
    }
    at = ((server.endpoint,), SECRET)
    world = EtcdWorld(at[0], **options)
    try:
        server.start()
        world.join("a/1").close()
        for path, body in (
            ("auth/user/add", {"name": "root", "password": "right"}),
            ("auth/user/grant", {"user": "root", "role": "root"}),
            ("auth/enable", {}),
        ):
            server.ask(path, body, authority.client_context(client))
        assert "user name is empty" in join(world.options)
        for user, password in (("root", "wrong"), ("nobody", "right")):
            refused = EtcdOptions(*at, **options, user=user, password=password)  # type: ignore[arg-type]
            assert "authentication failed" in join(refused)
            assert password not in repr(refused)
        world.options = EtcdOptions(*at, **options, user="root", password="right")  # type: ignore[arg-type]
        one = world.join("a/1")
        assert world.done(one, [], [Change("k", "1")]).state == ACCEPTED
        server.kill()
        server.start()  # etcd has forgotten the tokens of its clients
        world.wait(lambda: one.why_not() == "")
        assert world.done(one, [], [Change("k", "1")]).state == ACCEPTED
        assert len(one.take_events()) == 2
        of_somebody = {**options, "certificate_file": named[0], "key_file": named[1]}
        assert "CommonName" in join(EtcdOptions(*at, **of_somebody))  # type: ignore[arg-type]
        strangers = {**options, "ca_file": ""}
        assert "TLS failed" in join(EtcdOptions(*at, **strangers))  # type: ignore[arg-type]
    finally:
        world.close()
        server.kill()


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    no_key = tmp_path / "no.key"
    no_key.write_text("nothing")
    at = ("127.0.0.1:1",)
    missing = EtcdOptions(at, SECRET, tls=True, ca_file=str(tmp_path / "none.pem"))
    assert "none.pem: [Errno 2] No such file" in join(missing)
    wrong = EtcdOptions(at, SECRET, tls=True, certificate_file=str(no_key), key_file=str(no_key))
    assert f"{no_key} with {no_key}: " in join(wrong)


@pytest.mark.parametrize(
    "options, words",
    [
        (EtcdOptions((), SECRET), "no endpoint"),
        (EtcdOptions(("http://127.0.0.1:2379",), SECRET), "is no endpoint"),
        (EtcdOptions(("127.0.0.1",), SECRET), "is no endpoint"),
        (EtcdOptions(("h:1",), SECRET, cluster_name="a/b"), "is no name of a cluster"),
        (EtcdOptions(("h:1",), SECRET, lease_ttl_s=1), "allowed: 2 to 60 s"),
    ],
)
def test_what_cannot_be_right_is_said(options: EtcdOptions, words: str) -> None:
    assert words in why_wrong(options)
    with pytest.raises(EtcdUnavailable, match=words):
        EtcdCoordinator(options)


def test_what_is_right() -> None:
    endpoints = ("[::1]:2379", "etcd-1.local:2379")
    assert why_wrong(EtcdOptions(endpoints, SECRET, cluster_name="a.b-c_1")) == ""
