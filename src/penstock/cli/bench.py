"""``penstock bench``: drive any AMQP 0-9-1 broker and measure it.

Options become a ``LoadPlan``; the work is done in ``penstock.client.run``.  This file
only reads options, prints, and writes JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

import click

from penstock.cli.failure import BrokerUnavailable, Failure
from penstock.cli.options import address_option
from penstock.client.endpoint import ClientError, ConnectionLost
from penstock.client.plan import (
    VARIED_EXCHANGE,
    VARIED_KEYS,
    VARIED_SIZES_BYTES,
    LoadPlan,
    PlanInvalid,
)
from penstock.client.procstat import ProcessGone

DEFAULT_SIZE_BYTES = 1024
DEFAULT_DURATION_S = 10.0

EPILOG = """\b
Examples:
  penstock bench --size 16 --duration 10
  penstock bench --prefetch 1000 --ack-every 100 --pid $(pidof -s beam.smp)
  penstock bench --persistent --durable --confirm 1000 --consumers 0 --count 200000
  penstock bench --rate 5000 --duration 30 --json result.json
  penstock bench --varied --in-flight 2000 --duration 10
  penstock bench --self-test

Flat out, latency only tells how full the buffers were: measure it with --rate.
The queues are left as they are unless --cleanup is given.
"""


@click.command(epilog=EPILOG)
@address_option(
    "--uri",
    "The broker: amqp://user:password@host:port/vhost.",
    default="amqp://guest:guest@127.0.0.1:5672/",
    show_default=True,
)
@click.option("--publishers", default=1, show_default=True, help="Processes that publish.")
@click.option("--consumers", default=1, show_default=True, help="Processes that consume.")
@click.option("--queue", default="penstock.bench", show_default=True, help="The queue's name.")
@click.option("--queues", default=1, show_default=True, help="How many: NAME-1, NAME-2, …")
@click.option("--exchange", default="", help="Publish here instead of to the default exchange.")
@click.option("--exchange-type", default="", help="Declare it: direct, fanout or topic.")
@click.option("--routing-key", default="", help="%d in it counts over --keys.")
@click.option("--keys", default=1, show_default=True, help="How many routing keys in turn.")
@click.option(
    "--binding",
    "--bindings",
    "bindings",
    multiple=True,
    help="Binding key, repeatable; with %d one for each key, dealt out to the queues. "
    "Without it the routing keys are bound.",
)
@click.option("--size", type=int, help=f"Body bytes.  [default: {DEFAULT_SIZE_BYTES}]")
@click.option("--size-range", metavar="MIN:MAX", help="Body bytes vary, small ones more often.")
@click.option(
    "--varied",
    is_flag=True,
    help="Every message differs from the one before: size (16:65536 unless given), routing "
    "key, headers and priority.  Makes a topic exchange unless --exchange is given.",
)
@click.option(
    "--stamp/--no-stamp",
    default=True,
    show_default=True,
    help="Bodies begin with time and number: gives latency and the check of order.",
)
@click.option("--rate", default=0, help="Messages per second of all publishers; 0 = flat out.")
@click.option("--confirm", default=0, metavar="WINDOW", help="Publisher confirms, so many open.")
@click.option(
    "--in-flight",
    default=0,
    metavar="N",
    help="Publishers wait while so many messages are published and not yet consumed, so that "
    "queues stay short.  0 = no limit.",
)
@click.option("--prefetch", default=0, help="Unacknowledged messages per consumer and queue.")
@click.option("--ack-every", default=0, help="Acknowledge each N-th; 1 = each; 0 = auto-ack.")
@click.option("--persistent", is_flag=True, help="Delivery mode 2.")
@click.option("--durable", is_flag=True, help="Durable queues and exchange.")
@click.option("--queue-arg", "queue_args", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
@click.option("--duration", type=float, help="Seconds measured.  [default: 10 without --count]")
@click.option("--count", default=0, help="Messages in all; the run ends when they are consumed.")
@click.option("--warmup", default=0.0, help="Seconds before measuring begins.")
@click.option("--deadline", default=0.0, help="Seconds after which the run is broken off.")
@click.option("--cleanup", is_flag=True, help="Delete queues and exchange afterwards.")
@click.option("--pid", default=0, help="Local broker process: CPU and memory are measured.")
@click.option("--tree", is_flag=True, help="With --pid: its child processes count as well.")
@click.option("--json", "json_path", metavar="FILE", help="Write the result there; - = output.")
@click.option("--self-test", is_flag=True, help="Measure the generator itself, without a broker.")
def bench(**options: Any) -> None:
    """Drive any AMQP 0-9-1 broker and measure it."""
    if options["self_test"]:
        self_test(options["json_path"])
        return
    if options["tree"] and not options["pid"]:
        raise click.UsageError("--tree needs --pid")
    try:
        plan = plan_from(options).check()
    except PlanInvalid as error:
        raise click.UsageError(str(error)) from None
    result = carry_out(plan, options["pid"], options["tree"])
    show(result, options["json_path"])
    if result["deadline_passed"]:
        raise Failure("the deadline broke the run off", "raise --deadline, or ask for less")


def plan_from(options: dict[str, Any]) -> LoadPlan:
    smallest, largest = sizes(options["size"], options["size_range"], options["varied"])
    fields = {
        name: options[name]
        for name in LoadPlan.__dataclass_fields__
        if name in options and name != "bindings"
    }
    fields |= {
        "bindings": tuple(options["bindings"]),
        "size_min_bytes": smallest,
        "size_max_bytes": largest,
        "stamped": options["stamp"],
        "queue_arguments": queue_arguments(options["queue_args"]),
        "duration_s": duration_s(options["duration"], options["count"]),
        "warmup_s": options["warmup"],
        "deadline_s": options["deadline"],
    }
    if options["varied"] and not options["exchange"]:
        fields |= varied_routing(options)
    return LoadPlan(**fields)


def varied_routing(options: dict[str, Any]) -> dict[str, Any]:
    """--varied alone needs keys that differ and a queue that gets them all."""
    for name in ("exchange_type", "routing_key", "bindings"):
        if options[name]:
            option = "--" + name.rstrip("s").replace("_", "-")
            raise PlanInvalid(f"{option} with --varied needs --exchange as well")
    return {
        "exchange": VARIED_EXCHANGE,
        "exchange_type": "topic",
        "routing_key": "bench.%d",
        "keys": options["keys"] if options["keys"] > 1 else VARIED_KEYS,
        "bindings": ("bench.#",),
    }


def sizes(size: int | None, size_range: str | None, varied: bool) -> tuple[int, int]:
    if size is not None and size_range is not None:
        raise PlanInvalid("give either --size or --size-range")
    if size is not None:
        return size, size
    if size_range is None:
        return VARIED_SIZES_BYTES if varied else (DEFAULT_SIZE_BYTES, DEFAULT_SIZE_BYTES)
    smallest, colon, largest = size_range.partition(":")
    if not (colon and smallest.isdecimal() and largest.isdecimal()):
        raise PlanInvalid(f"--size-range {size_range!r}: wanted two numbers like 16:65536")
    return int(smallest), int(largest)


def duration_s(duration: float | None, count: int) -> float:
    if duration is None:
        return 0.0 if count else DEFAULT_DURATION_S
    return duration


def queue_arguments(pairs: tuple[str, ...]) -> dict[str, object]:
    """KEY=VALUE; a whole number, true or false are what they look like, the rest is text."""
    found: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not key or not equals:
            raise PlanInvalid(f"--queue-arg {pair!r}: wanted KEY=VALUE")
        if key in found:
            raise PlanInvalid(f"--queue-arg {key} is given twice")
        found[key] = argument_value(value)
    return found


def argument_value(text: str) -> object:
    if text in {"true", "false"}:
        return text == "true"
    try:
        return int(text)
    except ValueError:
        return text


def carry_out(plan: LoadPlan, pid: int, tree: bool) -> dict[str, Any]:
    if not sys.platform.startswith("linux"):
        raise Failure("penstock bench runs on Linux only: it needs eventfd and /proc")
    from penstock.client.progress import Progress
    from penstock.client.run import LoadRun

    progress = Progress("bench")
    try:
        with LoadRun(plan, pid, tree, progress.show) as run:
            return run.run()
    except ConnectionLost as error:
        raise BrokerUnavailable(str(error), "is a broker listening at --uri?") from None
    except ProcessGone as error:
        raise Failure(str(error), "give the --pid of a running broker") from None
    except ClientError as error:
        raise Failure(str(error)) from None
    finally:
        progress.end()


def show(result: dict[str, Any], json_path: str | None) -> None:
    from penstock.client.report import lines

    if json_path == "-":
        click.echo(json.dumps(result, indent=2))
        return
    for line in lines(result):
        click.echo(line)
    if json_path:
        Path(json_path).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def self_test(json_path: str | None) -> None:
    from penstock.client.selftest import measure_all

    results: list[dict[str, Any]] = []
    for title, result in measure_all():
        rate = max(result["publish_rate"], result["consume_rate"])
        results.append({"case": title, "messages_per_s": rate})
        if json_path != "-":
            click.echo(f"{title:<46} {rate:>14,.0f} msg/s")
    if json_path == "-":
        click.echo(json.dumps(results, indent=2))
    elif json_path:
        Path(json_path).write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    bench()
