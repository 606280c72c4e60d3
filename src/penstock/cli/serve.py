"""``penstock serve``: settings in, a running broker out.

Every setting of ``penstock.settings.settings`` is a flag here, made from its declaration.
``config_files`` reads the files; this file chooses the data directory;
then ``node.node.run`` takes over until the broker has stopped.
"""

import errno
import os
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import click

from penstock.cli.config import warnings_of
from penstock.cli.config_files import REFERENCE, settings_from
from penstock.cli.failure import Failure, WrongSetting
from penstock.cli.nsq.record import refuse_unfinished
from penstock.core.errors import (
    CopyGivenUp,
    Corrupt,
    DataDirLocked,
    DataDirOutdated,
    PenstockError,
    SettingInvalid,
)
from penstock.settings.kinds import (
    Boolean,
    FreeDisk,
    Integer,
    MemoryWatermark,
    Number,
    Setting,
    Text,
)
from penstock.settings.settings import DECLARED, SECRETS, SECTIONS, Settings

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

SYSTEM_DATA_DIR: Final = "/var/lib/penstock"
NO_THREAD: Final = "can't start new thread"
"""Python's words."""
MAY_BE_OFF: Final = ("nsq", "prometheus")
"""How the keys of ports begin that open no listener when they are 0."""
LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")
"""Of the reference page; a terminal shows its text alone."""


def setting_flags(command: Callable[..., None]) -> Callable[..., None]:
    for setting in reversed(list(DECLARED.values())):
        command = click.option(
            setting.flag, setting.key, default=None, metavar=_metavar(setting), help=_help(setting)
        )(command)
    return command


def _metavar(setting: Setting) -> str:
    if isinstance(setting, Integer | Number):
        return "NUMBER"
    if isinstance(setting, MemoryWatermark):
        return "SHARE|SIZE"
    if isinstance(setting, FreeDisk):
        return "auto|SIZE|RULE"
    if isinstance(setting, Boolean):
        return "true|false"
    if isinstance(setting, Text):
        return "|".join(filter(None, setting.choices)) if setting.choices else "TEXT"
    return "NAME,NAME"


def _help(setting: Setting) -> str:
    default = setting.default
    shown = ",".join(default) if isinstance(default, tuple) else str(default)
    if isinstance(default, bool):
        shown = shown.lower()
    ending = f" [default: {shown}]" if shown else ""
    return LINK.sub(r"\1", setting.doc).replace("`", "") + ending


class Serve(click.Command):
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        records = {
            option.name: record
            for option in self.get_params(ctx)
            if (record := option.get_help_record(ctx)) is not None
        }
        keys = {title: list(vars(part)) for title, part in SECTIONS.items()}
        others = [name for name in records if name not in DECLARED]
        for title, names in {"Options": others, **keys}.items():
            with formatter.section(title):
                formatter.write_dl([records[name] for name in names if name in records])


@click.command(
    cls=Serve, epilog="\b\nExample:\n  penstock serve --config penstock.toml --amqp-port 5673"
)
@click.option(
    "--config",
    metavar="FILE",
    default=None,
    help="File of settings: TOML, or rabbitmq.conf if its name ends in .conf."
    " [environment: PENSTOCK_CONFIG]",
)
@setting_flags
@click.pass_context
def serve(ctx: click.Context, /, config: str | None, **flags: str | None) -> None:
    """Run a broker in the foreground until SIGTERM or Ctrl-C.

    Each setting is also a key of the file (dashes become underscores) and an environment
    variable (PENSTOCK_ and the key in capitals). Defaults < file < environment < flags.
    """
    os.umask(0o077)  # what libraries make in the data directory is the broker's alone, too
    given = {key: text for key, text in flags.items() if text is not None}
    environment = dict(os.environ)
    settings = read_settings(config, environment, given)
    for text in warnings_of(settings):
        click.echo(f"warning: {text}", err=True)
    if settings.nodes > 1:
        words = [f"--config={config}"] if config else []
        for key, text in given.items():
            # The arguments of a process are for all accounts to read, its environment is not.
            if key in SECRETS:
                environment[DECLARED[key].environment_name] = text
            else:
                words.append(f"{DECLARED[key].flag}={text}")
        ctx.exit(run_several(settings, words, environment))
    ctx.exit(run_broker(settings, lambda: read_settings(config, environment, given)))


def read_settings(
    config: str | None, environment: Mapping[str, str], flags: Mapping[str, str]
) -> Settings:
    settings = settings_from(config, environment, flags)
    if settings.data_dir:
        # The file has no shell that expands ~, and the broker may change its directory.
        path = os.path.abspath(os.path.expanduser(settings.data_dir))
        return settings.with_data_dir(path, settings.source_of("data_dir"))
    return settings.with_data_dir(*choose_data_dir(environment))


