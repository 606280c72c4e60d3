"""Which configuration files count, and their text.

    --config  >  PENSTOCK_CONFIG, PENSTOCK_CONFIG_FILE  >  RABBITMQ_CONFIG_FILE and …_FILES

A name that ends in ``.conf`` is a file in RabbitMQ's style, one in ``.config`` has Erlang terms.
So have the files that RabbitMQ's variables name (with the ending left away, as there):
``RABBITMQ_CONFIG_FILES`` is a directory of ``.conf`` files, read in the order of their names, and
``RABBITMQ_ADVANCED_CONFIG_FILE`` comes after them.  Where the main file has Erlang terms, RabbitMQ
reads neither of these two, and nor is it done here.  Anything else is TOML.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from penstock.cli.failure import WrongSetting
from penstock.core.errors import SettingInvalid
from penstock.settings.rabbitmq_terms import SUFFIX as TERMS
from penstock.settings.settings import Settings, load_settings

OURS: Final = ("PENSTOCK_CONFIG", "PENSTOCK_CONFIG_FILE")
THEIRS: Final = "RABBITMQ_CONFIG_FILE"
THEIR_DIRECTORY: Final = "RABBITMQ_CONFIG_FILES"
ADVANCED: Final = "RABBITMQ_ADVANCED_CONFIG_FILE"
SUFFIX: Final = ".conf"
REFERENCE: Final = "`penstock serve --help` lists every setting, `penstock config explain` each"


class Files(NamedTuple):
    toml: str | None
    name: str
    conf: list[tuple[str, str]]
    warnings: tuple[str, ...] = ()


def settings_from(
    config: str | None, environment: Mapping[str, str], flags: Mapping[str, str]
) -> Settings:
    files = read_files(config, environment)
    try:
        settings = load_settings(files.toml, environment, flags, files.name, files.conf)
    except SettingInvalid as error:
        raise WrongSetting(str(error), REFERENCE) from error
    if settings.unsafe and not settings.accept_missing_security:
        raise WrongSetting(
            "security that the configuration asks for would not be in force: "
            + "; ".join(settings.unsafe),
            "take these lines out, or accept it: PENSTOCK_ACCEPT_MISSING_SECURITY=true, or"
            " --accept-missing-security true for `penstock serve`",
        )
    return settings.with_warnings((*files.warnings, *settings.warnings, *settings.unsafe))


def read_files(config: str | None, environment: Mapping[str, str]) -> Files:
    """Raises WrongSetting for a file that cannot be read."""
    named = config or next((environment[name] for name in OURS if environment.get(name)), None)
    if named is not None:
        passed_over = tuple(
            f"environment: {name} is not read, since {named} was named"
            for name in (THEIRS, THEIR_DIRECTORY, ADVANCED)
            if environment.get(name)
        )
        if named.endswith((SUFFIX, TERMS)):
            return Files(None, "", [(named, _read(named))], passed_over)
        return Files(_read(named), named, [], passed_over)
    return _read_theirs(environment)


def _read_theirs(environment: Mapping[str, str]) -> Files:
    conf: list[tuple[str, str]] = []
    warnings: list[str] = []
    if environment.get(THEIRS):
        # RabbitMQ starts without its file, and images name one that need not be there.
        found, *weaker = _with_suffix(environment[THEIRS], (TERMS, SUFFIX)) or [""]
        if found:
            conf.append((found, _read(found)))
        else:
            warnings.append(_absent(THEIRS, environment))
        warnings += [f"file {one} is not read, since there is {found}" for one in weaker]
        if found.endswith(TERMS):
            warnings += [
                f"environment: {name} is not read, since {found} has Erlang terms"
                for name in (THEIR_DIRECTORY, ADVANCED)
                if environment.get(name)
            ]
            return Files(None, "", conf, tuple(warnings))
    if environment.get(THEIR_DIRECTORY):
        conf += [(str(path), _read(str(path))) for path in _listed(environment[THEIR_DIRECTORY])]
    if environment.get(ADVANCED):
        name = environment[ADVANCED].removesuffix(TERMS) + TERMS
        if os.path.isfile(name):
            conf.append((name, _read(name)))
        else:
            warnings.append(_absent(ADVANCED, environment))
    return Files(None, "", conf, tuple(warnings))


def _absent(variable: str, environment: Mapping[str, str]) -> str:
    return f"environment: {variable} names {environment[variable]}, which does not exist"


def _with_suffix(name: str, suffixes: tuple[str, ...]) -> list[str]:
    """The files that RabbitMQ means by ``name``, the one it reads first."""
    names = [name] if os.path.isfile(name) else [name + suffix for suffix in suffixes]
    return [one for one in names if os.path.isfile(one)]


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
            "give --config (or PENSTOCK_CONFIG) a readable file, TOML, *.conf or *.config, or leave"
            " it away",
        ) from error
