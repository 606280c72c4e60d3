"""No password of the source's and sink's options is in a plan, Spark's UI or its event log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.live_broker import LiveBroker
from tests.helpers.management_api import manage
from tests.spark.spark_tools import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]
CANARY = "canary-of-spark-5d1f"
WRONG = "canary-wrong-7e2a"


@pytest.fixture(scope="module")
def live() -> Iterator[LiveBroker]:
    with LiveBroker() as broker:
        for path, body in {
            "users/spark": {"password": CANARY, "tags": ""},
            "permissions/%2F/spark": {"configure": ".*", "write": ".*", "read": ".*"},
        }.items():
            manage(f"{broker.http_url}/api/{path}", body)
        yield broker


def plans_in_the_ui(spark: SparkSession) -> str:
    """Of all queries that Spark's UI lists."""
    store: Any = spark._jsparkSession.sharedState().statusStore()
    rows = store.executionsList()
    found = [rows.apply(number) for number in range(rows.size())]
    return "\n".join(f"{row.description()} {row.physicalPlanDescription()}" for row in found)


def test_passwords_stay_out_of_plans_ui_and_event_log(
    spark: SparkSession, live: LiveBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_text(f"{CANARY}\n")
    publish(live.url, "secret", [b"1", b"2"])
    publish(live.url, "copies", [b"0"])
    place = f"127.0.0.1:{live.amqp_port}/%2f"
    ways = (
        {"url": f"amqp://spark:{CANARY}@{place}"},
        {"url": f"amqp://{place}", "user": "spark", "password": CANARY},
        {"url": f"amqp://spark@{place}", "password": f"file:{file}"},
    )
    jvm: Any = spark.sparkContext._jvm
    context: Any = spark.sparkContext._jsc.sc()
    logs = tmp_path / "events"
    logs.mkdir()
    nothing = getattr(jvm.scala, "None$").__getattr__("MODULE$")
    conf = context.conf().clone().set("spark.eventLog.compress", "false")
    listener = jvm.org.apache.spark.scheduler.EventLoggingListener(
        "secrets", nothing, jvm.java.net.URI(logs.as_uri()), conf
    )
    listener.start()
    context.addSparkListener(listener)
    said = []
    try:
        for given in ways:
            rows = spark.read.format("penstock").options(queue="secret", **given).load()
            said.append(rows._jdf.queryExecution().toString())
            assert rows.count() == 2
            kept = rows.selectExpr("body")
            kept.write.format("penstock").options(queue="copies", **given).mode("append").save()
        for given in (
            {**ways[0], "url": ways[0]["url"].replace(CANARY, WRONG)},
            ways[1] | {"password": WRONG},
        ):
            with pytest.raises(Exception, match="penstock") as raised:
                spark.read.format("penstock").options(queue="secret", **given).load().count()
            said.append(str(raised.value))
    finally:
        context.listenerBus().waitUntilEmpty(10_000)
        context.removeSparkListener(listener)
        listener.stop()
    said.append(plans_in_the_ui(spark))
    said.append(
        "".join(one.read_bytes().decode("latin-1") for one in logs.rglob("*") if one.is_file())
    )
    assert "penstock" in said[-1]
    assert "penstock" in said[-2]
    said += capfd.readouterr()
    for text in said:
        assert CANARY not in text
        assert WRONG not in text
