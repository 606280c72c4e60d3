"""Dynamic shovels between two brokers, and inside one, set and seen over HTTP."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.failure import Failure
from penstock.cli.management import Management
from penstock.ctl.main import run
from tests.helpers.broker_process import free_port
from tests.helpers.certificates import Authority
from tests.helpers.live_broker import LiveBroker
from tests.links import links_tools
from tests.links.links_tools import until


class Side(links_tools.Side):
    """With shovels."""

    def __init__(self, broker: LiveBroker) -> None:
        super().__init__(broker, broker.http_url)
        self.node = broker

    def shovel(self, name: str, **value: Any) -> None:
        spelt = {key.replace("_", "-"): one for key, one in value.items()}
        self.api.put(
            f"/api/parameters/shovel/%2F/{name}", {"value": {"reconnect-delay": 1} | spelt}
        )

    def row(self, name: str) -> dict[str, Any]:
        rows: list[dict[str, Any]] = self.api.get("/api/shovels")
        return next((row for row in rows if row["name"] == name), {})

    def clear(self, name: str) -> None:
        self.api.delete(f"/api/parameters/shovel/%2F/{name}")


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    allowed = ("--link-tls-dirs", str(tmp_path_factory.getbasetemp()))
    with LiveBroker(tmp_path_factory.mktemp("here"), allowed) as broker:
        yield Side(broker)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with LiveBroker(tmp_path_factory.mktemp("there")) as broker:
        yield Side(broker)


def test_from_this_node_to_another(here: Side, there: Side) -> None:
    here.fill("out", 500, headers={"a": [1, "b"]}, user_id="guest")
    here.shovel("away", src_uri="amqp://", src_queue="out", dest_uri=there.url, dest_queue="in")
    until(lambda: there.depth("in") == 500)
    assert here.depth("out") == 0
    row = here.row("away")
    assert (row["state"], row["vhost"], row["type"]) == ("running", "/", "dynamic")
    assert (row["src_queue"], row["dest_queue"], row["forwarded"]) == ("out", "in", 500)
    assert row["src_uri"] == "amqp:///%2F"
    assert "guest" not in str(row)
    assert 'rabbitmq_shovel_dynamic{status="running"} 1' in here.metrics()
    found = there.take_all("in")
    assert [body for _, body in found] == [b"%d" % number for number in range(500)]
    assert {str(properties.headers) for properties, _ in found} == {"{'a': [1, 'b']}"}
    connections = here.api.get("/api/connections")
    assert "Shovel away" in [row["client_properties"].get("connection_name") for row in connections]
    here.clear("away")
    until(lambda: here.row("away") == {})
    until(lambda: not here.api.get("/api/connections"))


def test_from_another_with_marks(here: Side, there: Side) -> None:
    there.fill("far", 3, headers={"x-shovelled": [{"was": "here"}]})
    here.shovel(
        "marked", src_uri=[there.url], src_queue="far", dest_uri="amqp:///", dest_exchange="",
        dest_exchange_key="near", dest_add_forward_headers=True, dest_add_timestamp_header=True,
        dest_publish_properties={"delivery_mode": 1, "type": "t"}, src_prefetch_count=1,
    )  # fmt: skip
    here.fill("near", 0)
    until(lambda: there.depth("far") == 0)
    for properties, _ in here.take_all("near"):
        mark, former = properties.headers["x-shovelled"]
        assert former == {"was": "here"}
        assert mark["shovel-name"] == "marked"
        assert mark["src-queue"] == "far"
        assert "guest" not in str(mark)
        assert properties.headers["x-shovelled-timestamp"] > 1_700_000_000
        assert (properties.delivery_mode, properties.type) == (1, "t")
    here.clear("marked")


def test_exchange_to_exchange(here: Side, there: Side) -> None:
    there.fill("arrived", 0)
    channel = there.channel()
    channel.queue_bind("arrived", "amq.topic", "a.#")
    channel.connection.close()
    here.shovel(
        "topic", src_uri="amqp://", src_exchange="amq.topic", src_exchange_key="a.*",
        dest_uri=there.url, ack_mode="on-publish",
    )  # fmt: skip
    until(lambda: here.row("topic").get("state") == "running")
    channel = here.channel()
    for key in ("a.b", "b.a", "a.c"):
        channel.basic_publish("amq.topic", key, key.encode())
    until(lambda: there.depth("arrived") == 2)
    channel.connection.close()
    assert [body for _, body in there.take_all("arrived")] == [b"a.b", b"a.c"]
    here.clear("topic")


@pytest.mark.parametrize("after, moved", [("queue-length", 20), (7, 7), (0, 0)])
def test_it_deletes_itself(here: Side, there: Side, after: object, moved: int) -> None:
    queue = f"some {after}"
    here.fill(queue, 20)
    here.shovel(
        "once", src_uri="amqp://", src_queue=queue, dest_uri=there.url, dest_queue=queue,
        src_delete_after=after,
    )  # fmt: skip
    until(lambda: here.row("once") == {} and not here.api.get("/api/parameters/shovel"))
    assert there.depth(queue) == moved
    until(lambda: here.depth(queue) == 20 - moved)


def test_a_full_target_keeps_them_at_the_source(here: Side, there: Side) -> None:
    here.fill("much", 20)
    limits = {"x-max-length": 5, "x-overflow": "reject-publish"}
    channel = there.channel()
    channel.queue_declare("tight", durable=True, arguments=limits)
    channel.connection.close()
    here.shovel("full", src_uri="amqp://", src_queue="much", dest_uri=there.url, dest_queue="tight")
    until(lambda: here.row("full").get("state") == "terminated")
    assert "is a queue full?" in here.row("full")["reason"], here.broker.output()
    got: list[bytes] = []
    while len(got) < 20:
        got += [body for _, body in there.take_all("tight")]
    assert sorted(got, key=int) == [b"%d" % number for number in range(20)]
    here.clear("full")


def test_predeclared_means_that_it_must_be_there(here: Side) -> None:
    here.shovel(
        "absent", src_uri="amqp://", src_queue="nowhere", dest_uri="amqp://", dest_queue="other",
        src_predeclared=True,
    )  # fmt: skip
    until(lambda: here.row("absent").get("state") == "terminated")
    assert "no queue 'nowhere' in vhost '/'" in here.row("absent")["reason"]
    here.fill("nowhere", 1)
    until(lambda: here.depth("other") == 1)
    here.clear("absent")


def test_a_target_that_is_away_is_waited_for(here: Side, there: Side) -> None:
    here.fill("patient", 10)
    wrong = there.url.replace("guest:guest", "guest:secret")
    here.shovel(
        "waiting", src_uri="amqp://", src_queue="patient", dest_uri=wrong, dest_queue="later"
    )
    until(lambda: here.row("waiting").get("state") == "terminated")
    assert "403" in here.row("waiting")["reason"]
    assert "secret" not in here.broker.output()
    here.shovel(
        "waiting", src_uri="amqp://", src_queue="patient", dest_uri=there.url, dest_queue="later"
    )
    until(lambda: there.depth("later") == 10)
    here.api.delete("/api/shovels/vhost/%2F/waiting/restart")
    until(lambda: here.row("waiting").get("state") == "running")
    here.api.delete("/api/shovels/vhost/%2F/waiting")
    until(lambda: here.row("waiting") == {})


def test_values_are_checked_in_rabbitmqs_words(here: Side) -> None:
    for value, words in (
        ({}, 'Key "src-uri" not found in s'),
        ({"src-uri": "amqp://", "dest-uri": "http://x", "src-queue": "q"}, "dest-uri is not a"),
        ({"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "x": 1},
         "Unrecognised terms [{'x',1}] in s"),
        ({"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "ack-mode": "never"},
         "ack-mode should be one of ['no-ack','on-publish','on-confirm'], actually was 'never'"),
        ({"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "src-protocol": "local"},
         "src-protocol should be one of ['amqp091'], actually was 'local'"),
        ({"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "q", "dest-protocol": "amqp10"},
         "dest-protocol should be one of ['amqp091'], actually was 'amqp10'"),
    ):  # fmt: skip
        with pytest.raises(Exception, match="Validation failed") as caught:
            here.api.put("/api/parameters/shovel/%2F/s", {"value": value})
        assert words in str(caught.value), caught.value


def test_who_sees_the_passwords(here: Side) -> None:
    here.shovel("hidden", src_uri="amqp://me:pw@127.0.0.1:1", src_queue="q", dest_uri="amqp://")
    for name, tag in (("pol", "policymaker"), ("adm", "administrator")):
        here.api.put(f"/api/users/{name}", {"password": "p4", "tags": tag})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        here.api.put(f"/api/permissions/%2F/{name}", everything)
    seen = {
        name: str(Management(here.node.http_url, name, "p4").get("/api/parameters"))
        for name in ("pol", "adm")
    }
    assert "me:pw" in seen["adm"]
    assert "me:pw" not in seen["pol"]
    assert "me:pw" not in str(here.api.get("/api/shovels"))
    assert "me:pw" not in str(here.api.get("/api/shovels/vhost/%2F/hidden"))
    pol = Management(here.node.http_url, "pol", "p4")
    with pytest.raises(Exception, match="may not connect"):
        pol.put(
            "/api/parameters/shovel/%2F/s",
            {"value": {"src-uri": "amqp://adm@/", "dest-uri": "amqp://", "src-queue": "q"}},
        )
    here.clear("hidden")


def test_it_acts_as_the_user_who_set_it(here: Side) -> None:
    here.api.put("/api/users/small", {"password": "p4", "tags": "policymaker"})
    rights = {"configure": "^mine", "write": "^mine", "read": "^mine"}
    here.api.put("/api/permissions/%2F/small", rights)
    here.fill("not theirs", 1)
    small = Management(here.node.http_url, "small", "p4")
    value = {"src-uri": "amqp://", "dest-uri": "amqp://", "src-queue": "not theirs"}
    small.put("/api/parameters/shovel/%2F/thief", {"value": value | {"dest-queue": "mine"}})
    until(lambda: here.row("thief").get("state") == "terminated")
    assert "ACCESS_REFUSED" in here.row("thief")["reason"]
    assert here.depth("not theirs") == 1
    here.clear("thief")


def test_rabbitmqctls_words(here: Side, there: Side) -> None:
    def say(*words: str) -> str:
        out = io.StringIO()
        who = ["--url", here.node.http_url, "--user", "guest", "--password", "guest"]
        code = run([*who, *words], out, out, {})
        return f"{code} {out.getvalue()}"

    value = {"src-uri": "amqp://", "src-queue": "w", "dest-uri": there.url, "dest-queue": "w"}
    assert say("set_parameter", "shovel", "w", json.dumps(value)).startswith("0 ")
    until(lambda: "running" in say("shovel_status"))
    assert say("restart_shovel", "w").startswith("0 Restarting dynamic Shovel w")
    assert say("delete_shovel", "w").startswith("0 Deleting shovel w in vhost /")
    assert "was not found" in say("delete_shovel", "w")


def test_over_tls(here: Side, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", "/CN=localhost", "DNS:localhost,IP:127.0.0.1")
    port = free_port()
    flags = ("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-port", str(port))
    with LiveBroker(tmp_path / "far", flags) as broker:
        far = Side(broker)
        here.fill("tls", 3)
        uri = f"amqps://guest:guest@127.0.0.1:{port}"
        here.shovel("tls", src_uri="amqp://", src_queue="tls", dest_uri=uri, dest_queue="tls")
        until(lambda: here.row("tls").get("state") == "terminated")
        assert "certificate verify failed" in here.row("tls")["reason"]
        trusted = f"{uri}?cacertfile={authority.certificate}"
        here.shovel("tls", src_uri="amqp://", src_queue="tls", dest_uri=trusted, dest_queue="tls")
        until(lambda: far.depth("tls") == 3)
        elsewhere = f"{uri}?cacertfile=/etc/hostname"
        here.shovel("tls", src_uri="amqp://", src_queue="tls", dest_uri=elsewhere, dest_queue="tls")
        until(lambda: "link_tls_dirs names no directory" in here.row("tls").get("reason", ""))
        here.clear("tls")
        until(lambda: here.row("tls") == {})


def test_definitions_carry_it_and_a_restart_goes_on(tmp_path: Path, there: Side) -> None:
    with LiveBroker(tmp_path) as broker:
        side = Side(broker)
        side.shovel("kept", src_uri="amqp://", src_queue="k", dest_uri=there.url, dest_queue="kept")
        exported = side.api.get("/api/definitions")
        [row] = exported["parameters"]
        assert (row["component"], row["vhost"], row["name"]) == ("shovel", "/", "kept")
        assert row["value"]["dest-uri"] == there.url
        side.clear("kept")
        side.api.post("/api/definitions", {"parameters": [row]})
        assert side.api.get("/api/parameters/shovel")[0]["value"] == row["value"]
        broker.kill()
        broker.start()
        side.fill("k", 5)
        until(lambda: there.depth("kept") == 5)


def test_a_shovel_that_the_operator_sets_acts_as_the_default_user(here: Side) -> None:
    """With the control file ``penstockctl`` is no user that could log in."""
    here.fill("operators", 1)
    value = {"src-uri": "amqp://", "src-queue": "operators"}
    value |= {"dest-uri": "amqp://", "dest-queue": "operated"}
    words = ["set_parameter", "shovel", "operator", json.dumps(value)]
    out = io.StringIO()
    assert run(words, out, out, {"PENSTOCK_DATA_DIR": str(here.node.data_dir)}) == 0
    until(lambda: here.depth("operated") == 1)
    here.clear("operator")


def test_settings_of_shovels_hold_where_their_values_say_nothing(tmp_path: Path) -> None:
    """A run of ``src-delete-after-duration`` seconds is not shorter than the setting's."""
    conf = tmp_path / "rabbitmq.conf"
    conf.write_text("shovel.topology.predeclared = true\nshovel.delete_after_duration_floor = 2\n")
    with LiveBroker(environment={"RABBITMQ_CONFIG_FILE": str(conf)}) as broker:
        side = Side(broker)
        ends = {"src_uri": "amqp://", "dest_uri": "amqp://", "dest_queue": "to"}
        side.shovel("waits", src_queue="nowhere", **ends)
        until(lambda: side.row("waits").get("state") == "terminated")
        assert "no queue 'to'" in side.row("waits")["reason"]
        assert side.depth("nowhere") == -1
        side.fill("from", 1)
        side.fill("to", 0)
        began_s = time.monotonic()
        side.shovel("short", src_queue="from", src_delete_after_duration=1, **ends)
        until(lambda: side.row("short").get("state") == "running")
        until(lambda: side.row("short") == {})
        assert time.monotonic() - began_s > 1.9
        assert side.depth("to") == 1
        names = [row["name"] for row in side.api.get("/api/parameters/shovel")]
        assert names == ["waits"]


