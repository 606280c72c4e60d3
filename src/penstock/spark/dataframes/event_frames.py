"""The event log as a DataFrame, and how it gets here from a broker.

In: a directory of ``events-*.jsonl`` (docs/formats/event_log.md), or a broker's address.  Out: one
row an event, a column for each field there is.  Lines whose checksum does not fit are left out
and counted: a file may end in one.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.core.errors import PenstockError
from penstock.core.events.kinds import CHECK_BEGINS, CHECK_BYTES, FIELDS
from pyspark_penstock.endpoints import parse_url
from pyspark_penstock.report_client import EventClient

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATTERN = "events-*.jsonl"
PARTITIONS = "4"


class NoEvents(PenstockError):
    """There is no event log, or nothing in it for the time that was asked for."""

    fix = "the broker writes one while its setting event_log is on, an entry every few seconds"


class Covered(NamedTuple):
    """What a log tells of: from and until are times of events, in ms."""

    from_ms: int
    until_ms: int
    broken_lines: int


def fetch_events(url: str, directory: Path) -> int:
    """Copy a broker's event log; returns its bytes.  Raises ConnectionLost and Refused."""
    directory.mkdir(parents=True, exist_ok=True)
    total = 0
    with EventClient(parse_url(url)) as client:
        client.login()
        for name, size in client.files():
            with (directory / name).open("wb") as file:
                while file.tell() < size:
                    data = client.read(name, file.tell())
                    if not data:
                        break
                    file.write(data)
                total += file.tell()
    return total


def check_directory(directory: Path) -> None:
    """Raises NoEvents, before anything expensive is done."""
    if not directory.is_dir():
        raise NoEvents(f"there is no directory {directory}")
    if not any(directory.glob(PATTERN)):
        raise NoEvents(f"{directory} holds no file {PATTERN}")


def read_events(
    spark: "SparkSession", directory: Path, kinds: Sequence[str], since_s: float | None
) -> "tuple[DataFrame, Covered]":
    """Events of these kinds, of the last ``since_s`` seconds of the log if given.

    Raises NoEvents when there is none at all in that time.
    """
    from pyspark.sql import functions as f

    check_directory(directory)
    spark.conf.set("spark.sql.shuffle.partitions", PARTITIONS)  # groups are few and small
    lines = spark.read.text(str(directory / PATTERN))
    at = f"length(value) - {CHECK_BYTES}"
    check = f"lower(lpad(hex(crc32(substring(value, 1, {at}))), 8, '0'))"
    begins = CHECK_BEGINS.replace('"', '\\"')
    whole = f.expr(f'substring(value, {at} + 1) = concat("{begins}", {check}, "\\"}}")')
    schema = ", ".join(f"{name} {kind}" for name, kind in FIELDS.items())
    read = f.when(whole, f.from_json("value", schema))
    rows = lines.select(read.alias("e")).persist()
    last, first, broken = _covered(rows)
    if last is None:
        raise NoEvents(f"{directory} holds no whole event")
    from_ms = first if since_s is None else max(first, last - round(1000 * since_s))
    events = rows.where("e is not null").select("e.*")
    chosen = events.where(f.col("event").isin(*kinds) & (f.col("at_ms") >= from_ms))
    return chosen, Covered(from_ms, last, broken)


def _covered(rows: "DataFrame") -> Any:
    from pyspark.sql import functions as f

    return rows.agg(
        f.max("e.at_ms"), f.min("e.at_ms"), f.sum(f.expr("case when e is null then 1 else 0 end"))
    ).first()
