"""Directories in which pipelines keep their place: their names, and a lock for each.

A pipeline with a table keeps it there (``tables.landing``).  One without a table, and without
``--checkpoint``, has a directory per kind of pipeline, broker, virtual host and
queue, under ``$XDG_STATE_HOME`` or ``~/.local/state``.  It must outlive the process: a place that
is lost is a batch sent twice.
"""

import fcntl
import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import quote

from penstock.core.errors import PenstockError, ResourceLocked
from pyspark_penstock.endpoints import parse_url

NAME_MAX = 100


KEYS_IN_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*:(?![0-9]*(/|$))")
"""``s3://KEY:SECRET@bucket/t``, which libraries of object stores take; not ``hdfs://host:8020/``."""


class NotLocal(PenstockError):
    """A table on something else than a file system."""


class KeysInUrl(PenstockError):
    """The text does not repeat them."""


def check_no_keys(url: str) -> None:
    """Raises KeysInUrl: what names a table stands in summaries, logs, notes and process lists."""
    if KEYS_IN_URL.match(url):
        raise KeysInUrl(
            "keys in a URL are seen by all users of this machine; write it without them, as in"
            " s3://bucket/table, and put the keys into the environment (AWS_ACCESS_KEY_ID,"
            " AWS_SECRET_ACCESS_KEY, …) or a profile"
        )


def local_path(text: str) -> Path:
    """A path of this machine, absolute; raises NotLocal and KeysInUrl for URLs."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", text):
        check_no_keys(text)
        raise NotLocal(
            f"{text} is a URL: what is locked, renamed and synced must be on a file system; give a"
            " plain path (for a cluster: of a file system all its machines share).  An object store"
            " (s3://, gs://, abfs://) can have tables: archive --to, or --table and --warehouse"
        )
    return Path(text).expanduser().absolute()


def file_name_of(vhost: str, queue: str) -> str:
    """A file name that says which queue, and that no table reader takes for a hidden one."""
    name = quote(queue if vhost == "/" else f"{vhost}.{queue}", safe="")
    if name[0] in "_.":
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if len(name) > NAME_MAX:
        name = f"{name[:NAME_MAX]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return name


def home_of(kind: str, url: str, queue: str, given: Path | None) -> Path:
    if given is not None:
        return given
    end = parse_url(url)
    broker = file_name_of("/", f"{end.host}_{end.port}")
    return state_home() / kind / broker / file_name_of(end.vhost, queue)


def state_home() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser().absolute() / "penstock"


@contextmanager
def alone(lock: Path, refusal: str) -> Iterator[None]:
    """One process at a time; raises ResourceLocked.  The kernel lets go when the process dies."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResourceLocked(refusal) from None
        yield


def locked(home: Path, what: str) -> AbstractContextManager[None]:
    return alone(home / "lock", f"another {what} keeps its place in {home}")
