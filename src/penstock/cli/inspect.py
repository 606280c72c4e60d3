"""Small looks at a broker: its totals, whether it lives, and which build this is."""

import json
import platform
import time

import click

from penstock import __version__
from penstock.cli.management import Management, command
from penstock.cli.tables import say, table


@command("overview -o json")
def overview(management: Management, output: str) -> None:
    """Show a broker's totals: messages, objects, traffic since it started."""
    found = management.get("/api/overview")
    if output == "json":
        say(found, output, "")
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
def ping(management: Management, output: str) -> None:
    """Ask a broker whether it is alive: its data loop answers. Exit code 69 if not."""
    begun = time.perf_counter()
    management.get("/healthz/live")
    took_ms = (time.perf_counter() - begun) * 1000
    if output == "json":
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
