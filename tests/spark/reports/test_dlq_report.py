"""``penstock pipeline dlq report``: counted from real dead letters, and the queue stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.dataframes.browsing import look
from penstock.spark.reports.dlq_page import dlq_page
from penstock.spark.reports.dlq_report import ReportJob, preview, report
from tests.helpers.broker_process import BrokerProcess
from tests.spark.dead_letter_tools import Undertaker
from tests.spark.reports.test_html_report import Reader
from tests.spark.spark_tools import Pipelines, depth, publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def counts(rows: list[dict[str, Any]]) -> dict[Any, int]:
    return {row["value"]: row["count"] for row in rows if row["count"]}


def make_letters(url: str) -> Undertaker:
    """Nine: four JSON refused with two errors, two of them the same; three expired; a binary one
    that claims to have died; one that never did."""
    orders = Undertaker(url, "orders", "dlq", exchange="shop")
    for n in range(4):
        body = json.dumps({"id": min(n, 2), "total": 1.5}).encode()
        error = "no <customer>" if n else "timeout"
        orders.publish(
            body,
            f"eu.{n % 2}",
            content_type="application/json",
            message_id=f"m{n}",
            headers={"x-exception-message": error},
        )
    assert orders.reject_all() == 4
    mails = Undertaker(url, "mails", "dlq")
    for n in range(3):
        mails.publish(b"dear %d" % n, expiration="1", content_type="text/plain")
    orders.wait_for(7)
    mails.close()
    publish(url, "dlq", [b"\x00\xff" * 400], headers={"x-death": "<script>", "x-why": "worn out"})
    publish(url, "dlq", [b""])
    return orders


def test_a_report_counts_what_is_there(spark: SparkSession, broker: BrokerProcess) -> None:
    letters = make_letters(broker.url)
    found = report(spark, look(broker.url, "dlq"), ReportJob(url=broker.url))

    assert (found["messages"], found["ready"], found["died"]) == (9, 9, 7)
    assert counts(found["reasons"]) == {"rejected": 4, "expired": 3, None: 2}
    assert counts(found["source_queues"]) == {"orders": 4, "mails": 3, None: 2}
    assert counts(found["exchanges"]) == {"shop": 4, "": 3, None: 2}
    assert counts(found["routing_keys"]) == {"eu.0": 2, "eu.1": 2, "mails": 3, None: 2}
    assert counts(found["errors"]) == {"no <customer>": 3, "timeout": 1, None: 5}
    assert counts(found["deaths_per_message"]) == {"1": 7, "never": 2}
    assert counts(found["body_kinds"]) == {"JSON object": 4, "text": 3, "binary": 1, "empty": 1}
    assert counts(found["content_types"]) == {"application/json": 4, "text/plain": 3, None: 2}
    assert counts(found["json_keys"]) == {"id": 4, "total": 4}
    assert counts(found["body_sizes"]) == {"empty": 1, "below 100 B": 7, "below 1 KB": 1}
    assert found["same_message_id"] == []
    (twice,) = found["same_body"]
    assert (twice["count"], twice["first_seq_id"], twice["last_seq_id"]) == (2, 2, 3)
    over_time = found["over_time"]["reasons"]
    assert {name: sum(values) for name, values in over_time.items()} == {
        "rejected": 4, "expired": 3, "none": 2,
    }  # fmt: skip
    assert found["first_death_at"] <= found["first_arrival_at"] <= found["last_arrival_at"]
    bodies = {one["seq_id"]: one.get("body", one.get("body_hex")) for one in found["samples"]}
    assert bodies[0] == '{"id": 0, "total": 1.5}'
    assert bodies[7].startswith("00 ff 00 ff")
    assert depth(broker.url, "dlq") == 9
    json.dumps(found)

    assert sum(found["over_time"]["messages"]) == 9
    shown = dlq_page([found])
    assert Reader(shown).open == []
    assert "<script>" not in shown
    assert "no &lt;customer&gt;" in shown
    assert "44 % of them: rejected; 44 % came from queue orders" in shown

    # Fewer, without bodies, and another header for the errors.
    job = ReportJob(error_headers=("x-why",), samples=0, url=broker.url)
    found = report(spark, look(broker.url, "dlq", limit=8), job)
    assert (found["messages"], found["ready"]) == (8, 9)
    assert counts(found["errors"]) == {"worn out": 1, None: 7}
    assert "samples" not in found
    assert "dear 0" not in dlq_page([found])
    letters.close()


def test_previews_cut_text_between_characters() -> None:
    assert preview(b"abc", 3) == {"body": "abc", "cut": False}
    assert preview("aä".encode()[:2], 3) == {"body": "a", "cut": True}
    assert preview(b"\xff\xfe", 2) == {"body_hex": "ff fe", "cut": False}
    assert preview("ä".encode()[:1], 1) == {"body_hex": "c3", "cut": False}
    assert preview(b"", 0) == {"body": "", "cut": False}


# -- as a command ----------------------------------------------------------------------------

REPORT = ("dlq", "report")


def test_the_command_writes_a_page_and_says_what_is_in_it(
    own_broker: BrokerProcess, pipelines: Pipelines, tmp_path: Path
) -> None:
    work = Undertaker(own_broker.url, "jobs", "jobs.dlq")
    for n in range(5):
        work.publish(b"job %d" % n)
    assert work.reject_all() == 5
    work.wait_for(5)
    out = tmp_path / "report.html"
    done = pipelines.run(own_broker.url, *REPORT, "--queue", "jobs.dlq", "--out", str(out))
    told = done.summary()
    assert (told["messages"], told["left_in_queue"], told["reasons"]) == (5, 5, {"rejected": 5})
    assert (
        done.stdout.splitlines()[0]
        == "5 messages; 100 % of them: rejected; 100 % came from queue jobs."
    )
    assert "job 4" not in out.read_text()  # two samples of each kind
    assert "job 0" in out.read_text()
    work.close()


@pytest.mark.parametrize(
    "more,code,complaint",
    [
        (["--queue", "nobody"], 1, "no queue 'nobody' in vhost '/'"),
        (["--queue", "q", "--out", "report.pdf"], 2, "must end in .html or .json"),
        (["--queue", "q", "--out", "/nowhere/report.html"], 2, "there is no directory"),
        (["--queue", "q", "--limit", "0"], 2, "0 is not in the range"),
        ([], 2, "Missing option '--queue'"),
    ],
)
def test_wrong_usage_is_told_before_spark_starts(
    broker: BrokerProcess, pipelines: Pipelines, more: list[str], code: int, complaint: str
) -> None:
    assert complaint in pipelines.refused(broker.url, *REPORT, *more, code=code)


def test_a_dry_run_only_looks(own_broker: BrokerProcess, pipelines: Pipelines) -> None:
    publish(own_broker.url, "look", [b"x"] * 3)
    words = (*REPORT, "--queue", "look", "--dry-run")
    told = pipelines.run(own_broker.url, *words).summary()
    assert (told["ready"], told["upto_seq_id"], told["dry_run"]) == (3, 3, True)
    publish(own_broker.url, "look too", [b"x"])
    told = pipelines.run(own_broker.url, *words, "--queue", "look too").summary()
    assert [(one["queue"], one["ready"]) for one in told["queues"]] == [
        ("look", 3),
        ("look too", 1),
    ]
