"""The data directory belongs to one process, and to releases that can read it."""

import fcntl
import os

from penstock.core.errors import DataDirLocked, DataDirOutdated


def lock_data_dir(path: str) -> int:
    """Take the data directory for this process; raises DataDirLocked naming the holder."""
    os.makedirs(path, mode=0o700, exist_ok=True)
    fd = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(fd, 32).decode().strip() or "unknown"
        os.close(fd)
        raise DataDirLocked(f"{path} is in use by process {holder}") from None
    os.truncate(fd, 0)
    os.write(fd, f"{os.getpid()}\n".encode())
    return fd


def refuse_old_data(path: str) -> None:
    """Of the releases before the storage engine: nothing is deleted, nothing is guessed."""
    if os.path.isdir(os.path.join(path, "log")):
        raise DataDirOutdated(
            f"{path} holds a message log of a release before the storage engine, which this"
            " release does not read: empty the queues with that release, then remove it"
        )
