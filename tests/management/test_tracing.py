"""Switching the firehose, and making virtual hosts, over HTTP and from the command line."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pika
import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from tests.helpers.live_broker import LiveBroker
from tests.management.conftest import Served
from tests.management.test_limits import ask, connect

ROOT = "/api/vhosts/%2F"


def put(served: Served, body: object, path: str = ROOT) -> tuple[int, str]:
    status, answer = ask(served, "PUT", path, json.dumps(body))
    return status, json.loads(answer)["reason"] if answer else ""


def command(served: Served, *arguments: str) -> Result:
    url = f"http://127.0.0.1:{served.port}"
    return CliRunner().invoke(cli, [*arguments, "--url", url])


def test_a_message_is_copied_from_then_on(served: Served) -> None:
    connection = connect(served)
    channel = connection.channel()
    channel.queue_declare("copies", exclusive=True)
    channel.queue_bind("copies", "amq.rabbitmq.trace", "publish.#")
    assert served.get(ROOT)["tracing"] is False
    assert put(served, {"tracing": True}) == (204, "")
    assert served.get("/api/vhosts")[0]["tracing"] is True
    channel.basic_publish("", "copies", b"m", pika.BasicProperties(app_id="a"))
    method, properties, body = channel.basic_get("copies", auto_ack=True)
    assert (method.routing_key, body) == ("publish.", b"m")
    assert properties.headers["node"] == "penstock@test"
    connections = served.get("/api/connections")
    assert properties.headers["connection"] == connections[0]["name"]
    connection.close()
    assert put(served, {"tracing": "false"}) == (204, "")
    assert served.get(ROOT)["tracing"] is False


def test_what_is_not_named_stays(served: Served) -> None:
    assert put(served, {"description": "shop", "tags": "a,b"}) == (204, "")
    assert put(served, {"tracing": True}) == (204, "")
    row = served.get(ROOT)
    assert (row["description"], row["tags"], row["tracing"]) == ("shop", ["a", "b"], True)
    assert put(served, {"tags": ["c"]}) == (204, "")
    row = served.get(ROOT)
    assert (row["description"], row["tags"], row["tracing"]) == ("shop", ["c"], True)


def test_one_that_is_not_there_is_made(served: Served) -> None:
    assert ask(served, "PUT", "/api/vhosts/new%2Fone") == (201, "")
    assert put(served, {"tracing": True}, "/api/vhosts/second") == (201, "")
    assert ask(served, "GET", "/api/vhosts/new%2Fone")[0] == 200
    assert [row["name"] for row in served.get("/api/vhosts")] == ["/", "new/one", "second"]
    assert ask(served, "GET", "/api/vhosts/none")[0] == 404


@pytest.mark.parametrize(
    "body, reason",
    [
        ('{"tracing":"maybe"}', "not_boolean"),
        ('{"tracing":7}', "not_boolean"),
        ('{"tracing":null}', "not_boolean"),
        ('{"description":7}', "'description' is no text"),
        ('{"tags":7}', "'tags' is no list of names"),
        ('{"default_queue_type":"sparkling"}', "sparkling is not a valid queue type"),
        ('{"unknown":1}', "unknown field 'unknown'"),
        ("[]", "not_json"),
        ("{", "not_json"),
    ],
)
def test_nonsense_is_refused_and_changes_nothing(served: Served, body: str, reason: str) -> None:
    status, answer = ask(served, "PUT", "/api/vhosts/other", body)
    assert (status, reason in json.loads(answer)["reason"]) == (400, True), answer
    assert ask(served, "GET", "/api/vhosts/other")[0] == 404


def test_only_administrators_may_change_and_others_see_their_own(served: Served) -> None:
    served.add_user("looker", "looker", ["monitoring"])
    served.add_user("manager", "manager", ["management"])
    looker = {"Authorization": "Basic " + b64encode(b"looker:looker").decode()}
    manager = {"Authorization": "Basic " + b64encode(b"manager:manager").decode()}
    answer = served.request("PUT", ROOT, b"", looker)
    assert (answer.status, json.loads(answer.body)["reason"]) == (401, "Not administrator user")
    assert served.raw(ROOT, looker).status == 200
    assert served.raw(ROOT, manager).status == 401


def test_the_commands_of_rabbitmqctl(served: Served) -> None:
    found = command(served, "trace_on")
    assert found.output == 'Starting tracing for vhost "/" ...\nTrace enabled for vhost /\n'
    assert served.get(ROOT)["tracing"] is True
    found = command(served, "trace_off", "-p", "/")
    assert found.output == 'Stopping tracing for vhost "/" ...\nTrace disabled for vhost /\n'
    assert served.get(ROOT)["tracing"] is False
    found = command(served, "trace-on", "--vhost", "slip")
    assert found.exit_code == 1
    assert "/api/vhosts/slip)" in found.output
    assert ask(served, "GET", "/api/vhosts/slip")[0] == 404


def test_a_restart_forgets_it(tmp_path: Path) -> None:
    with LiveBroker(tmp_path) as broker:
        runner = CliRunner()
        url = broker.http_url
        assert runner.invoke(cli, ["trace_on", "--url", url]).exit_code == 0
        broker.restart()
        found = runner.invoke(cli, ["definitions", "export", "--url", url])
        assert '"tracing"' not in found.output
        parameters = pika.URLParameters(broker.url)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.queue_declare("copies", exclusive=True)
            channel.queue_bind("copies", "amq.rabbitmq.trace", "#")
            channel.basic_publish("", "copies", b"m")
            assert channel.basic_get("copies", auto_ack=True)[2] == b"m"
            assert channel.basic_get("copies")[0] is None
