"""How far ``penstock migrate nsqd`` has come: a file in the data directory it fills.

docs/formats/nsqd_taken_over.md is the page of the file.  A broker does not start on what is
unfinished.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

from penstock.cli.failure import Failure
from penstock.core.checksum import crc32

FILE: Final = "nsqd-taken-over.json"


class Record:
    """Of one data directory; each change is on disk when the call returns, or raises Failure."""

    def __init__(self, directory: str) -> None:
        """Raises Failure when the file cannot be read."""
        self._path = Path(directory, FILE)
        try:
            found = _checked(self._path)
            self.source: str = found.get("source", "")
            self.finished: bool = found.get("finished", True)
            self._queues: dict[str, tuple[str, int | None]] = {
                name: (one["meta"], one["messages"])
                for name, one in found.get("queues", {}).items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Failure(
                f"cannot read {self._path}: {error!r}", "restore it from a copy"
            ) from error

    def begin(self, source: str) -> None:
        """Of another directory than before: what is known of that is forgotten."""
        self.source, self.finished = source, False
        self._queues = {}
        self._write()

    def find(self, name: str) -> tuple[str, int | None] | None:
        """What nsqd had written down of this queue, and its messages; None: not begun."""
        return self._queues.get(name)

    def put(self, name: str, meta: str, messages: int | None) -> None:
        self._queues[name] = (meta, messages)
        self._write()

    def finish(self) -> None:
        self.finished = True
        self._write()

    def _write(self) -> None:
        queues = {
            name: {"meta": meta, "messages": messages}
            for name, (meta, messages) in self._queues.items()
        }
        found = {"source": self.source, "finished": self.finished, "queues": queues}
        try:
            self._replace(json.dumps(found | {"crc": _checksum(found)}, indent=1))
        except OSError as error:
            raise Failure(
                f"cannot write {self._path}: {error.strerror}",
                "run it again when that is mended: it goes on where it was",
            ) from error

    def _replace(self, text: str) -> None:
        new = self._path.with_suffix(".new")
        with new.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.rename(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _checksum(found: dict[str, Any]) -> int:
    return crc32(json.dumps(found, sort_keys=True).encode())


def _checked(path: Path) -> dict[str, Any]:
    """Empty: there is no file, or no directory.  Raises OSError, ValueError."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    if found.pop("crc", None) != _checksum(found):
        raise ValueError("the checksum is wrong")
    return found


def is_taken_over(directory: str, source: str) -> bool:
    """Has this data directory what nsqd left in ``source``?"""
    record = Record(directory)
    return record.finished and record.source == os.path.realpath(source)


def refuse_unfinished(directory: str) -> None:
    """Raises Failure: consumers would get a part, and the rest would come again."""
    record = Record(directory)
    if not record.finished:
        raise Failure(
            f"{directory} has only a part of the messages of {record.source}",
            f"`penstock migrate nsqd {record.source} --into {directory}` goes on where it was",
        )
