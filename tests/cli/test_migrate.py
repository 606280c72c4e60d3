"""``penstock migrate`` between the real RabbitMQ and Penstock, both ways, killed in the middle.

The commands are those of docs/guide/migrate.md; only addresses differ.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner, Result

from penstock.cli.data.migrate import Progress
from penstock.cli.main import cli
from penstock.client.amqp import Connection, Endpoint
from penstock.client.shovel import QueueMover, TargetRefused
from penstock.protocols.amqp.codec.properties import Properties
from tests.helpers.broker_process import BrokerProcess, free_port
from tests.helpers.certificates import Authority
from tests.helpers.live_broker import REPOSITORY, LiveBroker
from tests.helpers.rabbit import ManagedRabbit, missing_reason

GUIDE = (REPOSITORY / "docs" / "guide" / "migrate.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- migrate: (\w+) -->\n```console\n(.*?)```", re.DOTALL)
COMMANDS = dict(BLOCK.findall(GUIDE))
COUNT = 6000
WINDOW = 500


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagedRabbit]:
    reason = missing_reason()
    if reason:
        pytest.skip(reason)
    server = ManagedRabbit(tmp_path_factory.mktemp("rabbit"))
    server.start()
    yield server
    server.kill()  # an orderly stop takes it six seconds


@pytest.fixture(scope="module")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path_factory.mktemp("penstock")) as broker:
        yield broker


Side = ManagedRabbit | LiveBroker


def arguments(name: str, old: Side, new: Side) -> list[str]:
    """The guide's command, for these two."""
    text = COMMANDS[name]
    for word, side in (("old", old), ("new", new)):
        text = text.replace(f"@{word}:5672/", f"@127.0.0.1:{side.amqp_port}/")
        text = text.replace(f"@{word}:15672", f"@127.0.0.1:{side.http_port}")
    words = shlex.split(text)
    assert words[0] == "penstock"
    return words[1:]


def run(name: str, old: Side, new: Side) -> str:
    result = CliRunner().invoke(cli, arguments(name, old, new))
    assert result.exit_code == 0, result.output
    return result.output


def run_until_killed(old: Side, new: Side, queue: str) -> int:
    """Begin the guide's move, and kill it when some of it has arrived; returns how many."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", *arguments("queues", old, new)],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        stderr=subprocess.DEVNULL,
    )
    with Connection(Endpoint.parse(new.url)) as connection:
        channel = connection.channel()
        arrived = 0
        while arrived < WINDOW:
            assert process.poll() is None, "it was over before it could be killed"
            arrived = channel.queue_declare(queue, passive=True).number("message_count")
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    return arrived


def fill(broker: BrokerProcess, queue: str, count: int) -> None:
    with Connection(Endpoint.parse(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_select()
        for number in range(count):
            properties = Properties(delivery_mode=2, headers={"number": number})
            channel.publish(b"%06d" % number, routing_key=queue, properties=properties)
        assert channel.wait_for_confirms() == []


def take_all(broker: BrokerProcess, queue: str) -> list[int]:
    """The numbers of all messages, in order; they stay there."""
    numbers = []
    with Connection(Endpoint.parse(broker.url)) as connection:
        channel = connection.channel()
        count = channel.queue_declare(queue, passive=True).number("message_count")
        channel.consume(queue)
        for _ in range(count):
            delivery = channel.next_delivery()
            assert delivery is not None
            assert delivery.properties.headers == {"number": int(delivery.body)}
            assert delivery.properties.delivery_mode == 2
            numbers.append(int(delivery.body))
    return numbers


def firsts(numbers: list[int]) -> list[int]:
    """Without those that came again."""
    return list(dict.fromkeys(numbers))


def verified(old: Side, new: Side) -> str:
    """RabbitMQ's counts are late: ask until they have come."""
    for _ in range(100):
        result = CliRunner().invoke(cli, arguments("verify", old, new))
        if result.exit_code == 0:
            return result.output
        time.sleep(0.1)
    raise AssertionError(result.output)


