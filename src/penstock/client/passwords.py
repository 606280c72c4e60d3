"""Passwords that commands are given: where they are, and which of them others can read."""

import sys
from urllib.parse import urlsplit

from penstock.settings.kinds import form_of, is_plain


def password_given(text: str) -> str:
    """Of an option or variable: ``-`` asks for it, or reads a line of standard input; else as in
    ``secrets.sources``.  Raises SettingInvalid.
    """
    if form_of(text):
        from penstock.secrets.sources import revealed  # noqa: PLC0415 - all settings come with it

        return revealed(text, "password")
    if text != "-":
        return text
    if sys.stdin is not None and sys.stdin.isatty():
        from getpass import getpass  # noqa: PLC0415 - for a person only

        return getpass("Password: ")
    return sys.stdin.readline().rstrip("\n") if sys.stdin else ""


def warning_of(text: str, option: str) -> str:
    """For the user of a command who gave this password as an argument; "" = none."""
    if text == "-" or not is_plain(text):
        return ""
    return (
        f"{_seen(option)}; PENSTOCK_PASSWORD can hold it, or file: and the name of a file that does"
    )


def warning_of_address(text: str, option: str, variable: str) -> str:
    """The same of an address; ``variable`` can hold it in place of the option, "" = none can."""
    try:
        password = urlsplit(text).password if "://" in text else None
    except ValueError:  # no address: the command says so
        return ""
    if password is None:
        return ""
    return f"{_seen(option)}; {variable} can hold the address" if variable else _seen(option)


def _seen(option: str) -> str:
    return f"{option}: all users of this machine can read this password in the list of processes"
