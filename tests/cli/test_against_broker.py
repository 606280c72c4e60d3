"""The commands and a broker, each a process, as a user has them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pika
import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.helpers.live_broker import LiveBroker


@pytest.fixture
def live(broker: BrokerProcess) -> LiveBroker:
    if not isinstance(broker, LiveBroker):
        pytest.skip("PENSTOCK_TEST_URL names another broker; these commands are for Penstock")
    return broker


def penstock(live: LiveBroker, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        env=live.environment() | {"PENSTOCK_HTTP_URL": live.http_url},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_queues_after_a_publish(live: LiveBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(live.url))
    channel = connection.channel()
    channel.queue_declare("seen by the command")
    channel.confirm_delivery()
    channel.basic_publish("", "seen by the command", b"x" * 100)

    shown = penstock(live, "queues", "--vhost", "/")
    assert shown.returncode == 0, shown.stderr
    line = next(line for line in shown.stdout.splitlines() if "seen by the command" in line)
    assert re.split(r" {2,}", line)[2:6] == ["no", "1", "0", "0"]

    (row,) = json.loads(penstock(live, "queues", "-o", "json").stdout)
    assert (row["name"], row["messages"]) == ("seen by the command", 1)
    (client,) = json.loads(penstock(live, "connections", "-o", "json").stdout)
    assert client["client_properties"]["product"].startswith("Pika")
    connection.close()

    assert "amq.topic" in penstock(live, "exchanges").stdout
    assert re.search(r"^queues +1$", penstock(live, "overview").stdout, re.MULTILINE)
    assert penstock(live, "ping").stdout.startswith("alive")


def test_where_a_queue_and_the_node_keep_messages(live: LiveBroker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(live.url))
    channel = connection.channel()
    channel.queue_declare("shown", durable=True, arguments={"x-queue-mode": "lazy"})
    channel.confirm_delivery()
    for _ in range(300):
        channel.basic_publish("", "shown", b"x" * 1000, pika.BasicProperties(delivery_mode=2))
    text = penstock(live, "queue", "show", "shown").stdout
    assert re.search(r"^delta +300 +3\d{5} +\d+  on disk, numbers 0 to 299", text, re.MULTILINE)
    assert re.search(r"^0\.idx +\d+ ", text, re.MULTILINE)
    assert re.search(r"^\d+\.jif +\d+  being written$", text, re.MULTILINE)
    said = json.loads(penstock(live, "queue", "show", "shown", "-o", "json").stdout)
    assert said["queue"]["penstock"]["messages"] == 300
    assert said["storage"]["journal"]["bytes"] > 300_000
    assert penstock(live, "queue", "show", "not there").returncode == 1
    status = penstock(live, "status").stdout
    assert re.search(r"^disk +ok$", status, re.MULTILINE)
    assert re.search(r"^publishers +allowed$", status, re.MULTILINE)
    channel.queue_delete("shown")
    connection.close()


def test_a_wrong_password_is_said(live: LiveBroker) -> None:
    refused = penstock(live, "queues", "--password", "wrong")
    assert refused.returncode == 1
    assert "Login failed" in refused.stderr
    assert "fix: give --user and --password" in refused.stderr


def test_the_start_screen_tells_what_is_needed(live: LiveBroker) -> None:
    lines = live.output().splitlines()
    screen = lines[: next(i for i, line in enumerate(lines) if line.startswith("ready in ")) + 1]
    text = "\n".join(screen)
    assert f"amqp://127.0.0.1:{live.amqp_port}" in text
    assert f"{live.http_url}/" in text
    assert f"{live.data_dir} (flag)" in text
    assert f"pid {live.pid}," in text
    assert "guest / guest, from this machine only" in text


def test_a_start_and_a_stop_say_what_is_so(tmp_path: Path) -> None:
    """No recovery of nothing (B35), no credentials that do not hold (B33), a last word (B63)."""
    ann = {"RABBITMQ_DEFAULT_USER": "ann", "RABBITMQ_DEFAULT_PASS": "secret"}
    with LiveBroker(tmp_path, environment=ann) as first:
        assert "log in as   ann / (the password you set)" in first.output()
        assert "only the journal" not in first.output()
        said = penstock(first, "status", "--user", "ann", "--password", "secret").stdout
        assert re.search(r"^last start +in a new data directory$", said, re.MULTILINE)
    assert first.output().endswith(" stopped\n")
    with LiveBroker(tmp_path) as second:
        assert "log in as   a user of the data directory" in second.output()
        assert "guest / guest" not in second.output()


def test_a_second_broker_on_the_same_data_or_port_is_refused(
    live: LiveBroker, tmp_path: Path
) -> None:
    ports = ["--amqp-port", "0", "--http-port", "0", "--nsq-port", "0"]
    locked = penstock(live, "serve", "--data-dir", str(live.data_dir), *ports)
    assert locked.returncode == 1
    assert f"in use by process {live.pid}" in locked.stderr
    for flag, port in (("--amqp-port", live.amqp_port), ("--http-port", live.http_port)):
        directory = str(tmp_path / flag)
        taken = penstock(live, "serve", "--data-dir", directory, *ports, flag, str(port))
        assert taken.returncode == 1
        assert str(port) in taken.stderr
        assert f"fix: stop the other listener or give {flag}" in taken.stderr
        assert "Traceback" not in taken.stderr
    taken = penstock(
        live,
        "serve",
        "--data-dir",
        str(tmp_path / "nsq"),
        *ports,
        "--nsq-port",
        str(live.amqp_port),
    )
    assert "fix: stop the other listener or give --nsq-port (0: off)" in taken.stderr
    (tmp_path / "file").touch()
    file = penstock(live, "serve", "--data-dir", str(tmp_path / "file"), *ports)
    assert "fix: give --data-dir a directory" in file.stderr
    assert penstock(live, "ping").returncode == 0
