"""``penstock audit`` on real files: exit codes, what it prints, and that it leaves no trace."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pytest
from click.testing import CliRunner, Result

from penstock.cli.data import audit as command
from penstock.cli.main import cli
from penstock.storage.common.files import RealFileSystem
from penstock.storage.common.seq_ranges import SeqRanges, ranges_of
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.records import QueueRecord, VhostRecord
from penstock.streams.log import StreamLimits
from tests.backing.engine_tools import OpenEngine, limits, message
from tests.helpers.broker_process import BrokerProcess
from tests.helpers.live_broker import LiveBroker

ENTRIES = 64
KINDS = ("journal/*.jif", "queues/1/*.idx", "store/persistent/*.rdq", "terms", "definitions.db")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["audit", *arguments])


def report(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = run(*arguments, "-o", "json")
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenEngine:
    """An engine on the machine's disk, in ``data``, with two queues that the definitions name."""
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    definitions = Definitions("data/definitions.db")
    definitions.put_vhost(VhostRecord("/", ENTRIES))
    for name in ("orders", "nasty\x1b[2J"):
        queue_id = definitions.next_queue_id()
        definitions.put_queue(QueueRecord(queue_id, "0" * 32, "/", name, False, {}))
    definitions.commit()
    definitions.close()
    Path("data/lock").write_text("4711\n")
    engine = OpenEngine(RealFileSystem(), {1: ENTRIES, 2: ENTRIES}, limits(embed=200))
    for now_ms in range(4):
        contents = [b"a" * 50, b"b" * 300] * 20
        engine.queues[1].publish([message(content) for content in contents], now_ms)
        engine.queues[2].publish([message(b"c" * 10)], now_ms)
        engine.commit()
    engine.queues[1].ack(engine.queues[1].fetch(10, 1 << 20))
    engine.commit()
    return engine


def killed(engine: OpenEngine) -> None:
    """As after kill -9: what was written stays."""
    engine.committer.close()


def snapshot() -> dict[str, tuple[bytes, int]]:
    found = {}
    for path in sorted(Path("data").rglob("*")):
        status = path.stat()
        found[str(path)] = (path.read_bytes() if path.is_file() else b"", status.st_mtime_ns)
    return found


def place_in_block(path: Path) -> int:
    """Behind what a crash may tear without loss: the first block of a journal, the attestation."""
    return 60 if path.suffix in (".jif", ".idx") else 5


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


# -- sound ----------------------------------------------------------------------------------


def test_after_a_kill_it_is_sound_and_untouched(engine: OpenEngine) -> None:
    killed(engine)
    before = snapshot()
    code, found = report("data")
    assert code == 0
    assert snapshot() == before
    assert (found["verdict"], found["terms"], found["messages"]) == ("sound", "absent", 154)
    orders, nasty = found["queues"]
    assert (orders["vhost"], orders["name"], orders["id"]) == ("/", "orders", 1)
    assert (orders["messages"], orders["journal_only"], orders["stored"]) == (150, 150, 75)
    assert nasty["messages"] == 4
    (journal,) = found["journal"]
    assert journal["records"]["publish"] == 164
    assert found["contents"]["count"] == 80
    assert found["contents"]["referred_to"] == 75
    assert (found["damages"], found["notes"]) == ([], [])


def test_after_a_clean_stop_it_is_sound_and_untouched(engine: OpenEngine) -> None:
    engine.close_cleanly()
    before = snapshot()
    code, found = report("data")
    assert code == 0
    assert snapshot() == before
    assert (found["verdict"], found["terms"], found["messages"]) == ("sound", "valid", 154)
    assert found["queues"][0]["in_segments"] == 150
    assert {row["file"].partition("/")[0] for row in found["segments"]} == {"queues"}
    assert sum(row["messages"] for row in found["segments"]) == 154


def test_the_table_is_for_people(engine: OpenEngine) -> None:
    engine.close_cleanly()
    result = run("data")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].endswith("data: sound")
    assert lines[1].startswith("the broker was stopped cleanly")
    assert lines[2] == "154 messages in 2 durable queues"
    for title in ("queues", "journal", "segments", "store"):
        assert title in lines
    assert "\x1b" not in result.output
    assert any(line.split()[:3] == ["/", "orders", "1"] for line in lines)


def test_a_torn_tail_is_said_and_sound(engine: OpenEngine) -> None:
    killed(engine)
    path = next(Path("data/journal").glob("*.jif"))
    data = path.read_bytes()
    end = len(data.rstrip(b"\0"))
    path.write_bytes(data[: end - 3] + bytes(len(data) - end + 3))
    result = run("data")
    assert result.exit_code == 0
    assert result.output.splitlines()[0].endswith("data: sound, with torn tails")
    assert "torn tails: " in result.output
    assert "at the end of 1 files" in result.output


