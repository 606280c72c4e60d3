"""The same changes asked for in the same order, the same answers: RabbitMQ 3.10.8's.

``writes.json`` holds its answers (``write_cases.py`` says how they were recorded).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.rules.access import User, hash_password
from tests.management.conftest import Served
from tests.management.write_cases import PATTERN, STEPS, USERS, Step, Told, ask

RECORDED = [
    (name, Told(*told))
    for name, *told in json.loads((Path(__file__).parent / "writes.json").read_text())
]

BETTER = {
    # RabbitMQ makes up a binding of a queue that is not there.
    "GET /api/queues/%2F/nosuch/bindings guest",
    # An integer has no width in JSON.
    'PUT /api/queues/%2F/q {"durable": true, "arguments": {"x-max-length": 7}} guest',
    # Its release 3.6 still understood this.
    'POST /api/queues/%2F/q/get {"count": 1, "requeue": true, "encoding": "auto"} guest',
}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = Served(tmp_path_factory.mktemp("node"))
    user = User("mon", hash_password(USERS["mon"], b"salt"), ["management"])
    user.vhosts = {"/": (PATTERN, PATTERN, PATTERN)}
    running.on_loop(lambda: running.node.broker.users.users.__setitem__("mon", user))
    yield running
    running.stop()


def test_every_step_was_recorded() -> None:
    assert [name for name, _ in RECORDED] == [step.name for step in STEPS]


def test_answers_as_rabbitmq(fresh: Served) -> None:
    different = []
    for step, (_, theirs) in zip(STEPS, RECORDED, strict=True):
        ours = ask("127.0.0.1", fresh.port, step)
        if _comparable(ours) != _comparable(theirs) and not _is_better(step, ours, theirs):
            different.append((step.name, ours, theirs))
    assert not different, "\n".join(f"{n}\n  ours   {o}\n  theirs {t}" for n, o, t in different)


def _comparable(told: Told) -> Any:
    body = json.loads(told.body) if told.body else None
    if isinstance(body, list):  # bindings are in no order
        body = sorted(body, key=lambda row: json.dumps(row, sort_keys=True))
    return told.status, told.location, told.content_type.partition(";")[0], body


def _is_better(step: Step, ours: Told, theirs: Told) -> bool:
    """Where we differ on purpose."""
    if theirs.status == 500:
        return ours.status in (200, 400, 404)
    if "Access refused." in theirs.body:  # we say to what
        return ours.status == theirs.status and "not_authorised" in ours.body
    return step.name in BETTER
