"""The simulated disk: does what the real one does, keeps what it promised, loses the rest.

Tests of the storage room are worth as much as the disk they run on, so it is judged here:
against the real disk while nothing goes wrong, against a model of what a power cut must leave,
and by counting that everything it may lose is lost now and then.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.storage.common.files import FileSystem, RealFileSystem
from tests.helpers.sim_files import SimFileSystem

PATHS = ("d/a", "d/b", "d/in/a", "d/in/b")
SEEDS = range(2000)

# -- as the real disk ----------------------------------------------------------------------

path = st.sampled_from(PATHS)
number = st.integers(0, 40)
parts = st.lists(st.binary(max_size=12), max_size=3)
steps = st.one_of(
    st.tuples(st.just("pwrite"), path, number, parts),
    st.tuples(st.just("allocate"), path, number),
    st.tuples(st.just("truncate"), path, number),
    st.tuples(st.just("secure"), path, number),
    st.tuples(st.just("rename"), path, path),
    st.tuples(st.just("remove"), path),
    st.tuples(st.just("makedirs"), st.sampled_from(["d", "d/in"])),
    st.tuples(st.just("remove_dir"), st.just("d/in")),
    st.tuples(st.just("sync_dir"), st.sampled_from(["d", "d/in"])),
    st.tuples(st.just("pread"), path, number, number),
)


def do(files: FileSystem, root: str, step: tuple[object, ...]) -> object:
    """One step; what it returned, or the kind of error."""
    verb, name, *rest = step
    where = f"{root}{name}"
    doing: dict[object, Callable[..., object]] = {
        "pwrite": lambda offset, data: opened(
            files, files.open_write, where, files.pwrite_parts, offset, data
        ),
        "allocate": lambda size: opened(files, files.open_write, where, files.allocate, size),
        "truncate": lambda size: files.truncate(where, min(size, files.size(where))),
        "secure": lambda at: files.secure(
            where, min(at, files.size(where)), files.read(where)[at : at + 9]
        ),
        "rename": lambda target: files.rename(where, f"{root}{target}"),
        "remove": lambda: files.remove(where),
        "makedirs": lambda: files.makedirs(where),
        "remove_dir": lambda: files.remove_dir(where),
        "sync_dir": lambda: files.sync_dir(where),
        "pread": lambda offset, size: files.pread(where, offset, size),
    }
    try:
        return doing[verb](*rest)
    except FileNotFoundError:
        return "not found"


def opened(
    files: FileSystem,
    opening: Callable[[str], int],
    where: str,
    verb: Callable[..., None],
    *arguments: object,
) -> None:
    handle = opening(where)
    try:
        verb(handle, *arguments)
        files.sync(handle)
    finally:
        files.close(handle)


def seen(files: FileSystem, root: str) -> list[object]:
    directories = [name for name in ("d", "d/in") if files.exists(root + name)]
    found = [name for name in PATHS if files.exists(root + name)]
    return [
        [(name, sorted(files.listdir(root + name))) for name in directories],
        [(name, files.size(root + name), files.read(root + name)) for name in found],
    ]


@given(walk=st.lists(steps, max_size=30))
@settings(max_examples=settings().max_examples, deadline=None)
def test_it_does_what_the_real_disk_does(
    tmp_path_factory: pytest.TempPathFactory, walk: list[tuple[object, ...]]
) -> None:
    root = f"{tmp_path_factory.mktemp('real', numbered=True)}/"
    real, sim = RealFileSystem(), SimFileSystem()
    for step in walk:
        assert do(real, root, step) == do(sim, "", step), step
        assert seen(real, root) == seen(sim, "")


# -- what it keeps -------------------------------------------------------------------------


class Account:
    """What a file must still have after a power cut; positions that are free are ``loose``."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.safe = bytearray()
        self.loose: set[int] = set()
        self.doubtful: set[int] = set()
        self.name_is_safe = False

    def allows(self, left: bytes) -> bool:
        if not len(self.safe) <= len(left) <= len(self.content):
            return False
        sure = set(range(len(left))) - self.loose - self.doubtful
        safe = self.safe + bytes(len(left) - len(self.safe))
        return all(left[place] == safe[place] for place in sure)