STATIC = """[{rabbitmq_shovel, [{shovels, [
  {moved, [
    {source, [{uris, ["amqp://"]}, {queue, <<"s-src">>},
              {declarations, [{'queue.declare', [{queue, <<"s-src">>}, durable]},
                              {'exchange.declare', [{exchange, <<"s-x">>}, {type, <<"fanout">>}]},
                              {'queue.bind', [{exchange, <<"s-x">>}, {queue, <<"s-src">>}]}]}]},
    {destination, [{uris, ["amqp://"]}, {add_forward_headers, true},
                   {declarations, [{'queue.declare', [{queue, <<"s-dst">>}, durable]}]},
                   {publish_fields, [{exchange, <<>>}, {routing_key, <<"s-dst">>}]}]},
    {ack_mode, on_confirm}]},
  {unnamed, [
    {sources, [{broker, "amqp://"},
               {declarations, ['queue.declare',
                               {'queue.bind', [{exchange, <<"amq.fanout">>}, {queue, <<>>}]}]}]},
    {destinations, [{broker, "amqp://"}]},
    {queue, <<>>}, {publish_fields, [{exchange, <<>>}, {routing_key, <<"s-dst">>}]}]},
  {dead, [{source, [{uris, ["amqp://guest:secret@127.0.0.1:1"]}, {queue, <<"q">>}]},
          {destination, [{uris, ["amqp://"]}]}, {reconnect_delay, 1}]}]}]}]."""


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    file = tmp_path_factory.mktemp("conf") / "advanced.config"
    file.write_text(STATIC)
    environment = {"RABBITMQ_ADVANCED_CONFIG_FILE": str(file)}
    with LiveBroker(tmp_path_factory.mktemp("static"), environment=environment) as broker:
        yield Side(broker)


