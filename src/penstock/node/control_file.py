"""Writes and removes the control file; ``core.control`` says what it is for."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from penstock.core.control import CONTROL_FILE, Control, written
from penstock.management.facts.sessions import ListenerFacts
from penstock.settings.listener_table import HTTPS
from penstock.settings.settings import Settings
from penstock.settings.tls import tls_view

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - not bound


def new_token() -> str:
    return secrets.token_urlsafe(32)


def reached_at(bind: str, port: int) -> str:
    """Host and port of a listener, for programs on its machine."""
    return f"{ANY_ADDRESS.get(bind, f'[{bind}]' if ':' in bind else bind)}:{port}"


def write_control(
    data_dir: str, listener: ListenerFacts, amqp: str, node: str, token: str, settings: Settings
) -> None:
    """Never readable by others, never half written, and never where a link points to.

    ``listener``: the management API's; ``amqp``: ``reached_at`` of AMQP's, "" = it has none.
    """
    url = f"{listener.protocol}://{reached_at(listener.host, listener.port)}"
    certificate = ""
    if listener.protocol == HTTPS:
        certificate = os.path.abspath(tls_view(settings, "https_tls").ssl_certfile)
    control = Control(url, node, os.getpid(), token, certificate, amqp)
    path = os.path.join(data_dir, CONTROL_FILE)
    new = path + ".new"
    with suppress(FileNotFoundError):
        os.unlink(new)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(written(control))
    Path(new).replace(path)


def remove_control(data_dir: str) -> None:
    with suppress(OSError):
        os.unlink(os.path.join(data_dir, CONTROL_FILE))
