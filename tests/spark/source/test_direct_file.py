"""What is written past the page cache is what was given, whoever takes turns, on every disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_penstock import direct_file
from pyspark_penstock.direct_file import BLOCK_BYTES, direct_outlet

SMALL = 4 * BLOCK_BYTES
SIZES = st.one_of(
    st.integers(0, 3 * SMALL),
    st.sampled_from([1, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 1, SMALL, SMALL + 1]),
)


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_file, "BUFFER_BYTES", SMALL)


def written(folder: Path, turns: list[tuple[int, int]]) -> list[bytes]:
    """Some bytes for one of three files after the other; what each should have."""
    outlet = direct_outlet(folder)
    wanted = [b"", b"", b""]
    files = [outlet.file(str(number)) for number in range(3)]
    for turn, (number, size) in enumerate(turns):
        data = bytes((turn + at) % 251 for at in range(size))
        files[number].write(data)
        wanted[number] += data
        assert files[number].tell() == len(wanted[number])
    for file in files:
        file.close()
    outlet.settle()
    return wanted


def found(folder: Path) -> list[bytes]:
    return [(folder / str(number)).read_bytes() for number in range(3)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(turns=st.lists(st.tuples(st.integers(0, 2), SIZES), max_size=12))
def test_files_have_what_was_written_whoever_took_turns(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("direct")
    assert written(folder, turns) == found(folder)


TURNS = [(0, 10), (1, SMALL + 5), (0, 2 * SMALL), (2, BLOCK_BYTES), (0, 1)]


def test_where_the_file_cannot_be_opened_so_it_goes_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refuses(path: Any, flags: int, *rest: int, **more: Any) -> int:
        if flags & direct_file.DIRECT:
            raise OSError(errno.EINVAL, "no direct files here")
        return real(path, flags, *rest, **more)  # pytest removes directories by it

    monkeypatch.setattr(direct_file.os, "open", refuses)
    assert written(tmp_path, TURNS) == found(tmp_path)


def test_where_such_writes_are_refused_they_go_through_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    refused = []

    def refuses(handle: int, data: Any, at: int) -> int:
        if direct_file._is_direct(handle):
            refused.append(at)
            raise OSError(errno.EINVAL, "not so")
        return real(handle, data, at)

    monkeypatch.setattr(direct_file.os, "pwrite", refuses)
    assert written(tmp_path, TURNS) == found(tmp_path)
    assert refused or not direct_file.DIRECT


def test_a_disk_that_takes_a_part_is_given_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(
        direct_file.os, "pwrite", lambda handle, data, at: real(handle, data[:BLOCK_BYTES], at)
    )
    assert written(tmp_path, TURNS) == found(tmp_path)


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(direct_file.os, "pwrite", full)
    with pytest.raises(OSError, match="No space left"):
        written(tmp_path, TURNS)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"somebody's")
    with pytest.raises(FileExistsError):
        direct_outlet(tmp_path).file("0")
