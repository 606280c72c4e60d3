"""pyiceberg's files on this machine's disks, synced before a catalog names them.

A commit writes manifests and metadata, then lets the catalog name them.  pyiceberg syncs none of
them: after a power cut the catalog would name an empty file, and the whole table could not be
read.  Object stores have no fsync; there a closed file is as durable as the store promises.
"""

from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from pyspark_penstock.durable import sync_again

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import OutputStream

SYNCED_FILES: Final = f"{__name__}.SyncedFileIO"
"""For the property ``py-io-impl`` of a catalog."""


class SyncedFileIO(PyArrowFileIO):
    def new_output(self, location: str) -> PyArrowFile:
        scheme, place, path = self.parse_location(location)
        if scheme != "file":
            return super().new_output(location)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, place))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> "OutputStream":
        return _SyncedStream(super().create(overwrite), Path(self._path))


class _SyncedStream:
    """What is written; on the disk when it is closed."""

    def __init__(self, stream: "pa.NativeFile", path: Path) -> None:
        self._stream = stream
        self._path = path

    @property
    def closed(self) -> bool:
        return bool(self._stream.closed)

    def write(self, data: bytes) -> int:
        return int(self._stream.write(data))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        self._stream.close()
        sync_again(self._path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
