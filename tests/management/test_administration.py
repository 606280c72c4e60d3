"""What administrators change over HTTP holds at once, and after a restart."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pika
import pytest

from penstock.broker.rules.access import hash_password
from penstock.core.errors import AccessRefused
from penstock.management.api.nodes import operating
from tests.helpers.sources import HERE
from tests.management.conftest import Raw, Served

logging.getLogger("pika").setLevel(logging.CRITICAL)


def put(served: Served, path: str, body: object) -> Raw:
    return served.request("PUT", path, json.dumps(body).encode())


def connect(served: Served, user: str, password: str) -> Any:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", served.amqp_port, credentials=pika.PlainCredentials(user, password)
        )
    )


def make_user(served: Served, name: str) -> None:
    put(served, f"/api/users/{name}", {"password": "secret", "tags": ""})
    put(served, f"/api/permissions/%2F/{name}", dict.fromkeys(("configure", "write", "read"), ".*"))


def test_a_user_may_come_and_a_deleted_one_is_put_out(served: Served) -> None:
    make_user(served, "shortlived")
    connection = connect(served, "shortlived", "secret")
    channel = connection.channel()
    channel.queue_declare("of-the-shortlived")
    assert served.request("DELETE", "/api/users/shortlived").status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(10)
    # As RabbitMQ 3.10.8 says it.
    assert closed.value.reply_code == 320
    assert closed.value.reply_text == "CONNECTION_FORCED - user 'shortlived' is deleted"
    connection._cleanup()  # pika leaves its sockets open then
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(served, "shortlived", "secret")


def test_rights_that_are_taken_are_gone_for_who_is_there(served: Served) -> None:
    make_user(served, "demoted")
    connection = connect(served, "demoted", "secret")
    channel = connection.channel()
    channel.queue_declare("demoted")
    channel.confirm_delivery()
    channel.basic_publish("", "demoted", b"taken")
    assert served.request("DELETE", "/api/permissions/%2F/demoted").status == 204
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.basic_publish("", "demoted", b"refused")
    assert refused.value.reply_code == 403
    connection.close()


def test_topic_permissions_hold_and_go(served: Served) -> None:
    make_user(served, "narrow")
    rule = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    assert put(served, "/api/topic-permissions/%2F/narrow", rule).status == 201
    connection = connect(served, "narrow", "secret")
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "a.b", b"")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.basic_publish("amq.topic", "b.b", b"")
    other = {"exchange": "other", "write": "", "read": ""}
    assert put(served, "/api/topic-permissions/%2F/narrow", other).status == 204
    path = "/api/topic-permissions/%2F/narrow/other"
    assert [row["exchange"] for row in served.get(path)] == ["other"]
    assert served.request("DELETE", path).status == 204
    assert served.request("DELETE", path).status == 404
    assert len(served.get("/api/topic-permissions/%2F/narrow")) == 1
    assert served.request("DELETE", "/api/topic-permissions/%2F/narrow").status == 204
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("amq.topic", "b.b", b"")
    connection.close()


def test_a_policy_reaches_queues_that_are_there(served: Served) -> None:
    served.declare("ruled")
    rule = {"pattern": "^ruled$", "definition": {"max-length": 7}, "apply-to": "queues"}
    assert put(served, "/api/policies/%2F/short", rule).status == 201
    queue = served.get("/api/queues/%2F/ruled")
    assert (queue["policy"], queue["effective_policy_definition"]) == ("short", {"max-length": 7})
    value = {"pattern": "^ruled$", "definition": {"max-length": 5}, "priority": 0}
    operator = "/api/parameters/operator_policy/%2F/limit"
    assert put(served, operator, {"value": value}).status == 201
    assert served.get("/api/operator-policies/%2F/limit")["definition"] == {"max-length": 5}
    queue = served.get("/api/queues/%2F/ruled")
    assert queue["effective_policy_definition"] == {"max-length": 5}
    assert served.get("/api/parameters/operator_policy")[0]["name"] == "limit"
    assert served.request("DELETE", operator).status == 204
    assert served.request("DELETE", "/api/policies/%2F/short").status == 204
    assert served.get("/api/queues/%2F/ruled")["policy"] is None


def test_limits_are_parameters_too(served: Served) -> None:
    path = "/api/parameters/vhost-limits/%2F/limits"
    assert put(served, path, {"value": {"max-queues": 77}}).status == 201
    assert served.get("/api/vhost-limits/%2F")[0]["value"] == {"max-queues": 77}
    assert served.get(path)["value"] == {"max-queues": 77}
    assert served.request("DELETE", path).status == 204
    assert served.get("/api/vhost-limits/%2F") == []


def test_the_cluster_has_a_name_that_clients_are_told(served: Served) -> None:
    def told() -> object:
        connection = connect(served, "guest", "guest")
        name = connection._impl.server_properties["cluster_name"]
        connection.close()
        return name

    assert served.get("/api/cluster-name") == {"name": "penstock@test"}
    assert put(served, "/api/cluster-name", {"name": "north"}).status == 204
    assert served.get("/api/overview")["cluster_name"] == told() == "north"
    refused = put(served, "/api/cluster-name", {"name": 7})
    assert (refused.status, "should be a text" in refused.body.decode()) == (400, True)
    assert served.request("DELETE", "/api/global-parameters/cluster_name").status == 204
    assert served.get("/api/cluster-name") == {"name": "penstock@test"}


def test_a_cluster_keeps_its_identity(served: Served) -> None:
    path = "/api/global-parameters/internal_cluster_id"
    identity = served.get(path)["value"]
    assert identity.startswith("penstock-cluster-id-")
    assert put(served, path, {"value": "another"}).status == 400
    assert served.request("DELETE", path).status == 400
    definitions = {"global_parameters": [{"name": "internal_cluster_id", "value": "another"}]}
    body = json.dumps(definitions).encode()
    assert served.request("POST", "/api/definitions", body).status == 204
    assert served.get(path)["value"] == identity


def test_log_ins_are_counted(served: Served) -> None:
    path = "/api/auth/attempts/penstock@test"
    assert served.request("DELETE", path).status == 204
    connect(served, "guest", "guest").close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        connect(served, "guest", "wrong")
    served.ask("/api/whoami", user="wrong")
    http, amqp, *_ = served.get(path)
    counts = ("auth_attempts", "auth_attempts_succeeded", "auth_attempts_failed")
    assert [amqp[key] for key in counts] == [2, 1, 1]
    assert [http[key] for key in counts] == [2, 1, 1]


def test_a_hash_from_here_is_a_password(served: Served) -> None:
    hashed = served.get("/api/auth/hash_password/open%20sesame")["ok"]
    put(served, "/api/users/hashed", {"password_hash": hashed, "tags": ""})
    users = served.node.broker.users
    assert served.on_loop(lambda: users.authenticate("hashed", "open sesame", HERE))
    put(served, "/api/users/hashed", {"password_hash": "", "tags": ""})
    for password in ("", "open sesame"):
        with pytest.raises(AccessRefused):
            served.on_loop(lambda word=password: users.authenticate("hashed", word, HERE))


def test_numbers_and_algorithms_that_are_none_are_refused(served: Served) -> None:
    asked = b'{"password_hash": "", "tags": "", "hashing_algorithm": []}'
    assert served.request("PUT", "/api/users/listed", asked).status == 400
    assert served.request("GET", "/api/penstock/log?lines=" + "9" * 5000).status == 400


def test_settings_are_told_without_passwords(served: Served) -> None:
    settings = served.get("/api/config/effective")
    assert settings["channel_max"] == 2047
    assert "default_pass" not in settings
    served.add_user("looks", "looks", ["monitoring"])
    token = {"Authorization": "Basic bG9va3M6bG9va3M="}
    assert served.raw("/api/config/effective", token).status == 401


@pytest.mark.parametrize(
    "path, body",
    [
        ("global-parameters/g", '{"value": NaN}'),
        ("global-parameters/g", '{"value": -Infinity}'),
        ("global-parameters/g", '{"value": [{"a": -1e999}]}'),
        ("global-parameters/g", '{"value": "\\ud800"}'),
        ("users/half", '{"password": "p", "tags": "\\uD800"}'),
        ("permissions/%2F/guest", '{"configure": "\\udc00", "write": "", "read": ""}'),
        ("policies/%2F/half", '{"pattern": "\\ud8", "definition": {"max-length": 1}}'),
    ],
)
def test_what_json_cannot_say_changes_nothing(served: Served, path: str, body: str) -> None:
    before = served.get("/api/definitions")
    answer = served.request("PUT", f"/api/{path}", body.encode())
    assert (answer.status, json.loads(answer.body)["reason"]) == (400, "not_json")
    assert served.get("/api/definitions") == before
    whole = served.request("PUT", "/api/global-parameters/clef", b'{"value": "\\ud834\\udd1e"}')
    assert whole.status in (201, 204)
    assert served.get("/api/global-parameters/clef")["value"] == "\N{MUSICAL SYMBOL G CLEF}"
    assert served.request("DELETE", "/api/global-parameters/clef").status == 204


def test_names_that_are_no_text(served: Served) -> None:
    """Whatever a path says, the broker goes on and gives the same name back."""
    for name in ("%FF", "%C3%BC", "%00", "a%2Fb", "%2F", "x" * 300):
        path = f"/api/users/{name}"
        status = put(served, path, {"password": "p", "tags": ""}).status
        assert status in (201, 400), (name, status)
        if status == 201:
            assert served.request("GET", path).status == 200
            assert served.request("DELETE", path).status == 204
    assert served.get("/api/whoami")["name"] == "guest"


def test_all_of_it_survives_a_restart(tmp_path: Path) -> None:
    one = Served(tmp_path)
    make_user(one, "kept")
    make_user(one, "gone")
    rule = {"exchange": "amq.topic", "write": "^a", "read": ".*"}
    put(one, "/api/topic-permissions/%2F/kept", rule)
    put(one, "/api/permissions/%2F/guest", dict.fromkeys(("configure", "write", "read"), "^g"))
    put(one, "/api/global-parameters/mine", {"value": {"a": [1, None]}})
    put(one, "/api/global-parameters/not-mine", {"value": 1})
    put(one, "/api/cluster-name", {"name": "south"})
    policy = {"pattern": "^x", "definition": {"max-length": 7}, "priority": 3}
    put(one, "/api/policies/%2F/kept", policy)
    put(one, "/api/operator-policies/%2F/gone", policy)
    for path in ("users/gone", "global-parameters/not-mine", "operator-policies/%2F/gone"):
        assert one.request("DELETE", f"/api/{path}").status == 204
    asked = (
        "users", "permissions", "topic-permissions", "global-parameters", "policies",
        "operator-policies", "cluster-name",
    )  # fmt: skip
    before = {path: one.get(f"/api/{path}") for path in asked}
    one.stop()
    again = Served(tmp_path)
    after = {path: again.get(f"/api/{path}") for path in asked}
    again.stop()
    assert [row["name"] for row in before["users"]] == ["guest", "kept"]
    for path in asked:
        key = json.dumps
        mine, theirs = before[path], after[path]
        assert sorted(mine, key=key) == sorted(theirs, key=key), path


@pytest.mark.parametrize(
    "body",
    [
        {"password": ""},
        {"password_hash": ""},
        {},
        {"password_hash": hash_password("", b"salt")},
    ],
)
def test_an_empty_password_never_fits(served: Served, body: dict[str, str]) -> None:
    """As RabbitMQ: not even a hash of the empty password lets a user in with it (L4)."""
    put(served, "/api/users/blank", body | {"tags": "management"})
    login = base64.b64encode(b"blank:").decode()
    assert served.raw("/api/whoami", {"Authorization": f"Basic {login}"}).status == 401
    with pytest.raises(AccessRefused):
        served.on_loop(lambda: served.node.broker.users.authenticate("blank", "", HERE))


def test_a_backup_is_not_made_for_another_machine(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An administrator elsewhere has the broker write no directory."""
    body = json.dumps({"directory": str(tmp_path / "x")}).encode()
    monkeypatch.setattr(operating, "is_loopback", lambda _address: False)
    answer = served.request("POST", "/api/penstock/backup", body)
    assert answer.status == 401, answer
    assert b"the node's own machine" in answer.body
    assert not (tmp_path / "x").exists()
