"""Which messages of an archive go where, and the columns made of their bodies.

``--columns`` and ``--avro-schema`` make columns; ``--quarantine TABLE`` is for messages whose body
does not fit them; ``--where CONDITION`` chooses messages for the table, ``--rest`` says where the
others go.  The tables have the format of that of ``--to`` or ``--table``: directories, or names in
its catalog.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.failure import Failure
from penstock.cli.options import all_of, option
from penstock.cli.pipelines.lake import TABLE_PLACE, table_at

if TYPE_CHECKING:
    from penstock.spark.tables.landing import LakeTable
    from penstock.spark.tables.parts import Sorting
    from pyspark_penstock.body_columns import BodyDecoding

DROP = "drop"
QUARANTINE_BY = ("day",)
SORTING_WORDS = (
    "columns",
    "avro_schema",
    "avro_ids",
    "quarantine",
    "where",
    "rest",
    "merge_on",
    "delete_where",
)

sorting_options = all_of(
    option(
        "--columns",
        "Columns of JSON bodies and of headers beside the body: 'id long not null, at timestamp,"
        " city string from customer.city, region string from header x-region'.",
        metavar="NAME TYPE,…",
    ),
    option(
        "--avro-schema",
        "Bodies are Avro records of the schema in this file; without --columns each field is one.",
        metavar="FILE",
    ),
    option(
        "--avro-ids",
        "With --avro-schema: each body has a schema registry's header, with one of these ids.",
        metavar="ID,…",
    ),
    option(
        "--quarantine",
        "With columns: the table of messages whose body does not fit, with the reason.",
        metavar="TABLE",
    ),
    option(
        "--where",
        "Which messages the table gets, as in \"routing_key like 'eu.%' and priority > 3\".",
        metavar="CONDITION",
    ),
    option(
        "--rest",
        "With --where: the table of the others, or drop: they are acknowledged and counted.",
        metavar="TABLE",
    ),
    option(
        "--merge-on",
        "A row per key: the last message of these columns replaces it (Delta, Iceberg).",
        metavar="COLUMN,…",
    ),
    option(
        "--delete-where",
        "With --merge-on: which messages remove the row of their key, as in \"op = 'd'\".",
        metavar="CONDITION",
    ),
)


def sorting_of(
    given: Mapping[str, str | None], table: "LakeTable", *, messages_stay: bool
) -> "Sorting":
    """``given``: by ``SORTING_WORDS``; ``messages_stay``: what is left out is still in a stream."""
    from penstock.spark.tables.parts import Sorting

    decoding = decoding_of(given)
    where, rest, quarantine = (given[word] for word in ("where", "rest", "quarantine"))
    if quarantine and not decoding.columns:
        raise click.UsageError("--quarantine belongs to --columns or --avro-schema")
    merge_on, delete_where = given["merge_on"], given["delete_where"]
    if merge_on and not quarantine:
        raise click.UsageError(
            "--merge-on needs --quarantine TABLE: a message without a key has no row"
        )
    if delete_where and not merge_on:
        raise click.UsageError("--delete-where belongs to --merge-on")
    if rest and not where:
        raise click.UsageError("--rest belongs to --where")
    if where and not rest and not messages_stay:
        raise click.UsageError(
            "--where: what it does not choose leaves the queue as well; say where to: --rest TABLE,"
            " or --rest drop"
        )
    return Sorting(
        decoding,
        where or "",
        _beside(table, rest, "--rest") if rest and rest != DROP else None,
        _beside(table, quarantine, "--quarantine", QUARANTINE_BY) if quarantine else None,
        tuple(name.strip() for name in (merge_on or "").split(",") if name.strip()),
        delete_where or "",
    )


def decoding_of(given: Mapping[str, str | None]) -> "BodyDecoding":
    from pyspark_penstock.body_columns import BodyDecoding, parse_body_columns
    from pyspark_penstock.options import COLUMNS
    from pyspark_penstock.table_files import BATCH_COLUMN, TIMES

    taken, text = (*COLUMNS, *TIMES, BATCH_COLUMN), given["columns"]
    flag = "columns"
    try:
        columns = parse_body_columns(text, taken) if text else ()
        if given["avro_schema"] is None:
            if given["avro_ids"] is not None:
                raise click.UsageError("--avro-ids belongs to --avro-schema")
            return BodyDecoding(columns)
        flag = "avro-schema"
        from pyspark_penstock.avro_bodies import avro_columns, avro_reader

        avro = Path(given["avro_schema"]).expanduser().read_text(encoding="utf-8")
        avro_reader(avro)
        columns = columns or avro_columns(avro, taken)
        flag = "avro-ids"
        return BodyDecoding(columns, avro, _ids(given["avro_ids"]))
    except (ValueError, OSError) as error:
        raise click.UsageError(f"--{flag}: {error}") from error
    except ModuleNotFoundError as error:
        fix = "install it: pip install 'penstock-broker[spark]'"
        raise Failure(f"Avro bodies need the package {error.name}", fix) from error


def _ids(text: str | None) -> tuple[int, ...]:
    """Raises ValueError."""
    words = [] if text is None else [one.strip() for one in text.split(",")]
    if not all(one.isascii() and one.isdigit() and int(one) < 1 << 32 for one in words):
        raise ValueError(f"{text!r} is no list of ids from 0 to 4294967295")
    return tuple(map(int, words))


def _beside(
    table: "LakeTable", place: str, flag: str, partition_by: tuple[str, ...] | None = None
) -> "LakeTable":
    from penstock.spark.tables.iceberg import IcebergTable

    parts = table.partition_by if partition_by is None else partition_by
    if isinstance(table, IcebergTable):
        if not all(place.split(".")) or "." not in place:
            raise click.UsageError(f"{flag}: {place!r} is not a name such as lake.orders")
        found: LakeTable = replace(table, name=place, partition_by=parts)
    else:
        found = table_at(TABLE_PLACE.convert(place, None, None), table.format, parts)
    if str(found) == str(table):
        raise click.UsageError(f"{flag}: {place} is the table itself")
    return found
