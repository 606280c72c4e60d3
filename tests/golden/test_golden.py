"""What releases have left on the disk is opened, read and upgraded by the broker of today.

A directory below this one is a release, with archives of data directories and with
``expected.json``: what the release itself found in them (``make.py``).  Each is opened twice, and
the same is found: the second opening reads what the first has written.  Then it is used up.  All
files are sound before, in between and after that.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from penstock.cli.data.audit import audit_directory
from tests.golden.lines import GoldenBroker
from tests.golden.make import unpack
from tests.golden.reading import (
    Data,
    again,
    await_counts,
    counts,
    hand_over,
    read,
    use_up,
    use_up_queues,
)

HERE = Path(__file__).resolve().parent
ARCHIVES = sorted(path.relative_to(HERE).as_posix() for path in HERE.glob("*/*.tar.gz"))
SUFFIX = ".tar.gz"
MIRRORS_HEAR_S = 1.0
"""Of attempts: nobody waits for them, and nodes that stop together tell each other nothing."""
HARMLESS = (
    *("control.json", "events", "logs", "terms.unfinished"),
    *("transient", "store/transient"),
)
"""Names the audit may speak of: what has no format of the engine, and what a start removes."""


def test_there_is_one_of_each_kind() -> None:
    """Of the first release; an archive is worth nothing without what is to be found in it."""
    first = [name for name in ARCHIVES if name.startswith("0.1.0/")]
    kinds = ("nodes-clean", "nodes-killed", "single-clean", "single-killed")
    assert first == [f"0.1.0/{kind}{SUFFIX}" for kind in kinds]
    for release in {name.split("/")[0] for name in ARCHIVES}:
        named = json.loads((HERE / release / "expected.json").read_text())["archives"]
        stored = [name.split("/")[1] for name in ARCHIVES if name.startswith(f"{release}/")]
        assert stored == [f"{kind}{SUFFIX}" for kind in sorted(named)]


@pytest.mark.parametrize(
    "archive",
    [pytest.param(name, marks=[pytest.mark.slow] if "/nodes" in name else []) for name in ARCHIVES],
)
def test_it_is_opened_read_and_upgraded(archive: str, tmp_path: Path) -> None:
    expected = expectation(archive)
    found = expected["found"]
    several = "nodes" in expected["settings"]
    broker = GoldenBroker(tmp_path, expected["settings"])
    unpack(HERE / archive, tmp_path)
    must_be_sound(broker.data_dir)

    with broker:
        must_have(broker, found)
        if several:
            time.sleep(MIRRORS_HEAR_S)
    must_be_sound(broker.data_dir)

    found = again(found)
    with broker:
        must_have(broker, found)
        if several:
            hand_over(broker)
            found = again(found)
            must_have(broker, found)
            use_up_queues(broker)
        else:
            use_up(broker, expected["notes"])
        left = [what for what, count in counts(broker).items() if count > 0]
        assert [what for what in left if not what.startswith(("delayed by", "mirrors of"))] == []
    must_be_sound(broker.data_dir)


def expectation(archive: str) -> Data:
    release, name = archive.split("/")
    told: Data = json.loads((HERE / release / "expected.json").read_text())
    good = time.time() < told["made"]["good until"]
    assert good, "what was to be due years later is due: README.md says what then"
    expected: Data = told["archives"][name.removesuffix(SUFFIX)]
    return expected


def must_have(broker: GoldenBroker, expected: Data) -> None:
    """All of it; of several nodes one tells what is deferred in channels of its own."""
    await_counts(broker, expected["counts"])
    found = read(broker)
    deferred = {name: expected["deferred"][name] for name in found["deferred"]}
    assert found == expected | {"deferred": deferred}


def must_be_sound(directory: Path) -> None:
    """As ``penstock audit`` says of it, or of each node's."""
    for path in sorted(directory.glob("node-*")) or [directory]:
        report = audit_directory(str(path))
        assert report["damages"] == []
        told = [note for note in report["notes"] if note.split()[0].strip(":") not in HARMLESS]
        assert told == []
