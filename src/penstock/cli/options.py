"""How options of commands are written: names and help first, and a default is always shown."""

from collections.abc import Callable
from typing import Any, Final

import click
from click.core import ParameterSource

from penstock.client.passwords import warning_of


def option(
    names: str, text: str, kind: Any = None, default: object = None, **more: Any
) -> Callable[[Any], Any]:
    """``names``: ``"--to target"`` is the option ``--to`` for the parameter ``target``."""
    if default is not None:  # a default of None would be the value of a flag, too
        more |= {"default": default, "show_default": True}
    return click.option(*names.split(), help=text, type=kind, **more)


def _warn(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """The callback of an option that may hold a password: on the command line others read it."""
    given = context.get_parameter_source(parameter.name or "")
    if value and given == ParameterSource.COMMANDLINE:
        text = warning_of(str(value), parameter.opts[0])
        if text:
            click.echo(f"warning: {text}", err=True)
    return value


def secret_option(names: str, text: str, **more: Any) -> Callable[[Any], Any]:
    """One whose value is a password, or an address that may have one."""
    return option(names, text, callback=_warn, **more)


def all_of(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One decorator for several, which a help lists in this order."""

    def decorate(command: Any) -> Any:
        for one in reversed(options):
            command = one(command)
        return command

    return decorate


OUTPUT: Final = option("-o output", "Form of the output.", click.Choice(["table", "json"]), "table")
