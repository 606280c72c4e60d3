"""The HTTP API of NSQ answers as the real nsqd and nsqlookupd 1.3.0 did, header by header."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.helpers.nsq_broker import NsqBroker
from tests.protocols.nsq.nsq_http_cases import (
    LOOKUPD,
    NSQD,
    RECORDED,
    Case,
    answers,
    ask_the_real_ones,
)


@pytest.fixture(scope="module")
def broker() -> Iterator[NsqBroker]:
    with NsqBroker() as running:
        yield running


def differences(cases: list[Case], recorded: list[list[object]], found: list[list[object]]) -> str:
    lines = []
    for case, theirs, ours in zip(cases, recorded, found, strict=True):
        if theirs != ours:
            lines.append(f"{case.name}\n  recorded {theirs}\n  found    {ours}")
    return "\n".join(lines)


def test_nsqd(broker: NsqBroker) -> None:
    recorded = json.loads(RECORDED.read_text())["nsqd"]
    found = answers(broker.api_port, NSQD)
    assert differences(NSQD, recorded, found) == ""


def test_nsqlookupd() -> None:
    recorded = json.loads(RECORDED.read_text())["nsqlookupd"]
    # Without a port for NSQ clients the node is not in its own registry.
    with NsqBroker(environment={"PENSTOCK_NSQ_PORT": "0"}) as alone:
        found = answers(alone.lookup_port, LOOKUPD)
    assert differences(LOOKUPD, recorded, found) == ""


@pytest.mark.nsqd
def test_the_record_is_what_the_real_ones_say() -> None:
    recorded = json.loads(RECORDED.read_text())
    found = ask_the_real_ones()
    assert differences(NSQD, recorded["nsqd"], found["nsqd"]) == ""
    assert differences(LOOKUPD, recorded["nsqlookupd"], found["nsqlookupd"]) == ""
