"""Writes and removes the control file; ``core.control`` says what it is for."""

import os
import secrets
from contextlib import suppress
from pathlib import Path

from penstock.core.control import CONTROL_FILE, Control, written

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - not bound


def new_token() -> str:
    return secrets.token_urlsafe(32)


def write_control(data_dir: str, bind: str, http_port: int, node: str, token: str) -> None:
    """Never readable by others, never half written, and never where a link points to."""
    host = ANY_ADDRESS.get(bind, f"[{bind}]" if ":" in bind else bind)
    control = Control(f"http://{host}:{http_port}", node, os.getpid(), token)
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
