"""A conversation of administrators, compared with what RabbitMQ 3.10.8 said in it.

``admin_recorded.json`` holds its half; ``admin_cases.py`` has the questions and says how they were
recorded.  The steps build on each other, so they are asked in order, once, and judged one by one.
Where our answer is another one ``OTHERWISE`` says which, and why.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest

from tests.management.admin_cases import STEPS, Said, say
from tests.management.admin_otherwise import OTHERWISE
from tests.management.conftest import Served

RECORDED = json.loads((Path(__file__).parent / "admin_recorded.json").read_text())


@pytest.fixture(scope="module")
def said(served: Served) -> list[Said]:
    names = {"NODE": "penstock@test", "AMQP": str(served.amqp_port)}
    return [say("127.0.0.1", served.port, step, names) for step in STEPS]


def test_every_step_was_recorded() -> None:
    assert [answer["step"] for answer in RECORDED] == [step.name for step in STEPS]
    assert set(OTHERWISE) <= {step.name for step in STEPS}


@pytest.mark.parametrize("place", range(len(STEPS)), ids=[step.name for step in STEPS])
def test_answers_as_rabbitmq(said: list[Said], place: int) -> None:
    step, theirs, ours = STEPS[place], RECORDED[place], said[place]
    if step.name in OTHERWISE:
        expected = OTHERWISE[step.name]
        assert (ours.status, told(ours.body)) == (expected.status, expected.told)
        assert (ours.status, told(ours.body)) != (theirs["status"], told(theirs["body"]))
        return
    assert (ours.status, _comparable(ours.body)) == (theirs["status"], _comparable(theirs["body"]))
    assert ours.content_type == theirs["content_type"] or not ours.body


def told(body: Any) -> Any:
    """Of an error its reason, of anything else the whole."""
    return body["reason"] if isinstance(body, dict) and "error" in body else _comparable(body)


def _comparable(body: Any) -> Any:
    """Without what differs each time: hashes, ports, the order of a list nobody asked for."""
    if isinstance(body, list) and all(isinstance(item, dict) for item in body):
        return sorted((_comparable(item) for item in body), key=repr)
    if isinstance(body, dict):
        return {key: _comparable(body[key]) for key in sorted(body) if key not in RANDOM}
    # Some of RabbitMQ's refusals are spelt for a web page.
    return html.unescape(body) if isinstance(body, str) else body


RANDOM = frozenset({"password_hash", "ports"})
