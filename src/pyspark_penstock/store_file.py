"""Files of a table in an object store, written by a worker.

In: a place such as ``s3://lake/orders/data``, and the properties of pyiceberg's ``FileIO`` for it
(``s3.endpoint``, ``s3.access-key-id``, …; what they do not say, the store's own client takes from
the environment or from its profile), or ``BY_URL``: all of it is in the environment.  Out: objects,
which appear whole when their file is closed.  A store has no fsync: what it has confirmed is
durable by its own promise.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem


BY_URL: Final = {"client": "pyarrow"}


def system_of(url: str) -> "FileSystem":
    from pyarrow.fs import FileSystem

    scheme, _, path = url.partition("://")
    return FileSystem.from_uri(f"{scheme}://{path.partition('/')[0]}")[0]


def path_in(url: str) -> str:
    return url.partition("://")[2]


def _creator(directory: str, properties: Mapping[str, str]) -> "Callable[[str], pa.NativeFile]":
    if properties == BY_URL:
        system = system_of(directory)
        return lambda path: system.open_output_stream(path_in(path))
    from pyiceberg.io import load_file_io

    files = load_file_io(dict(properties), directory)
    return lambda path: files.new_output(path).create()


class StoreOutlet:
    """Makes the files of one directory; the counterpart of ``direct_file.DirectOutlet``."""

    def __init__(self, directory: str, properties: Mapping[str, str]) -> None:
        self._directory = directory
        self._create = _creator(directory, properties)

    def file(self, name: str) -> "StoreFile":
        path = f"{self._directory}/{name}"
        return StoreFile(path, self._create(path))

    def settle(self) -> None:
        """Every closed file is complete."""


class StoreFile:
    """One object; ``sink`` is what pyarrow writes into, ``size`` how much it has."""

    def __init__(self, path: str, sink: "pa.NativeFile") -> None:
        self.path = path
        self.sink = sink
        self.size = 0

    def pause(self) -> None:
        self.size = self.sink.tell()

    def close(self) -> None:
        self.pause()
        self.sink.close()