def test_there_and_back_with_a_kill_each_way(rabbit: ManagedRabbit, penstock: LiveBroker) -> None:
    fill(rabbit, "orders", COUNT)
    fill(rabbit, "orders.late", 3)
    fill(rabbit, "other", 1)
    assert "left out: 0" in run("rehearse", rabbit, penstock)
    with Connection(Endpoint.parse(penstock.url)) as connection:
        assert not queue_is_there(connection, "orders")
    assert "read 1 users, 1 vhosts" in run("definitions", rabbit, penstock)

    first = run_until_killed(rabbit, penstock, "orders")
    assert first < COUNT
    output = run("queues", rabbit, penstock)
    assert re.search(r"orders\.late +[03]\n", output)
    arrived = take_all(penstock, "orders")
    assert firsts(arrived) == list(range(COUNT)), "lost, or out of order"
    assert len(arrived) <= COUNT + WINDOW
    seen = verified(rabbit, penstock)
    assert re.search(r"orders.late +0 +[3-6] +moved", seen), "some may have come twice"
    assert "other" not in seen

    run_until_killed(penstock, rabbit, "orders")
    run("queues", penstock, rabbit)
    back = take_all(rabbit, "orders")
    assert firsts(back) == list(range(COUNT))
    assert len(back) <= COUNT + 2 * WINDOW
    verified(penstock, rabbit)


def queue_is_there(connection: Connection, name: str) -> bool:
    try:
        connection.channel().queue_declare(name, passive=True)
    except Exception:
        return False
    return True


# -- without RabbitMQ ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path_factory.mktemp("other")) as broker:
        yield broker


def test_what_a_target_would_refuse_or_multiply(penstock: LiveBroker, other: LiveBroker) -> None:
    here, there = Endpoint.parse(penstock.url), Endpoint.parse(other.url)
    with Connection(here) as one, Connection(there) as two:
        source, target = one.channel(), two.channel()
        for channel in (source, target):
            channel.queue_declare("marked", durable=True)
            channel.queue_declare("copy", durable=True)
        properties = Properties(headers={"CC": ["nowhere"], "a": 1}, user_id="guest")
        source.confirm_select()
        source.publish(b"x", routing_key="marked", properties=properties)
        source.wait_for_confirms()
        shovel = QueueMover(
            here, Endpoint(there.host, there.port, "guest", "guest", "/"), ["marked"]
        )
        step_until_empty(shovel)
        shovel.close()
        assert (shovel.moved, shovel.queues[0].renamed) == (1, 1)
        moved = target.get("marked")
        assert moved is not None
        assert moved.properties.headers == {"x-migrated-cc": ["nowhere"], "a": 1}
        assert moved.properties.user_id == "guest"


def test_types_of_headers_and_large_bodies_stay(penstock: LiveBroker, other: LiveBroker) -> None:
    """A short, an unsigned octet, a float: Python has one kind of each, the wire has many."""
    table = b"\x01as\x00\x07" + b"\x01bB\xff" + b"\x01cf\x3f\x80\x00\x00" + b"\x01dx\0\0\0\x01\xfe"
    written = b"\x30\x00" + len(table).to_bytes(4, "big") + table + b"\x02"
    body = os.urandom(300_000)  # of several frames
    here, there = Endpoint.parse(penstock.url), Endpoint.parse(other.url)
    with Connection(here) as one, Connection(there) as two:
        source, target = one.channel(), two.channel()
        for channel in (source, target):
            channel.queue_declare("typed", durable=True)
        source.publish(body, routing_key="typed", written=written)
        shovel = QueueMover(here, there, ["typed"])
        while shovel.moved == 0:
            shovel.step()
        shovel.close()
        moved = target.get("typed")
        assert moved is not None
        assert moved.written == written
        assert moved.body == body


