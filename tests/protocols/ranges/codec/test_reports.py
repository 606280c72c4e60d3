"""Frames of reports and of the event log: what is accepted, what is refused, both ways."""

from __future__ import annotations

import json

import pytest

from penstock_ranges import reports
from penstock_ranges.frames import FrameSplitter, MalformedFrame


def payload_of(data: bytes, kind: int) -> bytes:
    ((found, payload),) = FrameSplitter(1 << 20).feed(data)
    assert found == kind
    return payload


def test_a_report_survives_the_wire() -> None:
    report = reports.Report(
        name="lake",
        state="running",
        kind="archive",
        group="g",
        run="r",
        queues=("a", "b"),
        batch=3,
        rows=10,
        duration_ms=7,
        lag=5,
        error="",
    )
    payload = payload_of(reports.encode_report(report), reports.REPORT)
    assert reports.decode_report(payload) == report


@pytest.mark.parametrize(
    "fault, text",
    [
        (b"", "not JSON"),
        (b"[]", "not an object"),
        (b'{"name": "x"}', "lacks state"),
        (b'{"name": "", "state": "running"}', "has a name"),
        (b'{"name": "x", "state": "asleep"}', "state is one of"),
        (b'{"name": "x", "state": "running", "colour": 1}', "unknown fields: colour"),
        (b'{"name": 1, "state": "running"}', "name is a text"),
        (b'{"name": "x", "state": "running", "rows": -1}', "rows is a whole number"),
        (b'{"name": "x", "state": "running", "rows": true}', "rows is a whole number"),
        (b'{"name": "x", "state": "running", "rows": null}', "rows is a whole number"),
        (b'{"name": "x", "state": "running", "queues": "a"}', "queues is a list"),
        (b'{"name": "x", "state": "running", "queues": [1]}', "a queue is a text"),
        (b'{"name": "x", "state": "running", "error": "' + b"e" * 70_000 + b'"}', "at most 65536"),
        (json.dumps({"name": "n" * 256, "state": "done"}).encode(), "at most 255"),
    ],
)
def test_what_is_no_report_is_refused_with_the_reason(fault: bytes, text: str) -> None:
    with pytest.raises(MalformedFrame, match=text):
        reports.decode_report(fault)


def test_files_and_places_survive_the_wire() -> None:
    files = [("events-00000001.jsonl", 5), ("events-00000002.jsonl", 1 << 40)]
    payload = payload_of(reports.encode_event_files_are(files), reports.EVENT_FILES_ARE)
    assert reports.decode_event_files_are(payload) == files
    for cut in range(len(payload)):
        with pytest.raises(MalformedFrame):
            reports.decode_event_files_are(payload[:cut])
    payload = payload_of(reports.encode_event_read("f", 1 << 40, 9), reports.EVENT_READ)
    assert reports.decode_event_read(payload) == ("f", 1 << 40, 9)
