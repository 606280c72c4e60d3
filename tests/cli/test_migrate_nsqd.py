"""``penstock migrate nsqd`` on what a real nsqd 1.3.0 left (``record_nsqd_data``), and on worse."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.cli.nsq import taking_over
from penstock.cli.nsq.disk_queues import DiskQueue, SavedMessage
from penstock.cli.nsq.record import FILE
from tests.cli.record_nsqd_data import record
from tests.cli.test_nsqd import Program
from tests.helpers.broker_process import BrokerFailed, free_port
from tests.helpers.nsq_broker import ask, real
from tests.helpers.raw_nsq import MAGIC, MESSAGE, NsqMessage, message_in, split_frames

DATA = Path(__file__).with_name("nsqd_data")
COUNTS = {
    "lonely": 20, "orders": 0, "orders:archive": 21, "orders:bill": 21, "paused": 20, "paused:c": 0,
}  # fmt: skip
"""As nsqd's own notes have them; two of ``archive`` were in flight, two deferred."""
MANY = 250_000


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copytree(DATA, tmp_path / "nsqd"))


def migrate(source: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["migrate", "nsqd", str(source), *words])


def table_of(result: Result) -> dict[str, list[str]]:
    """By queue: nsqd's count, what was read, what is here."""
    lines = result.stdout.partition("here\n")[2].splitlines()
    rows = [line.split() for line in lines if len(line.split()) == 4]
    return {name: numbers for name, *numbers in rows}


def saved(source: Path, name: str) -> list[SavedMessage]:
    return list(DiskQueue(source, name).messages())


def digest(directory: Path) -> dict[str, str]:
    names = [path for path in sorted(directory.glob("*.dat")) if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in names}


class Started(Program):
    """``penstock nsqd`` on a data directory."""

    def __init__(self, data_path: Path, ready_timeout_s: float = 20.0) -> None:
        self.port, self.api_port = free_port(), free_port()
        super().__init__(
            *("nsqd", f"--data-path={data_path}", f"--tcp-address=127.0.0.1:{self.port}"),
            *(f"--http-address=127.0.0.1:{self.api_port}", "--https-address="),
        )
        self.ready_timeout_s = ready_timeout_s

    def stats(self) -> dict[str, Any]:
        rows = ask(self.api_port, "GET", "/stats?format=json").data["topics"]
        return {one["topic_name"]: one for one in rows}

    def take(self, topic: str, channel: str, count: int) -> list[NsqMessage]:
        import socket

        found: list[NsqMessage] = []
        with socket.create_connection(("127.0.0.1", self.port), 20) as sock:
            sock.sendall(MAGIC + f"SUB {topic} {channel}\nRDY {count}\n".encode())
            rest = b""
            while len(found) < count:
                rest += sock.recv(1 << 20)
                frames, rest = split_frames(rest)
                found += [message_in(one.data) for one in frames if one.type == MESSAGE]
        return found


@pytest.mark.parametrize("in_place", [True, False])
def test_all_of_it_is_there_with_ids_times_and_attempts(
    source: Path, tmp_path: Path, in_place: bool
) -> None:
    before = digest(source)
    into = source if in_place else tmp_path / "penstock"
    result = migrate(source, *([] if in_place else ["--into", str(into)]))
    assert result.exit_code == 0, result.output
    assert table_of(result) == {name: [str(count)] * 3 for name, count in COUNTS.items()}
    assert "took 82 messages in " in result.stdout
    assert digest(source) == before

    expected = saved(source, "orders:archive")
    assert sorted(one.attempts for one in expected) == [*[0] * 18, 1, 1, 1]
    with Started(into) as broker:
        stats = broker.stats()
        channels = {one["channel_name"]: one for one in stats["orders"]["channels"]}
        assert {name: (one["depth"], one["paused"]) for name, one in channels.items()} == {
            "archive": (21, False),
            "bill": (21, True),
        }
        assert (stats["paused"]["depth"], stats["paused"]["paused"]) == (20, True)
        assert (stats["lonely"]["depth"], stats["lonely"]["paused"]) == (20, False)
        got = broker.take("orders", "archive", 21)
        assert [(*one[:1], one.attempts - 1, *one[2:]) for one in got] == [
            (*one,) for one in expected
        ]
        assert [one.body for one in broker.take("lonely", "new", 20)] == [
            one.body for one in saved(source, "lonely")
        ]
        # A paused topic's backlog goes to its channels when it is not paused any more.
        assert ask(broker.api_port, "POST", "/topic/unpause?topic=paused", b"").status == 200
        assert len(broker.take("paused", "c", 20)) == 20


