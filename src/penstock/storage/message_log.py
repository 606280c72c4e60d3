"""``MessageLog``: one append-only log for all durable queues of a node.

In: publishes and acknowledgements, in batches, of queues known by number.  Out: sealed
groups of bytes for ``server.committer``, which writes and syncs them.  Every message also
rests in memory, so the log is read only at start (``log_recovery``).

**The walk.**  ``publish`` and ``ack`` append records to a buffer; ``position`` counts the
bytes ever appended.  ``seal`` freezes the buffer into one group, which becomes one block of
the current file.  When the committer has done a group, ``committed`` moves
``durable_position``; a publisher's confirm waits until that has reached the ``position`` of
right after its ``publish``.  A file that has reached the limit is left at the next seal.

**Garbage.**  A record is live while it is a publish record whose message is not
acknowledged.  A file is *dropped* when nothing in it is live and none of the files that
still exist needs the acknowledgements in it: removing those first would bring dead messages
back.  The drop is a record of its own in a synced group, and the file is deleted after that
sync, so whatever led to the drop (acks, relocated copies) is on disk first, and a file
missing without such a record is known to be damage.  When more than half of a large log is
garbage that nobody drops, ``files_to_compact`` names files whose live messages ``relocate``
should append again.

**Acks and copies.**  A relocated message has records in two files.  An acknowledgement kills
all of them, so it must stay while any of those files does: the ack's file needs the message's
file and all files that hold older copies (log_files.py keeps the sets).

**Numbers.**  Every file begins with the queues' next seq_ids, so no number is lost with an
old file.  Numbers of transient messages are never written; ``reserve`` records an upper
bound instead, and recovery from a crash goes on at the next multiple of 16,384 above all it
saw.

**Stops.**  ``close_cleanly`` ends the last file with a mark.  Recovery begins a new file,
synced before anything is served, and thereby uses the mark up.

Rejected: a log per queue (a sync per queue and turn), acks in a journal of their own (two
syncs per group), updating files in place (cannot be undone by cutting a tail).

Invariants (``check``, which also checks those of log_files.py):
  L1  durable_position <= sealed position <= position; the buffer holds the difference
  L2  no share is empty or negative, but the one its queue appended to last may be empty
  L3  a share's file is one that still exists
"""

from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from penstock.core.message import LOGGED, PERSISTENT, Message
from penstock.storage.files import WRITE_PARTS_MAX, FileSystem
from penstock.storage.log_codec import (
    FILES,
    QUEUES,
    LogGroup,
    log_file_name,
    publish_size,
    write_ack,
    write_clean,
    write_drop,
    write_forget,
    write_publish_head,
    write_queue_end,
    write_reserve,
    write_table,
)
from penstock.storage.log_files import LogFile, LogFiles
from penstock.storage.log_recovery import LogRecovery, RecoveredQueue
from penstock.storage.seq_ranges import ranges_of

__all__ = ["FILE_SIZE_LIMIT_BYTES", "LogGroup", "MessageLog", "RecoveredQueue"]

FILE_SIZE_LIMIT_BYTES: Final[i64] = 16 * 1024 * 1024
LARGE_CONTENT_BYTES: Final[i64] = 8 * 1024
PARTS_MAX: Final[i64] = WRITE_PARTS_MAX - 8
"""Parts of one group; contents beyond are copied (block header, tables and tail need a place)."""
BUFFER_KEPT_BYTES: Final[i64] = 4 * 1024 * 1024
"""A buffer that one huge batch made larger is not kept."""
NOT_LOGGED: Final[i64] = ~LOGGED


@final
class _Share:
    """What one queue has alive in one file."""

    __slots__ = ("count", "file", "size")

    def __init__(self, file: LogFile) -> None:
        self.file: LogFile = file
        self.count: i64 = 0
        self.size: i64 = 0


@final
class _LoggedQueue:
    """``share`` is the one in ``shares`` that was appended to last."""

    __slots__ = ("next_seq_id", "share", "shares")

    def __init__(self, next_seq_id: i64) -> None:
        self.next_seq_id: i64 = next_seq_id
        self.shares: dict[int, _Share] = {}
        self.share: _Share = _Share(LogFile(0, 0))

    def share_in(self, file: LogFile) -> _Share:
        """The share that is appended to; an empty one left behind is thrown away."""
        left = self.share
        if left.file is file:
            return left
        if left.count == 0:
            self.shares.pop(int(left.file.number), None)
        share = self.shares.get(int(file.number))
        if share is None:
            share = _Share(file)
            self.shares[int(file.number)] = share
        self.share = share
        return share


