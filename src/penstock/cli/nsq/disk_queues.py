"""An nsqd data directory: topics, channels and the messages of their disk queues; only read.

    nsqd.dat                        JSON: topics, channels, which are paused (older: nsqd.ID.dat)
    NAME.diskqueue.meta.dat         depth, then file number and offset to read at, and to write at
    NAME.diskqueue.000000.dat       messages: size in 4 bytes, then time in 8, attempts in 2, id
                                    in 16, body; big-endian

NAME is ``topic``, or ``topic:channel``.  A stop writes what is in memory, in flight or deferred to
these files.  nsqd reads on behind the offset to write at when the file is longer, since it was not
stopped then; so does this.  A size that cannot be right ends the file, and the next one is read.
A disk that does not give what is there is a Failure, and never taken for a file that is not there.
"""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from penstock.broker.topology.topics import is_ephemeral, is_name
from penstock.cli.failure import Failure

METADATA: Final = "nsqd.dat"
META_END: Final = ".diskqueue.meta.dat"
HEAD_BYTES: Final = 26
"""Time, attempts and id."""
MESSAGE_MAX_BYTES: Final = 1 << 29
_OLD_METADATA: Final = re.compile(r"nsqd\.[0-9]+\.dat")
_META: Final = re.compile(r"(-?[0-9]+)\n([0-9]+),([0-9]+)\n([0-9]+),([0-9]+)\n?")


class SavedMessage(NamedTuple):
    timestamp_ns: int
    attempts: int
    id: bytes
    body: bytes


class SavedChannel(NamedTuple):
    name: str
    paused: bool


class SavedTopic(NamedTuple):
    name: str
    paused: bool
    channels: list[SavedChannel]


class DiskQueue:
    """The files of a topic or a channel; ``faults`` fills up while they are read.

    Raises Failure for what the disk does not give.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self.name = name
        self.faults: list[str] = []
        self.meta = ""
        self.depth: int | None = None
        """As nsqd wrote it down; None: there is nothing written down that can be read."""
        self._directory = directory
        start, end = re.escape(f"{name}.diskqueue."), re.escape(".dat")
        pattern = re.compile(f"{start}([0-9]{{6,}}){end}")
        self._numbers = sorted(
            int(found[1])
            for one in _names_in(directory)
            if (found := pattern.fullmatch(one)) is not None
        )
        self._first = (self._numbers or [0])[0], 0
        self._written = 0, 0
        self._read_meta(directory / f"{name}{META_END}")

    def _read_meta(self, path: Path) -> None:
        try:
            self.meta = path.read_text(errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            raise unread(path, error) from error
        found = _META.fullmatch(self.meta)
        if found is None:
            self.faults.append(f"{path.name}: cannot be read, so all of its files are")
            return
        self.depth = int(found[1])
        self._first = int(found[2]), int(found[3])
        self._written = int(found[4]), int(found[5])

    @property
    def topic(self) -> str:
        return self.name.partition(":")[0]

    @property
    def channel(self) -> str:
        """Empty for a topic's."""
        return self.name.partition(":")[2]

    def messages(self) -> Iterator[SavedMessage]:
        first, offset = self._first
        last, written = self._written
        due = first
        for number in self._numbers:
            if number < first:
                continue
            self._miss(due, number)
            due = number + 1
            path = self._directory / f"{self.name}.diskqueue.{number:06d}.dat"
            begin = offset if number == first else 0
            try:
                with path.open("rb", buffering=1 << 20) as file:
                    end = os.fstat(file.fileno()).st_size
                    yield from self._in_file(file, path.name, begin, end)
            except OSError as error:
                raise unread(path, error) from error
            torn = bool(self.faults) and self.faults[-1].startswith(f"{path.name}, ")
            if number == last and end < written and not torn:
                self.faults.append(f"{path.name}: {written - end} bytes at its end are missing")
        self._miss(due, last + (written > (offset if last == first else 0)))

    def _miss(self, due: int, upto: int) -> None:
        """Files from ``due`` up to and without ``upto`` should be there."""
        if due < upto:
            name = f"{self.name}.diskqueue"
            self.faults.append(f"files {name}.{due:06d}.dat to {name}.{upto - 1:06d}.dat: missing")

    def _in_file(self, file: BinaryIO, name: str, offset: int, end: int) -> Iterator[SavedMessage]:
        file.seek(offset)
        while offset < end:
            size = int.from_bytes(file.read(4), "big", signed=True)
            left = end - offset
            if left < 4 or (HEAD_BYTES <= size <= MESSAGE_MAX_BYTES and size > left - 4):
                self.faults.append(
                    f"{name}, offset {offset}: {left} bytes of an unfinished message"
                )
                return
            if not HEAD_BYTES <= size <= MESSAGE_MAX_BYTES:
                text = f"{name}, offset {offset}: {left} bytes cannot be read, the size is {size}"
                self.faults.append(text)
                return
            data = file.read(size)
            yield SavedMessage(
                int.from_bytes(data[:8], "big", signed=True),
                int.from_bytes(data[8:10], "big"),
                data[10:HEAD_BYTES],
                data[HEAD_BYTES:],
            )
            offset += 4 + size


@contextmanager
def stopped(directory: Path) -> Iterator[None]:
    """No nsqd uses the directory, nor will while this lasts.  Raises Failure."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise unread(directory, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise Failure(f"nsqd uses {directory}", "stop it: it then writes all it holds") from error
    finally:
        os.close(handle)


def read_topics(directory: Path) -> list[SavedTopic]:
    """What the metadata name.  Raises Failure."""
    path = _metadata_of(directory)
    try:
        rows = json.loads(path.read_text())["topics"] or []
        return [
            SavedTopic(
                row["name"],
                bool(row.get("paused")),
                [
                    SavedChannel(one["name"], bool(one.get("paused")))
                    for one in row.get("channels") or []
                    if is_name(one["name"])
                ],
            )
            for row in rows
            if is_name(row["name"])
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Failure(f"cannot read {path}: {error!r}", "nothing was changed") from error


def _metadata_of(directory: Path) -> Path:
    names = _names_in(directory)
    if METADATA in names:
        return directory / METADATA
    older = sorted(one for one in names if _OLD_METADATA.fullmatch(one))
    if len(older) == 1:
        return directory / older[0]
    found = f"; it has {', '.join(older)}" if older else ""
    raise Failure(
        f"{directory} has no {METADATA}{found}",
        f"copy the one that is in use to {METADATA}" if older else "name nsqd's --data-path",
    )


def has_metadata(directory: Path) -> bool:
    """Was it ever an nsqd's?  Raises Failure."""
    try:
        return METADATA in os.listdir(directory)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise unread(directory, error) from error


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError as error:
        raise unread(directory, error) from error


def unread(path: Path, error: OSError) -> Failure:
    return Failure(
        f"cannot read {path}: {error.strerror}",
        "nothing of nsqd's was changed; run it again when that is mended: it goes on where it was",
    )


def queue_names(directory: Path) -> list[str]:
    """Of all disk queues that have files, also of those that the metadata do not name."""
    names = {
        one.partition(".diskqueue.")[0] for one in _names_in(directory) if ".diskqueue." in one
    }
    return sorted(name for name in names if _is_kept(name))


def _is_kept(name: str) -> bool:
    return all(is_name(part) and not is_ephemeral(part) for part in name.split(":", 1))