def test_a_stream_is_read_and_counted(engine: OpenEngine) -> None:
    """Its messages are in its segments, after a kill and after a clean stop."""
    engine.close_cleanly()
    definitions = Definitions("data/definitions.db")
    queue_id = definitions.next_queue_id()
    arguments: dict[str, object] = {"x-queue-type": "stream"}
    definitions.put_queue(QueueRecord(queue_id, "0" * 32, "/", "log", False, arguments))
    definitions.commit()
    definitions.close()
    files, queues = RealFileSystem(), {1: ENTRIES, 2: ENTRIES}
    again = OpenEngine(files, queues, limits(embed=200), streams=(queue_id,))
    stream = again.streams[queue_id]
    stream.log.set_limits(StreamLimits(segment_bytes=300))
    for number in range(5):
        stream.publish([message(b"%d:" % number + b"x" * 100)], 10)
        again.commit()
    killed(again)
    for stopped in (False, True):
        code, found = report("data")
        assert (code, found["damages"], found["notes"]) == (0, [], [])
        [row] = [row for row in found["queues"] if row["name"] == "log"]
        assert (row["messages"], row["in_segments"], row["segments"]) == (5, 5, 3)
        assert found["messages"] == 154 + 5
        assert run("data").exit_code == 0
        if not stopped:
            OpenEngine(files, queues, limits(embed=200), streams=(queue_id,)).close_cleanly()
    path = Path(f"data/streams/{queue_id}/2.stm")
    code, found = report("--file", str(path))
    assert (code, [block["content"] for block in found["content"]]) == (
        0,
        ["messages, 1", "messages, 1", "index, 1"],
    )
    flip(path, 150)
    code, found = report("data")
    assert code == 1
    [damage] = found["damages"]
    assert damage["file"] == f"streams/{queue_id}/2.stm"
    assert damage["offset"] <= 150 < damage["offset"] + damage["length"]


# -- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", KINDS)
def test_a_flipped_bit_in_each_kind_of_file_is_named(engine: OpenEngine, pattern: str) -> None:
    engine.close_cleanly()
    if pattern.startswith("journal"):
        Path("data/terms").unlink()
    path = min(Path("data").glob(pattern))
    flip(path, place_in_block(path))
    code, found = report("data")
    assert code == 1
    assert found["verdict"] == "damaged"
    name = str(path.relative_to("data"))
    damage = next(row for row in found["damages"] if row["file"] == name)
    assert damage["length"] > 0
    assert damage["offset"] <= 60
    text = run("data").output
    assert text.splitlines()[0].endswith("damaged")
    assert name in text.partition("\ndamage\n")[2]


def test_a_missing_store_file_is_named(engine: OpenEngine) -> None:
    engine.close_cleanly()
    path = next(Path("data/store/persistent").glob("*.rdq"))
    path.unlink()
    code, found = report("data")
    assert code == 1
    missing = next(row for row in found["damages"] if row["what"] == "the file is missing")
    assert missing["file"] == f"store/persistent/{path.name}"


def test_a_store_file_missing_after_a_kill_is_named_by_what_it_held(engine: OpenEngine) -> None:
    killed(engine)
    next(Path("data/store/persistent").glob("*.rdq")).unlink()
    code, found = report("data")
    assert code == 1
    assert "the content of message" in found["damages"][0]["what"]
    shown = run("data").output.splitlines()
    assert len(found["damages"]) == 75
    assert len(shown) < 110


def test_many_damages_are_cut_short_in_the_table(
    engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(engine)
    next(Path("data/store/persistent").glob("*.rdq")).unlink()
    monkeypatch.setattr(command, "DAMAGES_SHOWN", 10)
    assert run("data").output.rstrip().endswith("and 65 more; -o json has all")


@pytest.mark.parametrize("content", [b"no database at all, but long enough to be one" * 20, None])
def test_definitions_that_cannot_be_read_are_damage(
    engine: OpenEngine, content: bytes | None
) -> None:
    engine.close_cleanly()
    path = Path("data/definitions.db")
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    code, found = report("data")
    assert code == 1
    assert found["damages"][0]["file"] == "definitions.db"
    assert any("names nothing of queue 1" in row["what"] for row in found["damages"])


def test_definitions_that_were_not_checkpointed_are_read(engine: OpenEngine) -> None:
    """After a kill the newest declarations are in SQLite's log only."""
    killed(engine)
    child = (
        "import os\n"
        "from penstock.storage.definitions.definitions import Definitions, QueueRecord\n"
        "d = Definitions('data/definitions.db')\n"
        "d.put_queue(QueueRecord(9, '0' * 32, '/', 'late', False, {}))\n"
        "d.commit()\nos._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", child], check=True, env=_environment())
    assert Path("data/definitions.db-wal").stat().st_size > 0
    before = snapshot()
    _, found = report("data")
    assert found["queues"][-1]["name"] == "late"
    assert snapshot() == before


