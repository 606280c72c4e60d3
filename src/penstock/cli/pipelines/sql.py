"""``penstock pipeline sql``: a question to queues, as one looks into tables."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import (
    EXIT_CODES,
    LOCAL_PATH,
    SHORT_MESSAGES_MAX,
    Common,
    asking_broker,
    check_output,
    check_spark,
    common_options,
    say_summary,
    spark_for,
)

if TYPE_CHECKING:
    from penstock.spark.dataframes.browsing import Extent
    from penstock.spark.dataframes.sql_tables import Rewritten

EXAMPLES = """
\b
Rows go to standard output, or to the file --out names. The summary is the last line of
standard error, and of standard output when there are no rows on it.

\b
Columns of a queue: seq_id, body, exchange, routing_key, enqueued_at, message_id, headers
and the other properties. body is bytes: cast(body as string) is its text.

\b
Examples:
  penstock pipeline sql "select routing_key, count(*) from queue('orders') group by 1"
  penstock pipeline sql "select get_json_object(cast(body as string), '$.customer') as customer,
      count(*) as n from queue('orders') group by 1 order by n desc" --limit 10
  penstock pipeline sql "select o.message_id from queue('orders') o
      left anti join queue('paid') p on o.message_id = p.correlation_id" --format csv
"""


@click.command(epilog=EXIT_CODES + EXAMPLES)
@click.argument("query")
@option(
    "--format form", "json: an object per line.", click.Choice(["table", "json", "csv"]), "table"
)
@option("--limit", "At most so many rows; 0 = all.", click.IntRange(0), 1000)
@option("--out", "Write the rows to this file.", LOCAL_PATH)
@common_options(stream=False, group=False)
def sql(common: Common, query: str, form: str, limit: int, out: Path | None) -> None:
    """Ask queues in SQL: queue('orders') is a table; so are stream('s') and topic('t', 'channel').

    QUERY is a SELECT of Spark's SQL.  Messages are looked at, none is taken, and consumers
    may go on.  A query is answered from what is there when it starts; for answers that go on
    with the stream of messages write a Spark program (see the guide's recipes).
    """
    from penstock.spark.dataframes.sql_tables import BadSql, rewrite

    try:
        rewritten = rewrite(query)
    except BadSql as error:
        raise click.UsageError(str(error)) from error
    check_output(out)
    if common.output == "json" and out is None:
        raise click.UsageError("-o json leaves no place for the rows: name a file with --out")
    check_spark(common)
    from penstock.spark.reports.sql_query import extents

    with asking_broker():
        found = extents(common.url, rewritten)
    if common.dry_run:
        _show_plan(rewritten, found)
        return
    started_s = time.monotonic()
    told = _run(common, rewritten, found, form, limit or None, out)
    told |= {"seconds": round(time.monotonic() - started_s, 1)}
    say_summary(told, err=out is None)


def _show_plan(query: "Rewritten", found: "dict[str, Extent]") -> None:
    from penstock.spark.dataframes.sql_tables import columns
    from pyspark_penstock.options import COLUMNS, DEFAULT_COLUMNS

    tables = {
        view: {"kind": place.kind, "names": place.names} | {"ready": found[view].ready}
        for view, place in query.views.items()
    }
    read = columns(query, COLUMNS, DEFAULT_COLUMNS)
    say_summary({"dry_run": True, "query": query.text, "tables": tables, "columns": read})


def _run(
    common: Common,
    query: "Rewritten",
    found: "dict[str, Extent]",
    form: str,
    limit: int | None,
    target: Path | None,
) -> dict[str, Any]:
    from penstock.spark.dataframes.browsing import scratch
    from penstock.spark.reports.sql_query import WRITERS, Counted, run

    short = sum(extent.ready for extent in found.values()) <= SHORT_MESSAGES_MAX
    with scratch() as home, spark_for("sql", common, home, short=short) as spark:
        frame = run(spark, query, found, limit)
        rows = Counted(frame.toLocalIterator(), limit)
        with _opened(target) as file:
            WRITERS[form](file, frame.columns, rows)
        queues = [place.names[0] for place in query.views.values()]
        return {"rows": rows.count, "more": rows.more, "queues": queues, "out": target}


@contextmanager
def _opened(target: Path | None) -> Iterator[TextIO]:
    if target is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        with target.open("w", encoding="utf-8", newline="") as file:
            yield file
    except OSError as error:
        raise Failure(f"cannot write the rows: {error}", "give another --out") from error
