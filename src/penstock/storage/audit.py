"""``python -m penstock.storage.audit DIR``: what a message log directory holds, and if it is whole.

In: a log directory (``DATA_DIR/log``), of a stopped broker or copied from a running one.  Out:
a line per file, a line per queue, the sums, and what recovery would say.  Nothing is changed:
recovery itself is run on a disk that ignores all changes, so the verdict is its own.

Queues are known by number here; their names are in definitions.db.  A queue that was deleted
counts as garbage once its ``X`` record is met.

Exit status: 0 whole, 1 damaged, 2 not a log directory.
"""

import sys
from collections import Counter
from typing import Final

from penstock.core.errors import Corrupt
from penstock.storage.files import FileSystem, RealFileSystem
from penstock.storage.log_codec import (
    ACK,
    ACK_RUN,
    BLOCK_HEADER_BYTES,
    DROP,
    PUBLISH,
    QUEUE_END,
    QUEUES,
    RESERVE,
    block_end,
    log_file_name,
    log_file_no,
    publish_size,
    read_table,
    record_size,
)
from penstock.storage.log_recovery import LogRecovery

WHOLE: Final = 0
DAMAGED: Final = 1
NO_LOG: Final = 2


class UntouchedFiles(FileSystem):
    """Another file system, minus every change."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files

    def listdir(self, path: str) -> list[str]:
        return self._files.listdir(path)

    def read(self, path: str) -> bytes:
        return self._files.read(path)

    def truncate(self, path: str, size: int) -> None:
        pass

    def rewrite(self, path: str, offset: int, data: bytes) -> None:
        pass

    def remove(self, path: str) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


class FileAudit:
    """One file, block by block, up to the first that is not true."""

    def __init__(self, number: int, data: bytes) -> None:
        self.number = number
        self.size = len(data)
        self.blocks = 0
        self.kinds: Counter[int] = Counter()
        self.queue_ids: set[int] = set()
        self.acked = 0
        self.true_bytes = 0
        while self.true_bytes < self.size:
            end = block_end(data, self.true_bytes, number)
            if end < 0 or not self._read_block(data, self.true_bytes + BLOCK_HEADER_BYTES, end):
                break
            self.blocks += 1
            self.true_bytes = int(end)

    def _read_block(self, data: bytes, at: int, end: int) -> bool:
        while at < end:
            size = record_size(data, at, end)
            if size < 0:
                return False
            self._read_record(data, at)
            at += int(size)
        return True

    def _read_record(self, data: bytes, at: int) -> None:
        kind = data[at]
        self.kinds[kind] += 1
        if kind == PUBLISH:
            self.queue_ids.add(int.from_bytes(data[at + 8 : at + 12], "big"))
        elif kind in (ACK, ACK_RUN, RESERVE, QUEUE_END):
            self.queue_ids.add(int.from_bytes(data[at + 1 : at + 5], "big"))
        elif kind == QUEUES:
            self.queue_ids.update(read_table(data, at))
        if kind == ACK:
            self.acked += 1
        elif kind == ACK_RUN:
            self.acked += int.from_bytes(data[at + 13 : at + 17], "big")

    def line(self) -> str:
        text = (
            f"{log_file_name(self.number):>12} {self.size:>12} {self.blocks:>8}"
            f" {self.kinds[PUBLISH]:>10} {self.acked:>10} {self.kinds[DROP]:>6}"
        )
        if self.true_bytes < self.size:
            text += f"  no true block at offset {self.true_bytes}"
        return text


class LogAudit:
    """The whole directory; ``lines`` is the report, ``status`` the exit status."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self.lines: list[str] = []
        self.status = WHOLE
        numbers = sorted(filter(None, map(log_file_no, files.listdir(directory))))
        if not numbers:
            self.lines.append(f"{directory}: no log files")
            self.status = NO_LOG
            return
        self.lines.append(
            f"{'file':>12} {'bytes':>12} {'blocks':>8} {'published':>10} {'acked':>10} {'drops':>6}"
        )
        audits = []
        for number in numbers:
            data = files.read(f"{directory}/{log_file_name(number)}")
            audits.append(FileAudit(number, data))
            self.lines.append(audits[-1].line())
        self._recover(files, directory, set().union(*(audit.queue_ids for audit in audits)))

    def _recover(self, files: FileSystem, directory: str, queue_ids: set[int]) -> None:
        recovery = LogRecovery(UntouchedFiles(files), directory, queue_ids)
        try:
            recovery.run()
        except Corrupt as error:
            self.lines += ["", f"damaged: {error}"]
            self.status = DAMAGED
            return
        self.lines += [
            "",
            f"{'queue':>12} {'messages':>12} {'bytes':>12} {'seq_ids':>24} {'next':>12}",
        ]
        live = 0
        for queue_id in sorted(recovery.queues):
            queue = recovery.queues[queue_id]
            size = sum(publish_size(message) for message in queue.messages)
            live += size
            if queue.messages:
                seq_ids = f"{queue.messages[0].seq_id}..{queue.messages[-1].seq_id}"
            else:
                seq_ids = "-"
            self.lines.append(
                f"{queue_id:>12} {len(queue.messages):>12} {size:>12} {seq_ids:>24}"
                f" {queue.next_seq_id:>12}"
            )
        self._sums(recovery, live)

    def _sums(self, recovery: LogRecovery, live: int) -> None:
        total = sum(file.size for file in recovery.log_files)
        garbage = 100 * (total - live) // total if total else 0
        self.lines.append("")
        self.lines.append(
            f"messages {recovery.messages_recovered}, live bytes {live} of {total},"
            f" garbage {garbage} %"
        )
        self.lines.append(f"last stop {'clean' if recovery.clean else 'unclean'}")
        self.lines.append(
            f"recovery would cut {recovery.bytes_cut} bytes"
            f" and remove {recovery.files_removed} files"
        )


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m penstock.storage.audit LOG_DIRECTORY\n")
        return NO_LOG
    try:
        audit = LogAudit(RealFileSystem(), arguments[0])
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        return NO_LOG
    sys.stdout.write("\n".join(audit.lines) + "\n")
    return audit.status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
