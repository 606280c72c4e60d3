"""Which table a pipeline means: a directory, or a name in an Iceberg catalog."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from penstock.cli.failure import Failure
from penstock.cli.options import all_of, option
from penstock.cli.pipelines.common import LOCAL_PATH, one_line

if TYPE_CHECKING:
    from penstock.spark.tables.iceberg import IcebergTable
    from penstock.spark.tables.landing import LakeTable
    from penstock.spark.tables.table import Table

CATALOG_WORDS = ("catalog", "catalog_uri", "warehouse")
STORES = ("file", "s3", "gs", "abfs", "abfss")


class _TablePlace(click.ParamType["Path | str"]):
    """A directory of this machine, absolute, or the URL of a place in an object store."""

    name = "text"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        scheme, _, place = str(value).partition("://")
        if scheme not in STORES[1:]:
            return LOCAL_PATH.convert(value, param, ctx)
        from penstock.spark.state.places import KeysInUrl, check_no_keys

        try:
            check_no_keys(str(value))
        except KeysInUrl as error:
            self.fail(str(error), param, ctx)
        if "/" not in place.rstrip("/"):
            self.fail(f"{value} is a whole bucket: name a place in it", param, ctx)
        return str(value)


TABLE_PLACE = _TablePlace()

catalog_options = all_of(
    option(
        "--catalog", "Iceberg: a catalog of pyiceberg's configuration (default).", metavar="NAME"
    ),
    option("--catalog-uri", "Iceberg: its address, such as sqlite:///catalog.db.", metavar="URI"),
    option(
        "--warehouse",
        "Iceberg: where new tables are; a directory, or s3://, gs://, abfs://.",
        metavar="DIR",
    ),
)


def table_at(place: Path | str, table_format: str, partition_by: tuple[str, ...]) -> "Table":
    """``place`` as ``TABLE_PLACE`` has it."""
    from penstock.spark.tables.store import StoreTable
    from penstock.spark.tables.table import Table

    if isinstance(place, Path):
        return Table(place, table_format, partition_by)
    return StoreTable.of(place, table_format, partition_by)


def begun_table(
    place: Path | str | None,
    name: str | None,
    words: Mapping[str, str | None],
    *,
    table_format: str,
    partition_by: tuple[str, ...] | None,
    endless: bool,
) -> "LakeTable":
    """The table that a pipeline makes if it is not there, or one for each queue (``{queue}``).

    ``partition_by`` None = as the table has them; ``endless``: it gets many small files.
    Raises UsageError.
    """
    from penstock.spark.state.places import file_name_of, state_home
    from penstock.spark.tables.per_queue import QUEUE, TablePerQueue

    def table(place: Path | str | None, name: str | None) -> "LakeTable":
        parts = partition_by
        if parts is None:
            parts = _partitions(place, endless=endless and table_format == "parquet")
        return meant_table(
            place, name, words, flag="--to", table_format=table_format, partition_by=parts
        )

    def of(queue: str) -> "LakeTable":
        step = file_name_of("/", queue)
        if name is not None:
            return table(None, name.replace(QUEUE, re.sub(r"\W", "_", queue, flags=re.ASCII)))
        filled = str(place).replace(QUEUE, step)
        return table(filled if isinstance(place, str) else Path(filled), None)

    text = str(place or name)
    if QUEUE not in text:
        return table(place, name)
    of("orders")  # what is wrong with it is said before anything runs
    root = state_home() / "queues" / file_name_of("/", text)
    if isinstance(place, Path):
        root = next(one for one in reversed(place.parents) if QUEUE in place.parts[len(one.parts)])
    return TablePerQueue(text, root, table_format, partition_by or (), of)


def _partitions(place: Path | str | None, *, endless: bool) -> tuple[str, ...]:
    """Without the option; many small files without partitions could not be compacted."""
    from penstock.spark.tables.table import PARQUET, any_file

    if place is None:
        return ()
    begun = table_at(place, PARQUET, ()).begun_partitions()
    if begun is not None:
        return begun
    alone = isinstance(place, Path) and any_file(place) is None
    return ("day",) if endless and alone else ()


@contextmanager
def asking_store(place: object) -> Iterator[None]:
    """That an object store is away, or says no, in a user's words."""
    try:
        yield
    except OSError as error:
        fix = "look at the address, the region and the keys (AWS_ENDPOINT_URL, AWS_REGION, …)"
        raise Failure(f"{place}: {one_line(str(error))}", fix) from error


def meant_table(
    directory: Path | str | None,
    name: str | None,
    words: Mapping[str, str | None],
    *,
    flag: str,
    table_format: str = "",
    partition_by: tuple[str, ...] = (),
) -> "LakeTable":
    """The table that is meant; ``flag`` gives the directory, ``words`` are of ``CATALOG_WORDS``.

    ``table_format`` "" = the one that is there.
    Raises UsageError.
    """
    if (directory is None) == (name is None):
        raise click.UsageError(f"say which table by one of {flag} and --table")
    if name is not None:
        return iceberg_named(name, words, partition_by)
    assert directory is not None
    given = [word for word in CATALOG_WORDS if words[word] is not None]
    if given:
        raise click.UsageError(f"--{given[0].replace('_', '-')} belongs to --table")
    if table_format:
        return table_at(directory, table_format, partition_by)
    if isinstance(directory, str):
        from penstock.spark.tables.store import StoreTable

        with asking_store(directory):
            return StoreTable.there(directory)
    from penstock.spark.tables.table import Table

    return Table.at(directory)


def iceberg_named(
    name: str, words: Mapping[str, str | None], partition_by: tuple[str, ...] = ()
) -> "IcebergTable":
    """The table ``namespace.name`` that the catalog's options mean; raises UsageError."""
    catalog, uri, warehouse = (words[word] or "" for word in CATALOG_WORDS)
    if not all(name.split(".")) or "." not in name:
        raise click.UsageError(f"--table: {name!r} is not a name such as lake.orders")
    if urlsplit(uri).password is not None:
        raise click.UsageError(
            "--catalog-uri: a password here is seen by all users of this machine; put the URI into"
            " pyiceberg's configuration (~/.pyiceberg.yaml, or the environment:"
            " PYICEBERG_CATALOG__NAME__URI) and give --catalog NAME"
        )
    from penstock.spark.state.places import KeysInUrl, check_no_keys

    try:
        check_no_keys(warehouse)
    except KeysInUrl as error:
        raise click.UsageError(f"--warehouse: {error}") from error
    scheme = warehouse.partition("://")[0] if "://" in warehouse else "file"
    if scheme not in STORES:
        raise click.UsageError(
            f"--warehouse: {scheme}:// is none of a directory, {', '.join(STORES[1:])}"
        )
    from penstock.spark.tables.iceberg import iceberg_table

    return iceberg_table(name, catalog or "default", uri, warehouse, partition_by)
