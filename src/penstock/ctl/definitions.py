"""Definitions to a file and back; the JSON is RabbitMQ's."""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final

from penstock.ctl.call import Call
from penstock.ctl.faults import DATA, Fault, Invalid, Refused

PATH: Final = "/api/definitions"
STARTED: Final = (
    "Successfully started definition import. This process is asynchronous and can take some time."
)


def _check_format(call: Call) -> None:
    kind = call.text("format", "json")
    if kind not in ("json", "erlang"):
        raise Invalid("Bad argument: Format should be either json or erlang", DATA)
    if kind == "erlang":
        raise Invalid("Bad argument: only JSON is known here, no Erlang terms", DATA)


def export_definitions(call: Call) -> str | None:
    (path,) = call.take(1)
    directory = os.path.dirname(path)
    if path != "-" and directory and not os.path.isdir(directory):
        raise Invalid(f"Bad argument: Directory {directory} does not exist", DATA)
    _check_format(call)
    if path == "-":
        return json.dumps(_exported(call), separators=(",", ":"))
    call.say(f'Exporting definitions in JSON to a file at "{path}" ...')
    text = json.dumps(_exported(call), indent=2)
    # Password hashes are in it.
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    return None


def _exported(call: Call) -> Any:
    return call.node.get(PATH)


def import_definitions(call: Call) -> str:
    words = call.take(0, 1)
    path = words[0] if words else "-"
    if path != "-" and not os.path.isfile(path):
        raise Invalid(f"Bad argument: File {path} does not exist", DATA)
    _check_format(call)
    if call.is_set("skip-if-unchanged"):
        raise Invalid("Bad argument: what was imported last is not remembered here", DATA)
    if path == "-":
        call.say("Importing definitions in JSON from standard input ...")
        body = sys.stdin.buffer.read()
    else:
        call.say(f'Importing definitions in JSON from a file at "{path}" ...')
        body = Path(path).read_bytes()
    try:
        json.loads(body)
    except ValueError as error:
        raise Refused(
            f"Failed to deserialise input (format: JSON) (error: {error})", DATA
        ) from error
    answer = call.node.post(PATH + "?partial=true", body)
    left_out = answer.get("left_out", []) if isinstance(answer, dict) else []
    if left_out:
        lines = "\n".join(f"left out: {line}" for line in left_out)
        raise Fault(DATA, f"{lines}\n{len(left_out)} left out, the rest was taken")
    return "Successfully imported the definitions."
