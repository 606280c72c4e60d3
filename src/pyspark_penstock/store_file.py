"""Files of a table in an object store, written by a worker.

In: a place such as ``s3://lake/orders/data``, and the properties of pyiceberg's ``FileIO`` for it
(``s3.endpoint``, ``s3.access-key-id``, …; what they do not say, the store's own client takes from
the environment or from its profile), or ``BY_URL``: all of it is in the environment.  Out: objects,
which appear whole when their file is closed, or with ``HELD`` when the driver completes their
upload.  A store has no fsync: what it has confirmed is durable by its own promise.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark_penstock.buffered_file import Outlet
from pyspark_penstock.s3_uploads import PART_BYTES, Uploads, can_upload, told_of

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


BY_URL: Final = {"client": "pyarrow"}
HELD: Final = "held-by"
"""A property: the uploads of files are left to the driver of that pipeline to be completed."""


def system_of(url: str) -> "FileSystem":
    from pyarrow.fs import FileSystem

    scheme, _, path = url.partition("://")
    return FileSystem.from_uri(f"{scheme}://{path.partition('/')[0]}")[0]


def path_in(url: str) -> str:
    return url.partition("://")[2]


def store_outlet(directory: str, properties: Mapping[str, str]) -> Outlet:
    """Makes the objects of one directory."""
    if can_upload(directory, properties):
        uploads = Uploads(directory, properties)
        is_held = HELD in properties
        return Outlet(
            PART_BYTES, lambda name: UploadTarget(uploads, f"{directory}/{name}", is_held)
        )
    create = _creator(directory, properties)
    return Outlet(PART_BYTES, lambda name: StoreTarget(f"{directory}/{name}", create))


class UploadTarget:
    """One object in S3; ``is_held``: its upload is not completed."""

    block_bytes = PART_BYTES
    is_padded = False

    def __init__(self, uploads: Uploads, path: str, is_held: bool) -> None:
        self.path = path
        self._uploads = uploads
        self._is_held = is_held
        self._upload = ""
        self._etags: list[str] = []
        self._is_whole = False

    def write(self, data: memoryview, at: int, *, is_last: bool) -> None:
        if is_last and at == 0 and not self._is_held:
            self._uploads.put_whole(self.path, data)
            self._is_whole = True
            return
        self._upload = self._upload or self._uploads.begin(self.path)
        number = len(self._etags) + 1
        self._etags.append(self._uploads.put_part(self.path, self._upload, number, data))

    def end(self, size: int) -> str:
        told = told_of(self._upload, self._etags)
        if self._is_held:
            return told
        if self._etags and not self._uploads.complete(self.path, told):
            raise OSError(f"the store has lost the upload of {self.path}")
        if not self._etags and not self._is_whole:
            self._uploads.put_whole(self.path, memoryview(b""))
        return ""


class StoreTarget:
    """One object of any store, which is there when it has ended."""

    block_bytes = 1
    is_padded = False

    def __init__(self, path: str, create: "Callable[[str], Any]") -> None:
        self.path = path
        self._sink = create(path)

    def write(self, data: memoryview, at: int, *, is_last: bool) -> None:
        self._sink.write(data)

    def end(self, size: int) -> str:
        self._sink.close()
        return ""


def _creator(directory: str, properties: Mapping[str, str]) -> "Callable[[str], Any]":
    """What opens an object for writing, by its whole name."""
    if properties == BY_URL:
        system = system_of(directory)
        return lambda path: system.open_output_stream(path_in(path))
    from pyiceberg.io import load_file_io

    files = load_file_io(dict(properties), directory)
    return lambda path: files.new_output(path).create()
