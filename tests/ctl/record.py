"""Ask the real RabbitMQ: ``python -m tests.ctl.record [SCENE ...]`` writes ``recorded.json``.

One node, the scenes of ``conversation.py`` in their order; minutes, since every call of
RabbitMQ's programs starts an Erlang machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.ctl.conversation import SCENES
from tests.ctl.stage import Stage, Step, steps_of
from tests.helpers.rabbit import RabbitServer

RECORD = Path(__file__).with_name("recorded.json")
PROGRAMS = Path("/usr/lib/rabbitmq/bin")
CALL_TIMEOUT_S = 60


def run(server: RabbitServer, stage: Stage, step: Step) -> dict[str, object]:
    """One command line; what it printed, and how it ended."""
    done = subprocess.run(
        [str(PROGRAMS / step.program), *stage.filled_in(step.words)],
        env=server.environment() | {"PATH": os.environ["PATH"]},
        cwd=server.directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=CALL_TIMEOUT_S,
        check=False,
    )
    return {
        "line": step.line,
        "code": done.returncode,
        "out": stage.emptied(done.stdout),
        "err": stage.emptied(done.stderr),
    }


def main(wanted: list[str]) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    with RabbitServer() as server:
        node = server.environment()["RABBITMQ_NODENAME"]
        stage = Stage(server.url, server.amqp_port, node, server.directory)
        for scene in wanted or SCENES:
            answers = []
            for step in steps_of(scene):
                if step.deed:
                    stage.do(step.deed)
                else:
                    answers.append(run(server, stage, step))
                    sys.stdout.write(f"{answers[-1]['code']:>3} {step.line}\n")
                    sys.stdout.flush()
            record[scene] = answers
        stage.leave()
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
