"""A verb that only raises NotImplementedError is implemented by every class that can be made.

Compiled code knows neither ABC nor Protocol, so a base class declares a verb that way.  What a
class leaves out must be unreachable; ``LEFT_OUT`` says why it is.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "src"
SOURCES = sorted(ROOT.rglob("*.py"))
NO_SOCKET = "channel_failed drained lost next_carrier receive shut_down tick"
LEFT_OUT = {
    # No client is at the other end: these sessions are never given to a connection.
    **dict.fromkeys(("DiskWaiter", "DiskWaiters", "LinkSession", "LoopbackClient"), NO_SOCKET),
    "AmqpSession": "next_carrier",  # only NSQ puts layers on a socket after its start
    "RangeSession": "channel_failed next_carrier",  # no AMQP channels
    "PeerSession": "next_carrier",
    "NsqSession": "channel_failed",
    "NsqConsuming": "answer",  # only AMQP has direct replies
    "PeerSubscriber": "answer",
    "RemoteQueue": "hand_over refuse",  # its master refuses: ``overflowing`` names no message here
    "StreamQueue": "refuse",  # it has room for all
    # Its queue reads the log by cursors.
    "StreamBacking": "ack ack_behind await_head delay drop_below drop_some drop_step expire fetch"
    " fetch_expired note_attempts publish_delayed purge purge_step release_due requeue"
    " sweep_expired take_chosen unfetch whole",
    # tests/cluster/test_remote_verbs.py holds clients off these.
    "RemoteBacking": "ack ack_behind await_head delay delete drop_below drop_some drop_step expire"
    " fetch fetch_expired note_attempts publish publish_delayed purge purge_step release_due"
    " requeue sweep_expired take_chosen unfetch whole",
}

Verbs = dict[str, bool]
"""Name -> is it only declared?"""


@cache
def classes() -> dict[str, tuple[list[str], Verbs]]:
    found = {}
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases = [ast.unparse(base).split(".")[-1] for base in node.bases]
                verbs = {
                    one.name: is_declared_only(one)
                    for one in node.body
                    if isinstance(one, ast.FunctionDef)
                }
                found[node.name] = (bases, verbs)
    return found


def is_declared_only(verb: ast.FunctionDef) -> bool:
    last = verb.body[-1]
    return len(verb.body) <= 2 and ast.unparse(last) == "raise NotImplementedError"


def chain(name: str) -> list[Verbs]:
    if name not in classes():
        return []
    bases, verbs = classes()[name]
    return [verbs, *(one for base in bases for one in chain(base))]


def left_out(name: str) -> set[str]:
    found: Verbs = {}
    for verbs in chain(name):
        for verb, only_declared in verbs.items():
            found.setdefault(verb, only_declared)
    return {verb for verb, only_declared in found.items() if only_declared}


def test_each_verb_is_implemented_or_unreachable() -> None:
    derived = {base for bases, _ in classes().values() for base in bases}
    missing = {name: left_out(name) for name in classes() if name not in derived}
    wanted = {name: set(verbs.split()) for name, verbs in LEFT_OUT.items()}
    assert {name: verbs for name, verbs in missing.items() if verbs} == wanted


def test_no_caller_of_backing_asks_for_more_than_its_interface() -> None:
    """``parts``, ``plain`` and ``positions`` give the class; no cast and no isinstance does."""
    casts = re.compile(r"\b(?:cast|isinstance)\([^()]*\bVariableQueue\b")
    found = [
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if "backing" not in path.relative_to(ROOT).parts[:-1] and casts.search(path.read_text())
    ]
    assert found == []
