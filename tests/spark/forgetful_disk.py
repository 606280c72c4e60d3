"""A power cut for a directory tree: what no fsync has brought to the disk is gone.

``ForgetfulDisk`` records each ``os.fsync`` of this process: of a file its content, of a directory
its names.  ``cut`` builds the tree that the strictest disk would show afterwards: a name is there
when its directory was synced with it, and a file has the content of its last fsync (none: 0 bytes).
What a library writes without ``os.fsync`` of this process counts as not synced.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

Inode = tuple[int, int]


class ForgetfulDisk:
    """``root`` was there before; ``cut`` makes ``after``."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        root.mkdir()
        self.root = root.resolve()
        self._files: dict[Inode, bytes] = {}
        self._directories: dict[Inode, dict[str, tuple[Inode, bool]]] = {}
        self._held: list[int] = []  # open, so that no inode number is used again
        self._fsync = os.fsync
        monkeypatch.setattr(os, "fsync", self._recorded)

    def cut(self, after: Path) -> Path:
        self._restore(_inode(self.root.stat()), after)
        return after

    def cut_in_place(self) -> None:
        """The same under the same name, once: for what notes absolute paths."""
        after = self.cut(self.root.with_name(f"{self.root.name}-after"))
        self.root.rename(self.root.with_name(f"{self.root.name}-before"))
        after.rename(self.root)

    def close(self) -> None:
        for handle in self._held:
            os.close(handle)

    def _recorded(self, handle: int) -> None:
        self._fsync(handle)
        status = os.fstat(handle)
        self._held.append(os.dup(handle))
        path = Path(f"/proc/self/fd/{handle}")
        if stat.S_ISDIR(status.st_mode):
            # Other processes make and remove names in the directories above the root.
            if path.readlink().is_relative_to(self.root):
                with os.scandir(path) as entries:
                    self._directories[_inode(status)] = {
                        entry.name: (_inode(entry.stat()), entry.is_dir()) for entry in entries
                    }
        else:
            self._files[_inode(status)] = path.read_bytes()

    def _restore(self, directory: Inode, place: Path) -> None:
        place.mkdir()
        for name, (inode, is_directory) in self._directories.get(directory, {}).items():
            if is_directory:
                self._restore(inode, place / name)
            else:
                (place / name).write_bytes(self._files.get(inode, b""))


def _inode(status: os.stat_result) -> Inode:
    return status.st_dev, status.st_ino
