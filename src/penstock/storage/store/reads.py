"""Reading contents back, while compaction moves them.

In: msg_ids and where the store believed they lay.  Out: their contents in the order asked for,
or an error that names the damaged place.

There is no lock between a read and a compaction.  Every record carries its msg_id and a checksum,
an id never means two messages, so what verifies is right wherever it was found.  What does not
verify is looked up again: if the message lies elsewhere by now, it was moved between asking and
reading, and the job goes back to the board; if its file is being rewritten at this moment, the
job is *parked* until that has ended; else the bytes are damaged.  A synchronous read
(``run_now``) happens in the thread that would end the rewriting, so it cannot wait for that: what
does not verify in the old file is then in the copy, which has its name already.  A message whose
last reference went meanwhile (a purge) may be read or not: if not, its place stays empty.

Neighbours are read with one call, with gaps of garbage up to ``GAP_MAX_BYTES`` between them.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.storage.common.disk_jobs import DiskJob, run_job
from penstock.storage.common.files import FileSystem
from penstock.storage.store.codec import RECORD_HEADER_BYTES, damage, is_record, is_record_header
from penstock.storage.store.files import StoreFile, StoreFiles

GAP_MAX_BYTES: Final[i64] = 16 * 1024
RUN_MAX_BYTES: Final[i64] = 1024 * 1024
"""A read of several records is not longer; a record that is, is read alone and not copied."""


@final
class _Wanted:
    """A record on disk: which place of the answer it fills, and where it should be."""

    __slots__ = ("file", "msg_id", "offset", "place", "size")

    def __init__(self, place: i64, msg_id: i64, file: StoreFile, index: i64) -> None:
        self.place: i64 = place
        self.msg_id: i64 = msg_id
        self.file: StoreFile = file
        self.offset: i64 = file.rows.offsets[index]
        self.size: i64 = file.rows.sizes[index]

    def end(self) -> i64:
        return self.offset + RECORD_HEADER_BYTES + self.size


@final
class StoreRead(DiskJob):
    """``contents`` is complete when the job is ``done`` and has no ``error``."""

    def __init__(self, files: StoreFiles, msg_ids: list[int], contents: list[bytes]) -> None:
        super().__init__()
        self.contents: list[bytes] = contents
        self.retries: i64 = 0
        self._files: StoreFiles = files
        self._msg_ids: list[int] = msg_ids
        self._runs: list[list[_Wanted]] = []
        self._missed: list[_Wanted] = []

    def want(self, places: list[int]) -> None:
        """Plan to read these places of the answer; ids ascend on disk, so order by id."""
        ordered = [(self._msg_ids[place], place) for place in places]
        ordered.sort()
        self._runs = []
        for msg_id, place in ordered:
            wanted = self._locate(place, msg_id)
            if wanted is not None:
                self._plan(wanted)

    def _locate(self, place: i64, msg_id: i64) -> _Wanted | None:
        """None = nothing refers to the message any more."""
        file = self._files.file_of(msg_id)
        index: i64 = -1 if file is None else file.index_of(msg_id)
        if file is None or index < 0 or file.rows.references[index] == 0:
            return None
        return _Wanted(place, msg_id, file, index)

    def _plan(self, wanted: _Wanted) -> None:
        if self._runs:
            run = self._runs[-1]
            last = run[-1]
            gap = wanted.offset - last.end()
            near = last.file is wanted.file and gap <= GAP_MAX_BYTES
            if near and wanted.end() - run[0].offset <= RUN_MAX_BYTES:
                run.append(wanted)
                return
        self._runs.append([wanted])

    def run_now(self, files: FileSystem) -> None:
        """In the owner's thread, to its end."""
        run_job(self, files)
        missed = self._missed
        if self.error is None and missed:
            self._runs = [[self._in_copy(old)] for old in missed]
            run_job(self, files)
        if self.error is None and self._missed:
            old = self._missed[0]
            size = int(RECORD_HEADER_BYTES + old.size)
            self.error = damage(self._files.path(old.file.number), int(old.offset), size)
        self._missed = []
        self._runs = []
        self.done = True

    def _in_copy(self, old: _Wanted) -> _Wanted:
        """Where it is when it was moved and we have not heard of it."""
        copy = old.file.copy
        index: i64 = -1 if copy is None else copy.index_of(old.msg_id)
        if copy is None or index < 0:
            return old
        return _Wanted(old.place, old.msg_id, copy, index)

    # -- the thread ------------------------------------------------------------------------

    def run(self, files: FileSystem) -> None:
        self._missed = []
        for run in self._runs:
            path = self._files.path(run[0].file.number)
            try:
                if len(run) == 1:
                    self._read_one(files, path, run[0])
                else:
                    self._read_run(files, path, run)
            except FileNotFoundError:
                self._missed.extend(run)

    def _read_one(self, files: FileSystem, path: str, wanted: _Wanted) -> None:
        """Header and content apart, so that the content is not copied out of a larger piece."""
        header = files.pread(path, int(wanted.offset), int(RECORD_HEADER_BYTES))
        if not is_record_header(header, wanted.msg_id, wanted.size):
            self._missed.append(wanted)
            return
        at = wanted.offset + RECORD_HEADER_BYTES
        content = files.pread(path, int(at), int(wanted.size))
        self._take(wanted, header, content)

    def _read_run(self, files: FileSystem, path: str, run: list[_Wanted]) -> None:
        start = run[0].offset
        data = files.pread(path, int(start), int(run[-1].end() - start))
        for wanted in run:
            at = wanted.offset - start
            content_at = at + RECORD_HEADER_BYTES
            header = data[at:content_at]
            self._take(wanted, header, data[content_at : content_at + wanted.size])

    def _take(self, wanted: _Wanted, header: bytes, content: bytes) -> None:
        if is_record(header, content, wanted.msg_id, wanted.size):
            self.contents[wanted.place] = content
        else:
            self._missed.append(wanted)

    # -- the owner -------------------------------------------------------------------------

    def finish(self) -> None:
        missed = self._missed
        self._missed = []
        self._runs = []
        if not missed or self.error is not None or self.cancelled:
            self.done = True
            return
        again: list[int] = []
        parked = False
        for old in missed:
            new = self._locate(old.place, old.msg_id)
            if new is None:
                continue
            if new.file is old.file and not new.file.compacting:
                size = int(RECORD_HEADER_BYTES + old.size)
                self.error = damage(self._files.path(old.file.number), int(old.offset), size)
                self.done = True
                return
            parked = parked or new.file.compacting
            again.append(int(old.place))
        if not again:
            self.done = True
        elif parked:
            # Run with the old plan first when it is over: what was found false then is looked up.
            self._runs = [[old] for old in missed]
            self._files.parked.append(self)
        else:
            self.retries += 1
            self.want(again)
            self._files.board.reads.append(self)
