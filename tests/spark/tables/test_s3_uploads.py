"""Uploads to a store that is busy, says no, or has forgotten them."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from pyarrow import fs

from pyspark_penstock import s3_uploads
from pyspark_penstock.s3_uploads import PART_BYTES, Uploads, can_upload, told_of
from tests.helpers.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore

URL = "s3://lake/t/a"
TOKEN = "canary-token-of-the-store"
KEYS = {"s3.access-key-id": ACCESS_KEY, "s3.secret-access-key": SECRET_KEY}


class MoodyStore(ThreadingHTTPServer):
    """Answers each PUT with the next of ``answers``, then with 200; keeps what came last."""

    def __init__(self, answers: list[tuple[int, str]]) -> None:
        super().__init__(("127.0.0.1", 0), Put)
        self.answers = answers
        self.tries = 0
        self.body = b""
        Thread(target=self.serve_forever).start()

    @property
    def properties(self) -> dict[str, str]:
        address = f"http://127.0.0.1:{self.server_port}"
        return {**KEYS, "s3.endpoint": address, "s3.session-token": TOKEN}


class Put(BaseHTTPRequestHandler):
    server: MoodyStore

    def do_PUT(self) -> None:
        self.server.body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.tries += 1
        status, answer = self.server.answers.pop(0) if self.server.answers else (200, "")
        self.send_response(status)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def moody() -> Iterator[MoodyStore]:
    with MoodyStore([]) as store:
        yield store
        store.shutdown()


def test_a_busy_store_is_asked_again(moody: MoodyStore) -> None:
    moody.answers = [(503, "<Code>SlowDown</Code>"), (500, "")]
    Uploads(URL, moody.properties).put_whole(URL, memoryview(b"abc"))
    assert (moody.tries, moody.body) == (3, b"abc")


def test_parts_go_through_the_proxy_of_the_environment(
    moody: MoodyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", moody.properties["s3.endpoint"])
    monkeypatch.setenv("no_proxy", "near.example")
    far = {**KEYS, "s3.endpoint": "http://far.example"}
    Uploads(URL, far).put_whole(URL, memoryview(b"far"))
    assert moody.body == b"far"
    monkeypatch.setattr(s3_uploads.time, "sleep", lambda _s: None)
    near = {**KEYS, "s3.endpoint": "http://near.example"}
    with pytest.raises(OSError, match="did not answer"):
        Uploads(URL, near).put_whole(URL, memoryview(b"near"))


@pytest.mark.parametrize(
    "answers, tries, why",
    [
        ([(403, "<Code>AccessDenied</Code>")], 1, r"the store answered 403 \(AccessDenied\)"),
        ([(503, "<Code>SlowDown</Code>")] * 9, 5, r"the store answered 503 \(SlowDown\)"),
        ([(400, "what?")], 1, "the store answered 400$"),
    ],
)
def test_why_nothing_was_written_is_said_without_keys(
    moody: MoodyStore,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[tuple[int, str]],
    tries: int,
    why: str,
) -> None:
    monkeypatch.setattr(s3_uploads.time, "sleep", lambda _s: None)
    moody.answers = answers
    with pytest.raises(OSError, match=why) as said:
        Uploads(URL, moody.properties).put_whole(URL, memoryview(b"abc"))
    assert moody.tries == tries
    assert str(said.value).startswith("s3://lake/t/a was not written: ")
    for secret in (ACCESS_KEY, SECRET_KEY, TOKEN, "X-Amz"):
        assert secret not in str(said.value)


def test_a_store_that_is_away_says_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_uploads.time, "sleep", lambda _s: None)
    away = {**KEYS, "s3.endpoint": "http://127.0.0.1:9"}
    with pytest.raises(OSError, match="the store did not answer") as said:
        Uploads(URL, away).put_whole(URL, memoryview(b"abc"))
    assert ACCESS_KEY not in str(said.value)
    with pytest.raises(OSError, match="Could not connect"):
        Uploads(URL, away).begin(URL)


def test_an_upload_is_completed_once_and_hidden_before(tmp_path: Path) -> None:
    with ObjectStore(tmp_path / "store") as store:
        properties = {**KEYS, **store.properties}
        uploads = Uploads(URL, properties)
        data = bytes(range(256)) * (PART_BYTES // 256)
        upload = uploads.begin(URL)
        parts = [data, data[:77]]
        etags = [
            uploads.put_part(URL, upload, number, memoryview(part))
            for number, part in enumerate(parts, 1)
        ]
        system = fs.S3FileSystem(
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            endpoint_override=store.properties["s3.endpoint"],
            region="us-east-1",
        )
        assert not system.get_file_info("lake/t/a").is_file
        told = told_of(upload, etags)
        assert uploads.complete(URL, told)
        assert system.open_input_stream("lake/t/a").read() == data + data[:77]
        assert not uploads.complete(URL, told), "it is none any more"
        assert not Uploads(URL, properties).complete(URL, told_of("none", etags[:1]))


def test_a_way_to_a_store_that_uploads_do_not_know_is_left_to_pyiceberg() -> None:
    assert can_upload(URL, {})
    assert can_upload("s3a://lake/t", {"warehouse": "s3://lake", **KEYS})
    assert not can_upload(URL, {"s3.role-arn": "arn:aws:iam::1:role/lake"})
    assert not can_upload(URL, {"client.region": "eu-central-1"})
    assert not can_upload("gs://lake/t", {})