@final
class MessageLog:
    """Call ``recover`` once, before anything else."""

    def __init__(
        self,
        files: FileSystem,
        directory: str,
        file_size_limit_bytes: i64 = FILE_SIZE_LIMIT_BYTES,
    ) -> None:
        self.position: i64 = 0
        self.durable_position: i64 = 0
        self._fs: FileSystem = files
        self._directory: str = directory
        self._file_size_limit_bytes: i64 = file_size_limit_bytes
        self._buffer: BytesWriter = BytesWriter()
        self._parts: list[bytes] = []  # before the buffer: what is appended and cannot grow
        self._parts_bytes: i64 = 0
        self._queues: dict[int, _LoggedQueue] = {}
        self._files: LogFiles = LogFiles(2 * file_size_limit_bytes)
        self._written_file: LogFile = self._files.current  # of the last group sealed
        self._sealed_position: i64 = 0
        self._sync_position: i64 = 0  # end of the last group sealed with sync
        self._synced_file_no: i64 = 0
        self._synced_offset: i64 = 0
        self._groups_sealed: i64 = 0
        self._recovery: LogRecovery | None = None
        self._closed: bool = False

    # -- start -----------------------------------------------------------------------------

    def recover(self, queue_ids: set[int]) -> dict[int, RecoveredQueue]:
        """What the log holds for these queues; records of others are garbage from now on."""
        assert self._recovery is None
        self._fs.makedirs(self._directory)
        recovery = LogRecovery(self._fs, self._directory, queue_ids)
        recovery.run()
        for file in recovery.log_files:
            self._files.add(file)
        for queue_id, queue in recovery.queues.items():
            self._adopt(queue_id, queue)
        self._files.add(LogFile(recovery.last_file_no + 1, 0))
        self._write_first_block()
        self._recovery = recovery
        return recovery.queues

    def recovered_cleanly(self) -> bool:
        """Whether the stop before ``recover`` was a clean one, or the log is a new one."""
        return self._recovery is not None and self._recovery.clean

    def _adopt(self, queue_id: int, recovered: RecoveredQueue) -> None:
        queue = _LoggedQueue(recovered.next_seq_id)
        self._queues[queue_id] = queue
        file = queue.share.file
        for message in recovered.messages:
            if message.file_no != file.number:
                file = self._files.get(message.file_no)
            self._born(queue.share_in(file), 1, publish_size(message))

    def _write_first_block(self) -> None:
        """The tables of the new file, on disk before any queue is served."""
        group = LogGroup(self._files.current.number, 0, 0, [self._tables()], True, 0, [])
        path = f"{self._directory}/{log_file_name(int(group.file_no))}"
        handle = self._fs.open_append(path)
        try:
            self._fs.write_parts(handle, [group.header(), *group.parts])
            self._fs.sync(handle)
        finally:
            self._fs.close(handle)
        self._fs.sync_dir(self._directory)
        self._note_sealed(group)
        self.committed(group)

    # -- queues append ---------------------------------------------------------------------

    def publish(self, queue_id: i64, messages: list[Message]) -> None:
        """A record for each PERSISTENT message, which becomes LOGGED; others are skipped."""
        queue = self._queue(queue_id)
        file = self._files.current
        file_no = file.number
        next_seq_id = queue.next_seq_id
        start = self.pending_bytes()
        count: i64 = 0
        for message in messages:
            if message.flags & PERSISTENT:
                self._append_publish(queue_id, message)
                message.flags |= LOGGED
                message.file_no = file_no
                count += 1
                if message.seq_id >= next_seq_id:
                    next_seq_id = message.seq_id + 1
        if count > 0:
            queue.next_seq_id = next_seq_id
            size = self.pending_bytes() - start
            self.position += size
            self._born(queue.share_in(file), count, size)

    def ack(self, queue_id: i64, messages: list[Message]) -> None:
        """A record for each run of LOGGED messages, which cease to be LOGGED."""
        queue = self._queues.get(int(queue_id))
        if queue is None:
            return  # forgotten, and its records with it
        start: i64 = 0
        end: i64 = -1  # the run of seq_ids is [start, end)
        file_no: i64 = 0
        count: i64 = 0  # of messages in that file
        size: i64 = 0
        for message in messages:
            if not message.flags & LOGGED:
                continue
            if message.file_no != file_no:
                self._acked(queue, file_no, count, size)
                file_no = message.file_no
                count = 0
                size = 0
            count += 1
            size += publish_size(message)
            message.flags &= NOT_LOGGED
            message.file_no = 0
            if message.seq_id != end:
                self._append_ack(queue_id, start, end)
                start = message.seq_id
            end = message.seq_id + 1
        self._acked(queue, file_no, count, size)
        self._append_ack(queue_id, start, end)

    def _append_ack(self, queue_id: i64, start: i64, end: i64) -> None:
        if end > start:
            before: i64 = len(self._buffer)
            write_ack(self._buffer, queue_id, start, end)
            self.position += len(self._buffer) - before

    def reserve(self, queue_id: i64, upto_seq_id: i64) -> None:
        """Once this is durable, no start ever gives the queue a next seq_id below that."""
        queue = self._queue(queue_id)
        if upto_seq_id > queue.next_seq_id:
            queue.next_seq_id = upto_seq_id
            before: i64 = len(self._buffer)
            write_reserve(self._buffer, queue_id, upto_seq_id)
            self.position += len(self._buffer) - before

    def forget_queue(self, queue_id: i64) -> None:
        """The queue is deleted.

        The deletion must be committed in the definitions before the group that holds this
        record is submitted, else a crash between the two brings the queue back empty.
        """
        queue = self._queues.pop(int(queue_id), None)
        if queue is None:
            return
        for share in queue.shares.values():
            self._files.acked_in_current(share.file)
            self._files.died(share.file, share.count, share.size)
        before: i64 = len(self._buffer)
        write_forget(self._buffer, queue_id)
        self.position += len(self._buffer) - before

    def queue_ids_in(self, file_no: int) -> list[int]:
        """The queues that have live messages in this file."""
        return [queue_id for queue_id, queue in self._queues.items() if file_no in queue.shares]

    def relocate(self, queue_id: i64, messages: list[Message]) -> None:
        """Append again what is LOGGED here and lies in another than the current file.

        The bytes wait in the buffer like any others: hand over about a group at a time.
        """
        queue = self._queues.get(int(queue_id))
        if queue is None:
            return
        current = self._files.current
        for message in messages:
            if not message.flags & LOGGED or message.file_no == current.number:
                continue
            size = publish_size(message)
            self._files.copied_to_current(self._files.get(message.file_no))
            self._died(queue, message.file_no, 1, size)
            self._append_publish(queue_id, message)
            message.file_no = current.number
            self._born(queue.share_in(current), 1, size)
            self.position += size

    def _queue(self, queue_id: i64) -> _LoggedQueue:
        queue = self._queues.get(int(queue_id))
        if queue is None:
            assert 0 <= queue_id < 0x7FFFFFFF
            queue = _LoggedQueue(0)
            self._queues[int(queue_id)] = queue
        return queue

    # -- what is alive where ---------------------------------------------------------------

    def _born(self, share: _Share, count: i64, size: i64) -> None:
        share.count += count
        share.size += size
        self._files.born(share.file, count, size)

    def _died(self, queue: _LoggedQueue, file_no: i64, count: i64, size: i64) -> None:
        share = queue.shares[int(file_no)]
        share.count -= count
        share.size -= size
        if share.count == 0 and share is not queue.share:
            del queue.shares[int(file_no)]
        self._files.died(share.file, count, size)

    def _acked(self, queue: _LoggedQueue, file_no: i64, count: i64, size: i64) -> None:
        """Messages of one file die; their ack is being written to the current one."""
        if count > 0:
            self._files.acked_in_current(queue.shares[int(file_no)].file)
            self._died(queue, file_no, count, size)

    def files_to_compact(self) -> list[int]:
        """Files to relocate from, oldest first; empty when the log is not worth the work."""
        return self._files.to_compact()

    # -- groups ----------------------------------------------------------------------------

    def pending_bytes(self) -> i64:
        """Appended and not yet sealed."""
        return self._parts_bytes + len(self._buffer)

    def seal(self, sync: bool) -> LogGroup | None:
        """Freeze what was appended since the last seal; None when there is nothing to do.

        With ``sync`` the group also covers unsynced ones before it; when only those are
        left it comes without data.
        """
        assert self._recovery is not None
        assert not self._closed
        return self._seal(sync, self._drop_files() if sync else [])

    def _seal(self, sync: bool, dropped: list[int]) -> LogGroup | None:
        size = self.pending_bytes()
        if size == 0 and (not sync or self._sync_position == self._sealed_position):
            return None
        self._cut_buffer()
        parts = self._parts
        self._parts = []
        self._parts_bytes = 0
        file = self._files.current if size > 0 else self._written_file
        if size > 0 and file.size == 0:
            parts.insert(0, self._tables())
        synced = self._synced_offset if self._synced_file_no == file.number else 0
        group = LogGroup(file.number, file.size, synced, parts, sync, self.position, dropped)
        self._note_sealed(group)
        return group

    def _drop_files(self) -> list[int]:
        dropped = self._files.drop()
        before: i64 = len(self._buffer)
        for file_no in dropped:
            write_drop(self._buffer, file_no)
        self.position += len(self._buffer) - before
        return dropped

    def _append_publish(self, queue_id: i64, message: Message) -> None:
        """A large content becomes a part of its own: it is written from where it lies."""
        write_publish_head(self._buffer, queue_id, message)
        content = message.content
        if len(content) < LARGE_CONTENT_BYTES or len(self._parts) > PARTS_MAX:
            self._buffer.write(content)
            return
        self._cut_buffer()
        self._parts.append(content)
        self._parts_bytes += len(content)

    def _cut_buffer(self) -> None:
        """What the buffer holds becomes a part."""
        part = self._buffer.getvalue()
        if part:
            self._parts.append(part)
            self._parts_bytes += len(part)
        if len(self._buffer) > BUFFER_KEPT_BYTES:
            self._buffer = BytesWriter()
        else:
            self._buffer.truncate(0)

    def _note_sealed(self, group: LogGroup) -> None:
        self._groups_sealed += 1
        self._sealed_position = group.end_position
        if group.sync:
            self._sync_position = group.end_position
        if group.size > 0:
            self._written_file = self._files.current
            self._files.grow_current(group.end_offset() - group.offset)
        # The next file is created when its first group comes.
        if self._files.current.size >= self._file_size_limit_bytes:
            self._files.add(LogFile(self._files.current.number + 1, 0))

    def _tables(self) -> bytes:
        """Every file begins with what must outlive the files before it."""
        next_seq_ids: dict[int, int] = {}
        for queue_id, queue in self._queues.items():
            next_seq_ids[queue_id] = int(queue.next_seq_id)
        writer = BytesWriter()
        write_table(writer, FILES, self._files.sizes_before_current())
        write_table(writer, QUEUES, next_seq_ids)
        return writer.getvalue()

    def committed(self, group: LogGroup) -> None:
        """The committer has done the group, and all before it."""
        if group.sync:
            self.durable_position = group.end_position
            self._synced_file_no = group.file_no
            self._synced_offset = group.end_offset()

    def close_cleanly(
        self, delivered: dict[int, list[int]], next_seq_ids: dict[int, int] | None = None
    ) -> LogGroup:
        """The last group: what a clean start needs to know, and the mark of a clean stop.

        ``delivered``     the seq_ids, by queue, of messages that were handed out before
        ``next_seq_ids``  exact numbers; where none is given, the reserved one is used
        """
        assert self._recovery is not None
        assert not self._closed
        dropped = self._drop_files()
        before: i64 = len(self._buffer)
        exact = {} if next_seq_ids is None else next_seq_ids
        for queue_id in exact:
            self._queue(queue_id)
        for queue_id, queue in self._queues.items():
            ranges = ranges_of(delivered.get(queue_id, []))
            next_seq_id = exact.get(queue_id, int(queue.next_seq_id))
            write_queue_end(self._buffer, queue_id, next_seq_id, ranges.starts, ranges.ends)
        write_clean(self._buffer)
        self.position += len(self._buffer) - before
        group = self._seal(True, dropped)
        assert group is not None
        self._closed = True
        return group

    # -- looking ---------------------------------------------------------------------------

    def statistics(self) -> dict[str, int]:
        recovery = self._recovery
        return {
            "files": self._files.count(),
            "bytes": int(self._files.total_bytes),
            "live_messages": int(self._files.live_count),
            "live_bytes": int(self._files.live_bytes),
            "pending_bytes": int(self.pending_bytes()),
            "position": int(self.position),
            "durable_position": int(self.durable_position),
            "groups_sealed": int(self._groups_sealed),
            "files_dropped": int(self._files.dropped_count),
            "messages_recovered": 0 if recovery is None else int(recovery.messages_recovered),
            "bytes_cut": 0 if recovery is None else int(recovery.bytes_cut),
            "files_removed_at_start": 0 if recovery is None else int(recovery.files_removed),
        }

    def check(self) -> None:
        """Assert the numbered invariants; O(queues x files), for tests."""
        assert self.durable_position <= self._sealed_position <= self.position, "L1"
        assert self.position - self._sealed_position == self.pending_bytes(), "L1"
        counts: dict[int, int] = {}
        sizes: dict[int, int] = {}
        for queue in self._queues.values():
            for number, share in queue.shares.items():
                assert share.count > 0 or (share.count == 0 and share is queue.share), "L2"
                if share.count > 0:
                    assert self._files.get(number) is share.file, "L3"
                counts[number] = counts.get(number, 0) + int(share.count)
                sizes[number] = sizes.get(number, 0) + int(share.size)
        self._files.check(counts, sizes, int(self.pending_bytes()))
