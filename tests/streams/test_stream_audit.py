"""The audit of a stream counts what a start finds, names what is damaged, and changes nothing."""

from __future__ import annotations

import copy
import random
from itertools import pairwise
from zlib import crc32

import pytest

from penstock.core.errors import Corrupt
from penstock.storage.common.disk_jobs import run_job
from penstock.streams.audit import StreamAudit
from penstock.streams.log import StreamLimits
from penstock.streams.recovery import StreamRecovery
from tests.helpers.sim_files import SimFileSystem
from tests.streams.stream_tools import DATA, DIRECTORY, STREAM, StreamWorld

READING = {"listdir", "pread"}


def audit(files: SimFileSystem, known: int = 0) -> StreamAudit:
    """Held to what it promises: it only reads."""
    before = {name: bytes(file.cache) for name, file in files.names.items()}
    files.calls.clear()
    found = StreamAudit(files, DATA, STREAM, known)
    assert {call.split()[0] for call in files.calls} <= READING
    assert {name: bytes(file.cache) for name, file in files.names.items()} == before
    return found


def count_of_a_start(files: SimFileSystem, known: int = 0) -> int:
    """What recovery makes of a copy of the disk; raises Corrupt."""
    job = StreamRecovery(DIRECTORY, STREAM, known)
    run_job(job, copy.deepcopy(files))
    if job.error is not None:
        raise job.error
    return int(job.found.next_offset - job.found.first_offset)


def a_life(seed: int, max_bytes: int = 2500) -> StreamWorld:
    """Some segments, some retired; what was sealed last is written, but not synced."""
    rng = random.Random(seed)
    world = StreamWorld(StreamLimits(max_bytes, 0, rng.choice([150, 400, 900])))
    for _ in range(25):
        contents = [rng.randbytes(rng.choice([0, 5, 90])) for _ in range(rng.randint(1, 4))]
        values = [rng.choice([b"", b"eu"]) for _ in contents]
        world.append(*contents, values=values)
        world.now_ms += 10
        world.seal()
        if rng.random() < 0.5:
            world.flush()
        if rng.random() < 0.3:
            world.log.retire(world.now_ms)
    if world.sealed:
        world.commit()
    return world


def named(found: StreamAudit) -> list[tuple[str, str]]:
    return [(damage.file, damage.text) for damage in found.damages]


@pytest.mark.parametrize("seed", range(40))
def test_after_a_crash_it_counts_what_a_start_finds(seed: int) -> None:
    world = a_life(seed)
    world.crash(random.Random(seed), power=seed % 2 == 0)
    found = audit(world.files, world.safe)
    assert named(found) == []
    assert found.messages() == count_of_a_start(world.files, world.safe)
    assert all(walk.torn_bytes == 0 for walk in found.walks[:-1])
    assert all(walk.end + walk.torn_bytes == walk.size for walk in found.walks)


def test_every_byte_that_is_attested_is_checked() -> None:
    world = a_life(3)
    world.flush()
    world.files.kill()
    whole = audit(world.files)
    assert named(whole) == []
    assert len(whole.walks) > 2
    sizes = [len(entry.content) for entry in world.entries[world.log.first_offset :]]
    assert (whole.messages(), whole.content_bytes()) == (len(sizes), sum(sizes))
    for walk in whole.walks:
        end = walk.attested if walk is whole.walks[-1] else walk.size
        for place in range(0, end, 7):
            files = copy.deepcopy(world.files)
            files.flip(f"{DATA}/{walk.path}", 8 * place + place % 8)
            assert any(
                damage.file == walk.path and damage.offset <= place < damage.offset + damage.length
                for damage in audit(files).damages
            ), f"{walk.path} {place}"


@pytest.mark.parametrize("seed", range(60))
def test_where_a_start_or_a_reader_refuses_the_audit_finds_damage(seed: int) -> None:
    """And where neither sees a flipped bit, both count the same."""
    rng = random.Random(seed)
    world = a_life(seed % 9)
    world.crash(rng, power=seed % 2 == 0)
    names = [name for name, file in sorted(world.files.names.items()) if file.cache]
    name = rng.choice(names)
    world.files.flip(name, rng.randrange(8 * world.files.size(name)))
    found = audit(world.files, world.safe)
    refused = False
    try:
        assert found.damages or count_of_a_start(world.files, world.safe) == found.messages()
        world.recover()
        world.read_all()
    except Corrupt:
        refused = True
    assert found.damages or not refused


def test_a_missing_file_is_named() -> None:
    world = a_life(5, max_bytes=0)
    world.flush()
    world.files.kill()
    firsts = sorted(int(name.rpartition("/")[2][:-4]) for name in world.files.names)
    for gone, behind in pairwise(firsts):
        files = copy.deepcopy(world.files)
        files.remove(f"{DIRECTORY}/{gone}.stm")
        text = f"messages {gone} to {behind - 1} of the stream are missing before it"
        assert named(audit(files)) == [(f"streams/7/{behind}.stm", text)]
    files = copy.deepcopy(world.files)
    files.remove(f"{DIRECTORY}/{firsts[-1]}.stm")
    end = len(world.entries)
    text = f"messages {firsts[-1]} to {end - 1} of the stream are missing at its end"
    assert named(audit(files, end)) == [("streams/7", text)]


def test_what_a_start_removes_is_noted_not_damage() -> None:
    world = StreamWorld(StreamLimits(300, 0, 150))
    for number in range(9):
        world.append(b"m%d" % number * 20)
        world.flush()
    kept = copy.deepcopy(world.files)
    world.log.retire(world.now_ms)
    world.flush()
    oldest = min(kept.names, key=lambda name: int(name.rpartition("/")[2][:-4]))
    world.files.kill()
    files = copy.deepcopy(world.files)
    files.names[oldest] = kept.names[oldest]  # its removal was undone
    files.open_write(f"{DIRECTORY}/9.stm")
    files.open_write(f"{DIRECTORY}/mine.txt")
    found = audit(files, 9)
    assert named(found) == []
    assert found.notes == [
        "streams/7/mine.txt is no file of this broker",
        "streams/7/9.stm has no block yet; the next start removes it",
        "streams/7/0.stm is below the floor; the next start removes it",
    ]
    assert found.messages() == 9 - world.log.first_offset == count_of_a_start(files, 9)


def test_another_version_is_refused_not_called_damage() -> None:
    world = a_life(1)
    world.flush()
    world.files.kill()
    name = min(world.files.names)
    file = world.files.names[name]
    head = bytes(file.cache[:80])
    file.cache[3] = 2
    with pytest.raises(Corrupt, match="stream format version 2"):
        audit(with_true_head(world.files, name, head))


def with_true_head(files: SimFileSystem, name: str, head: bytes) -> SimFileSystem:
    """The checksum of a head of version 2."""
    file = files.names[name]
    filter_size = int.from_bytes(head[64:68], "big")
    covered = bytes(file.cache[:76]) + bytes(file.cache[80 : 80 + filter_size])
    file.cache[76:80] = crc32(covered).to_bytes(4, "big")
    return files
