"""The files of a data directory are the broker's alone."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.helpers.live_broker import LiveBroker


def modes(directory: Path) -> dict[str, int]:
    """Rights of other accounts, by path; files that are gone meanwhile are left out."""
    found = {}
    for path in [directory, *directory.rglob("*")]:
        if path.exists():
            found[str(path.relative_to(directory))] = stat.S_IMODE(path.stat().st_mode) & 0o077
    return found


def test_no_other_account_may_read_what_a_broker_makes(tmp_path: Path) -> None:
    with LiveBroker(tmp_path / "broker", ("--data-dir", str(tmp_path / "data"))) as node:
        found = modes(tmp_path / "data")
        assert "definitions.db" in found
        assert {path for path, mode in found.items() if mode} == set()
        assert "other accounts" not in node.output()


def test_a_directory_that_others_may_enter_is_named_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data").chmod(0o755)
    with LiveBroker(tmp_path / "broker", ("--data-dir", str(tmp_path / "data"))) as node:
        (line,) = [one for one in node.output().splitlines() if "other accounts" in one]
        assert f"{tmp_path / 'data'} (mode 755)" in line
