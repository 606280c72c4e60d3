"""Plain and Delta tables in an object store: ``s3://``, ``gs://``, ``abfs://``.

The pipeline's notes, its lock and its checkpoint are files of this machine, below
``$XDG_STATE_HOME/penstock/store``: a store can neither lock nor rename, and Spark's checkpoint
wants both.  So one driver at a time decides what is in the table, and the steps are those of a
directory, but for the renames.

**Plain files** (``publishing``): drafts are uploads to final names, which no reader sees before
they are completed.  The note of a batch has what completes each, and an object appears whole.  One
that has appeared is found by its name and size; a crash between two is mended as one between two
renames is.  What a killed run has left is aborted, where the store lists it.  In a store that is
not S3, drafts are objects below ``_penstock/``, which readers skip; the store copies each to its
name.

**Delta** (``delta``): its log decides, so workers' objects stay where they were written.  An entry
of the log is put under the condition that there is none of its name, which the library asks of the
store.  What a killed run has left is removed by Delta's VACUUM.

Addresses and keys are never options: the libraries take them from the environment
(``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, …), profiles or the machine's role.
"""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock.spark.state.places import file_name_of, state_home
from penstock.spark.tables.publishing import STAGING
from penstock.spark.tables.table import DELTA, DELTA_LOG, PARQUET, OtherTable, Table
from pyspark_penstock.s3_uploads import Uploads, can_upload
from pyspark_penstock.store_file import BY_URL, HELD, path_in, system_of
from pyspark_penstock.table_files import Draft

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileInfo


class Store:
    """The objects of a table, as ``publishing`` asks for files; names are paths below ``url``.

    ``holds``: drafts are uploads to their final names.
    """

    def __init__(self, url: str, pipeline: str = "", *, holds: bool = False) -> None:
        self._url = url
        self._pipeline = pipeline
        self._holds = holds
        self.store: Mapping[str, str] = {**BY_URL, HELD: pipeline} if holds else BY_URL

    @contextmanager
    def drafts_dir(self, _query: str, _batch: int) -> Iterator[str]:
        place = self._url if self._holds else f"{self._staging}/{uuid.uuid4().hex}"
        yield place
        if not self._holds:
            self._remove(place)

    def sweep(self) -> None:
        """What killed runs have left; the caller is alone."""
        self._remove(self._staging)
        if self._holds:
            mine = re.compile(rf"{re.escape(self._pipeline)}-[0-9]{{8}}-[0-9a-f]{{32}}\.parquet")
            with suppress(OSError):  # as of ``_remove``
                self._uploads.abort_below(self._url, mine)

    def check(self, drafts: list[Draft]) -> None:
        """A worker's object is seen from everywhere."""

    def noted(self, draft: Draft) -> str:
        return draft.upload or self._below(draft.path)

    def final(self, draft: Draft, name: str) -> str:
        """An upload has had its name from the beginning."""
        return self._below(draft.path) if draft.upload else name

    def _below(self, path: str) -> str:
        return path.removeprefix(self._url + "/")

    def put(self, noted: str, name: str, size: int | None) -> bool:
        """Under its final name, if it is not there; False = neither is there."""
        if self._size(name) == size:
            return True
        if noted.startswith("["):
            url = f"{self._url}/{name}"
            return self._uploads.complete(url, noted) or self._size(name) == size
        if self._size(noted) is None:
            return False
        self._system.copy_file(path_in(f"{self._url}/{noted}"), path_in(f"{self._url}/{name}"))
        return True

    def settle(self, names: list[str]) -> None:
        """What a store has confirmed is durable by its own promise."""

    def footer(self, name: str) -> "pa.parquet.FileMetaData":
        from pyarrow import parquet

        path = path_in(f"{self._url}/{name}")
        return parquet.read_metadata(path, filesystem=self._system)

    def read(self, drafts: list[Draft]) -> "pa.Table":
        from pyarrow import parquet

        paths = [path_in(draft.path) for draft in drafts]
        return parquet.read_table(paths, filesystem=self._system, partitioning=None)

    def has(self, name: str) -> bool:
        from pyarrow.fs import FileType

        info = self._system.get_file_info(path_in(f"{self._url}/{name}"))
        return bool(info.type != FileType.NotFound)

    def listed(self) -> "list[FileInfo]":
        from pyarrow.fs import FileSelector

        root = path_in(self._url)
        selector = FileSelector(root, allow_not_found=True, recursive=True)
        return [
            one
            for one in self._system.get_file_info(selector)
            if one.is_file
            and one.path.endswith(".parquet")
            and not any(step[0] in "_." for step in one.path.removeprefix(root + "/").split("/"))
        ]

    def schema_of(self, path: str) -> "pa.Schema":
        from pyarrow import parquet

        return parquet.read_schema(path, filesystem=self._system)

    @property
    def _staging(self) -> str:
        return f"{self._url}/_penstock/{self._pipeline}/{STAGING}"

    @property
    def _uploads(self) -> Uploads:
        return Uploads(self._url, BY_URL)

    @cached_property
    def _system(self) -> Any:
        return system_of(self._url)

    def _size(self, name: str) -> int | None:
        info = self._system.get_file_info(path_in(f"{self._url}/{name}"))
        return info.size if info.is_file else None

    def _remove(self, place: str) -> None:
        """Nothing that counts is there, so a store that does not let us is no error."""
        with suppress(OSError):
            self._system.delete_dir(path_in(place))


@dataclass(frozen=True)
class StoreTable(Table):
    """``directory`` has the notes; ``url`` is the table."""

    url: str = ""

    @classmethod
    def of(cls, url: str, table_format: str, partition_by: tuple[str, ...]) -> "StoreTable":
        url = url.rstrip("/")
        return cls(state_home() / "store" / file_name_of("/", url), table_format, partition_by, url)

    @classmethod
    def there(cls, url: str) -> "StoreTable":
        """One that is there, of the format it has; enough to read it."""
        return cls.of(url, DELTA if Store(url.rstrip("/")).has(DELTA_LOG) else PARQUET, ())

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    @property
    def uri(self) -> str:
        return self.url

    def places(self, pipeline: str) -> Store:
        holds = self.format == PARQUET and can_upload(self.url, BY_URL)
        return Store(self.url, pipeline, holds=holds)

    def files(self) -> list[str]:
        if self.format == DELTA:
            from deltalake import DeltaTable

            return list(DeltaTable(self.url).file_uris())
        scheme = self.url.partition("://")[0]
        return [f"{scheme}://{one.path}" for one in Store(self.url).listed()]

    def check(self, schema: "pa.Schema") -> None:
        """Files of another program, or of a machine whose notes are not here, are compared."""
        if self.begun_partitions() is not None:
            super().check(schema)
        elif self.format == DELTA:
            self._check_log(schema)
        else:
            self._check_objects(schema)

    def _check_log(self, schema: "pa.Schema") -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            self._compare_delta(DeltaTable(self.url), schema)
        except TableNotFoundError:
            return

    def _check_objects(self, schema: "pa.Schema") -> None:
        store = Store(self.url)
        found = store.listed()
        if not found:
            return
        if store.has(DELTA_LOG):
            raise OtherTable(f"{self} is a Delta table; a plain file is no part of it")
        steps = found[0].path.removeprefix(path_in(self.url) + "/").split("/")[:-1]
        self._compare_file(store.schema_of(found[0].path), steps, schema)
