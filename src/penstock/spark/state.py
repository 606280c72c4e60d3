"""The state directory of a pipeline without a table of its own.

Without ``--checkpoint`` that is a directory per kind of pipeline, broker, virtual host and
queue, under ``$XDG_STATE_HOME`` or ``~/.local/state``.  It must outlive the process: a place that
is lost is a batch sent twice.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.core.errors import ResourceLocked
from penstock.spark.landing import file_name_of
from pyspark_penstock.options import parse_url


def home_of(kind: str, url: str, queue: str, given: Path | None) -> Path:
    """An absolute directory, which need not exist yet."""
    if given is not None:
        return given
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    end = parse_url(url)
    broker = file_name_of("/", f"{end.host}_{end.port}")
    root = Path(state).expanduser().absolute() / "penstock"
    return root / kind / broker / file_name_of(end.vhost, queue)


@contextmanager
def locked(home: Path, what: str) -> Iterator[None]:
    """One pipeline at a time; the kernel lets go when the process dies."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResourceLocked(f"another {what} keeps its place in {home}") from None
        yield