class KeepingMachine(RuleBasedStateMachine):
    """Files of one directory, written anywhere, synced sometimes, cut off now and then."""

    @initialize()
    def open(self) -> None:
        self.files = SimFileSystem()
        self.files.makedirs("d")
        self.accounts: dict[str, Account] = {}
        self.ghosts: dict[str, Account] = {}  # removed, but their names may come back
        self.handles: dict[str, int] = {}

    def handle(self, name: str) -> int:
        if name not in self.handles:
            self.handles[name] = self.files.open_write(name)
            self.accounts.setdefault(name, Account())
        return self.handles[name]

    name = st.sampled_from(["d/a", "d/b"])

    @rule(name=name, offset=st.integers(0, 60), data=st.binary(min_size=1, max_size=20))
    def pwrite(self, name: str, offset: int, data: bytes) -> None:
        handle = self.handle(name)
        account = self.accounts[name]
        self.files.pwrite_parts(handle, offset, [data[:3], data[3:]])
        account.content += bytes(max(0, offset + len(data) - len(account.content)))
        account.content[offset : offset + len(data)] = data
        account.loose |= set(range(offset, offset + len(data)))

    @rule(name=name, size=st.integers(0, 90))
    def allocate(self, name: str, size: int) -> None:
        self.files.allocate(self.handle(name), size)
        account = self.accounts[name]
        account.content += bytes(max(0, size - len(account.content)))

    @rule(name=name)
    def sync(self, name: str) -> None:
        self.files.sync(self.handle(name))
        account = self.accounts[name]
        account.doubtful -= account.loose
        account.loose = set()
        account.safe = bytearray(account.content)

    @rule(name=name)
    def fail_to_sync(self, name: str) -> None:
        handle = self.handle(name)
        self.files.fail("sync")
        with pytest.raises(OSError, match="error"):
            self.files.sync(handle)
        account = self.accounts[name]
        account.doubtful |= account.loose
        account.loose = set()

    @rule(name=name, size=st.integers(0, 90))
    def truncate(self, name: str, size: int) -> None:
        self.handle(name)
        self.files.truncate(name, min(size, self.files.size(name)))
        account = self.accounts[name]
        del account.content[size:]
        self.sync(name)
        account.doubtful = {place for place in account.doubtful if place < size}

    @rule(name=name)
    def remove(self, name: str) -> None:
        self.handle(name)
        self.files.close(self.handles.pop(name))
        self.files.remove(name)
        account = self.accounts.pop(name)
        if account.name_is_safe:
            self.ghosts[name] = account

    @rule()
    def sync_dir(self) -> None:
        self.files.sync_dir("d")
        for account in self.accounts.values():
            account.name_is_safe = True
        self.ghosts = {}

    @rule(seed=st.integers(0, 2**32))
    def power_cut(self, seed: int) -> None:
        self.files.power_cut(random.Random(seed))
        left = {f"d/{name}" for name in self.files.listdir("d")}
        for name in self.accounts.keys() | self.ghosts.keys() | left:
            account, ghost = self.accounts.pop(name, None), self.ghosts.pop(name, None)
            if name not in left:
                assert account is None or not (account.name_is_safe or ghost)
                continue
            data = self.files.read(name)
            assert any(one.allows(data) for one in (account, ghost) if one)
            self.accounts[name] = after = Account()
            after.content, after.safe = bytearray(data), bytearray(data)
            after.name_is_safe = True
        self.handles = {}

    @invariant()
    def readers_see_what_was_written(self) -> None:
        if hasattr(self, "files"):
            for name, account in self.accounts.items():
                assert self.files.read(name) == account.content


