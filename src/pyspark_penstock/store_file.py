"""Files of a table in an object store, written by a worker.

In: a place such as ``s3://lake/orders/data``, and the properties of pyiceberg's ``FileIO`` for it
(``s3.endpoint``, ``s3.access-key-id``, …; what they do not say, the store's own client takes from
the environment or from its profile), or ``BY_URL``: all of it is in the environment.  Out: objects,
which appear whole when their file is closed.  A store has no fsync: what it has confirmed is
durable by its own promise.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark_penstock.buffered_file import Outlet

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


BY_URL: Final = {"client": "pyarrow"}
PART_BYTES: Final = 10 << 20
"""Of an upload to S3 by pyarrow, up to a hundred parts: one buffer is sent as it is."""


def system_of(url: str) -> "FileSystem":
    from pyarrow.fs import FileSystem

    scheme, _, path = url.partition("://")
    return FileSystem.from_uri(f"{scheme}://{path.partition('/')[0]}")[0]


def path_in(url: str) -> str:
    return url.partition("://")[2]


def store_outlet(directory: str, properties: Mapping[str, str]) -> Outlet:
    """Makes the objects of one directory."""
    create = _creator(directory, properties)
    return Outlet(PART_BYTES, lambda name: StoreTarget(f"{directory}/{name}", create))


class StoreTarget:
    """One object, which is there when it has ended."""

    block_bytes = 1

    def __init__(self, path: str, create: "Callable[[str], Any]") -> None:
        self.path = path
        self._sink = create(path)

    def write(self, data: memoryview, at: int) -> None:
        self._sink.write(data)

    def end(self, size: int) -> None:
        self._sink.close()


def _creator(directory: str, properties: Mapping[str, str]) -> "Callable[[str], Any]":
    """What opens an object for writing, by its whole name."""
    if properties == BY_URL:
        system = _unbuffered(system_of(directory))
        return lambda path: system.open_output_stream(path_in(path))
    from pyiceberg.io import load_file_io
    from pyiceberg.io.pyarrow import PyArrowFileIO

    files = load_file_io(dict(properties), directory)
    if not isinstance(files, PyArrowFileIO):
        return lambda path: files.new_output(path).create()
    scheme, netloc, _ = files.parse_location(directory, files.properties)
    system = _unbuffered(files.fs_by_scheme(scheme, netloc))
    return lambda path: system.open_output_stream(files.parse_location(path, files.properties)[2])


def _unbuffered(system: "FileSystem") -> "FileSystem":
    """The same, but that its uploads to S3 send what they are given, and copy nothing.

    Its state for pickling is the only way to all of its settings.
    """
    from pyarrow.fs import S3FileSystem

    if not isinstance(system, S3FileSystem):
        return system
    make, (settings,) = system.__reduce__()
    same: FileSystem = make({**settings, "background_writes": False})
    return same
