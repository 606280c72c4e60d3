"""The C client: amqp-publish, amqp-consume, amqp-get, amqp-declare-queue, amqp-delete-queue."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess

Tool = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def tool(broker: BrokerProcess) -> Tool:
    if shutil.which("amqp-publish") is None:
        pytest.skip("amqp-tools missing (Debian: apt-get install amqp-tools)")

    def run(
        word: str, *arguments: str, given: bytes = b"", expect: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [f"amqp-{word}", f"--url={broker.url}", *arguments],
            input=given,
            capture_output=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == expect, done.stderr.decode()
        return done

    return run


def test_declare_publish_get_delete(tool: Tool, name: str) -> None:
    assert tool("declare-queue", "-d", "-q", name).stdout == f"{name}\n".encode()
    tool("publish", "-r", name, "-p", "-C", "text/plain", "-b", "first")
    tool("publish", "-r", name, given=b"second\nwith a second line\n")
    assert tool("get", "-q", name).stdout == b"first"
    assert tool("get", "-q", name).stdout == b"second\nwith a second line\n"
    # Exit code 2: the queue is empty.
    assert tool("get", "-q", name, expect=2).stdout == b""
    assert tool("delete-queue", "-q", name).stdout == b"0\n"
    tool("delete-queue", "-q", name)


def test_each_line_becomes_a_message_and_consume_gives_them_back_in_order(
    tool: Tool, channel: BlockingChannel, name: str
) -> None:
    lines = [b"line %d" % number for number in range(200)]
    channel.queue_declare(name)
    tool("publish", "-r", name, "-l", given=b"".join(line + b"\n" for line in lines))
    given_back = tool("consume", "-q", name, "-p", "20", "-c", "200", "cat").stdout
    assert given_back == b"".join(line + b"\n" for line in lines)
    assert channel.queue_declare(name, passive=True).method.message_count == 0


def test_consume_from_an_exchange_with_a_queue_of_its_own(
    broker: BrokerProcess, tool: Tool, channel: BlockingChannel, name: str
) -> None:
    """Without -q the tool declares an exclusive queue and binds it to the exchange."""
    channel.exchange_declare(name, "topic")
    channel.confirm_delivery()
    consumer = subprocess.Popen(
        ["amqp-consume", f"--url={broker.url}", "-e", name, "-r", "a.*", "-c", "2", "cat"],
        stdout=subprocess.PIPE,
    )
    publish_once_bound(channel, name, "a.b", b"by a.b;")
    for key in ("b.b", "a.c"):
        tool("publish", "-e", name, "-r", key, "-b", f"by {key};")
    out, _ = consumer.communicate(timeout=30)
    assert out == b"by a.b;by a.c;"
    assert consumer.returncode == 0
    channel.exchange_delete(name)


def publish_once_bound(channel: BlockingChannel, exchange: str, key: str, body: bytes) -> None:
    """Mandatory, so that the broker says whether somebody has bound a queue already."""
    deadline = time.monotonic() + 10
    while True:
        try:
            channel.basic_publish(exchange, key, body, mandatory=True)
        except pika.exceptions.UnroutableError:
            assert time.monotonic() < deadline, "nobody bound a queue"
            time.sleep(0.02)
        else:
            return


def test_refusals_are_shown_with_code_and_text(tool: Tool, name: str) -> None:
    failed = tool("get", "-q", name, expect=1)
    assert f"NOT_FOUND - no queue '{name}' in vhost '/'".encode() in failed.stderr


def test_tools_read_a_large_message(tool: Tool, channel: BlockingChannel, name: str) -> None:
    body = bytes(range(256)) * 8000
    channel.queue_declare(name)
    channel.confirm_delivery()
    channel.basic_publish("", name, body)
    assert tool("get", "-q", name).stdout == body
    tool("publish", "-r", name, given=body)
    assert channel.basic_get(name, auto_ack=True)[2] == body