def test_a_full_target_loses_nothing(penstock: LiveBroker, other: LiveBroker) -> None:
    fill(penstock, "tight", 20)
    with Connection(Endpoint.parse(other.url)) as connection:
        limits = {"x-max-length": 5, "x-overflow": "reject-publish"}
        connection.channel().queue_declare("tight", durable=True, arguments=limits)
    shovel = QueueMover(Endpoint.parse(penstock.url), Endpoint.parse(other.url), ["tight"])
    with pytest.raises(TargetRefused, match="is a queue full"):
        step_until_empty(shovel)
    shovel.close()
    left, arrived = take_all(penstock, "tight"), take_all(other, "tight")
    assert arrived == list(range(5))
    assert sorted({*left, *arrived}) == list(range(20))


def test_over_tls_in_both_directions(penstock: LiveBroker, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server", "/CN=localhost", "DNS:localhost,IP:127.0.0.1")
    port = free_port()
    flags = ("--ssl-certfile", certificate, "--ssl-keyfile", key, "--ssl-port", str(port))
    uri = f"amqps://guest:guest@127.0.0.1:{port}/"
    trusted = f"{uri}?cacertfile={authority.certificate}"

    def moved(source: str, target: str, api: LiveBroker) -> Result:
        http = f"http://guest:guest@127.0.0.1:{api.http_port}"
        ends = ["--from", source, "--to", target, "--from-http", http]
        words = ["migrate", "queues", *ends, "--queues", "^sealed$", "--stop-when-empty"]
        return CliRunner().invoke(cli, words)

    with LiveBroker(tmp_path / "far", flags) as far:
        fill(penstock, "sealed", 20)
        fill(far, "sealed", 0)
        refused = moved(penstock.url, uri, penstock)
        assert (refused.exit_code, "certificate verify failed" in refused.stderr) == (69, True)
        for source, target, api in (
            (penstock.url, trusted, penstock),
            (trusted, penstock.url, far),
        ):
            result = moved(source, target, api)
            assert result.exit_code == 0, result.output
            assert take_all(far if target == trusted else penstock, "sealed") == list(range(20))


def step_until_empty(shovel: QueueMover) -> None:
    while not shovel.is_empty():
        shovel.step()


def test_progress_is_told_with_the_time_that_is_left() -> None:
    shovel = cast(Any, SimpleNamespace(queues=[SimpleNamespace(total=100)], moved=0, blocked=None))
    progress = Progress(shovel)
    shovel.moved = 25
    assert progress.text(progress.began_s + 5) == "25 of 100 messages, 5/s, 15 s left"
    shovel.blocked = "low on memory"
    text = progress.text(progress.began_s + 5)
    assert text == "25 of 100 messages, 5/s; the target takes nothing: low on memory"


def test_words_of_failure(penstock: LiveBroker, other: LiveBroker, tmp_path: Path) -> None:
    fill(penstock, "only-here", 1)
    queues = ["migrate", "queues", "--from", penstock.url, "--to", other.url, "--queues"]
    missing = CliRunner().invoke(cli, [*queues, "only-here"])
    assert missing.exit_code == 1
    assert "fix: declare it first: `penstock migrate definitions`" in missing.stderr
    api = ["--from-http", f"http://guest:guest@127.0.0.1:{penstock.http_port}"]
    assert "no queue of the source fits" in CliRunner().invoke(cli, [*queues, "^x", *api]).stderr
    assert CliRunner().invoke(cli, [*queues, "("]).exit_code == 2
    file = tmp_path / "d.json"
    row = {"name": "s", "vhost": "/", "durable": True, "auto_delete": False}
    row |= {"arguments": {"x-queue-mode": "odd"}}
    file.write_text(json.dumps({"queues": [row]}))
    result = CliRunner().invoke(cli, ["migrate", "definitions", "--from", str(file), "--dry-run"])
    assert result.exit_code == 1
    assert "left out: queue" in result.stderr
    verify = ["migrate", "verify", "--from", api[1], "--to"]
    there = f"http://guest:guest@127.0.0.1:{other.http_port}"
    result = CliRunner().invoke(cli, [*verify, there, "--queues", "only-here"])
    assert result.exit_code == 1
    assert re.search(r"only-here +1 +- +missing", result.stdout)
