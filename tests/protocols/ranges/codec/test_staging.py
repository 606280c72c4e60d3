"""Frames of staging that are refused before anything is remembered of them."""

from __future__ import annotations

import pytest

from penstock_ranges import frames as range_frames
from penstock_ranges import staging
from penstock_ranges.frames import MalformedFrame


def payload(data: bytes) -> bytes:
    return range_frames.FrameSplitter(range_frames.REQUEST_MAX_BYTES).feed(data)[0][1]


@pytest.mark.parametrize(
    "producer, run", [("p" * 256, "r"), ("p", "r" * 256), ("é" * 128, "r"), ("p", "é" * 128)]
)
def test_names_that_are_remembered_are_short(producer: str, run: str) -> None:
    begin = staging.encode_begin(staging.BeginRequest(producer, run, 0, 1, False))
    with pytest.raises(MalformedFrame, match="producers and runs have 255 bytes at most"):
        staging.decode_begin(payload(begin))
    commit = staging.encode_commit(staging.CommitRequest(producer, run, 0, False, 0, []))
    with pytest.raises(MalformedFrame, match="producers and runs have 255 bytes at most"):
        staging.decode_commit(payload(commit))


def test_255_bytes_are_short_enough() -> None:
    request = staging.BeginRequest("p" * 255, "r" * 255, 0, 1, False)
    assert staging.decode_begin(payload(staging.encode_begin(request))) == request
