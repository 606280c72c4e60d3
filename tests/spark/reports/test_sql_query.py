"""``penstock pipeline sql``: queues asked in SQL, on a real broker."""

from __future__ import annotations

import io
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from penstock.spark.dataframes.sql_tables import rewrite
from penstock.spark.launcher.failures import WrongQuery, explained
from penstock.spark.reports import sql_query
from penstock_ranges.subscriptions import BY_TOPIC
from pyspark_penstock import client
from pyspark_penstock.endpoints import parse_url
from tests.helpers.broker_process import BrokerProcess
from tests.spark.spark_tools import Pipelines, depth, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def ask(
    spark: SparkSession, url: str, query: str, limit: int | None = None
) -> list[tuple[Any, ...]]:
    rewritten = rewrite(query)
    found = sql_query.extents(url, rewritten)
    return [tuple(row) for row in sql_query.run(spark, rewritten, found, limit, url).collect()]


def test_queues_are_tables_and_stay_as_they_are(spark: SparkSession, broker: BrokerProcess) -> None:
    for n in range(6):
        body = json.dumps({"id": n, "customer": "ab"[n % 2]}).encode()
        publish(broker.url, "asked", [body], message_id=f"m{n}")
    publish(broker.url, "answered", [b"ok", b"ok"], correlation_id="m3")
    query = """
        select get_json_object(cast(body as string), '$.customer') as customer, count(*) as n
        from queue('asked') group by 1 order by 1
    """
    assert ask(spark, broker.url, query) == [("a", 3), ("b", 3)]
    query = """
        with open as (
            select q.message_id from queue('asked') q
            left anti join queue('answered') a on q.message_id = a.correlation_id
        )
        select max(message_id), count(*), 'queue(''asked'')' from open
    """
    assert ask(spark, broker.url, query) == [("m5", 5, "queue('asked')")]
    assert len(ask(spark, broker.url, "select * from queue('asked')", limit=2)) == 3
    query = "select count(*) from queue('asked') a, queue('asked') b"
    assert ask(spark, broker.url, query) == [(36,)]
    assert (depth(broker.url, "asked"), depth(broker.url, "answered")) == (6, 2)


def test_a_channel_of_a_topic_is_a_table_if_it_is_there(
    spark: SparkSession, own_broker: BrokerProcess
) -> None:
    url = own_broker.url
    endpoint = parse_url(url)
    client.subscribe(endpoint, BY_TOPIC, ("clicks", "lake"), make=True)
    connection = pika.BlockingConnection(pika.URLParameters(url))
    for n in range(3):
        connection.channel().basic_publish("nsq.clicks", "", b"%d" % n)
    connection.close()
    query = "select cast(body as string) from topic('clicks', 'lake') order by 1"
    assert ask(spark, url, query) == [("0",), ("1",), ("2",)]
    with pytest.raises(client.Refused):
        sql_query.extents(url, rewrite("select 1 from topic('clicks', 'nobody')"))


# -- rows as text ----------------------------------------------------------------------------

ROWS = [
    (1, b"text", None, {"a": [1, b"\xff"]}, 1.5, True),
    (2, b"\x00\xff", 'a,"b"\n\x1b[31m', {}, float("nan"), False),
]
NAMES = ("id", "body", "note", "nested", "share", "flag")


def written(form: str, rows: Any = ROWS) -> str:
    out = io.StringIO()
    sql_query.WRITERS[form](out, NAMES, rows)
    return out.getvalue()


def test_rows_as_json() -> None:
    first, second = map(json.loads, written("json").splitlines())
    assert first == {
        "id": 1, "body": "text", "note": None, "nested": {"a": [1, "0xff"]}, "share": 1.5,
        "flag": True,
    }  # fmt: skip
    assert (second["body"], second["share"]) == ("0x00ff", "nan")


def test_rows_as_csv() -> None:
    import csv

    rows = [*csv.reader(io.StringIO(written("csv")))]
    assert rows[0] == [*NAMES]
    assert rows[1] == ["1", "text", "", '{"a": [1, "0xff"]}', "1.5", "true"]
    assert rows[2][2] == 'a,"b"\n\x1b[31m'


def test_rows_as_table_leave_the_terminal_alone() -> None:
    text = written("table", [*ROWS, (3, b"x" * 100, "y", None, Decimal("1.10"), None)])
    assert "\x1b" not in text
    lines = text.splitlines()
    assert len(lines) == 5
    assert lines[0].split() == [*NAMES]
    assert "x…" in lines[4]
    assert lines[4].split()[3:] == ["NULL", "1.10", "NULL"]
    many = written("table", [(n, b"", "", "", 0, 0) for n in range(500)])
    assert len(many.splitlines()) == 502


def test_one_row_too_many_only_says_that_there_are_more() -> None:
    rows = sql_query.Counted([(1,), (2,), (3,)], 2)
    assert [*rows] == [(1,), (2,)]
    assert (rows.count, rows.more) == (2, True)
    rows = sql_query.Counted([(1,), (2,)], 2)
    assert [*rows] == [(1,), (2,)]
    assert not rows.more


# -- as a command ----------------------------------------------------------------------------


def test_the_command_prints_rows_and_the_summary_beside_them(
    broker: BrokerProcess, pipelines: Pipelines
) -> None:
    publish(broker.url, "shop's", [b"%d" % n for n in range(5)])
    query = "select seq_id, body from queue('shop''s') order by 1"
    done = pipelines.run(broker.url, "sql", query, "--format", "csv", "--limit", "3")
    assert done.stdout == "seq_id,body\n0,0\n1,1\n2,2\n"
    told = json.loads(done.stderr.splitlines()[-1])
    assert (told["rows"], told["more"], told["queues"]) == (3, True, ["shop's"])


@pytest.mark.parametrize(
    "more,code,complaint",
    [
        (["select 1 from queue('nobody')"], 1, "no queue 'nobody' in vhost '/'"),
        (["drop table x"], 2, "a query begins with SELECT"),
        (["select 1 from queue(x)"], 2, "line 1, column 15: write queue('name')"),
        (["select 1", "-o", "json"], 2, "name a file with --out"),
        (["select 1", "--stream"], 2, "No such option '--stream'"),
    ],
)
def test_wrong_usage_is_told_before_spark_starts(
    broker: BrokerProcess, pipelines: Pipelines, more: list[str], code: int, complaint: str
) -> None:
    assert complaint in pipelines.refused(broker.url, "sql", *more, code=code)


def test_a_syntax_error_names_its_place(spark: SparkSession, broker: BrokerProcess) -> None:
    publish(broker.url, "typed", [b"1"])
    with pytest.raises(WrongQuery, match="line 1, pos "), explained():
        ask(spark, broker.url, "select body form queue('typed') where")


def test_a_wrong_name_is_told_with_its_place_and_leaves_nothing_behind(
    broker: BrokerProcess,
    pipelines: Pipelines,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(broker.url, "typed", [b"1"])
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    done = pipelines.run(broker.url, "sql", "select bodi from queue('typed')", code=1)
    assert "line 1 pos 7" in done.stderr
    assert "fix: correct the SQL" in done.stderr
    assert not list(tmp_path.glob("penstock-*"))


def test_a_dry_run_only_looks(own_broker: BrokerProcess, pipelines: Pipelines) -> None:
    publish(own_broker.url, "look", [b"x"] * 3)
    query = "select body from queue('look')"
    told = pipelines.run(own_broker.url, "sql", query, "--dry-run").summary()
    assert told["columns"] == ["body"]
    assert told["tables"]["penstock_view_0"]["ready"] == 3
