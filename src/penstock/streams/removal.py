"""Jobs that remove files of streams: segments below the floor, and all of a deleted stream."""

import contextlib
from typing import final

from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import FileSystem


@final
class StreamRemoval(DiskJob):
    """Not made durable: a start removes again what a crash brought back below the floor."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__()
        self._paths: list[str] = paths

    def run(self, files: FileSystem) -> None:
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):
                files.remove(path)
                reach("stream.retired")


@final
class StreamDeletion(DiskJob):
    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory: str = directory

    def run(self, files: FileSystem) -> None:
        if files.exists(self._directory):
            files.remove_dir(self._directory)
            reach("stream.removed")
