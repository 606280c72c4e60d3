"""Compaction of the message store: chooses the files to remove or rewrite, and rewrites them.

In: the rows of a store's files, and how far the journal is on disk.  Out: removals (on the
``reads`` lane, they never wait behind a write) and one compaction at a time (on ``writes``).

**What may go.**  A record that nothing refers to is garbage, but not yet free: after a crash
the journal may have lost the acknowledgement that killed it and ask for the content again.  So
a file of dead records is removed, and a compaction may leave records out, only when the journal
is on disk behind the *last death* in the file.  Further deaths do not hold a compaction up:
it is planned on a snapshot of the living, waits until the journal has reached the deaths before
it, and keeps what dies after it.

**What is rewritten.**  Only files that are full and on disk: older than the file of the last
committed group.  When the store has more than two files' worth of bytes (the last rule: always):

    garbage > 1/2 of all    the neighbours with the least live bytes that fit one file together
                            become one (RabbitMQ's rule, but it takes the eldest pair)
    garbage > 1/3 of all    the file with the largest share of garbage, if over half, alone
    over 4 files more than  the neighbours with the least live bytes that fit one file together,
    2 per 16 MiB            garbage or not: restarts and the rule above leave small files behind

The second rule is what pairs lack: a large record in every other file stops the first one for
ever.  With both, garbage is at most half of all bytes but for two files and those that cannot
be touched yet.  Why not each file as soon as it is half garbage: a queue that is just being
consumed makes its first file so, and a moment later that is gone without any work.

**How it is rewritten**, safe to die after any step:

    1  the living are copied to ``<N>.rdt`` and synced      a left-over is deleted at start
    2  it is renamed to ``<N>.rdq``, N the older file       recovery finds some records in two
    3  the directory is synced                              files, and the first place counts
    4  the rows are switched; reads find the new places
    5  the younger file is removed                          one that comes back is garbage

Every record is verified while it is copied.  A false one ends the compaction; the file is then
left alone, so that its other records stay readable and the damage stays to be seen.  Full disk:
the compaction gives up and is planned again later.
"""

import errno
from typing import Final, final

from mypy_extensions import i64

from penstock.core.errors import Corrupt
from penstock.storage.common.disk_jobs import DiskJob
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import FileSystem
from penstock.storage.store.codec import (
    GROUP_HEADER_BYTES,
    RECORD_HEADER_BYTES,
    FileTable,
    damage,
    group_header,
    is_record,
    unfinished_file_name,
)
from penstock.storage.store.files import StoreFile, StoreFiles

FILES_TOLERATED: Final[i64] = 4
COPY_BYTES: Final[i64] = 1024 * 1024
"""Records are collected up to this size before they are written."""


@final
class StoreRemoval(DiskJob):
    """Removes files without a reference.

    Not made durable: one that comes back holds nothing that is referred to, and recovery
    removes it again.
    """

    def __init__(self, files: StoreFiles, numbers: list[int]) -> None:
        super().__init__()
        self._files: StoreFiles = files
        self._paths: list[str] = []
        for number in numbers:
            self._paths.append(files.path(number))

    def run(self, files: FileSystem) -> None:
        for path in self._paths:
            if files.exists(path):
                files.remove(path)
        reach("store.gc.removed")

    def finish(self) -> None:
        if self.error is not None:
            self._files.note_error(self.error)
        self.done = True


