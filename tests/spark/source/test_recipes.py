"""The programs of docs/guide/spark-recipes.md, run as they stand there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from pyspark_penstock import planner
from pyspark_penstock.endpoints import parse_url
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.live_broker import REPOSITORY
from tests.spark.spark_tools import depth, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

PAGE = REPOSITORY / "docs" / "guide" / "spark-recipes.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def run(spark: SparkSession, number: int) -> None:
    """The beginning both have, then the program."""
    names: dict[str, Any] = {"spark": spark}
    before = spark.conf.get("spark.sql.shuffle.partitions")
    try:
        exec(PROGRAMS[0], names)
        exec(PROGRAMS[number], names)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "200")


def put(broker: BrokerProcess, queue: str, *rows: dict[str, Any]) -> None:
    publish(broker.url, queue, [json.dumps(row).encode() for row in rows])


def taken(broker: BrokerProcess, queue: str) -> list[tuple[dict[str, Any], str | None]]:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = connection.channel()
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append((json.loads(got[2]), got[1].correlation_id))
    connection.close()
    return found


@pytest.fixture
def here(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerProcess:
    monkeypatch.setenv("PENSTOCK_URL", broker.url)
    monkeypatch.setenv("CHECKPOINTS", str(tmp_path))
    return broker


def test_the_page_has_the_programs_that_are_run_here() -> None:
    assert len(PROGRAMS) == 3


def test_the_window(spark: SparkSession, here: BrokerProcess) -> None:
    put(here, "orders.per-minute")
    at = "2026-01-01T10:0{}Z".format
    put(
        here,
        "orders",
        {"id": 1, "customer": "a", "total": 1.5, "at": at("0:10")},
        {"id": 2, "customer": "a", "total": 2, "at": at("0:59")},
        {"id": 3, "customer": "b", "total": 3, "at": at("0:30")},
        {"id": 4, "customer": "a", "total": 4, "at": at("1:00")},
        {"id": 5, "customer": "a", "total": 5, "at": at("2:30")},
    )
    run(spark, 1)
    minutes = {
        (row["start"][11:16], row["customer"]): row for row, _ in taken(here, "orders.per-minute")
    }
    assert {key: (row["orders"], row["total"]) for key, row in minutes.items()} == {
        ("10:00", "a"): (2, 3.5),
        ("10:00", "b"): (1, 3.0),
    }
    assert depth(here.url, "orders") == 0
    planner.give_back(parse_url(here.url), "orders")


def test_the_join(spark: SparkSession, here: BrokerProcess) -> None:
    put(here, "orders.paid")
    at = "2026-01-01T1{}Z".format
    put(
        here,
        "orders.placed",
        {"id": 1, "customer": "a", "total": 1, "at": at("0:00:00")},
        {"id": 2, "customer": "b", "total": 2, "at": at("0:00:00")},
        {"id": 3, "customer": "c", "total": 3, "at": at("0:00:00")},
    )
    put(
        here,
        "payments",
        {"order_id": 2, "paid_at": at("0:30:00")},
        {"order_id": 3, "paid_at": at("1:30:00")},
        {"order_id": 9, "paid_at": at("0:30:00")},
    )
    run(spark, 2)
    ((row, correlation_id),) = taken(here, "orders.paid")
    assert (row["id"], row["total"], correlation_id) == (2, 2.0, "b")
    assert depth(here.url, "payments") == depth(here.url, "orders.placed") == 0
