"""How often the disk is asked, and how long it takes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from penstock.runtime.disk.io_meter import DiskMeter
from penstock.storage.common.files import RealFileSystem


def test_each_call_counts_once(tmp_path: Path) -> None:
    meter = DiskMeter()
    files = RealFileSystem(meter)
    path = str(tmp_path / "file")
    handle = files.open_write(path)
    files.pwrite_parts(handle, 0, [b"one"])
    files.pwrite_parts(handle, 3, [b"two", b"three"])
    files.sync(handle)
    files.close(handle)
    handle = files.open_write(path)
    files.pwrite_parts(handle, 0, [b"O"])
    files.close(handle)
    assert (files.read(path), files.pread(path, 3, 3)) == (b"Onetwothree", b"two")
    files.truncate(path, 3)
    files.sync_dir(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        files.read(str(tmp_path / "none"))
    found = meter.counts.fields()
    assert [found[f"io_{what}_count"] for what in ("write", "read", "sync")] == [3, 2, 3]
    assert all(0 < found[f"io_{what}_avg_time"] < 10_000 for what in ("write", "read", "sync"))


def test_the_time_is_that_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meter = DiskMeter()
    files = RealFileSystem(meter)
    handle = files.open_write(str(tmp_path / "file"))
    assert meter.counts.fields()["io_sync_avg_time"] == 0
    monkeypatch.setattr(os, "fdatasync", lambda _: time.sleep(0.02))
    files.sync(handle)
    files.close(handle)
    assert 20 <= meter.counts.fields()["io_sync_avg_time"] < 2000


def test_threads_do_not_lose_counts(tmp_path: Path) -> None:
    meter = DiskMeter()
    files = RealFileSystem(meter)
    path = str(tmp_path / "file")
    Path(path).write_bytes(b"x")

    def ask() -> None:
        for _ in range(500):
            files.pread(path, 0, 1)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert meter.counts.fields()["io_read_count"] == 2000