def _environment() -> dict[str, str]:
    source = Path(__file__).resolve().parents[2] / "src"
    return {**os.environ, "PYTHONPATH": str(source)}


# -- queues that the definitions lost -------------------------------------------------------


def lose_a_queue() -> None:
    definitions = sqlite3.connect("data/definitions.db")
    definitions.execute("DELETE FROM queues WHERE queue_id = 2")
    definitions.commit()
    definitions.close()


@pytest.mark.parametrize("clean", [False, True])
def test_lost_queues_are_listed_and_given_up(engine: OpenEngine, *, clean: bool) -> None:
    """D3 of the review."""
    engine.close_cleanly() if clean else killed(engine)
    lose_a_queue()
    code, found = report("data")
    assert (code, len(found["damages"])) == (1, 1)
    assert "names nothing of queue 2 (4 messages" in found["damages"][0]["what"]
    repair = CliRunner().invoke(cli, ["repair", "data"])
    assert (repair.exit_code, repair.output[:27]) == (1, "unknown: queue 2 (4 message")
    assert report("data")[0] == 1
    repair = CliRunner().invoke(cli, ["repair", "data", "--delete-unknown-queues"])
    assert (repair.exit_code, repair.output[:27]) == (0, "deleted: queue 2 (4 message")
    assert report("data")[0] == 0
    repair = CliRunner().invoke(cli, ["repair", "data"])
    assert (repair.exit_code, repair.output[:11]) == (0, "every queue")


@pytest.mark.parametrize("clean", [False, True])
def test_a_lost_journal_is_named_and_given_up(engine: OpenEngine, *, clean: bool) -> None:
    engine.close_cleanly() if clean else killed(engine)
    shutil.rmtree("data/journal")
    code, found = report("data")
    assert code == 1
    assert found["damages"][0]["file"] == "journal"
    repair = CliRunner().invoke(cli, ["repair", "data"])
    assert (repair.exit_code, "no journal file that was begun" in repair.output) == (1, True)
    repair = CliRunner().invoke(cli, ["repair", "data", "--new-journal"])
    assert (repair.exit_code, repair.output) == (0, "a new journal was begun\n")
    assert report("data")[0] == 0
    opened = OpenEngine(RealFileSystem(), {1: ENTRIES, 2: ENTRIES}, limits(embed=200))
    assert opened.opening.messages == (154 if clean else 0)


def test_a_directory_in_use_is_not_repaired(engine: OpenEngine) -> None:
    killed(engine)
    with Path("data/lock").open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_SH)
        repair = CliRunner().invoke(cli, ["repair", "data"])
        assert repair.exit_code == 2
        assert "is in use by process 4711" in repair.stderr


# -- one file -------------------------------------------------------------------------------


def test_one_file_block_by_block(engine: OpenEngine) -> None:
    engine.close_cleanly()
    for pattern in KINDS[:4]:
        path = min(Path("data").glob(pattern))
        result = run("--file", str(path))
        assert result.exit_code == 0, result.output
        assert result.output.splitlines()[0].endswith(f"{path}: sound")
        assert len(result.output.splitlines()) > 2
        flip(path, place_in_block(path))
        code, found = report("--file", str(path))
        assert (code, found["verdict"]) == (1, "damaged")


def test_the_blocks_of_a_journal_file(engine: OpenEngine) -> None:
    killed(engine)
    path = next(Path("data/journal").glob("*.jif"))
    code, found = report("--file", str(path))
    assert code == 0
    first, second = found["content"][:2]
    assert first["content"] == "1 list of files, 1 list of queues, 1 size of a file"
    assert second["offset"] == first["offset"] + first["bytes"]
    assert second["content"] == "2 reserve, 41 publish"
    flip(path, second["offset"] + 50)
    code, found = report("--file", str(path))
    assert code == 1
    (damage,) = found["damages"]
    assert (damage["offset"], damage["length"]) == (second["offset"], second["bytes"])


# -- what cannot be checked -----------------------------------------------------------------


