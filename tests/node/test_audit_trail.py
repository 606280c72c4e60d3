"""The audit trail: who did what, from where, with what answer; its bounds, and its readers."""

from __future__ import annotations

import base64
import errno
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import Request, urlopen

import pika
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.core.events.book import NODE, Actor, Noted
from penstock.core.events.kinds import KINDS
from penstock.management.http.control import TrailQuery
from penstock.node.inspection.audit_trail import RECORDED, SHARE, AuditTrail
from penstock.runtime.disk import event_log
from tests.helpers.live_broker import LiveBroker

ANN = Actor("ann", "http", "10.0.0.7")
PATIENCE_S = 20.0


def deleted(name: str, at_ms: int = 1000, actor: Actor = ANN) -> Noted:
    return (at_ms, "queue_deleted", ("/", name), actor)  # type: ignore[return-value]


def kept(directory: Path, *batches: list[Noted]) -> AuditTrail:
    """A trail that has them on disk."""
    trail = AuditTrail(directory, 65_536, 1 << 20, is_on=True)
    trail.start()
    for batch in batches:
        trail.put(batch)
    trail.stop()
    return trail


def names(found: dict[str, Any]) -> list[str]:
    return [record["object"]["queue"] for record in found["records"]]


# -- the files -------------------------------------------------------------------------------


def test_a_record_says_who_what_where_when_and_the_answer(tmp_path: Path) -> None:
    refused = ("c", 1, "bob", "/", "queue.declare", 403, "ACCESS_REFUSED - no")
    trail = kept(
        tmp_path / "trail",
        [
            deleted("orders", 1_700_000_000_123),
            (1_700_000_000_124, "channel_failed", refused, Actor("bob", "amqp091", "::1")),  # type: ignore[list-item]
        ],
    )
    found = trail.read(TrailQuery({}))
    for record in found["records"]:  # type: ignore[attr-defined]
        del record["crc"]
    assert found == {
        "records": [
            {
                "at": "2023-11-14T22:13:20.124Z",
                "user": "bob",
                "protocol": "amqp091",
                "address": "::1",
                "action": "channel_failed",
                "answer": "403",
                "reason": "ACCESS_REFUSED - no",
                "object": {
                    "connection": "c",
                    "channel": 1,
                    "user": "bob",
                    "vhost": "/",
                    "operation": "queue.declare",
                },
            },
            {
                "at": "2023-11-14T22:13:20.123Z",
                "user": "ann",
                "protocol": "http",
                "address": "10.0.0.7",
                "action": "queue_deleted",
                "answer": "ok",
                "object": {"vhost": "/", "queue": "orders"},
            },
        ],
        "next": None,
    }
    (file,) = (tmp_path / "trail").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("audit-00000001.jsonl", 0o600)
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_figures_and_other_faults_are_no_records(tmp_path: Path) -> None:
    fault = ("c", 1, "bob", "/", "queue.declare", 406, "PRECONDITION_FAILED - other")
    rates = ("/", "q", *range(9))
    trail = kept(
        tmp_path,
        [(1, "channel_failed", fault, ANN), (1, "queue_rates", rates, NODE)],  # type: ignore[list-item]
    )
    assert trail.read(TrailQuery({}))["records"] == []
    left = {kind.partition("_")[0] for kind in KINDS.keys() - RECORDED}
    assert left == {
        *("alarm", "channel", "connection", "consumer", "mirror", "node", "paging"),
        *("queue", "timing", "wait"),
    }


def test_pages_go_back_over_files_and_filters_hold(tmp_path: Path) -> None:
    """65,536 bytes are some 300 records."""
    many = [deleted(f"q{number}", 1000 + number) for number in range(900)]
    trail = kept(tmp_path, *(many[at : at + 50] for at in range(0, 900, 50)))
    assert len(list(tmp_path.iterdir())) > 2
    seen: list[str] = []
    place: Any = ""
    while place is not None:
        found = trail.read(TrailQuery({"user": "ann"}, before=place, limit=170))
        seen += names(found)
        place = found["next"]
    assert seen == [f"q{number}" for number in reversed(range(900))]
    assert names(trail.read(TrailQuery({}, object="q77", limit=2))) == ["q779", "q778"]
    within = TrailQuery({"action": "queue_deleted"}, since_ms=1003, until_ms=1005)
    assert names(trail.read(within)) == ["q4", "q3"]
    assert trail.read(TrailQuery({"user": "nn"}))["records"] == []
    with pytest.raises(ValueError, match="x"):
        trail.read(TrailQuery({}, before="x"))