KeepingMachine.TestCase.settings = settings(
    max_examples=settings().max_examples, stateful_step_count=40, deadline=None
)
TestKeeping = KeepingMachine.TestCase


# -- what it loses -------------------------------------------------------------------------


def recycled() -> tuple[SimFileSystem, int]:
    """A file with 40 old bytes on the platter, ten of zeros behind them, all synced."""
    files = SimFileSystem()
    files.makedirs("d")
    handle = files.open_write("d/f")
    files.pwrite_parts(handle, 0, [b"o" * 40])
    files.allocate(handle, 50)
    files.sync(handle)
    files.sync_dir("d")
    return files, handle


def kind(byte: int) -> str:
    return {ord("o"): "old", ord("A"): "first", ord("B"): "second", 0: "zero"}.get(byte, "noise")


def outcomes(writes: tuple[bytes, ...]) -> list[list[str]]:
    """What power cuts leave of the twenty bytes that were written."""
    left: list[list[str]] = []
    for seed in SEEDS:
        files, handle = recycled()
        for data in writes:
            files.pwrite_parts(handle, 10, [data * 20])
        files.power_cut(random.Random(seed))
        found = files.read("d/f")
        assert found[:10] == b"o" * 10
        assert found[30:] == b"o" * 10 + bytes(10)
        left.append([kind(byte) for byte in found[10:30]])
    return left


def test_a_write_over_old_bytes_arrives_in_any_way() -> None:
    left = outcomes((b"A",))
    for whole in ("old", "first"):
        assert [whole] * 20 in left
    for place in range(1, 20):
        around = {(one[place - 1], one[place]) for one in left}
        for torn in ("old", "zero"):
            assert {("first", torn), (torn, "first")} <= around, f"never torn at {place}"
    assert any("noise" in one for one in left)


def test_of_two_writes_to_one_place_either_may_win() -> None:
    left = outcomes((b"A", b"B"))
    for whole in ("old", "first", "second"):
        assert [whole] * 20 in left
    pairs = {pair for one in left for pair in pairwise(one)}
    assert {("first", "second"), ("second", "first"), ("old", "second")} <= pairs


def test_later_writes_arrive_without_earlier_ones() -> None:
    found = set()
    for seed in SEEDS:
        files, handle = recycled()
        for offset in (0, 10, 20):
            files.pwrite_parts(handle, offset, [b"A" * 10])
        files.power_cut(random.Random(seed))
        data = files.read("d/f")
        found.add(tuple(data[offset : offset + 10] == b"A" * 10 for offset in (0, 10, 20)))
    assert len(found) == 8


def test_the_size_of_a_file_that_has_grown_is_any_between() -> None:
    sizes = set()
    for seed in SEEDS:
        files, handle = recycled()
        files.allocate(handle, 80)
        files.pwrite_parts(handle, 45, [b"A" * 20])
        files.power_cut(random.Random(seed))
        data = files.read("d/f")
        assert data[:45] == b"o" * 40 + bytes(5)
        assert set(data[65:]) <= {0}
        sizes.add(len(data))
    assert sizes == set(range(50, 81))


def test_after_a_failed_sync_nothing_is_sure_but_what_is_written_again() -> None:
    found = set()
    for seed in SEEDS:
        files, handle = recycled()
        files.pwrite_parts(handle, 0, [b"A" * 20])
        files.fail("sync")
        with pytest.raises(OSError, match="error"):
            files.sync(handle)
        assert files.read("d/f")[:20] == b"A" * 20
        files.pwrite_parts(handle, 10, [b"A" * 10])
        files.sync(handle)
        files.kill()
        assert files.read("d/f")[:20] == b"A" * 20
        files.power_cut(random.Random(seed))
        data = files.read("d/f")
        assert data[10:20] == b"A" * 10
        found.add(data[:10])
    assert {b"A" * 10, b"o" * 10} < found


