"""A broker with ``password_hashing = scrypt``: every protocol logs in, older hashes are renewed."""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pika
import pytest

from penstock.broker.rules.access import HASHING, SCRYPT
from penstock_ranges import frames as range_frames
from tests.helpers.live_broker import LiveBroker

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
RULE = ("--password-rule", "min_password_length", "--password-min-length", "5")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    arguments = ("--password-hashing", "scrypt", "--handshake-timeout-ms", "60000", *RULE)
    directory = tmp_path_factory.mktemp("hashes")
    with LiveBroker(directory, arguments, ready_timeout_s=60) as running:
        yield running


def ask(
    broker: LiveBroker, method: str, path: str, body: object = None, login: str = "guest:guest"
) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{broker.http_url}/api/{path}", data, method=method)
    request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urlopen(request, timeout=60) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_an_older_hash_is_renewed_at_the_log_in(broker: LiveBroker) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while ask(broker, "GET", "users/guest")[1]["hashing_algorithm"] != SCRYPT:
        assert time.monotonic() < until_s
        time.sleep(0.1)
    for password, status in (("guest", 200), ("wrong", 401), ("", 401)):
        assert ask(broker, "GET", "whoami", login=f"guest:{password}")[0] == status


def test_new_passwords_obey_the_rule_and_log_in_by_every_protocol(broker: LiveBroker) -> None:
    status, refusal = ask(broker, "PUT", "users/ann", {"password": "four", "tags": ""})
    assert (status, refusal["reason"]) == (400, "minimum required password length is 5")
    rows = {"users": [{"name": "bob", "password": "four", "tags": ""}]}
    assert ask(broker, "POST", "definitions", rows)[0] == 400
    assert ask(broker, "PUT", "users/ann", {"password": "secret", "tags": ""})[0] == 201
    assert ask(broker, "GET", "users/ann")[1]["hashing_algorithm"] == SCRYPT
    rights = dict.fromkeys(("configure", "write", "read"), ".*")
    ask(broker, "PUT", "permissions/%2F/ann", rights)
    parameters = pika.URLParameters(broker.url.replace("guest:guest", "ann:secret"))
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare("q", exclusive=True)
    wrong = pika.URLParameters(broker.url.replace("guest:guest", "ann:other"))
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(wrong)
    for password, is_refused in (("secret", False), ("other", True)):
        address = ("127.0.0.1", urlsplit(broker.url).port)
        with socket.create_connection(address, 60) as sock:
            sock.sendall(range_frames.MAGIC + range_frames.encode_login("ann", password, "/"))
            assert (b"Login was refused" in sock.recv(1 << 16)) is is_refused


def test_rabbitmqs_hashes_are_taken(broker: LiveBroker) -> None:
    salt = b"salt"
    import hashlib

    digest = hashlib.sha256(salt + b"imported").digest()
    hashed = base64.b64encode(salt + digest).decode()
    row = {"password_hash": hashed, "hashing_algorithm": HASHING, "tags": "management"}
    assert ask(broker, "PUT", "users/imported", row)[0] == 201
    assert ask(broker, "GET", "whoami", login="imported:imported")[0] == 200
