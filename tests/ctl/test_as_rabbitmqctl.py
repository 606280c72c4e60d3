"""The same words, the same answers: what rabbitmqctl 3.10.8 said is in ``recorded.json``."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client.local_node import find_control
from tests.ctl.conftest import penstockctl
from tests.ctl.conversation import SCENES
from tests.ctl.judge import differences
from tests.ctl.stage import Stage, steps_of
from tests.helpers.live_broker import LiveBroker

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text())


@pytest.fixture(scope="module")
def stage(live: LiveBroker) -> Iterator[Stage]:
    control = find_control({"PENSTOCK_DATA_DIR": str(live.data_dir)})
    assert control is not None
    stage = Stage(live.url, live.amqp_port, control.node, live.directory)
    yield stage
    stage.leave()


def test_every_line_was_recorded() -> None:
    for scene in SCENES:
        lines = [step.line for step in steps_of(scene) if not step.deed]
        assert [answer["line"] for answer in RECORDED[scene]] == lines, scene


@pytest.mark.parametrize("scene", SCENES)
def test_answers_as_rabbitmqctl(
    scene: str, stage: Stage, live: LiveBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())  # as the recorder has nothing there
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
