"""What the report of flow control says of all the time, without Spark."""

from __future__ import annotations

from typing import Any

from penstock.core.counting.bottleneck import NOTHING, QUEUES, bottleneck
from penstock.spark.reports.flow import in_words


def window(share: float) -> dict[str, Any]:
    verdict = bottleneck(share, share, 0)
    return {
        "shares": {"connection": share, "channel": share},
        "bottleneck": verdict.stage,
        "advice": verdict.advice,
    }


def test_windows_in_which_publishers_waited_are_counted() -> None:
    windows = [window(0.9), *(window(0) for _ in range(29))]
    found = in_words(bottleneck(0.03, 0.03, 0), windows)
    assert found.stage == NOTHING
    assert found.sentence.startswith("Publishers waited in 1 of 30 windows;")
    assert found.advice == windows[0]["advice"] != ""


def test_a_verdict_on_all_the_time_stands() -> None:
    whole = bottleneck(0.9, 0.9, 0)
    assert in_words(whole, [window(0.9)]) is whole
    assert whole.stage == QUEUES
    quiet = bottleneck(0, 0, 0)
    assert in_words(quiet, [window(0)]) is quiet
