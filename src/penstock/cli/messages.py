"""``penstock publish``, ``get`` and ``route``: single messages by hand, through the management API.

For trying things out and for repair; who moves many messages uses an AMQP client.
"""

import base64
import json
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlencode

import click

from penstock.cli.admin.entities import DEFAULT_EXCHANGE, VHOST, arguments_of
from penstock.cli.data.storage import many
from penstock.cli.failure import Failure
from penstock.cli.management import NAME, Management, command
from penstock.cli.options import option
from penstock.client.management import path_of
from penstock.core.printable import printable

PERSISTENT: Final = 2
LOOK_S: Final = 0.3


@command(
    "\b\nExamples:\n  penstock publish --key orders 'hello'\n"
    "  penstock publish - --exchange orders --key order.new --header shop=7 < order.json\n"
    "  penstock publish --key orders --follow 30 'hello'",
    click.argument("body"),
    click.option("--exchange", default="", help="Without it the key names a queue."),
    click.option("--key", default="", help="Routing key."),
    VHOST,
    option("--persistent", "To disk, in durable queues.", is_flag=True),
    option("--property properties", "Repeatable.", multiple=True, metavar="NAME=VALUE"),
    option("--header headers", "Repeatable.", multiple=True, metavar="NAME=VALUE"),
    option(
        "--follow follow_s",
        "Show what becomes of it, for so many seconds or until it is settled everywhere.",
        click.IntRange(1, 600),
        metavar="SECONDS",
    ),
)
def publish(
    body: str,
    exchange: str,
    key: str,
    vhost: str,
    persistent: bool,
    properties: tuple[str, ...],
    headers: tuple[str, ...],
    follow_s: int | None,
    management: Management,
) -> None:
    """Publish one message; BODY is its text, or - for what is on standard input.

    A message that no queue gets is an error.
    """
    trace = ""
    if follow_s is not None:
        trace = secrets.token_hex(16)
        management.put(path_of("penstock", "traces", trace), {})
        headers += (f"traceparent=00-{trace}-{secrets.token_hex(8)}-01",)
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
    told: dict[str, object] = {"exchange": exchange, "routing_key": key, "routed": True}
    if follow_s is None:
        management.say(told)
        return
    steps = _followed(management, path_of("penstock", "traces", trace), follow_s)
    management.say(told | {"trace": trace, **steps})


def _followed(management: Management, path: str, follow_s: int) -> dict[str, object]:
    """Says each step when it is over; what is open in the end is told, too."""
    until_s = time.monotonic() + follow_s
    shown = 0
    while True:
        found = management.get(path)
        if not management.as_json:
            for step in found["steps"][shown:]:
                click.echo(printable(_step_line(step)))
            shown = len(found["steps"])
        if not found["open"] or time.monotonic() >= until_s:
            break
        time.sleep(LOOK_S)
    if not management.as_json:
        for one in found["open"]:
            waits_ms = found["now_ms"] - one["since_ms"]
            where = "in" if one["state"] == "in_queue" else "at a consumer of"
            click.echo(printable(f"{where} queue {one['queue']!r} since {waits_ms} ms"))
    return {"steps": found["steps"], "open": found["open"]}


def _step_line(step: Mapping[str, Any]) -> str:
    took = f"{step['end_ms'] - step['start_ms']} ms"
    if step["step"] == "publish":
        return f"published in {took}, to {step['queue_count']} queues"
    if step["step"] == "queue":
        return f"waited {took} in queue {step['name']!r}"
    return f"{step['outcome']} after {took} at a consumer of queue {step['name']!r}"


def _payload(body: bytes) -> dict[str, str]:
    try:
        return {"payload": body.decode(), "payload_encoding": "string"}
    except UnicodeDecodeError:
        return {"payload": base64.b64encode(body).decode(), "payload_encoding": "base64"}


@command(
    "route orders order.new --header shop=7",
    click.argument("exchange"),
    click.argument("key", default=""),
    VHOST,
    option("--header headers", "Repeatable.", multiple=True, metavar="NAME=VALUE"),
)
def route(
    exchange: str, key: str, vhost: str, headers: tuple[str, ...], management: Management
) -> None:
    """Show the way of a message without publishing it: bindings, queues, what holds it up."""
    path = path_of("penstock", "route", vhost, exchange or DEFAULT_EXCHANGE)
    query = {"routing_key": key, "headers": json.dumps(arguments_of(headers))}
    found = management.get(f"{path}?{urlencode(query)}")
    management.say(found, "" if management.as_json else "\n".join(_way_lines(found)))


def _way_lines(found: Mapping[str, Any]) -> Iterator[str]:
    for hop in found["hops"]:
        bindings = ", ".join(
            f"{one['routing_key']!r} {one['arguments'] or ''}".strip() for one in hop["bindings"]
        )
        source = f"exchange {hop['source']!r}" if hop["source"] else "the default exchange"
        target = f"{hop['destination_type']} {hop['destination']!r}"
        to = "where its messages wait" if hop["by"] == "delay" else target
        yield printable(f"{source} to {to} by {hop['by']} {bindings}".rstrip())
    for queue in found["reached"]:
        policies = [queue[kind] for kind in ("policy", "operator_policy") if queue[kind]]
        yield printable(
            f"queue {queue['name']!r}" + (f", policy {', '.join(policies)}" * bool(policies))
        )
        for text in queue["hold_ups"]:
            yield printable(f"  {text}")
        if queue["dead_letter_exchange"] is not None:
            yield printable(
                f"  When it dies it goes to the exchange {queue['dead_letter_exchange']!r}."
            )
    if not found["reached"]:
        yield "no queue gets it"
    if found["publishers_wait"]:
        yield f"publishers wait: {found['publishers_wait']}"


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
def get(name: str, count: int, take: bool, vhost: str, management: Management) -> None:
    """Get messages of a queue as a consumer would; they go back unless --take is given.

    What goes back is marked as redelivered.
    """
    mode = "ack_requeue_false" if take else "ack_requeue_true"
    wanted = {"count": count, "ackmode": mode, "encoding": "auto"}
    found = management.post(path_of("queues", vhost, name, "get"), wanted)
    text = "\n".join([*(_lines(message) for message in found), many(len(found), "message")])
    management.say(found, text)


def _lines(message: Mapping[str, Any]) -> str:
    where = f"{message['exchange'] or '(default)'} {message['routing_key']!r}"
    again = " redelivered" if message["redelivered"] else ""
    lines = [f"{where}  {many(message['payload_bytes'], 'byte')}{again}"]
    if message["properties"]:
        lines.append("    " + json.dumps(message["properties"]))
    lines.append("    " + json.dumps(message["payload"], ensure_ascii=False))
    return "\n".join(lines)
