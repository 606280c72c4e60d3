"""The same questions, the same answers: compared with what RabbitMQ 3.10.8 said.

``recorded.json`` holds its answers (``cases.py`` says how they were recorded).  JSON is
compared as JSON, so the order of keys is free; lists must be in the same order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.management.cases import CASES, Case
from tests.management.conftest import Served

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())


def test_every_case_was_recorded() -> None:
    assert list(RECORDED) == [case.name for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_answers_as_rabbitmq(seven: Served, case: Case) -> None:
    theirs = RECORDED[case.name]
    ours = seven.ask(case.path, case.user, case.method)
    assert ours.status == theirs["status"]
    assert ours.allow == theirs["allow"]
    assert ours.content_type.partition(";")[0] == theirs["content_type"]
    assert _parsed(ours.body) == _parsed(theirs["body"])


def _parsed(body: str) -> Any:
    return json.loads(body) if body else None