def test_a_second_run_takes_nothing_twice(source: Path, tmp_path: Path) -> None:
    into = tmp_path / "penstock"
    words = ("--into", str(into))
    assert migrate(source, *words).exit_code == 0
    audited = CliRunner().invoke(cli, ["audit", str(into)])
    assert audited.exit_code == 0
    assert "is no file of this broker" not in audited.output
    again = migrate(source, *words)
    assert again.exit_code == 0, again.output
    assert "took 82 messages" in again.stdout
    with Started(into) as broker:
        assert broker.stats()["lonely"]["depth"] == 20


def test_one_that_stopped_half_way_goes_on(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue it was at is filled anew; a broker does not start before all is there."""
    into = tmp_path / "penstock"
    whole = DiskQueue.messages

    def some(queue: DiskQueue) -> Iterator[SavedMessage]:
        for number, message in enumerate(whole(queue)):
            if number == 4 and queue.name == "orders:bill":
                raise RuntimeError("stopped by the test")
            yield message

    with monkeypatch.context() as patched:
        patched.setattr(DiskQueue, "messages", some)
        patched.setattr(taking_over, "BATCH_MESSAGES", 2)
        assert migrate(source, "--into", str(into)).exit_code == 1
    record = json.loads((into / FILE).read_text())
    assert record["finished"] is False
    assert record["queues"]["orders:bill"]["messages"] is None
    with pytest.raises(BrokerFailed, match="has only a part of the messages of"):
        Started(into).start()
    result = migrate(source, "--into", str(into))
    assert result.exit_code == 0, result.output
    assert table_of(result) == {name: [str(count)] * 3 for name, count in COUNTS.items()}


def write_queue(directory: Path, name: str, count: int, body: bytes = b"small") -> None:
    """As nsqd would; each third message was tried once, each third twice."""
    file = directory / f"{name}.diskqueue.000000.dat"
    data = bytearray()
    for number in range(count):
        head = struct.pack(">iqH16s", 26 + len(body), number, number % 3, b"%016x" % number)
        data += head + body
    file.write_bytes(data)
    (directory / f"{name}.diskqueue.meta.dat").write_text(f"{count}\n0,0\n0,{len(data)}\n")
    topic, _, channel = name.partition(":")
    row = {"name": topic, "channels": [{"name": channel}] if channel else []}
    (directory / "nsqd.dat").write_text(json.dumps({"topics": [row], "version": "1.3.0"}))


@pytest.mark.nsqd
@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_million_messages_of_nsqd(tmp_path: Path) -> None:
    """Of four queues; some were deferred, some in flight when nsqd stopped."""
    source = tmp_path / "nsqd"
    record(Path(real("nsqd")), source, MANY)
    result = migrate(source)
    assert result.exit_code == 0, result.output
    counts = {name: count and count - 20 + MANY for name, count in COUNTS.items()}
    assert table_of(result) == {name: [str(count)] * 3 for name, count in counts.items()}
    with Started(source, ready_timeout_s=300.0) as broker:
        stats = broker.stats()
        depths = {one["channel_name"]: one["depth"] for one in stats["orders"]["channels"]}
        assert depths == {"archive": MANY + 1, "bill": MANY + 1}
        assert [stats[topic]["depth"] for topic in ("lonely", "paused")] == [MANY, MANY]


def test_one_that_was_killed_goes_on(tmp_path: Path) -> None:
    source, into = tmp_path / "nsqd", tmp_path / "penstock"
    source.mkdir()
    write_queue(source, "long", 60_000)
    command = [
        sys.executable,
        "-m",
        "penstock",
        "migrate",
        "nsqd",
        str(source),
        "--into",
        str(into),
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while time.monotonic() < until and '"messages": null' not in _text(into / FILE):
        time.sleep(0.01)
    time.sleep(0.2)  # some of it is on disk
    process.send_signal(signal.SIGKILL)
    process.wait(20)
    result = migrate(source, "--into", str(into))
    assert result.exit_code == 0, result.output
    assert table_of(result) == {"long": ["60000"] * 3}


@pytest.mark.parametrize(
    "setting, word",
    [("PENSTOCK_VM_MEMORY_HIGH_WATERMARK", "memory"), ("PENSTOCK_DISK_FREE_LIMIT", "disk")],
)
def test_while_an_alarm_stands_it_waits_and_says_so(
    source: Path, tmp_path: Path, setting: str, word: str
) -> None:
    """As publishers wait; messages would fill the disk otherwise, or the memory."""
    command = [sys.executable, "-m", "penstock", "migrate", "nsqd", str(source)]
    limit = {"memory": "0", "disk": "1000TB"}[word]
    with subprocess.Popen(
        [*command, "--into", str(tmp_path / "penstock")],
        env={**os.environ, setting: limit},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        said = next(line for line in lines if "waiting: " in line)
        process.kill()
    assert word in said
    assert migrate(source, "--into", str(tmp_path / "penstock")).exit_code == 0


def test_large_messages_are_whole(tmp_path: Path) -> None:
    """They go to the message store, not to the index."""
    source = tmp_path / "nsqd"
    source.mkdir()
    write_queue(source, "large:c", 40, body=b"x" * 300_000)
    assert table_of(migrate(source)) == {"large:c": ["40"] * 3}
    with Started(source) as broker:
        got = broker.take("large", "c", 40)
        assert {one.body for one in got} == {b"x" * 300_000}
        assert [one.attempts for one in got] == [number % 3 + 1 for number in range(40)]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def test_a_torn_end_is_named_and_the_rest_is_taken(source: Path, tmp_path: Path) -> None:
    file = source / "lonely.diskqueue.000000.dat"
    end = file.stat().st_size
    os.truncate(file, end - 5)
    result = migrate(source, "--into", str(tmp_path / "penstock"))
    assert result.exit_code == 1
    assert table_of(result)["lonely"] == ["20", "19", "19"]
    # The last one is "lonely 4", which takes 38 bytes: nsqd wrote what was in memory at its end.
    text = f"not read: {file.name}, offset {end - 38}: 33 bytes of an unfinished message"
    assert text in result.stderr
    assert table_of(result)["orders:bill"] == ["21"] * 3


def test_after_a_size_that_cannot_be_right_the_next_file_is_read(
    source: Path, tmp_path: Path
) -> None:
    """As nsqd does.  The first file is damaged behind its tenth message; a second one follows."""
    file = source / "lonely.diskqueue.000000.dat"
    data = bytearray(file.read_bytes())
    shutil.copy(file, source / "lonely.diskqueue.000001.dat")
    place = sum(30 + len(one.body) for one in saved(source, "lonely")[:10])
    (source / "lonely.diskqueue.meta.dat").write_text(f"40\n0,0\n1,{len(data)}\n")
    data[place : place + 4] = b"\xff\xff\xff\xff"
    file.write_bytes(data)
    result = migrate(source, "--into", str(tmp_path / "penstock"))
    assert result.exit_code == 1
    assert table_of(result)["lonely"] == ["40", "30", "30"]
    left = len(data) - place
    text = f"{file.name}, offset {place}: {left} bytes cannot be read, the size is -1"
    assert text in result.stderr


def test_after_a_crash_what_is_behind_the_note_is_taken(source: Path, tmp_path: Path) -> None:
    """nsqd writes its notes now and then; the file is longer when it was killed."""
    (source / "lonely.diskqueue.meta.dat").write_text("5\n0,0\n0,190\n")
    result = migrate(source, "--into", str(tmp_path / "penstock"))
    assert result.exit_code == 0, result.output
    assert table_of(result)["lonely"] == ["5", "20", "20"]
    assert "nsqd was not stopped in good order: it counted lonely otherwise" in result.stdout


def test_a_note_that_cannot_be_read(source: Path, tmp_path: Path) -> None:
    (source / "lonely.diskqueue.meta.dat").write_text("what")
    result = migrate(source, "--into", str(tmp_path / "penstock"))
    assert result.exit_code == 1
    assert table_of(result)["lonely"] == ["unknown", "20", "20"]
    assert "lonely.diskqueue.meta.dat: cannot be read, so all of its files are" in result.stderr


def test_the_metadata_of_an_older_release(source: Path, tmp_path: Path) -> None:
    (source / "nsqd.dat").rename(source / "nsqd.617.dat")
    result = migrate(source, "--into", str(tmp_path / "penstock"))
    assert result.exit_code == 0, result.output
    assert table_of(result)["orders:bill"] == ["21"] * 3


def test_files_that_the_metadata_do_not_name_are_taken_too(source: Path, tmp_path: Path) -> None:
    (source / "nsqd.dat").write_text('{"topics": null, "version": "1.3.0"}')
    result = migrate(source, "--into", str(tmp_path / "penstock"))
    assert result.exit_code == 0, result.output
    assert table_of(result) == {name: [str(count)] * 3 for name, count in COUNTS.items()}


def test_what_is_refused(source: Path, tmp_path: Path) -> None:
    into = tmp_path / "penstock"
    handle = os.open(source, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)  # as nsqd does
    assert f"nsqd uses {source}" in migrate(source).output
    os.close(handle)
    assert "has no nsqd.dat" in migrate(tmp_path).output
    assert "is no directory" in migrate(tmp_path / "nowhere").output
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "nsqd.dat").write_text("{")
    assert "cannot read" in migrate(tmp_path / "broken").output
    # Messages of clients would be let go of if the queue were filled anew.
    assert migrate(source, "--into", str(into)).exit_code == 0
    other = Path(shutil.copytree(source, tmp_path / "other"))
    result = migrate(other, "--into", str(into))
    assert result.exit_code == 1
    assert "'lonely' has 20 messages here already" in result.output
    assert json.loads((into / FILE).read_text())["source"] == str(source)


def test_a_record_with_a_wrong_checksum(source: Path, tmp_path: Path) -> None:
    into = tmp_path / "penstock"
    assert migrate(source, "--into", str(into)).exit_code == 0
    record = into / FILE
    record.write_text(record.read_text().replace('"finished": true', '"finished": false'))
    result = migrate(source, "--into", str(into))
    assert result.exit_code == 1
    assert "the checksum is wrong" in result.output
    assert "restore it from a copy" in result.output


def test_an_nsqd_that_went_on_afterwards(source: Path, tmp_path: Path) -> None:
    words = ("--into", str(tmp_path / "penstock"))
    assert migrate(source, *words).exit_code == 0
    (source / "lonely.diskqueue.meta.dat").write_text("1\n0,732\n0,770\n")
    result = migrate(source, *words)
    assert result.exit_code == 1
    assert "nsqd has changed 'lonely' since it was taken over" in result.output


def test_penstock_does_not_pass_over_the_messages_of_nsqd(source: Path) -> None:
    """Started as nsqd was, where nsqd was: its messages would seem to be lost."""
    with pytest.raises(BrokerFailed, match="which were not taken over"):
        Started(source).start()


# -- a disk that fails ---------------------------------------------------------------------


class FailingSource:
    """Calls to nsqd's directory, and to the record beside the messages, that fail.

    The next but ``after``, once or all that follow; -1: none.  ``calls``: verb and file of each.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directories: list[Path]) -> None:
        self.begin(-1, once=True)
        self._places = [str(one) for one in directories]
        monkeypatch.setattr(os, "listdir", self._guarded("listdir", os.listdir))
        monkeypatch.setattr(Path, "read_text", self._guarded("read_text", Path.read_text))
        monkeypatch.setattr(Path, "rename", self._guarded("rename", Path.rename))
        monkeypatch.setattr(os, "fsync", self._guarded("fsync", os.fsync))
        opened = self._guarded("open", Path.open)

        def open_path(path: Path, mode: str = "r", *args: Any, **more: Any) -> Any:
            file = opened(path, mode, *args, **more)
            return self._reader(file, path) if mode == "rb" else file

        monkeypatch.setattr(Path, "open", open_path)

    def _reader(self, file: Any, path: Path) -> Any:
        read = self._guarded("read", lambda _path, size: file.read(size))
        return _Reading(file, lambda size: read(path, size))

    def begin(self, after: int, *, once: bool) -> None:
        self.after, self.once, self.failed = after, once, ""
        self.calls: list[str] = []

    def _guarded(self, verb: str, call: Any) -> Any:
        def guarded(path: Any, *args: Any, **more: Any) -> Any:
            place = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else str(path)
            is_message = ".diskqueue." in place or "nsqd" in Path(place).name
            if is_message and any(place.startswith(one) for one in self._places):
                self.calls.append(f"{verb} {Path(place).name}")
                if self.after == 0:
                    self.after = -1 if self.once else 0
                    self.failed = f"{verb} {place}"
                    raise OSError(5, "Input/output error", None if verb == "read" else place)
                self.after -= self.after > 0
            return call(path, *args, **more)

        return guarded


