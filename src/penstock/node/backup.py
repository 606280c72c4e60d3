"""``Backup``: a consistent copy of the data directory while the node runs.

    begin ─► DataImage, a job of the disk's writes ─► links below DIR/image, the journal's bytes
    a thread ─► copies of what is linked, and of the definitions ─► the target directory

The copy is what a kill at one moment leaves, so a start of a broker on it is one after a kill.
While the job runs no segment is written and no file of a store is rewritten, for these are jobs of
the same thread.  Other threads append and remove meanwhile; the order makes that harmless:

    0  links to the journal files that segments refer to, which never change
    1  links to segments, contents and streams: what is removed from now on stays in the image
    2  the journal up to a place that is on disk: all of what it refers to is in 1, or comes in 3.
       The committer removes a retired file a moment before the loop hears of its group, so a
       listed file may be gone: then the journal is copied again
    3  links to new files of contents and streams, and how long each linked file is now
    4  the definitions, which are never older than what refers to them

Files grow at their ends only, so a link is copied up to its length of that moment. The attestation
at the beginning of a segment is written over, so that one is taken in 3.  What is given
up of a stream leaves a note (``streams/cutting.py``): one that is new in 3 sends the job back to 1.
"""

import logging
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import Final

from penstock.core.errors import PreconditionFailed
from penstock.node.data_dir import FROM_BACKUP
from penstock.storage.audit.files import JournalWalk
from penstock.storage.common.disk_jobs import DiskJob, JobBoard
from penstock.storage.common.files import FileSystem
from penstock.storage.index.segment_codec import HEADER_BYTES, SEGMENT_SUFFIX
from penstock.storage.journal.codec import block_end, journal_file_name, journal_file_no
from penstock.streams.cutting import cut_of

IMAGE: Final = "image"
JOURNAL: Final = "journal"
GROWING: Final = ("store/persistent", "streams")
DEFINITIONS: Final = "definitions.db"
RETIRING_S: Final = 30.0
"""So long is waited for the place behind the end of a retired file of the journal."""

End = Callable[[], tuple[int, int]]
"""The journal's newest file with something on disk, and how many bytes of it are."""
logger = logging.getLogger("penstock.node")


class DataImage(DiskJob):
    """Steps 0 to 3; ``lengths`` and, of segments, ``heads``: by path below the image."""

    def __init__(self, data_dir: str, end: End, referred: dict[int, int]) -> None:
        """``referred``: by number the journal files that segments refer to, as it is just then."""
        super().__init__()
        self.lengths: dict[str, int] = {}
        self.heads: dict[str, bytes] = {}
        self.failure = ""
        self.over = threading.Event()
        self._data_dir = data_dir
        self._image = os.path.join(data_dir, IMAGE)
        self._end = end
        self._referred = referred

    def run(self, _files: FileSystem) -> None:
        """A failure is kept: the jobs behind do not wait for space for a backup."""
        try:
            while not self._link_to_one_history():
                logger.info("backup: a stream was cut meanwhile, so its files are linked again")
            for path in self.lengths:
                linked = os.path.join(self._image, path)
                self.lengths[path] = os.path.getsize(linked)
                if path.endswith(SEGMENT_SUFFIX):
                    with open(linked, "rb") as file:
                        self.heads[path] = file.read(int(HEADER_BYTES))
        except (OSError, TimeoutError) as error:
            self.failure = str(error)
        self.over.set()

    def _link_to_one_history(self) -> bool:
        """False: the end of a stream was given up, and a file that is linked may go on with it."""
        shutil.rmtree(self._image, ignore_errors=True)
        self.lengths = {}
        os.makedirs(os.path.join(self._image, JOURNAL), mode=0o700)
        for number in list(self._referred):
            self._link(os.path.join(JOURNAL, journal_file_name(number)))
        for directory in (*GROWING, "queues"):
            self._link_all(directory)
        self._copy_journal()
        before = set(self.lengths)
        for directory in GROWING:
            self._link_all(directory)
        new = self.lengths.keys() - before
        return not any(cut_of(os.path.basename(path)) for path in new)

    def _link_all(self, directory: str) -> None:
        for root, _, names in os.walk(os.path.join(self._data_dir, directory)):
            below = os.path.relpath(root, self._data_dir)
            os.makedirs(os.path.join(self._image, below), mode=0o700, exist_ok=True)
            for name in names:
                path = os.path.join(below, name)
                if path not in self.lengths:
                    self._link(path)

    def _link(self, path: str) -> None:
        try:
            os.link(os.path.join(self._data_dir, path), os.path.join(self._image, path))
        except FileNotFoundError:
            return  # it was removed: nothing in it is of use
        self.lengths[path] = 0

    def _copy_journal(self) -> None:
        until_s = time.monotonic() + RETIRING_S
        while not self._copy_journal_to(*self._stable_end()):
            if time.monotonic() > until_s:
                raise TimeoutError("files of the journal are retired faster than they are copied")
            time.sleep(0.05)

    def _stable_end(self) -> tuple[int, int]:
        """Both numbers of one moment."""
        end = self._end()
        while end != (again := self._end()):
            end = again
        return end

    def _copy_journal_to(self, last_no: int, last_bytes: int) -> bool:
        """False: a file was retired meanwhile, and that has to be in the copy."""
        copies = os.path.join(self._image, JOURNAL)
        linked = {os.path.basename(path) for path in self.lengths if path.startswith(f"{JOURNAL}/")}
        files = {no: journal_file_name(no) for no in self._journal_files() if no <= last_no}
        numbers = [no for no, name in files.items() if name not in linked]
        names = [files[no] for no in numbers]
        try:
            for name in names:
                source = os.path.join(self._data_dir, JOURNAL, name)
                shutil.copyfile(source, os.path.join(copies, name))
        except FileNotFoundError:
            return False
        if not self._journal_files().issuperset(numbers):
            return False  # it may be written over by now
        last = os.path.join(copies, journal_file_name(last_no))
        with open(last, "rb") as file:
            data = file.read(last_bytes)
        if not names_only(linked.union(names), last, last_no, data):
            return False
        size = os.path.getsize(last)
        os.truncate(last, last_bytes)
        os.truncate(last, size)  # zeros, as in a file that was begun
        self.lengths |= {os.path.join(JOURNAL, name): 0 for name in names}
        return True

    def _journal_files(self) -> set[int]:
        directory = os.path.join(self._data_dir, JOURNAL)
        return {no for no in map(journal_file_no, os.listdir(directory)) if no > 0}


