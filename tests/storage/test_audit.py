"""The audit says what recovery would find, and changes nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock.storage.audit import DAMAGED, NO_LOG, WHOLE, LogAudit
from penstock.storage.files import RealFileSystem
from tests.helpers.sim_files import SimFileSystem
from tests.storage.log_tools import DIRECTORY, OpenLog, messages


def a_log() -> tuple[SimFileSystem, OpenLog]:
    files = SimFileSystem()
    opened = OpenLog(files, {1, 2}, limit_bytes=600)
    for start in range(0, 40, 4):
        batch = messages(start, start + 4)
        opened.log.publish(1, batch)
        opened.log.ack(1, batch[1:])
        opened.commit()
    opened.log.publish(2, messages(0, 1))
    opened.commit()
    return files, opened


def test_counts_and_no_change() -> None:
    files, _ = a_log()
    files.write(files.open_append(f"{DIRECTORY}/{max(numbers(files))}.log"), b"torn")
    before = {name: bytes(file.cache) for name, file in files.names.items()}
    audit = LogAudit(files, DIRECTORY)
    assert audit.status == WHOLE
    report = "\n".join(audit.lines)
    assert " 10 " in next(line for line in audit.lines if line.split()[:1] == ["1"])
    assert "messages 11, live bytes" in report
    assert "last stop unclean" in report
    assert "recovery would cut 4 bytes and remove 0 files" in report
    assert {name: bytes(file.cache) for name, file in files.names.items()} == before


def numbers(files: SimFileSystem) -> list[int]:
    return [int(name[4:-4]) for name in files.names]


def test_damage_is_named() -> None:
    files, _ = a_log()
    files.flip("log/2.log", 700)
    audit = LogAudit(files, DIRECTORY)
    assert audit.status == DAMAGED
    assert any("log/2.log: damaged at offset" in line for line in audit.lines)
    assert any("no true block at offset" in line for line in audit.lines)


def test_a_clean_stop_and_a_forgotten_queue() -> None:
    files, opened = a_log()
    opened.log.forget_queue(1)
    opened.close_cleanly({})
    report = "\n".join(LogAudit(files, DIRECTORY).lines)
    assert "messages 1, live bytes" in report
    assert "last stop clean" in report


def test_as_a_program(tmp_path: Path) -> None:
    def audit(directory: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "penstock.storage.audit", directory]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert audit(str(tmp_path)).returncode == NO_LOG
    assert audit(f"{tmp_path}/none").returncode == NO_LOG
    assert audit("--help").returncode == NO_LOG


def test_as_a_program_on_a_real_log(tmp_path: Path) -> None:
    from penstock.storage.message_log import MessageLog

    log = MessageLog(RealFileSystem(), str(tmp_path))
    log.recover({3})
    command = [sys.executable, "-m", "penstock.storage.audit", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "1.log" in done.stdout
    assert "messages 0" in done.stdout
