"""What both conversations need: the steps, a client that declares and leaves, blanks filled in."""

from __future__ import annotations

import re
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pika
import pika.exceptions

from tests.ctl.conversation import SCENES

MARKS = "~=!"
PROGRAMS = {"diagnostics": "rabbitmq-diagnostics", "upgrade": "rabbitmq-upgrade"}
WAIT_S = 10.0


class Step(NamedTuple):
    """A line of the conversation."""

    line: str
    mark: str
    program: str
    words: list[str]
    deed: str
    """What a client does, "" for a command line."""


def steps_of(scene: str) -> list[Step]:
    return [_step(line) for line in SCENES[scene].splitlines() if line.strip()]


def _step(line: str) -> Step:
    if line.startswith("@ "):
        return Step(line, "", "", [], line[2:])
    mark = line[0] if line[0] in MARKS else ""
    line = line.removeprefix(mark).strip()
    words = shlex.split(line)
    program = PROGRAMS.get(words[0], "rabbitmqctl")
    if program != "rabbitmqctl":
        words = words[1:]
    return Step(line, mark, program, words, "")


class Stage:
    """One broker's side: a client, files, and what stands for what differs between nodes."""

    def __init__(self, url: str, amqp_port: int, node: str, directory: Path) -> None:
        self._url = url
        self._blanks = {
            "@AMQP@": str(amqp_port),
            "@FILE@": str(directory / "exported.json"),
            "@BAD@": str(directory / "bad.json"),
            "@DIR@": str(directory),
        }
        self._node = node
        self._client: pika.BlockingConnection | None = None
        (directory / "bad.json").write_text("[1,")

    def filled_in(self, words: list[str]) -> list[str]:
        for blank, value in self._blanks.items():
            words = [word.replace(blank, value) for word in words]
        return words

    def emptied(self, text: str) -> str:
        """What was said, with blanks again where this node has its own."""
        text = text.replace(self._node, "@NODE@")
        for blank, value in self._blanks.items():
            if blank != "@AMQP@":
                text = text.replace(value, blank)
        return re.sub(rf"\b{self._blanks['@AMQP@']}\b", "@AMQP@", text)

    def do(self, deed: str) -> None:
        {
            "declare": self._declare,
            "gone": self._gone,
            "alarm": lambda: time.sleep(0.3),
            "no alarm": lambda: time.sleep(0.3),
        }[deed]()

    def _declare(self) -> None:
        """Things of every kind."""
        self.leave()
        client = pika.BlockingConnection(pika.URLParameters(self._url))
        channel = client.channel()
        channel.queue_declare("plain", durable=True)
        arguments = {"x-max-length": 10, "x-dead-letter-exchange": "amq.fanout"}
        channel.queue_declare("full", durable=True, arguments=arguments)
        channel.queue_declare("used", auto_delete=True)
        channel.queue_declare("mine", exclusive=True)
        channel.queue_declare("tab\tand space", durable=True)
        channel.exchange_declare("orders", "topic", durable=True)
        channel.exchange_declare(
            "inner", "fanout", internal=True, arguments={"alternate-exchange": "amq.direct"}
        )
        channel.queue_bind("plain", "orders", "order.*")
        channel.queue_bind("full", "amq.headers", "", {"x-match": "all", "n": 1, "s": "text"})
        channel.exchange_bind("amq.topic", "orders", "#.audit")
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "full", b"12345", pika.BasicProperties(delivery_mode=2))
        channel.basic_publish("", "plain", b"x" * 10)
        channel.basic_qos(prefetch_count=20)
        channel.basic_consume(
            "used", lambda *_: None, consumer_tag="the-tag", arguments={"x-priority": 3}
        )
        channel.basic_consume("mine", lambda *_: None, consumer_tag="other", auto_ack=True)
        other = client.channel()
        other.tx_select()
        self._client = client

    def _gone(self) -> None:
        """The client hears that its connection was closed."""
        client = self._client
        assert client is not None
        until = time.monotonic() + WAIT_S
        with suppress(pika.exceptions.AMQPError):
            while time.monotonic() < until:
                client.process_data_events(0.1)
        assert client.is_closed, "nobody closed it"
        self._client = None

    def leave(self) -> None:
        if self._client is not None and self._client.is_open:
            self._client.close()
        self._client = None
