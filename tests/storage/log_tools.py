"""What the tests of the message log share: messages, and a log with its committer's hands."""

from __future__ import annotations

from penstock.core.message import PERSISTENT, Message
from penstock.server.committer import Committer
from penstock.storage.files import FileSystem
from penstock.storage.log_codec import LogGroup
from penstock.storage.message_log import MessageLog, RecoveredQueue

DIRECTORY = "log"


def message(
    seq_id: int, body: bytes = b"", *, persistent: bool = True, expires: int = 0
) -> Message:
    one = Message(
        b"content of %d " % seq_id + body,
        b"\x02ex\x03key",
        PERSISTENT if persistent else 0,
        expires,
    )
    one.seq_id = seq_id
    one.enqueued_at_ms = 1_000_000 + seq_id
    return one


def messages(start: int, end: int, body: bytes = b"") -> list[Message]:
    return [message(seq_id, body) for seq_id in range(start, end)]


class OpenLog:
    """A recovered log and a committer that works only when told to."""

    def __init__(self, files: FileSystem, queue_ids: set[int], limit_bytes: int = 1 << 24) -> None:
        self.log = MessageLog(files, DIRECTORY, limit_bytes)
        self.recovered: dict[int, RecoveredQueue] = self.log.recover(queue_ids)
        self.committer = Committer(files, DIRECTORY, lambda: None)

    def commit(self, *, sync: bool = True) -> LogGroup | None:
        group = self.log.seal(sync)
        if group is not None:
            self.finish(group)
        return group

    def finish(self, group: LogGroup) -> None:
        self.committer.commit_inline(group)
        for done in self.committer.collect():
            self.log.committed(done)
        if self.committer.error is not None:
            raise self.committer.error

    def close_cleanly(
        self, delivered: dict[int, list[int]], next_seq_ids: dict[int, int] | None = None
    ) -> None:
        self.finish(self.log.close_cleanly(delivered, next_seq_ids))
        self.committer.close()

    def seq_ids(self, queue_id: int) -> list[int]:
        return [one.seq_id for one in self.recovered[queue_id].messages]