def test_what_a_failed_sync_left_is_secured() -> None:
    for seed in range(100):
        files, handle = recycled()
        files.pwrite_parts(handle, 40, [b"A" * 10])
        files.fail("sync")
        with pytest.raises(OSError, match="error"):
            files.sync(handle)
        files.secure("d/f", 40, b"A" * 10)
        files.power_cut(random.Random(seed))
        assert files.read("d/f")[:50] == b"o" * 40 + b"A" * 10


def test_what_is_on_the_disk_is_not_written_again() -> None:
    files, handle = recycled()
    files.pwrite_parts(handle, 40, [b"A" * 10])
    files.sync(handle)
    files.fail("pwrite")
    files.secure("d/f", 40, b"A" * 10)


def test_what_was_cut_off_does_not_come_back() -> None:
    for seed in range(100):
        files, handle = recycled()
        files.pwrite_parts(handle, 30, [b"A" * 20])
        files.fail("sync")
        with pytest.raises(OSError, match="error"):
            files.sync(handle)
        files.truncate("d/f", 20)
        files.allocate(handle, 50)
        files.power_cut(random.Random(seed))
        data = files.read("d/f")
        assert data == b"o" * 20 + bytes(len(data) - 20)


def test_names_go_and_come_back() -> None:
    found = set()
    for seed in SEEDS:
        files, handle = recycled()
        files.close(handle)
        files.close(files.open_write("d/new"))
        files.rename("d/f", "d/g")
        files.power_cut(random.Random(seed))
        found.add(tuple(sorted(files.listdir("d"))))
    assert len(found) == 8


def test_synced_names_stay_as_they_are() -> None:
    for seed in range(100):
        files, handle = recycled()
        files.close(handle)
        files.close(files.open_write("d/new"))
        files.rename("d/f", "d/g")
        files.sync_dir("d")
        files.power_cut(random.Random(seed))
        assert sorted(files.listdir("d")) == ["g", "new"]


# -- directories ---------------------------------------------------------------------------


def two_queues() -> SimFileSystem:
    files = SimFileSystem()
    for name in ("queues/1", "queues/2"):
        files.makedirs(name)
        for number in (0, 1):
            files.close(files.open_write(f"{name}/{number}.idx"))
        files.sync_dir(name)
    return files


def test_directories_are_listed_beside_files() -> None:
    files = two_queues()
    files.close(files.open_write("queues/journal"))
    assert sorted(files.listdir("queues")) == ["1", "2", "journal"]
    assert files.listdir("queues/2") == ["0.idx", "1.idx"]
    assert files.exists("queues")
    assert not files.exists("queues/3")
    files.makedirs("/data/queues")
    assert files.listdir("/data") == ["queues"]
    with pytest.raises(FileNotFoundError):
        files.listdir("queues/3")
    with pytest.raises(FileNotFoundError):
        files.open_write("queues/3/0.idx")


def test_a_new_directory_survives_at_once() -> None:
    for seed in range(100):
        files = two_queues()
        files.makedirs("queues/3")
        files.power_cut(random.Random(seed))
        assert files.listdir("queues") == ["1", "2", "3"]


def test_a_removed_directory_may_come_back_with_any_of_its_files() -> None:
    found = set()
    for seed in SEEDS:
        files = two_queues()
        files.remove_dir("queues/1")
        assert files.listdir("queues") == ["2"]
        files.power_cut(random.Random(seed))
        back = files.exists("queues/1")
        found.add(tuple(sorted(files.listdir("queues/1"))) if back else None)
        assert sorted(files.listdir("queues/2")) == ["0.idx", "1.idx"]
    assert found == {None, (), ("0.idx",), ("1.idx",), ("0.idx", "1.idx")}


@pytest.mark.parametrize("how", ["sync_dir", "makedirs"])
def test_a_removed_directory_stays_away_once_that_is_durable(how: str) -> None:
    for seed in range(100):
        files = two_queues()
        files.remove_dir("queues/1")
        if how == "sync_dir":
            files.sync_dir("queues")
        else:
            files.makedirs("queues/1")
        files.power_cut(random.Random(seed))
        assert files.exists("queues/1") == (how == "makedirs")
        if how == "makedirs":
            assert files.listdir("queues/1") == []


