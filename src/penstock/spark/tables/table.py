"""A table's format, columns and partitions, and the check that it is the expected one.

A table directory says in ``_penstock/table.json`` how it was begun, so that every pipeline and
``compact`` agree about it.  A directory with data of another program is compared by the
schema of one of its files.  Either way a difference is reported before anything is written: rows
of two shapes in one table would fail later, in its readers.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import PenstockError
from pyspark_penstock.durable import write_synced

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET: Final = "parquet"
DELTA: Final = "delta"
FORMATS: Final = (PARQUET, DELTA)
DELTA_LOG: Final = "_delta_log"
NOTE: Final = "table.json"


class OtherTable(PenstockError):
    """The target holds a table of another shape."""

    fix = "land in another directory, or with the options this table was begun with"


@dataclass(frozen=True)
class Table:
    """A directory and what is to be in it."""

    directory: Path
    format: str = PARQUET
    partition_by: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        """What is not data; readers of tables skip names that begin with an underscore."""
        return self.directory / "_penstock"

    def check(self, schema: "pa.Schema") -> None:
        """Raises OtherTable when what is there differs; ``schema`` is that of a file."""
        noted = self._noted()
        self._check_format(begun=noted is not None)
        wanted = self._description(schema)
        if noted is not None:
            self._compare(noted, wanted)
        elif self.format == DELTA:
            self._check_delta(schema)
        else:
            self._check_file(schema)

    def describe(self, schema: "pa.Schema") -> None:
        """Write the note, once."""
        if self._noted() is None:
            write_synced(self.home / NOTE, json.dumps(self._description(schema), indent=1))

    def _check_format(self, *, begun: bool) -> None:
        """A Delta table of ours may hold files before its first transaction."""
        is_delta = (self.directory / DELTA_LOG).is_dir()
        if is_delta and self.format != DELTA:
            raise OtherTable(f"{self.directory} is a Delta table; a plain file is no part of it")
        if (
            self.format == DELTA
            and not is_delta
            and not begun
            and any_file(self.directory) is not None
        ):
            raise OtherTable(f"{self.directory} holds plain Parquet files and is no Delta table")

    def _noted(self) -> dict[str, Any] | None:
        try:
            noted: dict[str, Any] = json.loads((self.home / NOTE).read_text())
        except FileNotFoundError:
            return None
        return noted

    def _description(self, schema: "pa.Schema") -> dict[str, Any]:
        return {
            "format": self.format,
            "partition_by": list(self.partition_by),
            "columns": {field.name: _kind(field.type) for field in schema},
        }

    def _compare(self, noted: dict[str, Any], wanted: dict[str, Any]) -> None:
        for what in ("format", "partition_by", "columns"):
            if noted[what] != wanted[what]:
                there, asked = (_shown(found[what]) for found in (noted, wanted))
                difference = _difference(noted[what], wanted[what])
                raise OtherTable(
                    f"{self.directory} has other {what.replace('_', ' ')}: "
                    + (difference or f"{there}, not {asked}")
                )

    def _check_file(self, schema: "pa.Schema") -> None:
        file = any_file(self.directory)
        if file is None:
            return
        from pyarrow import parquet

        directories = file.relative_to(self.directory).parts[:-1]
        noted = self._description(parquet.read_schema(file)) | {
            "partition_by": [step.partition("=")[0] for step in directories]
        }
        self._compare(noted, self._description(schema))

    def _check_delta(self, schema: "pa.Schema") -> None:
        if not (self.directory / DELTA_LOG).is_dir():
            return
        from deltalake import DeltaTable

        table = DeltaTable(self.directory)
        there = {field.name for field in table.schema().fields}
        asked = set(schema.names) | set(self.partition_by)
        if there != asked or table.metadata().partition_columns != list(self.partition_by):
            raise OtherTable(
                f"{self.directory} is a Delta table with other columns or partitions: "
                f"{_difference(dict.fromkeys(there), dict.fromkeys(asked)) or 'partitions'}"
            )


def data_files(directory: Path) -> Iterator[Path]:
    """What a reader of the table reads: its files, and those of its partitions."""
    if (directory / DELTA_LOG).is_dir():
        from deltalake import DeltaTable

        yield from map(Path, DeltaTable(directory).file_uris())
        return
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(d for d in directories if d[0] not in "_.")
        for name in sorted(names):
            if name.endswith(".parquet") and name[0] not in "_.":
                yield Path(place) / name


def any_file(directory: Path) -> Path | None:
    """Some data file."""
    return next(data_files(directory), None)


def _kind(kind: "pa.DataType") -> str:
    """A type as text, without the names that Parquet gives to the parts of a map."""
    import pyarrow as pa

    if pa.types.is_map(kind):
        return f"map<{_kind(kind.key_type)}, {_kind(kind.item_type)}>"
    return str(kind)


def _difference(there: Any, asked: Any) -> str:
    if not isinstance(there, dict) or not isinstance(asked, dict):
        return ""
    parts = []
    for label, names in (
        ("it lacks", [n for n in asked if n not in there]),
        ("it has besides", [n for n in there if n not in asked]),
        ("of another type", [n for n in asked if n in there and there[n] != asked[n]]),
    ):
        if names:
            parts.append(f"{label} {', '.join(sorted(names))}")
    return "; ".join(parts)


def _shown(value: Any) -> str:
    return ", ".join(value) or "none" if isinstance(value, (list, dict)) else str(value)
