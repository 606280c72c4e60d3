"""The whole generator, processes and all, against its own sink: every case, for a moment."""

from __future__ import annotations

from penstock.client.plan import LoadPlan
from penstock.client.run import LoadRun
from penstock.client.selftest import measure_all, sink


def test_every_case_of_the_self_test_measures_something() -> None:
    results = dict(measure_all(duration_s=0.5, warmup_s=0.0))
    assert len(results) == 8
    for title, result in results.items():
        consuming = title.startswith("consume")
        assert (result["consume_rate"] > 1000) == consuming, title
        assert (result["publish_rate"] > 1000) != consuming, title
        assert (result["confirmed"] > 0) == ("confirm" in title), title
        assert result["out_of_order"] == result["foreign"] == 0
        assert not result["deadline_passed"]


def run(uri: str, **fields: object) -> dict[str, object]:
    plan = LoadPlan(uri=uri, **fields).check()  # type: ignore[arg-type]
    with LoadRun(plan) as load:
        return load.run()


def test_a_counted_run_sends_exactly_its_count() -> None:
    with sink("discard", 16) as uri:
        result = run(uri, publishers=2, consumers=0, count=1001, confirm=50)
    assert result["published"] == result["confirmed"] == 1001


def test_a_rated_run_keeps_its_rate() -> None:
    with sink("discard", 16) as uri:
        result = run(uri, publishers=2, consumers=0, count=200, rate=400, confirm=10)
    assert 300 < float(str(result["publish_rate"])) <= 420
    confirms = result["confirm_latency_us"]
    assert isinstance(confirms, dict)
    assert confirms["count"] == 200


def test_room_from_consumers_bounds_what_is_in_flight() -> None:
    with sink("discard", 16) as uri:  # its consumers never get anything
        result = run(uri, duration_s=0.2, in_flight=37)
    assert result["published"] == 37


def test_the_deadline_ends_a_run_that_cannot_end_itself() -> None:
    with sink("discard", 16) as uri:
        result = run(uri, count=5, in_flight=2, deadline_s=0.3)
    assert result["deadline_passed"]
    assert result["published"] == 2