class _Reading:
    def __init__(self, file: Any, read: Any) -> None:
        self._file, self.read = file, read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize(
    "once",
    [pytest.param(True, marks=pytest.mark.long, id="once"), pytest.param(False, id="for ever")],
)
def test_each_call_to_the_disk_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
) -> None:
    """It is named, with its file; the next run goes on, and each message is there once.

    Of calls that are alike the first and the last fail.
    """
    source = tmp_path / "nsqd"
    source.mkdir()
    write_queue(source, "one", 3)
    write_queue(source, "two:c", 3)
    failing = FailingSource(monkeypatch, [tmp_path])
    assert migrate(source, "--into", str(tmp_path / "good")).exit_code == 0
    calls = failing.calls
    assert {call.split()[0] for call in calls} == {
        *("listdir", "read_text", "rename", "fsync", "open", "read")
    }
    alike = [calls.index(call) for call in set(calls)]
    for after in sorted(
        {*alike, *(len(calls) - 1 - calls[::-1].index(call) for call in set(calls))}
    ):
        into = tmp_path / f"penstock{after}"
        failing.begin(after, once=once)
        result = migrate(source, "--into", str(into))
        failed = failing.failed
        failing.begin(-1, once=True)
        assert failed, (after, calls[after])
        assert result.exit_code != 0, (after, failed, result.output)
        assert "Input/output error" in result.output, (after, result.output)
        assert "this is a fault of penstock" not in result.output, (after, result.output)
        assert str(tmp_path) in result.output.partition("Input/output error")[0]
        again = migrate(source, "--into", str(into))
        assert again.exit_code == 0, (after, failed, again.output)
        assert table_of(again) == {"one": ["3"] * 3, "two:c": ["3"] * 3}, (after, failed)
        shutil.rmtree(into)


