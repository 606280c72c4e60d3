"""Large topologies: each message matches one binding, and small rows work on a real broker."""

from __future__ import annotations

import os

import pytest

from benchmarks.__main__ import table_of
from benchmarks.harness import arguments, run
from benchmarks.topology import lacking
from benchmarks.topology_wire import RUN, Frames, Messages, binding
from penstock.node.node import is_compiled
from penstock.protocols.amqp.codec.methods import decode_method

# -- what is sent -----------------------------------------------------------------------------


def topic_keys(messages: Messages) -> list[str]:
    methods = [decode_method(payload) for payload in Frames(messages.run() + b"\0" * 7)]
    return [method.text("routing_key") for method in methods]


def matches(pattern: str, key: str) -> bool:
    """Enough of a topic exchange for patterns whose # comes last."""
    wanted, words = pattern.split("."), key.split(".")
    if wanted[-1] == "#":
        wanted, words = wanted[:-1], words[: len(wanted) - 1]
    pairs = zip(wanted, words, strict=False)
    return len(wanted) == len(words) and all(want in {"*", word} for want, word in pairs)


def test_every_message_matches_exactly_one_binding() -> None:
    patterns = [binding("topic", subject)[0] for subject in range(40)]
    keys = topic_keys(Messages("topic", "e", 40, 0, 100))
    assert len(keys) == RUN
    assert {sum(matches(pattern, key) for pattern in patterns) for key in keys} == {1}
    assert len({key.split(".")[1] for key in keys}) == 40


def test_keys_in_turn_come_again_and_new_ones_never_do() -> None:
    turn, fresh = (Messages("topic", "e", 40, keys, 100) for keys in (2 * RUN, 0))
    in_turn = [topic_keys(turn) for _ in range(3)]
    assert in_turn[0] == in_turn[2]
    assert len({*in_turn[0], *in_turn[1]}) == 2 * RUN
    assert len({key for _ in range(3) for key in topic_keys(fresh)}) == 3 * RUN


def test_headers_name_subject_and_number() -> None:
    blob = Messages("headers", "e", 40, 0, 100).run()
    for number in (0, 1, RUN - 1):
        assert blob.count(f"{number * 7919 % 40:06d}".encode()) >= 1
        assert blob.count(f"d{number:09d}".encode()) == 1


# -- small rows on a real broker ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["headers", "declare", "stall-unbind"])
def test_a_small_row_finds_what_its_page_shows(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    core = str(min(os.sched_getaffinity(0)))
    words = ["--try", "--alone", "--only", name, "--broker-cores", core]
    words += ["--generator-cores", core] + ([] if is_compiled() else ["--pure"])
    assert run(table_of("topology"), words) == 0
    said = capsys.readouterr().out
    assert "| Penstock |" in said
    assert "were delivered" not in said


def test_connections_want_descriptors() -> None:
    given = arguments(table_of("topology"), ["--generator-cores", "0", "--pure", "--alone"])
    assert lacking(given) is None
    given.connections = 1 << 40
    assert "descriptors are needed" in str(lacking(given))
