"""How a command fails: the cause, what to do about it, and the exit code.

No traceback reaches a user who did not ask for one with ``--debug``.
"""

from typing import IO, Any, Final

import click

FAILED: Final = 1
USAGE: Final = 2
"""click's own code for wrong arguments; wrong settings end the same way."""
UNAVAILABLE: Final = 69
"""EX_UNAVAILABLE of sysexits.h: no broker answers there."""


class Failure(click.ClickException):
    """Ends the command with ``cause`` on standard error, and ``fix`` below it."""

    exit_code = FAILED

    def __init__(self, cause: str, fix: str = "") -> None:
        super().__init__(cause)
        self.fix = fix

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.message}", file=file, err=True)
        if self.fix:
            click.echo(f"  fix: {self.fix}", file=file, err=True)


class WrongSetting(Failure):
    """The arguments are well formed, but the broker cannot be started like this."""

    exit_code = USAGE


class BrokerUnavailable(Failure):
    exit_code = UNAVAILABLE
