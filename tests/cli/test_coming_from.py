"""docs/guide/coming-from.md: each row of its tables is what the broker does, its example runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.request import Request, urlopen

import pytest

from penstock.broker.rules.queue_options import OPTIONS
from penstock.client.amqp import BrokerClosed, ChannelClosed, Connection, Endpoint
from tests.cli.test_migrate_nsqd import DATA, migrate
from tests.cli.test_nsqd import Program
from tests.helpers.broker_process import free_port
from tests.helpers.nsq_broker import NsqBroker, ask, eventually

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "coming-from.md").read_text()
CODE = re.compile(r"`([^`]+)`")


class Claim(NamedTuple):
    """One thing that can be tried, and whether it is there."""

    section: str
    code: str
    is_there: bool


def claims() -> list[Claim]:
    found = []
    for section in PAGE.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        for line in text.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if len(cells) != 3 or cells[0].startswith(("feature", "--")):
                continue
            assert cells[1] in ("there", "differs", "missing"), line
            codes = CODE.findall(cells[0])
            found += [Claim(title, code, cells[1] != "missing") for code in codes]
    return [one for one in found if re.match(r"x-|exchange type |policy |GET /", one.code)]


CLAIMS = claims()


@pytest.fixture(scope="module")
def broker() -> Iterator[NsqBroker]:
    with NsqBroker() as running:
        yield running


def value_of(text: str) -> object:
    return {"true": True}.get(text, int(text) if text.isdecimal() else text)


def is_there(broker: NsqBroker, claim: Claim) -> bool:
    code = claim.code
    if code.startswith("GET /"):
        port = broker.api_port if claim.section == "nsqd" else broker.http_port
        return ask(port, "GET", code.removeprefix("GET "), login="guest:guest").status == 200
    if code.startswith("policy "):
        return takes_policy(broker, code.removeprefix("policy "))
    with Connection(Endpoint.parse(broker.url)) as connection:
        channel = connection.channel()
        try:
            if code.startswith("exchange type "):
                kind = code.removeprefix("exchange type ")
                given = {"x-delayed-type": "direct"} if kind == "x-delayed-message" else {}
                channel.exchange_declare(f"x-{code}", kind, durable=True, arguments=given)
            else:
                key, _, text = code.partition(": ")
                # One that is not known is kept, as by RabbitMQ, and has no effect.
                assert key in {option.argument for option in OPTIONS}
                channel.queue_declare(f"q-{code}", durable=True, arguments={key: value_of(text)})
        except (ChannelClosed, BrokerClosed):
            return False
    return True


def takes_policy(broker: NsqBroker, key: str) -> bool:
    value = {"delivery-limit": 5, "ha-mode": "all", "queue-mode": "lazy"}.get(key, "dead")
    body = json.dumps({"pattern": "^none$", "definition": {key: value}}).encode()
    login = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=", "Content-Type": "application/json"}
    url = f"{broker.http_url}/api/policies/%2f/{key}"
    with urlopen(Request(url, body, login, method="PUT")) as answer:
        return bool(answer.status == 201)


def test_enough_is_tried() -> None:
    """Else the search above is wrong."""
    assert len(CLAIMS) >= 35
    assert {one.section for one in CLAIMS} == {"RabbitMQ 3.x", "RabbitMQ 4.x", "LavinMQ", "nsqd"}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda one: f"{one.section}, {one.code}")
def test_a_row_says_what_the_broker_does(broker: NsqBroker, claim: Claim) -> None:
    assert is_there(broker, claim) == claim.is_there


def test_the_example_of_nsqd_works(broker: NsqBroker, tmp_path: Path) -> None:
    (block,) = re.findall(r"<!-- coming-from: nsqd -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    directory = str(shutil.copytree(DATA, tmp_path / "nsqd"))
    block = block.replace("/var/lib/nsqd", directory).replace("4160", str(broker.lookup_tcp_port))
    first, second = (shlex.split(line) for line in block.splitlines())
    assert first == ["penstock", "migrate", "nsqd", directory]
    assert migrate(Path(directory)).exit_code == 0
    port = free_port()
    ports = (f"--tcp-address=:{free_port()}", f"--http-address=:{port}", "--https-address=")
    with Program(*second[1:], *ports):
        found = eventually(lambda: broker.look("/lookup?topic=lonely").data.get("producers"))
        assert [one["http_port"] for one in found] == [port]