def test_a_removal_that_failed_is_half_done() -> None:
    files = two_queues()
    files.fail("remove_dir")
    with pytest.raises(OSError, match="error"):
        files.remove_dir("queues/1")
    assert files.listdir("queues/1") == ["1.idx"]


# -- space ---------------------------------------------------------------------------------


def full(call: Callable[[], None]) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        call()
    assert caught.value.errno == errno.ENOSPC


def test_what_is_allocated_can_be_written_on_a_full_disk() -> None:
    files = two_queues()
    handle = files.open_write("queues/journal")
    files.space_left = 100
    files.allocate(handle, 80)
    assert files.space_left == 20
    other = files.open_write("queues/other")
    full(lambda: files.pwrite_parts(other, 0, [b"x" * 30]))
    assert files.size("queues/other") == 20
    assert files.space_left == 0
    files.pwrite_parts(handle, 70, [b"y" * 10])
    full(lambda: files.pwrite_parts(handle, 75, [b"z" * 10]))
    assert files.read("queues/journal")[70:] == b"yyyyyzzzzz"
    full(lambda: files.allocate(handle, 81))
    files.allocate(handle, 80)


def test_an_allocation_gets_as_far_as_it_can() -> None:
    files = two_queues()
    handle = files.open_write("queues/journal")
    files.space_left = 100
    full(lambda: files.allocate(handle, 101))
    assert files.size("queues/journal") == 100
    assert files.space_left == 0
    files.space_left = 1
    files.allocate(handle, 101)


def test_a_gap_holds_no_space() -> None:
    files = two_queues()
    handle = files.open_write("queues/journal")
    files.space_left = 50
    files.pwrite_parts(handle, 1000, [b"x" * 40])
    assert files.space_left == 10
    files.pwrite_parts(handle, 500, [b"y" * 5])
    assert files.space_left == 5
    full(lambda: files.pwrite_parts(handle, 500, [b"z" * 20]))
    assert files.read("queues/journal")[500:515] == b"z" * 10 + bytes(5)
    files.space_left = 2000
    files.allocate(handle, 1100)
    assert files.space_left == 50 + 2000 - 1100
    files.pwrite_parts(handle, 1200, [b"x"])
    files.truncate("queues/journal", 1150)
    assert files.space_left == 50 + 2000 - 1100


def test_what_is_taken_away_gives_its_space_back() -> None:
    files = two_queues()
    files.space_left = 100
    for name in ("queues/1/0.idx", "queues/1/1.idx", "queues/2/0.idx", "queues/2/1.idx"):
        handle = files.open_write(name)
        files.pwrite_parts(handle, 0, [b"x" * 20])
        files.sync(handle)
        files.close(handle)
    assert files.space_left == 20
    files.truncate("queues/2/0.idx", 5)
    assert files.space_left == 35
    files.rename("queues/2/0.idx", "queues/2/1.idx")
    assert files.space_left == 55
    handle = files.open_write("queues/2/1.idx")
    files.remove("queues/2/1.idx")
    assert files.space_left == 55
    files.close(handle)
    assert files.space_left == 60
    files.remove_dir("queues/1")
    assert files.space_left == 100


# -- single bits ---------------------------------------------------------------------------


def test_a_flipped_bit_stays_flipped_and_takes_nothing_along() -> None:
    lost = 0
    for seed in range(200):
        files, handle = recycled()
        files.pwrite_parts(handle, 0, [b"A" * 10])
        files.flip("d/f", 8 * 30 + 2)
        assert files.read("d/f")[30] == ord("o") ^ 4
        files.power_cut(random.Random(seed))
        data = files.read("d/f")
        assert data[30] == ord("o") ^ 4
        assert data[31:40] == b"o" * 9
        lost += data[:10] == b"o" * 10
    assert lost