@final
class StoreCompaction(DiskJob):
    """Writes the living of one or two neighbouring files into one.

    ``needed_position``  the journal must be on disk up to here before it may run
    ``started``          it is on the board
    ``copied_bytes``     so far, of ``size_bytes``; written by the thread
    """

    def __init__(self, gc: "StoreGc", sources: list[StoreFile], durable: bool) -> None:
        super().__init__()
        self.started: bool = False
        self.needed_position: i64 = 0
        self._gc: StoreGc = gc
        self._sources: list[StoreFile] = sources
        self._durable: bool = durable
        self._renamed: bool = False
        self._full: bool = False
        self._false_in: StoreFile | None = None
        first = sources[0]
        self._target: StoreFile = StoreFile(FileTable(first.number, 0), first.first_id)
        # The snapshot: rows of the new file, and where each record comes from.
        self._from_offsets: list[FileTable] = []
        self._size: i64 = 0
        for source in sources:
            self.needed_position = max(self.needed_position, source.last_death)
            self._from_offsets.append(self._snapshot(source))
        self._target.rows.trim()
        self._target.rows.grow(GROUP_HEADER_BYTES + self._size)
        self.size_bytes: i64 = GROUP_HEADER_BYTES + self._size
        self.copied_bytes: i64 = 0

    def _snapshot(self, source: StoreFile) -> FileTable:
        rows = source.rows
        living = FileTable(rows.number, rows.size)
        target = self._target.rows
        for i in range(len(rows.ids)):
            if rows.references[i] > 0:
                size: i64 = rows.sizes[i]
                living.add(rows.ids[i], rows.offsets[i], size, 0)
                target.add(rows.ids[i], GROUP_HEADER_BYTES + self._size, size, 0)
                self._size += RECORD_HEADER_BYTES + size
        return living

    # -- the thread ------------------------------------------------------------------------

    def run(self, files: FileSystem) -> None:
        home = self._gc.files
        number = self._target.number
        path = f"{home.directory}/{unfinished_file_name(int(number))}"
        try:
            self._write(files, path)
        except OSError as error:
            if files.exists(path):
                files.remove(path)
            if error.errno != errno.ENOSPC:
                raise
            self._full = True
            return
        except Corrupt:
            files.remove(path)
            raise
        reach("store.gc.copied")
        files.rename(path, home.path(number))
        self._renamed = True
        reach("store.gc.renamed")
        if self._durable:
            files.sync_dir(home.directory)

    def _write(self, files: FileSystem, path: str) -> None:
        if files.exists(path):
            files.remove(path)
        handle = files.open_write(path)
        try:
            self._copy(files, handle)
            if self._durable:
                files.sync(handle)
        finally:
            files.close(handle)

    def _copy(self, files: FileSystem, handle: int) -> None:
        size = self._target.size
        next_msg_id = i64(self._target.rows.ids[-1]) + 1
        # On disk as a whole before anybody sees it: that is what it says of itself.
        header = group_header(self._target.number, 0, size, self._size, next_msg_id)
        at: i64 = 0
        parts: list[bytes] = [header]
        waiting: i64 = len(header)
        for living in self._from_offsets:
            for i in range(len(living.ids)):
                waiting += self._read(files, living, i, parts)
                if waiting >= COPY_BYTES:
                    files.pwrite_parts(handle, int(at), parts)
                    at += waiting
                    self.copied_bytes = at
                    parts = []
                    waiting = 0
        files.pwrite_parts(handle, int(at), parts)

    def _read(self, files: FileSystem, living: FileTable, i: i64, parts: list[bytes]) -> i64:
        path = self._gc.files.path(living.number)
        offset: i64 = living.offsets[i]
        size: i64 = living.sizes[i]
        header = files.pread(path, int(offset), int(RECORD_HEADER_BYTES))
        content = files.pread(path, int(offset + RECORD_HEADER_BYTES), int(size))
        if not is_record(header, content, living.ids[i], size):
            for source in self._sources:
                if source.number == living.number:
                    self._false_in = source
            raise damage(path, int(offset), int(RECORD_HEADER_BYTES + size))
        parts.append(header)
        parts.append(content)
        return RECORD_HEADER_BYTES + size

    # -- the owner -------------------------------------------------------------------------

    def concerns(self, file: StoreFile) -> bool:
        return any(source is file for source in self._sources)

    def start(self) -> None:
        self.started = True
        for source in self._sources:
            source.begin_compaction(self._target)
        self._gc.files.board.writes.append(self)

    def finish(self) -> None:
        home = self._gc.files
        for source in self._sources:
            source.end_compaction()
        if self._renamed:
            self._switch()
        if self._false_in is not None:
            self._false_in.note_damaged()
        elif self.error is not None:
            home.note_error(self.error)
        self._gc.compaction_is_over()
        self.done = True
        home.submit_parked()

    def _switch(self) -> None:
        """References may have changed since the snapshot: take today's."""
        home = self._gc.files
        target = self._target
        self._take_references()
        target.count_rows()
        reclaimed = -target.size
        for source in self._sources:
            target.note_death(source.last_death)
            reclaimed += source.size
        home.replace(self._sources[0], target)
        if len(self._sources) > 1:
            home.remove(self._sources[1])
            # After a failed sync of the directory the old files may be what is on disk.
            if self.error is None:
                home.board.reads.append(StoreRemoval(home, [int(self._sources[1].number)]))
        self._gc.switched(reclaimed)

    def _take_references(self) -> None:
        target = self._target.rows
        at: i64 = 0
        for source in self._sources:
            rows = source.rows
            for i in range(len(rows.ids)):
                if at < len(target.ids) and target.ids[at] == rows.ids[i]:
                    target.references[at] = rows.references[i]
                    at += 1
        assert at == len(target.ids)


