"""How options of commands are written: names and help first, and a default is always shown."""

from collections.abc import Callable
from typing import Any, Final

import click
from click.core import ParameterSource

from penstock.client.passwords import warning_of, warning_of_address


def option(
    names: str, text: str, kind: Any = None, default: object = None, **more: Any
) -> Callable[[Any], Any]:
    """``names``: ``"--to target"`` is the option ``--to`` for the parameter ``target``."""
    if default is not None:  # a default of None would be the value of a flag, too
        more |= {"default": default, "show_default": True}
    return click.option(*names.split(), help=text, type=kind, **more)


def _warned(
    names: str, text: str, warning: Callable[[str, str], str], more: dict[str, Any]
) -> Callable[[Any], Any]:
    """An option that may hold a password: on the command line other users can read it."""

    def warn(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
        given = context.get_parameter_source(parameter.name or "")
        if value and given == ParameterSource.COMMANDLINE:
            said = warning(str(value), parameter.opts[0])
            if said:
                click.echo(f"warning: {said}", err=True)
        return value

    return option(names, text, callback=warn, **more)


def password_option(names: str, text: str, **more: Any) -> Callable[[Any], Any]:
    return _warned(names, text, warning_of, more)


def address_option(names: str, text: str, variable: str = "", **more: Any) -> Callable[[Any], Any]:
    """``variable``: of the environment, which can hold the address instead."""
    return _warned(names, text, lambda value, name: warning_of_address(value, name, variable), more)


def all_of(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """One decorator for several, which a help lists in this order."""

    def decorate(command: Any) -> Any:
        for one in reversed(options):
            command = one(command)
        return command

    return decorate


OUTPUT: Final = option("-o output", "Form of the output.", click.Choice(["table", "json"]), "table")
