"""Jobs that remove files of streams: segments below the floor, and all of a deleted stream."""

import contextlib
from collections.abc import Callable
from typing import final

from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import FileSystem
from penstock.streams.block_codec import segment_path


@final
class StreamRemoval(DiskJob):
    """Of segments, by their first offsets; ``again`` gets those whose removal failed.

    Not made durable: a start removes again what a crash brought back below the floor.
    """

    def __init__(
        self, directory: str, firsts: list[int], again: Callable[[list[int], Exception], None]
    ) -> None:
        super().__init__()
        self._directory: str = directory
        self._left: list[int] = firsts
        self._again: Callable[[list[int], Exception], None] = again

    def run(self, files: FileSystem) -> None:
        while self._left:
            with contextlib.suppress(FileNotFoundError):  # an earlier try may have come so far
                files.remove(segment_path(self._directory, self._left[0]))
                reach("stream.retired")
            self._left.pop(0)

    def finish(self) -> None:
        super().finish()
        if self.error is not None:
            self._again(self._left, self.error)


@final
class StreamDeletion(DiskJob):
    def __init__(self, directory: str) -> None:
        super().__init__()
        self._directory: str = directory

    def run(self, files: FileSystem) -> None:
        if files.exists(self._directory):
            files.remove_dir(self._directory)
            reach("stream.removed")