def names_only(there: set[str], path: str, file_no: int, data: bytes) -> bool:
    """Does this file of the journal need no older ones but these?"""
    for end in (max(0, block_end(data, 0, file_no)), len(data)):
        walk = JournalWalk(path, file_no, data[:end])  # mostly its first block is enough
        needed = walk.listed.keys() - walk.kept.keys() - walk.dropped
        if there.issuperset(map(journal_file_name, needed)):
            return True
    return False


class Backup:
    """Of one node, one at a time; ``error`` of the last one, "" = it is whole, or there is none."""

    def __init__(self, data_dir: str, board: JobBoard, end: End, referred: dict[int, int]) -> None:
        self.error = ""
        self.copied_bytes = 0
        self.is_under_way = False
        self._data_dir = data_dir
        self._board = board
        self._drop_image()  # of a process that has ended meanwhile
        self._end = end
        self._referred = referred

    def begin(self, target: str) -> None:
        """On the data loop.  Raises PreconditionFailed."""
        if self.is_under_way:
            raise PreconditionFailed("another backup of this node is under way")
        if not os.path.isabs(target):
            raise PreconditionFailed(f"'{target}' is no absolute path")
        try:
            os.makedirs(target, mode=0o700)
        except OSError as error:
            raise PreconditionFailed(f"{target} cannot be made: {error.strerror}") from error
        self.error, self.copied_bytes, self.is_under_way = "", 0, True
        image = DataImage(self._data_dir, self._end, self._referred)
        self._board.writes.append(image)
        threading.Thread(target=self._run, args=(image, target), name="backup", daemon=True).start()

    def _run(self, image: DataImage, target: str) -> None:
        try:
            image.over.wait()
            self.error = image.failure
            if not self.error:
                self._copy(image, target)
                logger.info("backup: %d bytes are in %s", self.copied_bytes, target)
        except (OSError, sqlite3.Error) as error:
            self.error = str(error)
        finally:
            self._drop_image()
            if self.error:
                logger.error("the backup to %s has failed: %s", target, self.error)
            self.is_under_way = False

    def _copy(self, image: DataImage, target: str) -> None:
        for path, length in image.lengths.items():
            copy = os.path.join(target, path)
            os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
            shutil.copyfile(os.path.join(self._data_dir, IMAGE, path), copy)
            os.truncate(copy, length)
            with open(copy, "r+b") as file:
                file.write(image.heads.get(path, b""))
            self._sync(copy)
            self.copied_bytes += length
        copy = os.path.join(target, DEFINITIONS)
        with (
            sqlite3.connect(f"file:{self._data_dir}/{DEFINITIONS}?mode=ro", uri=True) as source,
            sqlite3.connect(copy) as database,
        ):
            source.backup(database)
        source.close()
        database.close()
        self.copied_bytes += os.path.getsize(copy)
        with open(os.path.join(target, FROM_BACKUP), "x"):
            pass
        for root, _, _ in os.walk(target):
            self._sync(root)

    def _drop_image(self) -> None:
        shutil.rmtree(os.path.join(self._data_dir, IMAGE), ignore_errors=True)

    @staticmethod
    def _sync(path: str) -> None:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
