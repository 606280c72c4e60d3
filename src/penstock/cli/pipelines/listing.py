"""``penstock pipeline list``: what pipelines have told the broker of themselves.

An outside user of the management API, like the commands of inspect.py: no Spark is needed.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

import click

from penstock.cli.management import Management, command
from penstock.cli.tables import table

PATH: Final = "/api/penstock/pipelines"
COLUMNS: Final = ("name", "kind", "state", "queues", "batch", "rows", "rows/s", "lag", "to drain")


@command("pipeline list -o json", name="list")
def listing(management: Management) -> None:
    """Pipelines that report to a broker: batches, rates, lag, and when they will be through.

    Those of the virtual hosts the user may enter; a pipeline that ended is shown for an hour.
    """
    absent = f"{management.url} does not list pipelines"
    found = management.must_find(PATH, absent, "pipelines report to Penstock only")
    if management.as_json:
        management.say(found)
    elif not found:
        click.echo("no pipeline reports to this broker")
    else:
        click.echo(table(COLUMNS, [_line(row) for row in found]))
        for row in found:
            if row["error"]:
                click.echo(f"\n{first_line(row['name'])}: {first_line(row['error'])}")


def _line(row: Mapping[str, Any]) -> tuple[object, ...]:
    state = row["state"]
    if state == "silent":
        state = f"silent for {_span(time.time() - row['reported_ms'] / 1000)}"
    return (
        row["name"],
        row["kind"],
        state,
        ", ".join(row["queues"]),
        _or_dash(row["batch"]),
        row["rows"],
        _or_dash(row["rows_per_s"]),
        _or_dash(row["lag"]),
        _drain(row),
    )


def _drain(row: Mapping[str, Any]) -> str:
    if row["state"] in ("done", "failed") or row["rows_per_s"] is None:
        return "-"
    if row["to_drain_s"] is None:
        return "never"  # more comes in than goes out
    return _span(row["to_drain_s"])


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{round(seconds / size)} {unit}"
    return f"{round(seconds)} s"


def _or_dash(value: object) -> object:
    return "-" if value is None else value


def first_line(text: str) -> str:
    """Of what Spark says, which goes on for pages; no control characters."""
    line = text.strip().partition("\n")[0][:300]
    return "".join(character if character.isprintable() else " " for character in line)
