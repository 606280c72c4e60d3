"""``Committer``: puts sealed groups on the disk, in a thread of its own.

In: groups sealed by the engine, in order (``submit``; the first starts the thread).
Out: the same groups, in order, once they are written and, where they ask for it, synced
(``collect``); ``wake`` is called, from the thread, when there is something to collect.  The
thread touches files, groups and nothing else of the broker; writing, syncing and the checksum
of a large group let other threads run meanwhile.  ``GroupCommit`` (runtime/turn.py) decides
when a group is sealed, and whether it must be synced.

One write per group.  Groups that wait together are written together and share one sync, up
to ``BATCH_MAX_BYTES``: more would only make everybody wait for a longer sync.

The disk keeps the order: contents of the message store, and what goes to streams, before the
journal's block that speaks of them; a journal file is synced to its end before the next one is
begun, and its name is durable before anything in it is reported.  Files the journal has retired are
let go only after the sync of the group that says so; a few of them are kept as spares and become
the next files, since writing over pages and blocks that are there costs a third of new ones.  What
a spare still holds names another file, so recovery does not believe it.  Files that segments
referred to are removed: a backup may have links to them.

When all that was written is synced and nothing waits, a *note* behind the last block says so
(``attest``), and how far streams are on disk; the next block is written over it.  The thread writes
it before it reports; of a group that was done inline it is owed (``owes_note``) until the loop is
idle.  Behind a file that was left a note says that the next one is on disk.  Notes are not synced:
after a mere kill they are there, so that the start knows what had been synced, and files that were
cut short meanwhile are noticed.

A disk without space is waited for: ``stalled`` says so, the group is tried again every half
second (it is written to its place, so trying again does no harm), and nothing behind it is
written before.  Of a batch, what was written stays: it may lie in a file that was left for the
next, where a power cut must not find it being written over.  A journal file is allocated whole
when it is begun, so that is where it happens, and acknowledgements in between go on.

Any other ``OSError`` is final.  It is kept in ``error``, nothing after it is written or
reported, and the broker should stop: after a failed fsync the kernel may have thrown the
dirty pages away, and a later fsync that succeeds does not prove that they were written.
"""

import contextlib
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.runtime.disk.worker import NO_SPACE, RETRY_MS, space_text
from penstock.storage.common.failpoints import reach
from penstock.storage.common.files import FileSystem
from penstock.storage.common.side_log import SideWriter
from penstock.storage.journal.codec import (
    BLOCK_HEADER_BYTES,
    JournalGroup,
    journal_file_name,
    note_block,
    spare_file_name,
)
from penstock.storage.store.groups import StoreWriter

BATCH_MAX_BYTES: Final = 1024 * 1024
SPARES_MAX: Final = 2
SMOOTHING: Final = 0.2
"""Weight of the newest sync in ``last_sync_ms``."""