def choose_data_dir(
    environment: Mapping[str, str], system_dir: str = SYSTEM_DATA_DIR
) -> tuple[str, str]:
    """The data directory when no setting names one, and why it is this one."""
    given_by_systemd = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if given_by_systemd:
        return given_by_systemd, "from $STATE_DIRECTORY"
    existing = system_dir if os.path.isdir(system_dir) else os.path.dirname(system_dir)
    if os.access(existing, os.W_OK | os.X_OK):
        return system_dir, "default, writable"
    home = environment.get("HOME", "")
    if not home:
        raise WrongSetting(
            f"no data directory: {system_dir} is not writable and HOME is not set",
            "give --data-dir",
        )
    own = os.path.join(home, ".local", "share", "penstock")
    return own, f"default, since {system_dir} is not writable"


def run_broker(settings: Settings, reread: Callable[[], Settings]) -> int:
    """Hand over to the server; what stops a start is told as cause and fix.

    ``reread``: the same sources once more, for SIGHUP.
    """
    from penstock.node.node import run

    refuse_unfinished(settings.data_dir)
    return _told(lambda: run(settings, reread), settings)


def work_offline(
    settings: Settings, work: Callable[["Broker", Callable[[bool], None]], None]
) -> None:
    """``Node.work`` in this data directory; an error is reported as ``run_broker`` reports it."""
    from penstock.node.node import Node

    _told(lambda: Node(settings).work(work), settings)


def run_several(settings: Settings, words: list[str], environment: Mapping[str, str]) -> int:
    from penstock.node.supervisor import run_nodes

    return _told(lambda: run_nodes(settings, words, environment), settings)


def _told(serve: Callable[[], int], settings: Settings) -> int:
    try:
        return serve()
    except SettingInvalid as error:
        raise WrongSetting(str(error), REFERENCE) from error
    except (DataDirLocked, DataDirOutdated) as error:
        raise Failure(str(error), "stop that process or give another --data-dir") from error
    except CopyGivenUp as error:
        raise Failure(str(error), "start the node again") from error
    except Corrupt as error:
        raise Failure(
            str(error),
            "nothing was changed; keep a copy of the data directory, then restore it from a"
            " backup or move the named file away and accept the loss of what it held",
        ) from error
    except OSError as error:
        raise _from_os(error, settings) from error
    except PenstockError as error:
        raise Failure(str(error), "docs/guide/clusters.md") from error
    except MemoryError as error:
        raise Failure(
            "the process is refused memory",
            "allow it more: MemoryMax of its unit, the limit of its container, ulimit -v",
        ) from error
    except RuntimeError as error:
        if str(error) != NO_THREAD:
            raise
        raise Failure(
            str(error), "allow the process more threads (TasksMax of its unit, ulimit -u) or memory"
        ) from error


def _from_os(error: OSError, settings: Settings) -> Failure:
    cause = str(error)
    if error.errno == errno.EADDRINUSE:
        return Failure(cause, _port_advice(cause, settings))
    if error.errno == errno.EADDRNOTAVAIL:
        return Failure(cause, f"--bind {settings.bind} is no address of this machine")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Failure(
            cause, f"the broker must be able to write {settings.data_dir} and open its ports"
        )
    if error.errno == errno.ENOSPC:
        return Failure(cause, f"make room on the disk of {settings.data_dir}")
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        return Failure(cause, "give --data-dir a directory, or a name that is free")
    return Failure(cause)


def _port_advice(cause: str, settings: Settings) -> str:
    return (
        f"stop the other listener or give {_listener_flag(cause, settings)};"
        " for a second broker on a machine --port-offset moves all ports that no setting names"
    )


def _listener_flag(cause: str, settings: Settings) -> str:
    """The flag of the port, or of the socket's file, that ``cause`` names last."""
    ports = [key for key in DECLARED if key.endswith("_port")]
    # Python 3.13 repeats the number of the error behind the address.
    taken = re.findall(r"[0-9]+", re.sub(r"\[[Ee]rrno [0-9]+\]", "", cause))[-1:]
    if settings.unix_socket and settings.unix_socket in cause:
        ports = ["unix_socket"]
    elif found := [key for key in ports if taken == [str(settings.value_of(key))]]:
        ports = found
    return " / ".join(
        DECLARED[key].flag + (" (0: off)" if key.startswith(MAY_BE_OFF) else "") for key in ports
    )
