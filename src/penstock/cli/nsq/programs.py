"""``penstock nsqd`` and ``penstock nsqlookupd``: brokers that start as those programs do.

    nsqd's defaults  <  PENSTOCK_ variables  <  its file (--config)  <  its flags

What a flag or a key of the file means here is a row of ``settings/nsqd``.  A flag that has no
effect is a warning with the reason; one that this broker cannot honour stops the start.
"""

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from penstock import __version__
from penstock.cli.config import text_of, warnings_of
from penstock.cli.failure import WrongSetting
from penstock.cli.nsq.disk_queues import has_metadata
from penstock.cli.nsq.record import is_taken_over
from penstock.cli.serve import run_broker
from penstock.core.errors import SettingInvalid
from penstock.settings.kinds import Value
from penstock.settings.nsqd import (
    NSQ_RELEASE,
    NSQD,
    NSQD_DEFAULTS,
    NSQLOOKUPD,
    NSQLOOKUPD_DEFAULTS,
    Flag,
    parse,
    read_file,
    translate,
)
from penstock.settings.settings import Settings, load_settings


class Program(NamedTuple):
    name: str
    table: tuple[Flag, ...]
    defaults: Mapping[str, Value]


Place = tuple[str, str]
"""A data directory, and why it is that one."""
HERE: Final[Place] = (".", "default")

PROGRAMS: Final = (
    Program("nsqd", NSQD, NSQD_DEFAULTS),
    Program("nsqlookupd", NSQLOOKUPD, NSQLOOKUPD_DEFAULTS),
)


def _toml(values: Mapping[str, Value]) -> str:
    """Texts, numbers and booleans are spelled as in JSON."""
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


def _usual(
    program: Program, environment: Mapping[str, str], flags: Mapping[str, str], file: str = ""
) -> Settings:
    """The program's own defaults under these sources; ``file``: of whose keys flags were made."""
    return load_settings(_toml(program.defaults), environment, flags, file)


class GoCommand(click.Command):
    """Its help lists the flags of a table; its words are read as Go reads them."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        program = next(one for one in PROGRAMS if one.name == self.name)
        usual = _usual(program, {}, {}).with_data_dir(".", "default")
        self.params = [
            click.Option(
                [f"--{flag.name}"],
                help=flag.help + _default(flag, usual),
                is_flag=flag.is_switch,
            )
            for flag in program.table
        ]
        self.params += [
            click.Option(["--config"], metavar="FILE", help="TOML file with the same settings."),
            click.Option(["--version"], is_flag=True, help="Print the release and exit."),
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["words"] = tuple(args)
        return []


def _default(flag: Flag, usual: Settings) -> str:
    """Of each setting that it sets, but for empty ones at the end."""
    values = [text_of(getattr(usual, key)) for key in flag.sets]
    while values and not values[-1]:
        del values[-1]
    return f" [default: {', '.join(values)}]" if values else ""


@click.command(
    cls=GoCommand,
    name="nsqd",
    epilog="\b\nExample:\n  penstock nsqd --data-path=data --lookupd-tcp-address=127.0.0.1:4160",
)
@click.pass_context
def nsqd(ctx: click.Context, words: Sequence[str]) -> None:
    """Run a broker in nsqd's place: with its flags, its files and its ports.

    Flags may have one dash or two. Clients of other machines are let in without a log-in, as by
    nsqd, as the user nsq; AMQP is closed. Variables (PENSTOCK_ and a setting in capitals) say
    otherwise, and set what nsqd has no flag for.
    """
    settings = _settings(ctx, PROGRAMS[0], words)
    _refuse_unread_messages(settings.data_dir)
    _warn(settings)
    ctx.exit(run_broker(settings, lambda: _settings(ctx, PROGRAMS[0], words)))


@click.command(
    cls=GoCommand,
    name="nsqlookupd",
    epilog="\b\nExample:\n  penstock nsqlookupd --http-address=127.0.0.1:4161",
)
@click.pass_context
def nsqlookupd(ctx: click.Context, words: Sequence[str]) -> None:
    """Run a broker that is only an nsqlookupd: with its flags, its files and its ports.

    It keeps nothing: its data directory is a temporary one unless PENSTOCK_DATA_DIR names one.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-nsqlookupd-") as directory:
        place = directory, "temporary"
        settings = _settings(ctx, PROGRAMS[1], words, place)
        _warn(settings)
        code = run_broker(settings, lambda: _settings(ctx, PROGRAMS[1], words, place))
    ctx.exit(code)


def _settings(
    ctx: click.Context, program: Program, words: Sequence[str], place: Place = HERE
) -> Settings:
    """Raises WrongSetting; ends the program after its help or version."""
    try:
        texts = parse(program.table, words)
        if "help" in texts or "h" in texts:
            click.echo(ctx.get_help())
            ctx.exit(0)
        if "version" in texts:
            click.echo(f"{program.name} v{NSQ_RELEASE} (penstock {__version__})")
            ctx.exit(0)
        return settings_of(program, texts, os.environ, place)
    except SettingInvalid as error:
        raise WrongSetting(
            str(error), f"`penstock {program.name} --help` lists the flags"
        ) from error


def settings_of(
    program: Program,
    texts: Mapping[str, list[str]],
    environment: Mapping[str, str],
    place: Place = HERE,
) -> Settings:
    """All sources merged; ``place``: unless a source names one.  Raises SettingInvalid."""
    from_file: dict[str, list[str]] = {}
    unknown: Mapping[str, object] = {}
    name = texts.get("config", [""])[-1]
    if name:
        from_file, unknown = read_file(program.table, _text_of(name), f"file {name}")
    given = translate(program.table, texts, from_file)
    notes = [
        *given.notes,
        *(
            f"file {name}: {key} is no setting of {program.name}; ignored, as there"
            for key in unknown
        ),
    ]
    flags = {key: text_of(value) for key, value in given.settings.items()}
    settings = _usual(program, environment, flags, name)
    if settings.data_dir:
        place = settings.data_dir, settings.source_of("data_dir")
    settings = settings.with_data_dir(os.path.abspath(place[0]), place[1])
    return settings.with_warnings((*notes, *settings.warnings))


def _text_of(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingInvalid(f"cannot read the configuration file {name}: {error}") from error


def _warn(settings: Settings) -> None:
    for text in warnings_of(settings):
        click.echo(f"warning: {text}", err=True)


def _refuse_unread_messages(directory: str) -> None:
    """Messages that nsqd left there would be lost to consumers."""
    if has_metadata(Path(directory)) and not is_taken_over(directory, directory):
        raise WrongSetting(
            f"{directory} has topics and messages of nsqd, which were not taken over",
            f"`penstock migrate nsqd {directory}` takes them over; or name another --data-path",
        )
