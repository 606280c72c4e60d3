"""A table's format, columns and partitions, and the check that it is the expected one.

A table directory says in ``_penstock/table.json`` how it was begun, so that every pipeline and
``compact`` agree about it.  A directory with data of another program is compared by the
schema of one of its files.  Either way a difference is reported before anything is written: rows
of two shapes in one table would fail later, in its readers.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.core.errors import PenstockError
from pyspark_penstock.durable import write_synced
from pyspark_penstock.table_files import parts_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from penstock.spark.tables.publishing import Places

PARQUET: Final = "parquet"
DELTA: Final = "delta"
ICEBERG: Final = "iceberg"
DELTA_LOG: Final = "_delta_log"
NOTE: Final = "table.json"


class OtherTable(PenstockError):
    """The target holds a table of another shape."""

    fix = "land in another directory, or with the options this table was begun with"


@dataclass(frozen=True)
class Table:
    directory: Path
    format: str = PARQUET
    partition_by: tuple[str, ...] = ()

    @property
    def home(self) -> Path:
        """What is not data; readers of tables skip names that begin with an underscore."""
        return self.directory / "_penstock"

    @classmethod
    def at(cls, directory: Path) -> "Table":
        """One that is there, of the format it has; enough to read it."""
        return cls(directory, DELTA if (directory / DELTA_LOG).is_dir() else PARQUET)

    def begun_partitions(self) -> tuple[str, ...] | None:
        """Of the table that an archive has begun there; None = there is none."""
        noted = self._noted()
        return None if noted is None else tuple(noted["partition_by"])

    def lacks(self, column: str) -> bool:
        noted = self._noted()
        if noted is not None:
            return column not in {*noted["columns"], *noted["partition_by"]}
        file = any_file(self.directory)
        if file is None:
            return False
        from pyarrow import parquet

        return column not in parquet.read_schema(file).names

    def __str__(self) -> str:
        return str(self.directory)

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def uri(self) -> str:
        """As libraries open it."""
        return str(self.directory)

    def places(self, pipeline: str) -> "Places":
        from penstock.spark.tables.publishing import Directory

        return Directory(self.directory, self.home / pipeline)

    def files(self) -> list[str]:
        return list(map(str, data_files(self.directory)))

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
                    f"{self} has other {what.replace('_', ' ')}: "
                    + (difference or f"{there}, not {asked}")
                )

    def _check_file(self, schema: "pa.Schema") -> None:
        file = any_file(self.directory)
        if file is None:
            return
        from pyarrow import parquet

        steps = file.relative_to(self.directory).parts[:-1]
        self._compare_file(parquet.read_schema(file), steps, schema)

    def _compare_file(self, there: "pa.Schema", steps: Sequence[str], schema: "pa.Schema") -> None:
        """``steps``: the directories of that file, below the table."""
        noted = self._description(there) | {
            "partition_by": [step.partition("=")[0] for step in steps]
        }
        self._compare(noted, self._description(schema))

    def _check_delta(self, schema: "pa.Schema") -> None:
        if not any((self.directory / DELTA_LOG).glob("*.json")):
            return
        from deltalake import DeltaTable

        self._compare_delta(DeltaTable(self.directory), schema)

    def _compare_delta(self, table: "DeltaTable", schema: "pa.Schema") -> None:
        there = {field.name for field in table.schema().fields}
        asked = set(schema.names) | set(self.partition_by)
        if there != asked or table.metadata().partition_columns != list(self.partition_by):
            raise OtherTable(
                f"{self} is a Delta table with other columns or partitions: "
                f"{_difference(dict.fromkeys(there), dict.fromkeys(asked)) or 'partitions'}"
            )


def data_files(directory: Path) -> Iterator[Path]:
    """What a reader of the table reads: its files, and those of its partitions."""
    if (directory / DELTA_LOG).is_dir():
        from deltalake import DeltaTable

        if any((directory / DELTA_LOG).glob("*.json")):  # else nothing was committed yet
            yield from map(Path, DeltaTable(directory).file_uris())
        return
    for place, directories, names in os.walk(directory):
        directories[:] = sorted(d for d in directories if d[0] not in "_.")
        for name in sorted(names):
            if name.endswith(".parquet") and name[0] not in "_.":
                yield Path(place) / name


def any_file(directory: Path) -> Path | None:
    return next(data_files(directory), None)


def _kind(kind: "pa.DataType") -> str:
    """A type as text, without the names that Parquet gives to the parts of a map or list."""
    import pyarrow as pa

    parts = parts_of(kind)
    if not parts:
        return str(kind)
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{part.name}: {_kind(part.type)}' for part in parts)}>"
    word = "map" if pa.types.is_map(kind) else "list"
    return f"{word}<{', '.join(_kind(part.type) for part in parts)}>"


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
