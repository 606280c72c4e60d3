"""Ask RabbitMQ's programs how each verb is used: ``python -m tests.ctl.record_help``.

Writes ``recorded_help.json``: program, verb, and what ``help VERB`` said.  No node is needed.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

from tests.ctl.record import PROGRAMS

RECORD = Path(__file__).with_name("recorded_help.json")
ANSI = re.compile(r"\x1b\[[0-9]*m")


def said(program: str, *words: str) -> str:
    done = subprocess.run(
        [str(PROGRAMS / program), "help", *words], capture_output=True, text=True, check=False
    )
    return ANSI.sub("", done.stdout + done.stderr)


def main() -> None:
    record: dict[str, dict[str, str]] = {}
    for program in ("rabbitmqctl", "rabbitmq-diagnostics", "rabbitmq-upgrade", "rabbitmq-queues"):
        verbs = re.findall(r"^   ([a-z_]+)(?:  |$)", said(program), re.MULTILINE)
        record[program] = {"": said(program)} | {verb: said(program, verb) for verb in verbs}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
