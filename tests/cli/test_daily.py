"""A day with the commands: declare, allow, publish, look, move, take away. One broker."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from tests.helpers.live_broker import LiveBroker

Say = Callable[..., Result]


@pytest.fixture(scope="module")
def live() -> Iterator[LiveBroker]:
    with LiveBroker() as broker:
        yield broker


@pytest.fixture
def say(live: LiveBroker) -> Say:
    """Runs a command line; what it may be told by is the control file alone."""

    def run(*words: str, given: str | bytes = "", code: int = 0) -> Result:
        environment = {
            "PENSTOCK_DATA_DIR": str(live.data_dir),
            "PENSTOCK_HTTP_URL": None,
            "PENSTOCK_USER": None,
            "PENSTOCK_PASSWORD": None,
        }
        result = CliRunner().invoke(cli, list(words), env=environment, input=given)
        assert result.exit_code == code, result.output
        return result

    return run


def rows(say: Say, *words: str) -> list[dict[str, object]]:
    return list(json.loads(say(*words, "-o", "json").stdout))


def test_entities(say: Say) -> None:
    say("vhost", "add", "shop", "--description", "the web shop")
    say("queue", "declare", "invoices", "--vhost", "shop", "--argument", "x-max-length=5")
    say("queue", "declare", "invoices", "--vhost", "shop", code=1)
    say("exchange", "declare", "orders", "--vhost", "shop", "--type", "topic")
    say("bind", "orders", "invoices", "--vhost", "shop", "--key", "order.*")
    (queue,) = rows(say, "queues", "--vhost", "shop")
    assert queue["arguments"] == {"x-max-length": 5}
    assert "order.*" in say("bindings", "--vhost", "shop").stdout
    assert "the web shop" in say("vhosts").stdout
    message = ("publish", "hello", "--exchange", "orders", "--key", "order.1", "--vhost", "shop")
    assert "no administrator may do everything in 'shop'" in say(*message, code=1).stderr
    say("user", "allow", "guest", "--vhost", "shop")
    say(*message)
    assert say("publish", "x", "--exchange", "orders", "--vhost", "shop", code=1).stdout == ""
    say("unbind", "orders", "invoices", "--vhost", "shop", "--key", "order.*")
    say("unbind", "orders", "invoices", "--vhost", "shop", "--key", "order.*", code=1)
    say("exchange", "delete", "orders", "--vhost", "shop")
    say("exchange", "delete", "orders", "--vhost", "shop", code=1)
    say("queue", "delete", "invoices", "--vhost", "shop", "--if-empty", code=1)
    say("queue", "purge", "invoices", "--vhost", "shop")
    say("queue", "delete", "invoices", "--vhost", "shop", "--if-empty")
    say("queue", "purge", "invoices", "--vhost", "shop", code=1)
    say("vhost", "delete", "shop", given="n\n", code=1)
    say("vhost", "delete", "shop", "--yes")
    say("vhost", "delete", "shop", "--yes", code=1)


def test_people(say: Say) -> None:
    say("user", "add", "anna", "--tag", "management", given="secret\n")
    say("user", "add", "anna", given="secret\n", code=1)
    say("user", "add", "bert", given="", code=1)
    say("user", "allow", "anna", "--read", "^orders")
    assert {"user": "anna", "vhost": "/", "configure": ".*", "write": ".*", "read": "^orders"} in [
        {key: row[key] for key in ("user", "vhost", "configure", "write", "read")}
        for row in rows(say, "permissions")
    ]
    say("user", "password", "anna", given="another\n")
    assert next(row["tags"] for row in rows(say, "users") if row["name"] == "anna") == [
        "management"
    ]
    say("user", "deny", "anna")
    say("user", "deny", "anna", code=1)
    say("user", "delete", "anna")
    say("user", "delete", "anna", code=1)
    say("policy", "set", "short", "^tmp", '{"max-length": 7}', "--apply-to", "queues")
    say("policy", "set", "short", "^tmp", "nonsense", code=2)
    say("policy", "set", "short", "^tmp", '{"nonsense": 7}', code=1)
    assert "max-length=7" in say("policies").stdout
    say("policy", "delete", "short")
    say("policy", "delete", "short", code=1)


def test_messages(say: Say) -> None:
    for name in ("plain", "parked"):
        say("queue", "declare", name)
    for number in range(5):
        say("publish", f"order {number}", "--key", "plain", "--header", f"shop={number}")
    say("publish", "-", "--key", "plain", "--persistent", given=b"\x00\xff")
    assert '"order 0"' in say("get", "plain").stdout
    assert len(rows(say, "get", "plain", "--count", "9")) == 6
    found = rows(say, "queue", "search", "plain", "ORDER 3")
    assert [message["payload"] for message in found] == ["order 3"]
    say("queue", "move", "plain", str(found[0]["seq_id"]), "--to", "parked")
    say("queue", "copy", "plain", "--matching", "order", "--to", "parked")
    assert len(rows(say, "queue", "search", "parked", "order")) == 5
    say("queue", "drop", "plain", "--matching", "order 4")
    say("queue", "drop", "plain", str(found[0]["seq_id"]), code=1)
    say("queue", "retry", "plain", "--matching", "order 1", code=1)
    say("queue", "move", "plain", "--to", "parked", code=2)
    taken = rows(say, "get", "plain", "--take", "--count", "9")
    assert [message["payload"] for message in taken][:3] == ["order 0", "order 1", "order 2"]
    assert "0" in say("get", "plain").stdout
    say("queue", "search", "nowhere", "x", code=1)
    for name in ("plain", "parked"):
        say("queue", "delete", name)


def test_lists(say: Say) -> None:
    for name in ("connections", "channels", "consumers", "exchanges"):
        assert isinstance(rows(say, name), list)
        assert say(name).stdout
    switched = json.loads(say("trace_on", "-o", "json").stdout)
    assert switched == {"vhost": "/", "tracing": True}
    say("trace_off")