def test_no_user_washes_away_what_others_did(tmp_path: Path) -> None:
    flood = [deleted(f"q{number}") for number in range(SHARE + 7)]
    bob = Actor("bob", "amqp091", "::1")
    trail = kept(tmp_path, [*flood, deleted("his", actor=bob)], [deleted("later", 70_000)])
    assert names(trail.read(TrailQuery({"user": "bob"}))) == ["his"]
    (told,) = trail.read(TrailQuery({"action": "events_dropped"}))["records"]  # type: ignore[misc]
    assert (told["user"], told["object"]["count"]) == ("ann", 7)
    assert len(trail.read(TrailQuery({"user": "ann"}, limit=2000))["records"]) == SHARE + 2  # type: ignore[arg-type]


def test_a_full_disk_is_said_counted_and_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(event_log.os, "fdatasync", full)
    trail = kept(tmp_path, [deleted("one"), deleted("two")])
    assert trail.dropped_count == 2
    assert caplog.text.count("events are dropped") == 1


def test_without_the_setting_there_is_no_file(tmp_path: Path) -> None:
    trail = AuditTrail(tmp_path / "trail", 65_536, 1 << 20, is_on=False)
    trail.start()
    trail.put([deleted("q")])
    trail.stop()
    assert not (tmp_path / "trail").exists()


# -- a broker --------------------------------------------------------------------------------


