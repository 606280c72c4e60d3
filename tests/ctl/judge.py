"""Are two answers the same?  What is each node's own is made equal first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.ctl.stage import Step

OWN: tuple[tuple[str, str], ...] = (
    (r"rabbitmqctl|rabbitmq-diagnostics|rabbitmq-upgrade", "penstockctl"),
    (r"<@NODE@\.[0-9.]+>", "@PID@"),
    (r"127\.0\.0\.1:[0-9]+ -> 127\.0\.0\.1:@AMQP@( \([0-9]+\))?", "@PID@"),
    (r"(127\.0\.0\.1\t)[0-9]+", r"\1@PORT@"),
    (r"running and registered with epmd", "running and answers"),
    (r"'?internal_cluster_id'?\t[^\n]*\n", ""),
    (r'(?m)^,?\{"name":"internal_cluster_id"[^\n]*\n', ""),
    (r"\A\n*[0-9:.]+ \[warning\] [^\n]*\n", ""),
    (r"(following ports: |following protocols: |connected to ports )[0-9a-z@A-Z/, ]+", r"\1…"),
    (r"\n+\Z", "\n"),
)
ERLANG = {
    *("active_plugins", "crypto_lib_version", "enabled_plugin_file", "erlang_version"),
    *("net_ticktime", "processes", "raft_data_directory", "release_series_support_status"),
    "run_queue",
}
"""Keys of ``status`` in JSON that have no meaning here."""
LISTS = re.compile(r"^(-p \S+ |--formatter \S+ |-\S+ )*list_")


def same_for_all(text: str) -> str:
    for pattern, instead in OWN:
        text = re.sub(pattern, instead, text)
    return text


def sorted_rows(text: str) -> str:
    """Neither broker promises an order."""
    lines = text.split("\n")
    return "\n".join(sorted(line.removeprefix(",") for line in lines))


def differences(step: Step, theirs: dict[str, Any], code: int, out: str, err: str) -> list[str]:
    """In words; none: the same."""
    found = []
    if code != theirs["code"]:
        found.append(f"exit code {code}, theirs {theirs['code']}")
    compare = {"": _whole, "~": _beginning, "=": _columns}[step.mark]
    for name, our_text, their_text in (("out", out, theirs["out"]), ("err", err, theirs["err"])):
        ours, others = (
            compare(step, same_for_all(our_text)),
            compare(step, same_for_all(their_text)),
        )
        if ours != others and not (step.mark == "=" and _covers(ours, others)):
            found.append(f"{name}:\n{ours}\ntheirs:\n{others}")
    return found


def _whole(step: Step, text: str) -> str:
    if LISTS.match(step.line):
        return sorted_rows(text)
    return text.split("Available commands:", maxsplit=1)[0]


def _beginning(_step: Step, text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    return "\n".join(lines[:2] if lines[:1] == ["\x1b[1mUsage\x1b[0m"] else lines[:1])


def _covers(ours: Any, theirs: Any) -> bool:
    """More may be told, less only of the Erlang machine."""
    if not (isinstance(ours, list) and isinstance(theirs, list)):
        return False
    return {*map(str, theirs)} - {*map(str, ours)} <= ERLANG


def _columns(_step: Step, text: str) -> Any:
    try:
        return _shape(json.loads(text.replace("@AMQP@", "5672")))
    except ValueError:
        return next((line.count("\t") for line in text.split("\n") if "\t" in line), 0)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return sorted(value)
    if isinstance(value, list):
        return [_shape(one) for one in value[:1]]
    return type(value).__name__


Comparison = Callable[[Step, str], Any]
