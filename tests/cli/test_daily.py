"""A day with the commands: declare, allow, publish, look, move, take away. One broker."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

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
    assert "no administrator has all permissions in vhost 'shop'" in say(*message, code=1).stderr
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


def test_one_message_is_followed(say: Say) -> None:
    say("queue", "declare", "followed")
    message = ("publish", "x", "--key", "followed", "--follow", "1")
    published, waits = say(*message).stdout.splitlines()
    assert published.endswith("ms, to 1 queues")
    assert waits.startswith("in queue 'followed' since ")
    told = json.loads(say(*message, "-o", "json").stdout)
    assert [one["step"] for one in told["steps"]] == ["publish"]
    assert [one["state"] for one in told["open"]] == ["in_queue"]
    say("queue", "delete", "followed")


def test_queues_are_filtered_sorted_and_summed(say: Say) -> None:
    for name, count in (("list.a", 1), ("list.b", 3), ("other", 2)):
        say("queue", "declare", name)
        for _ in range(count):
            say("publish", "x", "--key", name)
    lines = say("queues", "--filter", "list.", "--sort", "ready", "--total").stdout.splitlines()
    assert [line.split()[1] for line in lines[1:-1]] == ["list.b", "list.a"]
    assert lines[-1].split()[1:5] == ["total", "of", "2", "-"]
    assert lines[-1].split()[5] == "4"
    assert "in/s" in lines[0]
    assert [row["name"] for row in rows(say, "queues", "--filter", "other")] == ["other"]
    by_name = say("queues", "--sort", "name").stdout.splitlines()[1:]
    assert [line.split()[1] for line in by_name] == ["list.a", "list.b", "other"]
    for name in ("list.a", "list.b", "other"):
        say("queue", "delete", name)


def test_a_stream_is_shown_with_its_readers(say: Say) -> None:
    words = ("--durable", "--argument", "x-queue-type=stream", "--argument", "x-max-age=7D")
    say("queue", "declare", "clicks", *words)
    assert "messages   none" in say("queue", "show", "clicks").stdout
    say("publish", "hello", "--key", "clicks")
    shown = say("queue", "show", "clicks").stdout
    assert "messages   1, offsets 0 to 0" in shown
    assert "retention  7 days of age" in shown


def test_an_argument_without_effect_is_warned_of(say: Say) -> None:
    said = say("queue", "declare", "slip", "--argument", "x-max-lenght=5", "--argument", "mine=1")
    assert said.stderr.count("warning:") == 1
    assert "x-max-lenght has no effect here; did you mean x-max-length?" in said.stderr
    assert say("queue", "declare", "right", "--argument", "x-max-length=5").stderr == ""
    for name in ("slip", "right"):
        say("queue", "delete", name)


@pytest.mark.parametrize(
    "words, cause",
    [
        (["queue", "declare", "n", "--argument", "x-max-length=-5"], "-5 is negative"),
        (["queue", "declare", "n", "--argument", "x-message-ttl=abc"], "an integer, not text"),
        (["user", "allow", "nosuch"], "there is no such user or virtual host"),
        (["bind", "no", "q"], "404 of"),
        (["get", "no"], "404 of"),
        (["close-connection", "no"], "404 of"),
        (["exchange", "declare", "e", "--type", "no"], "refuses it"),
    ],
)
def test_a_refusal_has_a_cure_and_no_erlang_terms(say: Say, words: list[str], cause: str) -> None:
    said = say(*words, code=1).stderr
    assert cause in said
    assert "  fix: " in said
    assert "{" not in said
    assert "<<" not in said


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
    say("queue", "declare", "tmp.1")
    assert re.search(r"short +\^tmp +queues +0 +1 +0 +max-length=7", say("policies").stdout)
    shown = say("policy", "show", "short").stdout
    assert "short: applies to 1 queue(s)" in shown
    assert re.search(r"^queue +tmp.1$", shown, re.MULTILINE)
    say("policy", "show", "nosuch", code=1)
    say("queue", "delete", "tmp.1")
    assert "short: applies to 0 queue(s)" in say("policy", "show", "short").stdout
    say("policy", "delete", "short")
    say("policy", "delete", "short", code=1)


def test_a_password_is_rotated(say: Say, live: LiveBroker) -> None:
    """Both log in meanwhile; a restart keeps both."""
    say("user", "add", "rota", "--tag", "management", given="old\n")
    say("user", "password", "rota", "--add", given="new\n")
    say("user", "password", "rota", "--add", given="third\n", code=1)
    definitions = json.loads(say("definitions", "export").stdout)
    (row,) = [one for one in definitions["users"] if one["name"] == "rota"]
    assert " " not in row["password_hash"] + row["hashing_algorithm"], "RabbitMQ reads it"
    live.kill()
    live.start()
    assert [row["last_used_ms"] for row in rows(say, "user", "passwords", "rota")] == [None, None]
    assert [whoami(live, f"rota:{text}") for text in ("old", "new", "third")] == [200, 200, 401]
    newer, older = rows(say, "user", "passwords", "rota")
    assert (newer["which"], older["which"]) == ("newer", "older")
    assert 0 <= int(str(newer["last_used_ms"])) - int(str(older["last_used_ms"])) < 60_000
    say("user", "drop-password", "rota")
    assert [whoami(live, f"rota:{text}") for text in ("old", "new")] == [401, 200]
    say("user", "drop-password", "rota", code=1)
    say("user", "password", "rota", "--add", given="mistaken\n")
    say("user", "drop-password", "rota", "--newer")
    assert [whoami(live, f"rota:{text}") for text in ("mistaken", "new")] == [401, 200]
    say("user", "passwords", "nobody", code=1)
    say("user", "delete", "rota")


def whoami(live: LiveBroker, login: str) -> int:
    request = Request(f"{live.http_url}/api/whoami")
    request.add_header("Authorization", f"Basic {b64encode(login.encode()).decode()}")
    try:
        with urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code


def test_messages(say: Say) -> None:
    for name in ("plain", "parked"):
        say("queue", "declare", name)
    assert "paused" not in say("queues").stdout
    say("queue", "pause", "parked")
    assert re.search(
        r"paused\n(.*no\n)*.*parked .*yes$", say("queues", "--total").stdout, re.MULTILINE
    )
    assert "deferred" not in say("queues").stdout
    assert "paused: nothing is delivered" in say("queue", "show", "parked").stdout
    say("queue", "resume", "parked")
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
