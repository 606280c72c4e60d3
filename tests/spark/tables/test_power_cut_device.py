"""Power cuts of a real file system: copies of an ext4 device, taken while batches are landed in it.

A copy of the device has what was synced or written back, and nothing of the page cache.  Each is
mounted as after a power cut.  Every batch that was acknowledged before the copy must be readable.

    PENSTOCK_SPARK_CUTS    how many copies for each format (default 2)
    PENSTOCK_SPARK_SEED    which random moments; printed, so that a failure can be repeated

Needs root, ``losetup`` and ``mkfs.ext4``; a container without loop devices skips it.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.spark.tables.table import DELTA, PARQUET
from pyspark_penstock.durable import sync
from tests.spark.tables.test_power_cut import Archive

CUTS = int(os.environ.get("PENSTOCK_SPARK_CUTS", "2"))
SEED = int(os.environ.get("PENSTOCK_SPARK_SEED", "0")) or random.SystemRandom().randrange(2**32)
DEVICE_BYTES = 64 << 20
PROGRAM = """
import sys
from pathlib import Path
from tests.spark.tables.test_power_cut import Archive

archive = Archive(Path(sys.argv[1]), sys.argv[2])
for batch in range(1_000):
    archive.land(batch)
    print(batch, flush=True)
"""

pytestmark = [
    pytest.mark.crash,
    pytest.mark.loop_devices,
    pytest.mark.timeout(120 + 20 * CUTS),
]


class Device:
    """An ext4 file system in an image file, mounted by a loop device."""

    def __init__(self, image: Path, mounted: Path) -> None:
        self.image = image
        self.mounted = mounted
        mounted.mkdir()
        self._loop = _run("losetup", "--find", "--show", str(image))
        try:
            _run("mount", "-t", "ext4", "-o", "data=ordered", self._loop, str(mounted))
        except BaseException:
            _run("losetup", "--detach", self._loop)
            raise

    def copy(self, image: Path) -> None:
        """The device at one moment: copied again when anything was written meanwhile."""
        while True:
            before = self._writes()
            shutil.copyfile(self.image, image)
            if self._writes() == before:
                return

    def close(self) -> None:
        """Tries again for a while: libraries close files in threads of their own."""
        last_s = time.monotonic() + 20
        umount = ("umount", str(self.mounted))
        while subprocess.run(umount, capture_output=True, check=False).returncode:
            assert time.monotonic() < last_s, f"{self.mounted} is in use"
            time.sleep(0.1)
        _run("losetup", "--detach", self._loop)

    def _writes(self) -> tuple[str, str]:
        """Completed writes and requests under way, by the kernel's statistics of the device."""
        fields = Path(f"/sys/block/{Path(self._loop).name}/stat").read_text().split()
        return fields[4], fields[8]


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.strip()


@pytest.fixture
def device(tmp_path: Path) -> Iterator[Device]:
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(DEVICE_BYTES)
    try:
        _run("mkfs.ext4", "-q", str(image))
        device = Device(image, tmp_path / "mounted")
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no ext4 on a loop device (root, losetup, mkfs.ext4): {error}")
    yield device
    device.close()


def test_a_copy_has_what_was_synced_and_nothing_else(device: Device, tmp_path: Path) -> None:
    (device.mounted / "synced").write_bytes(b"x" * 5000)
    sync(device.mounted / "synced")
    (device.mounted / "unsynced").write_bytes(b"x" * 5000)
    device.copy(tmp_path / "copy")
    after = Device(tmp_path / "copy", tmp_path / "after")
    try:
        assert (after.mounted / "synced").read_bytes() == b"x" * 5000
        assert not (after.mounted / "unsynced").exists()
    finally:
        after.close()


@pytest.mark.parametrize("kind", [PARQUET, DELTA])
def test_what_was_acknowledged_is_on_the_device(device: Device, tmp_path: Path, kind: str) -> None:
    chance = random.Random(SEED)
    acknowledged = tmp_path / "acknowledged"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", PROGRAM, str(device.mounted / "lake"), kind]
    with acknowledged.open("wb") as output:
        archive = subprocess.Popen(command, env=environment, stdout=output)
    try:
        while not acknowledged.read_text() and archive.poll() is None:
            time.sleep(0.01)
        for cut in range(CUTS):
            time.sleep(chance.uniform(0.0, 1.5))
            archive.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, archive.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            batches = len(acknowledged.read_text().split())
            device.copy(tmp_path / "copy")
            archive.send_signal(signal.SIGCONT)
            check(Device(tmp_path / "copy", tmp_path / f"after-{cut}"), kind, batches)
        assert archive.poll() is None, "the archive ended by itself"
    finally:
        archive.kill()
        archive.wait()


def check(after: Device, kind: str, batches: int) -> None:
    """``batches`` were acknowledged; one more may have been landed, whole or not at all."""
    try:
        archive = Archive(after.mounted / "lake", kind)
        expected = list(range(batches * 2))
        assert archive.rows()[: len(expected)] == expected, f"seed {SEED}"
        archive.publisher().recover()
        assert archive.rows() in (expected, [*expected, batches * 2, batches * 2 + 1])
        following = len(archive.rows()) // 2
        archive.land(following)
        assert archive.rows() == list(range(following * 2 + 2))
    finally:
        after.close()
