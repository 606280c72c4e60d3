"""Small looks at a broker: totals, whether it lives, what needs a person, who waits for whom."""

import json
import platform
import time
from collections.abc import Mapping
from typing import Any, Final

import click

from penstock import __version__
from penstock.cli.management import Management, command
from penstock.cli.tables import table
from penstock.core.printable import printable

FLOW: Final = "/api/penstock/flow"
ATTENTION: Final = "/api/penstock/attention"
WAITS_SHOWN: Final = 10


@command("overview -o json")
def overview(management: Management) -> None:
    """Show a broker's totals: messages, objects, traffic since it started."""
    found = management.get("/api/overview")
    if management.as_json:
        management.say(found)
        return
    rows: list[tuple[str, object]] = [
        ("node", found.get("node")),
        ("version", f"{found.get('product_name')} {found.get('product_version')}"),
    ]
    for group in ("queue_totals", "object_totals", "message_stats"):
        for name, value in sorted(found.get(group, {}).items()):
            if isinstance(value, int):
                rows.append((name, value))
    click.echo(table(("what", "value"), rows))


@command("ping && echo alive")
def ping(management: Management) -> None:
    """Ask a broker whether it is alive: its data loop answers. Exit code 69 if not."""
    begun = time.perf_counter()
    management.get("/healthz/live")
    took_ms = (time.perf_counter() - begun) * 1000
    if management.as_json:
        click.echo(json.dumps({"status": "ok", "took_ms": round(took_ms, 2)}))
    else:
        click.echo(f"alive, answered in {took_ms:.1f} ms")


@click.command(epilog="\b\nExample:\n  penstock version")
def version() -> None:
    """Say which build this is: version, Python, and whether the hot path is compiled."""
    from penstock.core import message

    build = "interpreted" if str(message.__file__).endswith(".py") else "compiled"
    click.echo(
        f"penstock {__version__}, {build}, {platform.python_implementation()}"
        f" {platform.python_version()}"
    )


@command("attention -o json")
def attention(management: Management) -> None:
    """Show what needs a person: alarms, queues that grow, held publishers, and others."""
    absent = f"{management.url} does not say what needs a person"
    found = management.must_find(ATTENTION, absent, "findings are shown for Penstock only")
    management.say(found, attention_text)


def attention_text(found: Mapping[str, Any]) -> str:
    lines = [
        f"{'alarm' if one['is_alarm'] else 'warning'}: {printable(one['sentence'])}\n"
        f"  look: penstock {printable(one['command'])}"
        for one in found["findings"]
    ]
    if found["left_out"]:
        lines.append(f"and {found['left_out']:,} more of these kinds")
    if not lines and not found["not_judged"]:
        lines.append("nothing needs a person")
    lines += [f"not judged: {text}" for text in found["not_judged"]]
    return "\n".join(lines)


@command("flow -o json")
def flow(management: Management) -> None:
    """Show flow control: the chain of credit over the last ten seconds, and the bottleneck."""
    absent = f"{management.url} does not say who waits for whom"
    found = management.must_find(FLOW, absent, "credit is shown for Penstock only")
    management.say(found, flow_text)


def flow_text(found: Mapping[str, Any]) -> str:
    window = f"share of {found['window_s']} s"
    chain = [
        (stage["kind"], stage["in_flow"], _percent(stage["share"])) for stage in found["stages"]
    ]
    parts = [table(("stage", "in flow now", window), chain)]
    waits = found["waits"][:WAITS_SHOWN]
    if waits:
        rows = [
            (wait["name"], wait["waits_for"], wait["because"], _percent(wait["share"]))
            for wait in waits
        ]
        parts.append(table(("who waits", "for", "because", window), rows))
        more = len(found["waits"]) - len(waits)
        if more > 0:
            parts[-1] += f"\nand {more} more: -o json has them"
    processor = found["processor"]
    if any(processor.values()):
        shares = ", ".join(f"{name} {_percent(share)}" for name, share in processor.items())
        parts.append(f"the processor's time for messages: {shares}")
    parts.append(f"{found['sentence']}\n{found['advice']}".rstrip())
    return "\n\n".join(parts)


def _percent(share: float | None) -> str:
    """None: of a publisher that an alarm holds no share is known."""
    return "-" if share is None else f"{round(100 * share)} %"