def test_static_shovels_declare_and_move(static: Side) -> None:
    until(lambda: static.row("moved").get("state") == "running")
    until(lambda: static.row("unnamed").get("state") == "running")
    static.publish("s-x", "", b"one", b"two")
    static.publish("amq.fanout", "", b"three")
    until(lambda: static.depth("s-dst") == 3)
    assert static.depth("s-src") == 0
    found = {body: properties.headers for properties, body in static.take_all("s-dst")}
    assert found.keys() == {b"one", b"two", b"three"}
    (mark,) = found[b"one"]["x-shovelled"]
    assert (mark["shovel-type"], mark["shovel-name"]) == ("static", "moved")
    assert "shovel-vhost" not in mark
    assert not found[b"three"]
    assert 'rabbitmq_shovel_static{status="running"} 2' in static.metrics()


def test_static_shovels_are_shown_and_stay(static: Side) -> None:
    """In the list of all, without a virtual host, as RabbitMQ 4.3.6 shows them."""
    until(lambda: static.row("dead").get("state") == "terminated")
    rows = {row["name"]: row for row in static.api.get("/api/shovels")}
    assert {name: row["type"] for name, row in rows.items()} == dict.fromkeys(rows, "static")
    assert "vhost" not in rows["moved"]
    assert "secret" not in str(rows)
    assert "static_shovels" not in static.api.get("/api/config/effective")
    assert static.api.get("/api/shovels/%2F") == []
    for path in ("moved", "moved/restart"):
        with pytest.raises(Failure):
            static.api.delete(f"/api/shovels/vhost/%2F/{path}")
    assert static.row("moved")["state"] == "running"
