"""``penstock publish`` and ``penstock get``: single messages by hand, through the management API.

For trying things out and for repair; who moves many messages uses an AMQP client.
"""

import base64
import json
import sys
from collections.abc import Mapping
from typing import Any, Final

import click

from penstock.cli.entities import DEFAULT_EXCHANGE, VHOST, arguments_of
from penstock.cli.failure import Failure
from penstock.cli.management import NAME, Management, command
from penstock.cli.options import option
from penstock.cli.storage import many
from penstock.cli.tables import say
from penstock.client.management import path_of

PERSISTENT: Final = 2


@command(
    "\b\nExamples:\n  penstock publish --key orders 'hello'\n"
    "  penstock publish - --exchange orders --key order.new --header shop=7 < order.json",
    click.argument("body"),
    click.option("--exchange", default="", help="Without it the key names a queue."),
    click.option("--key", default="", help="Routing key."),
    VHOST,
    option("--persistent", "To disk, in durable queues.", is_flag=True),
    option("--property properties", "Repeatable.", multiple=True, metavar="NAME=VALUE"),
    option("--header headers", "Repeatable.", multiple=True, metavar="NAME=VALUE"),
)
def publish(
    body: str,
    exchange: str,
    key: str,
    vhost: str,
    persistent: bool,
    properties: tuple[str, ...],
    headers: tuple[str, ...],
    management: Management,
    output: str,
) -> None:
    """Publish one message; BODY is its text, or - for what is on standard input.

    A message that no queue gets is an error.
    """
    carried = sys.stdin.buffer.read() if body == "-" else body.encode()
    wanted = {
        "routing_key": key,
        "properties": _properties(properties, headers, persistent),
        **_payload(carried),
    }
    path = path_of("exchanges", vhost, exchange or DEFAULT_EXCHANGE, "publish")
    answer = management.post(path, wanted)
    if not answer["routed"]:
        raise Failure(
            "no queue got the message", "`penstock bindings` lists what goes where; see --key"
        )
    say({"exchange": exchange, "routing_key": key, "routed": True}, output, "")


def _payload(body: bytes) -> dict[str, str]:
    try:
        return {"payload": body.decode(), "payload_encoding": "string"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(body).decode(), "payload_encoding": "base64"}


def _properties(
    pairs: tuple[str, ...], headers: tuple[str, ...], persistent: bool
) -> dict[str, object]:
    found = arguments_of(pairs)
    if headers:
        found["headers"] = arguments_of(headers)
    if persistent:
        found["delivery_mode"] = PERSISTENT
    return found


@command(
    "\b\nExamples:\n  penstock get orders --count 5\n  penstock get orders --take\n\n"
    "`penstock queue peek` looks without changing anything.",
    NAME,
    click.option("--count", type=click.IntRange(1, 10_000), default=1, show_default=True),
    option("--take", "Keep them: they leave the queue.", is_flag=True),
    VHOST,
)
def get(name: str, count: int, take: bool, vhost: str, management: Management, output: str) -> None:
    """Get messages of a queue as a consumer would; they go back unless --take is given.

    What goes back is marked as redelivered.
    """
    mode = "ack_requeue_false" if take else "ack_requeue_true"
    wanted = {"count": count, "ackmode": mode, "encoding": "auto"}
    found = management.post(path_of("queues", vhost, name, "get"), wanted)
    text = "\n".join([*(_lines(message) for message in found), many(len(found), "message")])
    say(found, output, text)


def _lines(message: Mapping[str, Any]) -> str:
    where = f"{message['exchange'] or '(default)'} {message['routing_key']!r}"
    again = " redelivered" if message["redelivered"] else ""
    lines = [f"{where}  {many(message['payload_bytes'], 'byte')}{again}"]
    if message["properties"]:
        lines.append("    " + json.dumps(message["properties"]))
    lines.append("    " + json.dumps(message["payload"], ensure_ascii=False))
    return "\n".join(lines)
