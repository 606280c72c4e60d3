"""Which configuration files count, and their text.

    --config  >  PENSTOCK_CONFIG, PENSTOCK_CONFIG_FILE  >  RABBITMQ_CONFIG_FILE and …_FILES

A name that ends in ``.conf`` is a file in RabbitMQ's style, and so is what its variables name
(with ``.conf`` left away, as there; ``RABBITMQ_CONFIG_FILES`` is a directory of them, read in the
order of their names).  Anything else is TOML.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.cli.failure import WrongSetting
from penstock.core.errors import SettingInvalid
from penstock.core.settings import Settings, load_settings

OURS: Final = ("PENSTOCK_CONFIG", "PENSTOCK_CONFIG_FILE")
THEIRS: Final = "RABBITMQ_CONFIG_FILE"
THEIR_DIRECTORY: Final = "RABBITMQ_CONFIG_FILES"
SUFFIX: Final = ".conf"
REFERENCE: Final = "`penstock serve --help` lists every setting, `penstock config explain` each"


class Files(NamedTuple):
    """What was found: at most one of TOML, or some in RabbitMQ's style."""

    toml: str | None
    name: str
    conf: list[tuple[str, str]]
    warnings: tuple[str, ...] = ()


def settings_from(
    config: str | None, environment: Mapping[str, str], flags: Mapping[str, str]
) -> Settings:
    """All sources merged and checked; the data directory is not chosen yet."""
    files = read_files(config, environment)
    try:
        settings = load_settings(files.toml, environment, flags, files.name, files.conf)
    except SettingInvalid as error:
        raise WrongSetting(str(error), REFERENCE) from error
    settings.warnings = (*files.warnings, *settings.warnings)
    return settings


def read_files(config: str | None, environment: Mapping[str, str]) -> Files:
    """Raises WrongSetting for a file that cannot be read."""
    named = config or next((environment[name] for name in OURS if environment.get(name)), None)
    if named is not None:
        passed_over = tuple(
            f"environment: {name} is not read, since {named} was named"
            for name in (THEIRS, THEIR_DIRECTORY)
            if environment.get(name)
        )
        if named.endswith(SUFFIX):
            return Files(None, "", [(named, _read(named))], passed_over)
        return Files(_read(named), named, [], passed_over)
    return _read_theirs(environment)


def _read_theirs(environment: Mapping[str, str]) -> Files:
    conf: list[tuple[str, str]] = []
    warnings: list[str] = []
    if environment.get(THEIRS):
        name = _with_suffix(environment[THEIRS])
        # RabbitMQ starts without its file, and images name one that need not be there.
        if os.path.exists(name):
            conf.append((name, _read(name)))
        else:
            warnings.append(f"environment: {THEIRS} names {name}, which does not exist")
    if environment.get(THEIR_DIRECTORY):
        conf += [(str(path), _read(str(path))) for path in _listed(environment[THEIR_DIRECTORY])]
    return Files(None, "", conf, tuple(warnings))


def _with_suffix(name: str) -> str:
    return name if name.endswith(SUFFIX) else name + SUFFIX


def _listed(directory: str) -> list[Path]:
    try:
        return sorted(path for path in Path(directory).iterdir() if path.suffix == SUFFIX)
    except OSError as error:
        raise WrongSetting(
            f"cannot read the directory {directory} of {THEIR_DIRECTORY}: {error.strerror}",
            "name a directory of files that end in .conf, or unset the variable",
        ) from error


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise WrongSetting(
            f"cannot read the configuration file {name}: {reason}",
            "give --config (or PENSTOCK_CONFIG) a readable file, TOML or rabbitmq.conf, or leave"
            " it away",
        ) from error
