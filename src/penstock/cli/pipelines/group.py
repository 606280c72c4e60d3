"""The list of pipelines: a table of names, each imported on first use.

``penstock pipeline --help`` prints from the table alone; a test holds each sentence against
the command's own help.
"""

from importlib import import_module
from typing import Final, NamedTuple

import click


class Entry(NamedTuple):
    """Where a pipeline lives and the line the list shows."""

    target: str
    help: str


PIPELINES: Final[dict[str, Entry]] = {
    "archive": Entry(
        "penstock.cli.pipelines.archive:archive", "Land a queue in a table, each message once."
    ),
    "latency": Entry(
        "penstock.cli.pipelines.latency:latency", "How long messages took, per queue and window."
    ),
    "flow": Entry("penstock.cli.pipelines.flow:flow", "Show flow control over hours."),
    "list": Entry("penstock.cli.pipelines.listing:listing", "Pipelines that report to a broker."),
    "compact": Entry(
        "penstock.cli.pipelines.compact:compact", "Make few large files of a table's many."
    ),
    "replay": Entry(
        "penstock.cli.pipelines.replay:replay", "Send a table's messages to a broker again."
    ),
    "py-files": Entry(
        "penstock.cli.pipelines.py_files:py_files", "Write the archive that clusters need."
    ),
    "dlq": Entry(
        "penstock.cli.pipelines.dlq:dlq", "Look through dead letters, and send them back."
    ),
    "sql": Entry(
        "penstock.cli.pipelines.sql:sql", "Ask queues a question in SQL; they stay as they are."
    ),
    "validate": Entry(
        "penstock.cli.pipelines.validate:validate",
        "Sort messages by a schema: good ones here, bad there.",
    ),
    "prepare": Entry(
        "penstock.cli.pipelines.prepare:prepare",
        "Make Spark start nearly twice as fast on this machine.",
    ),
    "init": Entry(
        "penstock.cli.pipelines.init:init", "Write a project for Spark's Declarative Pipelines."
    ),
}


class Pipelines(click.Group):
    """Commands by name from ``PIPELINES``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(PIPELINES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = PIPELINES.get(cmd_name)
        if entry is None:
            return None
        module_name, attribute = entry.target.split(":")
        command = getattr(import_module(module_name), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Pipelines"):
            formatter.write_dl([(name, entry.help) for name, entry in PIPELINES.items()])


@click.group(
    cls=Pipelines,
    short_help="Run pipelines on Spark.",
    epilog="\b\nExample:\n  penstock pipeline archive --help",
)
def pipeline() -> None:
    """Run pipelines on Spark: queues into tables, and what is built on that."""