def test_what_an_interrupted_run_could_not_read_is_told_by_the_next_one(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = source / "lonely.diskqueue.000000.dat"
    os.truncate(file, file.stat().st_size - 5)
    into = str(tmp_path / "penstock")
    whole = DiskQueue.messages

    def some(queue: DiskQueue) -> Iterator[SavedMessage]:
        if queue.name == "orders:bill":
            raise RuntimeError("stopped by the test")
        return whole(queue)

    with monkeypatch.context() as patched:
        patched.setattr(DiskQueue, "messages", some)
        assert migrate(source, "--into", into).exit_code == 1
    for _ in range(2):
        result = migrate(source, "--into", into)
        assert result.exit_code == 1
        assert f"not read: {file.name}, offset" in result.stderr


def test_files_and_ends_that_are_missing_are_named(source: Path, tmp_path: Path) -> None:
    """Not taken for queues without messages."""
    file = source / "lonely.diskqueue.000000.dat"
    size = file.stat().st_size
    meta = source / "lonely.diskqueue.meta.dat"
    name = "lonely.diskqueue"
    for number, (note, fault) in enumerate(
        [
            (f"20\n0,0\n0,{size + 40}\n", f"{file.name}: 40 bytes at its end are missing"),
            (f"40\n0,0\n2,{size}\n", f"files {name}.000001.dat to {name}.000002.dat: missing"),
            ("40\n0,0\n2,0\n", f"files {name}.000001.dat to {name}.000001.dat: missing"),
        ]
    ):
        meta.write_text(note)
        result = migrate(source, "--into", str(tmp_path / f"into{number}"))
        assert result.exit_code == 1, note
        assert f"not read: {fault}" in result.stderr
        assert table_of(result)["lonely"][1:] == ["20", "20"]
    file.unlink()
    meta.write_text(f"20\n0,0\n0,{size}\n")
    result = migrate(source, "--into", str(tmp_path / "none"))
    assert result.exit_code == 1
    assert f"files {file.name} to {file.name}: missing" in result.stderr


def test_a_directory_that_cannot_be_read_is_not_one_without_nsqd(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that took it for an empty one would leave the messages aside."""
    failing = FailingSource(monkeypatch, [source])
    failing.begin(0, once=True)
    result = CliRunner().invoke(cli, ["nsqd", f"--data-path={source}"])
    assert result.exit_code != 0
    assert f"cannot read {source}: Input/output error" in result.output
