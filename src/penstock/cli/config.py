"""``penstock config``: is a configuration right, what is in force, what does a key mean.

Reads the same sources as ``penstock serve`` and starts nothing.  Passwords are never shown.
"""

import difflib
import json
import os
from typing import IO, Final

import click

from penstock.cli.config_files import settings_from
from penstock.cli.failure import FAILED, Failure
from penstock.cli.options import option
from penstock.cli.tables import table
from penstock.core.json_reading import json_of
from penstock.secrets.hardened_definitions import definition_shortcomings
from penstock.secrets.hardening import Shortcoming, shortcomings
from penstock.secrets.modes import open_to_others
from penstock.settings.kinds import Setting
from penstock.settings.listener_table import etcd_risks, open_listeners, plain_text_risks
from penstock.settings.rabbitmq_conf import row_of
from penstock.settings.rabbitmq_keys import FIXED, GATHERED, IGNORED, OBEYED
from penstock.settings.rabbitmq_variables import IGNORED as IGNORED_VARIABLES
from penstock.settings.rabbitmq_variables import SIMPLE
from penstock.settings.settings import DECLARED, SECRETS, Settings

_BY_VARIABLE: Final = {
    **SIMPLE,
    **{setting.environment_name: setting.key for setting in DECLARED.values()},
}


@click.group(epilog="\b\nExample:\n  penstock config show --effective")
def config() -> None:
    """Check, show and explain settings."""


_FILE = option("--config file", "TOML file, or one named *.conf.", metavar="FILE")
_OUTPUT = click.option(
    "-o", "output", type=click.Choice(["table", "json"]), default="table", show_default=True
)


@config.command(
    short_help="Check the configuration.",
    epilog="\b\nExamples:\n  penstock config check --config rabbitmq.conf\n"
    "  penstock definitions export | penstock config check --hardened --definitions -",
)
@_FILE
@option("--hardened", "Name what falls short of docs/guide/hardening.md, too.", is_flag=True)
@option(
    "--definitions",
    "With --hardened: exported definitions, of which the same is said; - is standard input.",
    click.File("rb"),
)
def check(file: str | None, hardened: bool, definitions: IO[bytes] | None) -> None:
    """Check all sources; exit code 2 and a line for the first fault found.

    A line of rabbitmq.conf that has no effect here is a warning.  What the node would listen on is
    listed, with what clients may do there without a log-in.  With --hardened the exit code is 1
    when anything falls short.
    """
    if definitions is not None and not hardened:
        raise click.UsageError("--definitions is for --hardened")
    settings = settings_from(file, os.environ, {})
    risks = [*etcd_risks(settings), *plain_text_risks(settings)]
    for text in [*warnings_of(settings), *risks]:
        click.echo(f"warning: {text}", err=True)
    said = len(_chosen(settings))
    click.echo(f"ok: {said} of {len(DECLARED)} settings are given, the others have their defaults")
    rows = [
        (one.place(settings), one.title, one.without_log_in(settings).replace("`", ""))
        for one in open_listeners(settings)
    ]
    click.echo(table(("listens on", "for", "without a log-in"), rows))
    if not hardened:
        return
    found = shortcomings(settings)
    if definitions is not None:
        found += _of_definitions(definitions)
    for name, what, cure in found:
        click.echo(f"{name}: {what}\n  cure: {cure}")
    if found:
        raise SystemExit(FAILED)
    click.echo("hardened: nothing falls short")


def _of_definitions(file: IO[bytes]) -> list[Shortcoming]:
    try:
        return definition_shortcomings(json_of(file.read()))
    except ValueError as error:
        raise Failure(f"{file.name}: {error}", "penstock definitions export writes them") from None


@config.command(
    short_help="Show the settings.", epilog="\b\nExample:\n  penstock config show --effective"
)
@_FILE
@option("--effective", "All settings, those with their defaults too.", is_flag=True)
@_OUTPUT
def show(file: str | None, effective: bool, output: str) -> None:
    """Show the settings that were given, and where each was."""
    settings = settings_from(file, os.environ, {})
    rows = [
        (key, _shown(settings, key), settings.source_of(key))
        for key in (DECLARED if effective else _chosen(settings))
    ]
    if output == "json":
        named = [{"key": key, "value": value, "source": source} for key, value, source in rows]
        click.echo(json.dumps(named, indent=2))
    else:
        click.echo(table(("setting", "value", "from"), rows))


@config.command(
    short_help="Say what a key means.",
    epilog="\b\nExample:\n  penstock config explain vm_memory_high_watermark.relative",
)
@click.argument("key")
def explain(key: str) -> None:
    """Say what a setting means, a key of rabbitmq.conf, or a variable of either."""
    key = _BY_VARIABLE.get(key, key)
    if key in IGNORED_VARIABLES:
        click.echo(f"{key} has no effect here: {IGNORED_VARIABLES[key]}.")
        return
    if key in DECLARED:
        click.echo(_about(DECLARED[key]))
        return
    row = row_of(key)
    if row in OBEYED:
        ours, kind = OBEYED[row]
        click.echo(f"{row} of rabbitmq.conf ({kind.allowed}) sets {ours}:\n")
        click.echo(_about(DECLARED[ours]))
    elif row in GATHERED:
        click.echo(f"{row} of rabbitmq.conf sets {GATHERED[row]}.")
    elif row in FIXED:
        click.echo(f"{row} of rabbitmq.conf may only be {FIXED[row][0]}: {FIXED[row][1]}.")
    elif row:
        click.echo(f"{row} of rabbitmq.conf has no effect here: {IGNORED[row]}.")
    else:
        near = difflib.get_close_matches(key, [*DECLARED, *OBEYED], n=1, cutoff=0.5)
        fix = f"did you mean {near[0]!r}?" if near else "`penstock config show --effective`"
        raise Failure(f"there is no setting {key!r}", fix)


def warnings_of(settings: Settings) -> list[str]:
    foreign = [
        f"{name} is not a setting of penstock; ignored" for name in settings.ignored_environment
    ]
    return [*foreign, *settings.warnings, *open_to_others(settings)]


def _chosen(settings: Settings) -> list[str]:
    return [key for key in DECLARED if settings.source_of(key) != "default"]


def _shown(settings: Settings, key: str) -> str:
    if key in SECRETS:
        return "(hidden)"
    return text_of(settings.value_of(key))


def text_of(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _about(setting: Setting) -> str:
    rabbit = [key for key, (ours, _) in OBEYED.items() if ours == setting.key]
    rabbit += [key for key, ours in GATHERED.items() if setting.key in ours.split(", ")]
    variables = [name for name, ours in SIMPLE.items() if ours == setting.key]
    lines = [
        f"{setting.key}: {setting.doc.replace('`', '')}",
        f"  allowed   {setting.allowed()}",
        f"  default   {text_of(setting.default) or '(empty)'}",
        f"  variable  {setting.environment_name}",
        f"  flag      {setting.flag}",
    ]
    if rabbit:
        lines.append(f"  rabbitmq.conf  {', '.join(rabbit)}")
    if variables:
        lines.append(f"  RabbitMQ's variable  {', '.join(variables)}")
    return "\n".join(lines)