@final
class StoreGc:
    """Decides; one per store."""

    def __init__(self, files: StoreFiles, file_size_limit_bytes: i64, durable: bool) -> None:
        self.files: StoreFiles = files
        self.durable_position: i64 = 0
        self.compaction: StoreCompaction | None = None
        self.compactions: i64 = 0
        self.bytes_reclaimed: i64 = 0
        self.files_removed: i64 = 0
        self._limit_bytes: i64 = file_size_limit_bytes
        self._durable: bool = durable

    def note_durable(self, position: i64) -> None:
        if position > self.durable_position:
            self.durable_position = position
        compaction = self.compaction
        if compaction is not None and not compaction.started:
            self._start_if_safe(compaction)

    def collect(self, committed_file_no: i64) -> None:
        """Remove what is dead, and plan a compaction if none is under way.

        Files from ``committed_file_no`` on are still being written, or may be.
        """
        if self.files.disk_error is not None:
            return
        self._remove_dead(committed_file_no)
        if self.compaction is None:
            sources = self._choose(committed_file_no)
            if sources:
                self.compaction = StoreCompaction(self, sources, self._durable)
                self._start_if_safe(self.compaction)

    def _start_if_safe(self, compaction: StoreCompaction) -> None:
        if compaction.needed_position <= self.durable_position:
            compaction.start()

    def switched(self, reclaimed_bytes: i64) -> None:
        """A compaction's copy has taken the place of its sources."""
        self.compactions += 1
        self.bytes_reclaimed += reclaimed_bytes

    def compaction_is_over(self) -> None:
        self.compaction = None

    def forget_plan(self) -> None:
        """At a clean stop: what has not begun need not."""
        if self.compaction is not None and not self.compaction.started:
            self.compaction = None

    # -- dead files ------------------------------------------------------------------------

    def _remove_dead(self, committed_file_no: i64) -> None:
        dead: list[StoreFile] = []
        for file in self.files.files:
            if file.number >= committed_file_no:
                break
            if file.live_count == 0 and self._may_go(file):
                dead.append(file)
        if not dead:
            return
        numbers: list[int] = []
        for file in dead:
            self.files.remove(file)
            self.bytes_reclaimed += file.size
            numbers.append(int(file.number))
        self.files_removed += len(dead)
        self.files.board.reads.append(StoreRemoval(self.files, numbers))

    def _may_go(self, file: StoreFile) -> bool:
        if file.last_death > self.durable_position:
            return False
        compaction = self.compaction
        if compaction is None:
            return True
        if not compaction.started and compaction.concerns(file):
            self.compaction = None  # there is nothing left to plan for
            return True
        return not compaction.concerns(file)

    # -- compaction ------------------------------------------------------------------------

    def _choose(self, committed_file_no: i64) -> list[StoreFile]:
        sums = self.files.sums()
        total = sums.total_bytes
        garbage = total - sums.valid_bytes
        large = total > 2 * self._limit_bytes
        files_expected = FILES_TOLERATED + 2 * total // self._limit_bytes
        crowded = len(self.files.files) > files_expected
        if not crowded and not (large and garbage * 3 > total):
            return []
        full = [file for file in self.files.files if file.number < committed_file_no]
        if crowded or garbage * 2 > total:
            pair = self._best_pair(full)
            if pair:
                return pair
        return self._worst_file(full) if large else []

    def _best_pair(self, full: list[StoreFile]) -> list[StoreFile]:
        pair: list[StoreFile] = []
        least = self._limit_bytes - GROUP_HEADER_BYTES + 1
        for i in range(1, len(full)):
            older = full[i - 1]
            younger = full[i]
            if self._is_worth_it(older) and self._is_worth_it(younger):
                valid = older.valid_bytes + younger.valid_bytes
                if valid < least:
                    least = valid
                    pair = [older, younger]
        return pair

    def _worst_file(self, full: list[StoreFile]) -> list[StoreFile]:
        worst: list[StoreFile] = []
        least: i64 = 500
        for file in full:
            valid_per_mille = file.valid_bytes * 1000 // file.size
            if self._is_worth_it(file) and valid_per_mille < least:
                least = valid_per_mille
                worst = [file]
        return worst

    def _is_worth_it(self, file: StoreFile) -> bool:
        return file.live_count > 0 and not file.damaged