def refused(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    return result.stderr


def test_what_is_no_data_directory(engine: OpenEngine, tmp_path: Path) -> None:
    killed(engine)
    assert "is not a directory" in refused(f"{tmp_path}/none")
    Path("empty").mkdir()
    assert "is not a data directory" in refused("empty")
    Path("old/log").mkdir(parents=True)
    assert "a release before the storage engine" in refused("old")
    assert "is not a file" in refused("--file", "data/none.jif")
    assert "is no file of the engine" in refused("--file", "data/lock")
    assert "either a data directory or --file" in refused()
    assert "either a data directory or --file" in refused("data", "--file", "data/terms")


def test_a_directory_in_use_is_not_checked(engine: OpenEngine) -> None:
    killed(engine)
    with Path("data/lock").open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert "is in use by process 4711" in refused("data")
        path = next(Path("data/journal").glob("*.jif"))
        assert "is in use by process 4711" in refused("--file", str(path))
    assert run("data").exit_code == 0


def test_no_broker_starts_while_it_looks(
    engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(engine)
    seen = []

    def look(directory: str, _damages: object) -> tuple[list[object], SeqRanges]:
        with Path(directory, "lock").open("rb") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(directory)
        return [], ranges_of([1, 2])

    monkeypatch.setattr(command, "read_definitions", look)
    assert run("data").exit_code == 0
    assert len(seen) == 1


def test_what_cannot_be_read_is_said(engine: OpenEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(engine)

    def broken(_self: object, path: str) -> bytes:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(RealFileSystem, "read", broken)
    text = refused("data")
    assert "journal/1.jif: Input/output error" in text


def test_another_version_of_the_definitions_is_not_checked(engine: OpenEngine) -> None:
    killed(engine)
    import sqlite3

    database = sqlite3.connect("data/definitions.db")
    database.execute("PRAGMA user_version = 99")
    database.commit()
    database.close()
    assert "definitions format version 99" in refused("data")


# -- progress -------------------------------------------------------------------------------


def on_a_terminal(environment: dict[str, str]) -> str:
    """What it writes to standard error when that is a terminal."""
    ours, theirs = pty.openpty()
    code = (
        "from penstock.cli.data import audit\n"
        "audit.LARGE_BYTES, audit.PROGRESS_S = 1000, 0\n"
        "from penstock.cli.main import cli\n"
        "cli.main(['audit', 'data'])\n"
    )
    subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        check=True,
        timeout=30,
    )
    os.close(theirs)
    said = os.read(ours, 100_000).decode()
    os.close(ours)
    return said


def test_progress_is_for_terminals(engine: OpenEngine) -> None:
    engine.close_cleanly()
    said = on_a_terminal(_environment())
    assert " %  journal/1.jif" in said
    assert " %  store/persistent/1.rdq" in said
    assert said.endswith("\r\x1b[K")
    assert run("data").stderr == ""


# -- a real broker --------------------------------------------------------------------------


def test_a_real_broker_running_killed_and_stopped(own_broker: BrokerProcess) -> None:
    if not isinstance(own_broker, LiveBroker):
        pytest.skip("this looks into a data directory of Penstock")
    connection = pika.BlockingConnection(pika.URLParameters(own_broker.url))
    channel = connection.channel()
    channel.queue_declare("kept", durable=True)
    channel.confirm_delivery()
    for size in (10, 10_000):
        channel.basic_publish("", "kept", b"x" * size, pika.BasicProperties(delivery_mode=2))
    connection.close()
    directory = str(own_broker.data_dir)
    assert "is in use by process" in refused(directory)
    own_broker.kill()
    for terms in ("absent", "valid"):
        code, found = report(directory)
        assert (code, found["verdict"], found["terms"]) == (0, "sound", terms)
        (queue,) = found["queues"]
        assert (queue["name"], queue["messages"], queue["stored"]) == ("kept", 2, 1)
        if terms == "absent":
            own_broker.start()
            own_broker.stop()


@pytest.mark.parametrize("clean", [False, True])
def test_a_queue_with_priorities_is_sound_and_comes_back(tmp_path: Path, clean: bool) -> None:
    """Each priority has a directory of its own; all belong to the queue."""
    with LiveBroker(tmp_path / "broker") as broker:
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare("p", durable=True, arguments={"x-max-priority": 3})
            for priority in (0, 3, 1):
                properties = pika.BasicProperties(delivery_mode=2, priority=priority)
                channel.basic_publish("", "p", b"%d" % priority, properties)
        if clean:
            broker.stop()
        else:
            broker.kill()
        code, found = report(str(broker.data_dir))
        assert code == 0, found
        broker.start()
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            bodies = [channel.basic_get("p", auto_ack=True)[2] for _ in range(3)]
        assert bodies == [b"3", b"1", b"0"]