class Committer:
    """``submit``, ``collect``, ``idle``, ``commit_inline`` and ``close`` belong to the loop.

    So do ``owes_note`` and ``attest`` while it is idle.
    """

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        file_size_bytes: int,
        store: StoreWriter,
        wake: Callable[[], None],
        side: SideWriter | None = None,
    ) -> None:
        """``side``: of the logs beside the journal."""
        self.stalled = ""
        self.last_sync_ms = 0.0
        self.sync_count = 0
        self.error: OSError | None = None
        self.owes_note = False
        self._files = files
        self._directory = directory
        self._file_size_bytes = file_size_bytes
        self._store = store
        self._side = SideWriter() if side is None else side
        self._wake = wake
        self._waiting: deque[JournalGroup] = deque()
        self._done: list[JournalGroup] = []
        self._busy = False
        self._closing = False
        self._changed = threading.Condition()
        # Used by the thread while it is busy, by the loop (inline) while it is not.
        self._handle = -1
        self._file_no = 0
        self._end = 0  # of the last block in it
        self._left: tuple[int, int, int] | None = None
        """Handle, number and end of the file before, until the current one is on disk."""
        self._ends: dict[int, int] = {}  # logs beside: on disk up to there, and no block says so
        self._unsynced = False
        self._spares: list[str] = []
        self._thread: threading.Thread | None = None

    # -- the loop's side -------------------------------------------------------------------

    def submit(self, group: JournalGroup) -> None:
        with self._changed:
            assert not self._closing
            self._waiting.append(group)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="committer", daemon=True)
            self._thread.start()

    def collect(self) -> list[JournalGroup]:
        """Groups done since the last time, in order."""
        if not self._done:
            return []
        with self._changed:
            done = self._done
            self._done = []
        return done

    def idle(self) -> bool:
        """Nothing waits and nothing is under way (there may be something to collect).

        In this order no lock is needed: the thread is busy before it takes what waits.
        """
        return not self._waiting and not self._busy

    def commit_inline(self, group: JournalGroup) -> None:
        """Do it here and now; the next ``collect`` returns it.  Legal only when ``idle``.

        For a small group and a fast disk the way to the thread and back costs more than
        the sync.
        """
        assert self.idle()
        assert not self._closing
        if self._try_commit([group]):
            self._done.append(group)
        elif self.stalled:
            self.submit(group)

    def close(self) -> None:
        """Do what waits, then end; what was done may still be collected afterwards."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        if self._handle >= 0:
            self._close_file()
        if self._left is not None:
            self._files.close(self._left[0])
        self._store.close()
        self._side.close()

    def _close_file(self) -> None:
        try:
            if self.error is None and self._unsynced:
                self._sync()
        except OSError as error:
            self.error = error
        finally:
            self._files.close(self._handle)
            self._handle = -1

    # -- the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            batch = self._next_batch()
            if not batch:
                return
            committed = False
            try:
                committed = self._commit_patiently(batch)
                if self.owes_note and not self._waiting:
                    self.attest()
            except BaseException as bug:
                # This thread ends here: its bug must reach those that wait for its groups.
                self.error = OSError(errno.EIO, f"the committer failed: {bug!r}")
                raise
            finally:
                with self._changed:
                    if committed:
                        self._done.extend(batch)
                    self._busy = False
                self._wake()

    def _next_batch(self) -> list[JournalGroup]:
        """Wait for work; empty = there will be no more."""
        with self._changed:
            while True:
                if self.error is not None:
                    self._waiting.clear()
                if self._waiting:
                    break
                if self._closing:
                    return []
                self._changed.wait()
            self._busy = True
            batch = [self._waiting.popleft()]
            size = batch[0].size
            while self._waiting and size + self._waiting[0].size <= BATCH_MAX_BYTES:
                group = self._waiting.popleft()
                size += group.size
                batch.append(group)
            return batch

    # -- the disk, from either side --------------------------------------------------------

    def _commit_patiently(self, batch: list[JournalGroup]) -> bool:
        """Wait for space as long as it takes, or until the broker is stopped."""
        while not self._try_commit(batch):
            if not self.stalled:
                return False
            self._wake()
            if self._pause():
                self.error = OSError(errno.ENOSPC, self.stalled)
                return False
        return True

    def _pause(self) -> bool:
        """True: the broker is being stopped, and there is still no space."""
        until = time.monotonic() + RETRY_MS / 1000
        with self._changed:
            while not self._closing:
                left_s = until - time.monotonic()
                if left_s <= 0:
                    return False
                self._changed.wait(left_s)
        return True

    def _try_commit(self, batch: list[JournalGroup]) -> bool:
        if self.error is not None:
            return False
        try:
            for group in batch:
                self._write(group)
            if any(group.sync for group in batch):
                self._store.sync()
                if self._side.unsynced:
                    self._side.sync()
                if self._unsynced:
                    self._sync()
                self.owes_note = True
                for group in batch:
                    if group.side is not None:
                        self._ends.update(group.side.ends())
            for group in batch:
                if group.files_to_remove or group.files_to_unlink:
                    self._remove(group.files_to_remove, SPARES_MAX)
                    self._remove(group.files_to_unlink, 0)
                    reach("journal.retired")
        except OSError as error:
            if error.errno in NO_SPACE:
                self.stalled = space_text(error, self._directory)
            else:
                self.stalled = ""
                self.error = error
            return False
        self.stalled = ""
        return True

    def _write(self, group: JournalGroup) -> None:
        if group.store is not None:
            self._store.write(group.store)
        if group.side is not None:
            self._side.write(group.side)
        if group.size == 0 or group.written:
            return
        if group.file_no != self._file_no:
            self._open(group.file_no)
        self._unsynced = True
        self._files.pwrite_parts(self._handle, group.offset, [group.header(), *group.parts])
        self.owes_note = False
        self._end = group.offset + BLOCK_HEADER_BYTES + group.size
        if group.told is not None:
            for log, end in group.told.items():
                if self._ends.get(log, 0) <= end:
                    self._ends.pop(log, None)
        group.written = True

    def _open(self, file_no: int) -> None:
        """Leave one file for the next.

        Recovery forgives a torn end only of the newest file, so the old one goes first.
        """
        if self._handle >= 0:
            if self._unsynced:
                self._store.sync()
                if self._side.unsynced:
                    self._side.sync()
                self._sync()
            self._left = (self._handle, self._file_no, self._end)
            self._handle = -1
            self._file_no = 0
        if self._spares:
            self._files.rename(self._spares[-1], self._path(file_no))
            self._spares.pop()
        handle = self._files.open_write(self._path(file_no))
        try:
            self._files.allocate(handle, self._file_size_bytes)
            self._files.sync_dir(self._directory)
        except OSError:
            self._files.close(handle)
            raise
        self._handle = handle
        self._file_no = file_no
        self._end = 0  # nothing of it is on disk: no note says so
        reach("journal.rolled")

    def _sync(self) -> None:
        before = time.perf_counter()
        self._files.sync(self._handle)
        took_ms = (time.perf_counter() - before) * 1000
        self._unsynced = False
        reach("journal.synced")
        self.sync_count += 1
        if self.sync_count == 1:
            self.last_sync_ms = took_ms
        else:
            self.last_sync_ms += SMOOTHING * (took_ms - self.last_sync_ms)
        if self._left is not None:
            handle, file_no, end = self._left
            self._left = None
            try:
                self._note(handle, file_no, end, {}, self._file_no)
            finally:
                self._files.close(handle)

    def attest(self) -> None:
        """All that was written is on disk; behind its end that is said."""
        self.owes_note = False
        if self._handle < 0 or self._end == 0:
            return
        try:
            self._note(self._handle, self._file_no, self._end, self._ends, 0)
        except OSError as error:
            self.error = error

    def _note(self, handle: int, file_no: int, end: int, ends: dict[int, int], begun: int) -> None:
        parts = note_block(file_no, end, ends, begun, self._file_size_bytes)
        try:
            self._files.pwrite_parts(handle, end, parts)
        except OSError as error:  # behind a last block that carried the file over its size
            if error.errno not in NO_SPACE:
                raise

    def _remove(self, numbers: list[int], spares_max: int) -> None:
        # Not made durable: a file that comes back is on no list, and recovery removes it.
        for number in numbers:
            with contextlib.suppress(FileNotFoundError):
                if len(self._spares) < spares_max:
                    spare = os.path.join(self._directory, spare_file_name(number))
                    self._files.rename(self._path(number), spare)
                    self._spares.append(spare)
                else:
                    self._files.remove(self._path(number))

    def _path(self, file_no: int) -> str:
        return os.path.join(self._directory, journal_file_name(file_no))
