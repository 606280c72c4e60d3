"""The real disk keeps the promises of ``FileSystem`` that can be seen without a power cut."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.storage.common.files import RealFileSystem


def test_write_read_and_cut(tmp_path: Path) -> None:
    files = RealFileSystem()
    directory = f"{tmp_path}/a/b"
    files.makedirs(directory)
    files.makedirs(directory)
    path = f"{directory}/1.log"
    handle = files.open_write(path)
    files.pwrite_parts(handle, 0, [b"0123", b"45", b"", b"6789"])
    files.sync(handle)
    files.close(handle)
    handle = files.open_write(path)
    files.pwrite_parts(handle, 10, [b"tail"])
    files.close(handle)
    assert files.read(path) == b"0123456789tail"
    assert files.pread(path, 3, 4) == b"3456"
    assert files.pread(path, 12, 9) == b"il"
    files.truncate(path, 10)
    assert files.read(path) == b"0123456789"
    assert files.size(path) == 10
    files.rename(path, f"{directory}/2.log")
    files.sync_dir(directory)
    assert files.listdir(directory) == ["2.log"]
    files.remove(f"{directory}/2.log")
    assert not files.exists(f"{directory}/2.log")


class StaleDisk(RealFileSystem):
    """The page cache has more than the disk: an earlier sync had failed."""

    def read_back(self, handle: int, offset: int, size: int) -> bytes:
        return super().read_back(handle, offset, size)[:4]


@pytest.mark.parametrize("files, written", [(RealFileSystem(), b""), (StaleDisk(), b"6789")])
def test_only_what_the_disk_lacks_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: RealFileSystem, written: bytes
) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"0123456789ab")
    wrote: list[bytes] = []
    pwritev = os.pwritev

    def watched(handle: int, parts: Sequence[bytes], offset: int) -> int:
        wrote.extend(parts)
        return pwritev(handle, parts, offset)

    monkeypatch.setattr(os, "pwritev", watched)
    files.secure(str(path), 2, b"23456789")
    assert b"".join(wrote) == written
    assert path.read_bytes() == b"0123456789ab"


def test_what_is_read_back_is_not_the_page_cache(tmp_path: Path) -> None:
    files = RealFileSystem()
    handle = files.open_write(f"{tmp_path}/x")
    files.pwrite_parts(handle, 0, [b"x" * 20_000])
    files.sync(handle)
    files.read_back(handle, 0, 0)
    try:
        cached = os.preadv(handle, [bytearray(100)], 9000, os.RWF_NOWAIT) > 0
    except BlockingIOError:
        cached = False
    files.close(handle)
    kind = subprocess.check_output(["stat", "-f", "-c", "%T", str(tmp_path)], text=True)
    assert cached == (kind.strip() == "tmpfs"), "only a disk of memory has it in the cache"


@pytest.mark.parametrize("taken", [0, 1, 3, 4, 5, 9])
def test_short_writes_are_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    pwrite = os.pwrite

    def short_pwritev(handle: int, parts: Sequence[bytes], offset: int) -> int:
        return pwrite(handle, b"".join(parts)[:taken], offset)

    files = RealFileSystem()
    path = f"{tmp_path}/x"
    handle = files.open_write(path)
    monkeypatch.setattr(os, "pwritev", short_pwritev)
    monkeypatch.setattr(os, "pwrite", lambda handle, data, at: pwrite(handle, data[:1], at))
    files.pwrite_parts(handle, 0, [b"abcd", b"", b"efghi"])
    monkeypatch.undo()
    files.close(handle)
    assert files.read(path) == b"abcdefghi"


def test_errors_come_through(tmp_path: Path) -> None:
    files = RealFileSystem()
    with pytest.raises(FileNotFoundError):
        files.read(f"{tmp_path}/none")
    with pytest.raises(FileNotFoundError):
        files.open_write(f"{tmp_path}/none/x")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_failed_sync_never_asks_to_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """ENOSPC means "try again" to whoever writes; a sync must not be tried again."""

    def fail(_handle: int) -> None:
        raise OSError(number, os.strerror(number))

    files = RealFileSystem()
    path = f"{tmp_path}/x"
    handle = files.open_write(path)
    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "fsync", fail)
    verbs: list[Callable[[], None]] = [
        lambda: files.sync(handle),
        lambda: files.sync_dir(str(tmp_path)),
        lambda: files.truncate(path, 0),
        lambda: files.secure(path, 0, b""),
    ]
    for verb in verbs:
        with pytest.raises(OSError, match="Input/output error") as raised:
            verb()
        assert raised.value.errno == errno.EIO
    monkeypatch.undo()
    files.close(handle)


def test_the_name_of_a_directory_that_is_there_is_made_durable_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may have died between making it and syncing the one above."""
    files = RealFileSystem()
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda handle: synced.append(os.readlink(f"/proc/self/fd/{handle}"))
    )
    (tmp_path / "a").mkdir()
    files.makedirs(f"{tmp_path}/a")
    files.makedirs(f"{tmp_path}/a")
    assert synced == [str(tmp_path)]
    files.makedirs(f"{tmp_path}/a/b/c")
    assert synced == [str(tmp_path), f"{tmp_path}/a", f"{tmp_path}/a/b"]
    files.remove_dir(f"{tmp_path}/a/b/c")
    files.makedirs(f"{tmp_path}/a/b/c")
    assert synced[3:] == [f"{tmp_path}/a/b"]
