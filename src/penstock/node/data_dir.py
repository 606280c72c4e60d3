"""The data directory belongs to one process, and to releases that can read it."""

import fcntl
import logging
import os
import stat
from typing import Final

from penstock.core.errors import DataDirLocked, DataDirOutdated

OTHERS: Final = 0o077
"""Rights of all accounts but the broker's."""


FROM_BACKUP: Final = "from-backup"
"""A file of a directory that ``penstock backup`` made: this node may have confirmed more since."""

logger = logging.getLogger("penstock.node")


def lock_data_dir(path: str) -> int:
    """Take the data directory for this process; raises DataDirLocked naming the holder."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & OTHERS:
        logger.warning(
            "other accounts of this machine may enter the data directory %s (mode %o), which has"
            " password hashes and messages: chmod 700 it",
            path,
            mode,
        )
    fd = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 32).decode().strip() or "unknown"
        os.close(fd)
        raise DataDirLocked(f"{path} is in use by process {holder}") from None
    # In this order it needs no new block: a start on a full disk comes this far.
    os.ftruncate(fd, os.pwrite(fd, f"{os.getpid()}\n".encode(), 0))
    return fd


def is_from_backup(path: str) -> bool:
    return os.path.exists(os.path.join(path, FROM_BACKUP))


def is_current(path: str) -> None:
    """It has caught up with what other nodes have."""
    os.remove(os.path.join(path, FROM_BACKUP))


def refuse_old_data(path: str) -> None:
    """Of the releases before the storage engine: nothing is deleted, nothing is guessed."""
    if os.path.isdir(os.path.join(path, "log")):
        raise DataDirOutdated(
            f"{path} holds a message log of a release before the storage engine, which this"
            " release does not read: empty the queues with that release, then remove it"
        )
