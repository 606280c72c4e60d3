"""The file of ``penstock pipeline run``: TOML, a table per pipeline, keys as the command's options.

    url = "amqp://…"                    of all; default $PENSTOCK_URL
    master = "local[4]"                 of the one Spark they share

    [pipeline.orders]                   a name, for the log and the record of runs
    command = "archive"
    queue = "orders"
    to = "/var/lib/lake/orders"
    every = "30s"                       of compact and replay, too: run again each so often
    restart = "never"                   default: always, with pauses that grow to five minutes

What an option is, and which values it takes, its command declares: a key becomes ``--key=value``.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from penstock.cli.pipelines.common import SECONDS, PipelineHost
from penstock.cli.pipelines.group import Pipelines

COMMANDS: Final = ("archive", "validate", "outbox", "replay", "compact")
SHARED: Final = ("url", "master")
NOT_IN_FILES: Final = ("once", "dry-run", "output", "help")
RESTARTS: Final = ("always", "never")


@dataclass(frozen=True)
class PipelineEntry:
    name: str
    command: click.Command
    arguments: tuple[str, ...]
    shared: dict[str, str]
    repeat_s: float | None  # None = the command keeps running, or runs once
    restarts: bool

    def context(
        self, *more: str, again: bool = False, around: PipelineHost | None = None
    ) -> click.Context:
        """Its options, parsed; ``again``: it does not take a queue over a second time."""
        forcing = ("--take-over",) if again else ()
        given = [one for one in self.arguments if one not in forcing]
        words = [*given, "--output=json", *more]
        # As a default: a password in it was not on a command line, where others read it.
        return self.command.make_context(self.name, words, default_map=self.shared, obj=around)


@dataclass(frozen=True)
class PipelineFile:
    """``shared``: ``url`` and ``master``, where the file has them."""

    shared: dict[str, str]
    entries: tuple[PipelineEntry, ...]


def read_pipeline_file(path: Path) -> PipelineFile:
    """Raises UsageError, which names the table and key."""
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error
    tables = read.pop("pipeline", None)
    _refuse(path, "", read, SHARED)
    for name, value in read.items():
        if not isinstance(value, str):
            raise click.UsageError(f"{path}: {name} must be a string")
    if not isinstance(tables, dict) or not tables:
        raise click.UsageError(f"{path}: no table [pipeline.NAME]")
    shared: dict[str, str] = read
    return PipelineFile(
        shared, tuple(_entry(path, name, table, shared) for name, table in tables.items())
    )


def _entry(path: Path, name: str, table: Any, shared: dict[str, str]) -> PipelineEntry:
    place = f"[pipeline.{name}] "
    if not isinstance(table, dict):
        raise click.UsageError(f"{path}: {place}is not a table")
    kind, restart = str(table.get("command")), table.get("restart", "always")
    for key, value, words in (("command", kind, COMMANDS), ("restart", restart, RESTARTS)):
        if value not in words:
            raise click.UsageError(f"{path}: {place}{key} must be one of {', '.join(words)}")
    command = Pipelines(name="pipeline").get_command(click.Context(Pipelines()), kind)
    assert command is not None
    options = {
        option.removeprefix("--"): parameter
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    repeats = "every" in table and "every" not in options
    given = {key: value for key, value in table.items() if key not in ("command", "restart")}
    repeat = str(given.pop("every")) if repeats else None
    allowed = sorted(set(options) - {*NOT_IN_FILES, *SHARED} | {"every"})
    _refuse(path, place, given, allowed)
    try:
        entry = PipelineEntry(
            name,
            command,
            tuple(word for key, value in given.items() for word in _words(key, value)),
            shared,
            None if repeat is None else SECONDS.convert(repeat, None, None),
            restart == "always",
        )
        entry.context()
    except click.UsageError as error:
        raise click.UsageError(f"{path}: {place}{error.format_message()}") from error
    return entry


def _words(key: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}"] if value else []
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return [f"--{key}={','.join(value)}"]
    if isinstance(value, str | int | float):
        return [f"--{key}={value}"]
    raise click.UsageError(f"{key} must be a string, a number, true or a list of strings")


def _refuse(path: Path, place: str, given: dict[str, Any], allowed: Any) -> None:
    for key in given:
        if key in allowed:
            continue
        if place and key in SHARED:
            raise click.UsageError(
                f"{path}: {place}{key} belongs to the top of the file: all pipelines share a Spark"
            )
        raise click.UsageError(
            f"{path}: {place}unknown key '{key}'; there are {', '.join(allowed)}"
            + ("" if place else " and tables [pipeline.NAME]")
        )
