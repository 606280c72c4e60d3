"""How options of commands are written: names and help first, and a default is always shown."""

from collections.abc import Callable
from typing import Any

import click


def option(
    names: str, text: str, kind: Any = None, default: object = None, **more: Any
) -> Callable[[Any], Any]:
    """``names``: ``"--to target"`` is the option ``--to`` for the parameter ``target``."""
    shown = default is not None
    return click.option(
        *names.split(), help=text, type=kind, default=default, show_default=shown, **more
    )
