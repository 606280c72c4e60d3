"""The same words, the same answers: what rabbitmqctl 3.10.8 said is in ``recorded.json``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ctl.conftest import penstockctl
from tests.ctl.conversation import SCENES
from tests.ctl.judge import differences
from tests.ctl.stage import Stage, steps_of
from tests.helpers.live_broker import LiveBroker

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())


@pytest.fixture(scope="module")
def stage(live: LiveBroker) -> Iterator[Stage]:
    name = penstockctl(live.data_dir, "cluster_status", "-q").out.split("\n")[6]
    stage = Stage(live.url, live.amqp_port, name, live.directory)
    yield stage
    stage.leave()


def test_every_line_was_recorded() -> None:
    for scene in SCENES:
        lines = [step.line for step in steps_of(scene) if not step.deed]
        assert [answer["line"] for answer in RECORDED[scene]] == lines, scene


@pytest.mark.parametrize("scene", SCENES)
def test_answers_as_rabbitmqctl(scene: str, stage: Stage, live: LiveBroker) -> None:
    wrong = []
    answers = iter(RECORDED[scene])
    for step in steps_of(scene):
        if step.deed:
            stage.do(step.deed)
            continue
        theirs = next(answers)
        said = penstockctl(live.data_dir, *stage.filled_in(step.words))
        if step.mark != "!":
            found = differences(
                step, theirs, said.code, stage.emptied(said.out), stage.emptied(said.err)
            )
            wrong += [f"$ {step.line}\n{difference}" for difference in found]
    assert not wrong, "\n\n".join(wrong)