class Audited(LiveBroker):
    """Asked as guest."""

    def ask(self, method: str, path: str, body: object = None, login: str = "guest:guest") -> Any:
        """The answer, a text if it is no JSON; of a refusal its status."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.http_url}{path}", data, method=method)
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
        try:
            with urlopen(request, timeout=10) as answer:
                text = answer.read()
        except HTTPError as error:
            error.close()
            return error.code
        return json.loads(text) if text[:1] in (b"[", b"{") else text.decode()

    def record(self, query: str, *texts: str) -> dict[str, Any]:
        """The newest of those asked for that has all these texts."""
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            for record in self.ask("GET", f"/api/penstock/audit?{query}")["records"]:
                if all(text in json.dumps(record) for text in texts):
                    return record  # type: ignore[no-any-return]
            time.sleep(0.1)
        raise AssertionError(f"no record {query} {texts}")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    options = ("--event-log", "false", "--login-lockout", "user", "--login-lockout-failures", "3")
    with Audited(tmp_path_factory.mktemp("audited"), options, ready_timeout_s=60) as running:
        yield running


def test_clients_of_amqp(broker: Audited) -> None:
    broker.ask("PUT", "/api/users/reader", {"password": "secret", "tags": ""})
    broker.ask(
        "PUT",
        "/api/permissions/%2F/reader",
        dict.fromkeys(("configure", "write"), "^$") | {"read": ".*"},
    )
    url = broker.url.replace("guest:guest", "reader:secret")
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        connection.channel().queue_declare("orders", durable=True)
    refusal = pytest.raises(pika.exceptions.ChannelClosedByBroker)
    with pika.BlockingConnection(pika.URLParameters(url)) as connection, refusal:
        connection.channel().queue_declare("forbidden")
    made = broker.record("action=queue_declared", "orders")
    assert (made["user"], made["protocol"], made["address"], made["answer"]) == (
        *("guest", "amqp091", "127.0.0.1", "ok"),
    )
    refused = broker.record("answer=403&user=reader&protocol=amqp091")
    assert refused["object"]["operation"] == "queue.declare"
    assert "forbidden" in refused["reason"]
    assert broker.record("action=login_accepted&user=reader")["address"] == "127.0.0.1"
    assert broker.record("action=permission_set&user=guest")["object"]["user"] == "reader"
    assert "secret" not in json.dumps(broker.ask("GET", "/api/penstock/audit?limit=1000"))


def test_failed_log_ins(broker: Audited) -> None:
    assert broker.ask("GET", "/api/overview", login="mallory:x") == 401
    assert broker.record("action=login_refused&protocol=http")["user"] == "mallory"
    parameters = pika.URLParameters(broker.url.replace("guest:guest", "eve:x"))
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)
    found = broker.record("action=login_refused&protocol=amqp091")
    assert (found["user"], found["answer"]) == ("eve", "refused")


def test_a_lock_out_is_seen_and_ended_by_an_operator(broker: Audited) -> None:
    for _ in range(2):
        broker.ask("GET", "/api/whoami", login="victim:wrong")
    broker.ask("PUT", "/api/users/victim", {"password": "right", "tags": "management"})
    url = broker.url.replace("guest:guest", "victim:wrong")
    for login in ("wrong", "right"):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            pika.BlockingConnection(pika.URLParameters(url.replace("wrong", login)))
    begun = broker.record("action=login_locked_out")
    assert (begun["user"], begun["answer"]) == ("victim", "refused")
    assert begun["object"] == {"user": "victim", "seconds": 300}
    assert "locked out" in broker.record("action=login_refused&protocol=amqp091")["reason"]
    (row,) = broker.ask("GET", "/api/penstock/lockouts")
    assert (row["user"], row["address"]) == ("victim", "")
    metrics = broker.ask("GET", "/metrics")
    assert "penstock_locked_out_users 1\n" in metrics
    assert 'penstock_connections_refused_total{reason="lockout"} 1\n' in metrics
    for command, shown in (("locked", "victim"), ("unlock", "")):
        arguments = ["user", command, *["victim"][: command == "unlock"], "--url", broker.http_url]
        result = CliRunner().invoke(cli, arguments)
        assert (result.exit_code, shown in result.output) == (0, True), result.output
    assert broker.ask("GET", "/api/whoami", login="victim:right")["name"] == "victim"
    ended = broker.record("action=login_unlocked")
    assert (ended["user"], ended["object"]) == ("guest", {"user": "victim"})
    assert broker.ask("DELETE", "/api/penstock/lockouts/victim") == 404


def test_requests_of_operators_and_their_answers(broker: Audited) -> None:
    """One record each: a change that is an event already is no second one."""
    broker.ask("PUT", "/api/queues/%2F/looked-at", {})
    published = {"routing_key": "looked-at", "payload": "hush", "payload_encoding": "string"}
    broker.ask("POST", "/api/exchanges/%2F/amq.default/publish", published | {"properties": {}})
    got = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    broker.ask("POST", "/api/queues/%2F/looked-at/get", got)
    broker.ask("GET", "/api/queues/%2F/looked-at/messages")
    broker.ask("GET", "/api/queues/%2F/looked-at/mess%61ges")
    broker.ask("DELETE", "/api/queues/%2F/looked-at/contents")
    assert broker.ask("PUT", "/api/vhosts/other", {}, login="reader:secret") == 401
    assert broker.ask("PUT", "/api/users/broken", {"password": 7}) == 400
    assert broker.record("answer=400", "users/broken")["reason"] == "password is no text"
    every = broker.ask("GET", "/api/penstock/audit?limit=1000")["records"]
    requests = [one["object"] for one in every if one["action"] == "request_answered"]
    paths = [(one["method"], one["path"].partition("looked-at")[2]) for one in requests]
    assert [one for one in reversed(paths) if one[1]] == [
        ("POST", "/get"),
        ("GET", "/messages"),
        ("GET", "/mess%61ges"),
        ("DELETE", "/contents"),
    ]
    assert "hush" not in json.dumps(every)
    made = [one for one in every if one["object"].get("queue") == "looked-at"]
    assert [one["action"] for one in made] == ["queue_declared"]


def test_messages_that_are_watched(broker: Audited) -> None:
    broker.ask("PUT", "/api/queues/%2F/watched", {})
    path = "/api/queues/%2F/watched/messages"
    request = Request(f"{broker.http_url}/api/penstock/live?path={quote(path, safe='')}")
    request.add_header("Authorization", f"Basic {base64.b64encode(b'guest:guest').decode()}")
    with urlopen(request, timeout=10) as answer:
        while not answer.readline().startswith(b"event: 0\n"):
            pass
    assert broker.record("action=request_answered", path)["user"] == "guest"


def test_a_change_of_what_is_called_publish(broker: Audited) -> None:
    broker.ask("PUT", "/api/users/asker", {"password": "secret", "tags": "management"})
    assert broker.ask("DELETE", "/api/vhosts/publish", login="asker:secret") == 401
    assert broker.record("action=request_answered", "vhosts/publish")["answer"] == "401"


def test_only_administrators_read_it(broker: Audited) -> None:
    broker.ask("PUT", "/api/users/watcher", {"password": "w", "tags": "monitoring"})
    assert broker.ask("GET", "/api/penstock/audit", login="watcher:w") == 401
    for wrong in ("limit=0", "limit=x", "before=x", "colour=red"):
        assert broker.ask("GET", f"/api/penstock/audit?{wrong}") == 400


def test_the_command(broker: Audited) -> None:
    broker.ask("PUT", "/api/vhosts/shown", {})
    broker.record("action=vhost_created", "shown")
    given = ["trail", "--url", broker.http_url, "--action", "vhost_created", "-o", "json"]
    result = CliRunner().invoke(cli, given)
    assert result.exit_code == 0, result.output
    (record,) = [json.loads(line) for line in result.output.splitlines()]
    assert (record["user"], record["object"]["vhost"]) == ("guest", "shown")
    shown = CliRunner().invoke(cli, given[:-2]).output
    assert "vhost=shown" in shown


def test_starts_stops_and_reloads(tmp_path: Path) -> None:
    with Audited(tmp_path, ready_timeout_s=60) as running:
        os.kill(running.pid, signal.SIGHUP)
        assert running.record("action=settings_reloaded")["answer"] == "ok"
        running.stop()
        running.start()
        running.record("action=node_stopped")
        actions = [one["action"] for one in running.ask("GET", "/api/penstock/audit")["records"]]
        assert [one for one in actions if one.startswith("node")] == [
            *("node_started", "node_stopped", "node_started"),
        ]
