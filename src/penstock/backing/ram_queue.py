"""``RamQueue``: every message in memory, the persistent ones in the message log as well.

The first backing of Penstock.  Ready messages lie in two runs, both ascending by
``seq_id``:

    returned   came back from a consumer; consumed first
    fresh      never fetched (or unfetched), appended by publish

    fetch ◄── returned ── fresh ◄── publish
                 ▲
              requeue

Invariants (``check``):
  R1  both runs ascend strictly
  R2  every returned seq_id < every fresh seq_id (delivery is from the head, so what
      comes back was published before what was never fetched)
  R3  ready_count and ready_bytes are the sums over both runs
  R4  no ready message is SETTLED
  R5  a pending message that the log holds is in ``pending``, keyed by seq_id
  R6  next_seq_id is above every seq_id here, and below the reservation when durable

A run is a list with a moving head: taking from the front is a slice, giving back what was
taken writes it to its old places, and the dead part is cut off when it is the larger half, so
both ends cost amortised constant time.  Dead places hold no message: its body may be large.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.core.message import LOGGED, PERSISTENT, REDELIVERED, SETTLED, Message
from penstock.storage.message_log import MessageLog

SEQ_IDS_RESERVED: Final[i64] = 1 << 20
"""How many seq_ids a durable queue reserves at once, when half of them are used up.

A reservation must be on disk before the ids are handed out; half of it lasts for longer than
the log goes unsynced, at any rate a queue takes (see ``MessageLog.reserve``)."""
DEAD_HEAD_MIN: Final[i64] = 1024
_GONE: Final = Message(b"", b"", 0, 0)
"""Stands where a message was taken from."""


@final
class _Run:
    """Messages in ascending order with a head that moves."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.head: i64 = 0

    def count(self) -> i64:
        return len(self.messages) - self.head

    def take(self, count: i64) -> list[Message]:
        start = self.head
        taken = self.messages[start : start + count]
        self.head += len(taken)
        size: i64 = len(self.messages)
        if self.head == size:
            self.messages = []
            self.head = 0
        elif self.head >= DEAD_HEAD_MIN and self.head * 2 > size:
            del self.messages[: self.head]
            self.head = 0
        else:
            self.messages[start : self.head] = [_GONE] * len(taken)
        return taken

    def live(self) -> list[Message]:
        return self.messages[self.head :]

    def first_at(self, seq_id: i64) -> i64:
        """Index of the first message with at least this seq_id."""
        low = self.head
        high: i64 = len(self.messages)
        while low < high:
            middle = (low + high) // 2
            if self.messages[middle].seq_id < seq_id:
                low = middle + 1
            else:
                high = middle
        return low

    def merge(self, messages: list[Message]) -> None:
        """Put ascending messages at their places."""
        if len(messages) == 0:
            return
        if self.count() == 0:
            self.messages = messages[:]
            self.head = 0
        elif messages[len(messages) - 1].seq_id < self.messages[self.head].seq_id:
            self.put_back(messages)
        elif messages[0].seq_id > self.messages[len(self.messages) - 1].seq_id:
            self.messages.extend(messages)
        elif len(messages) <= 8 or len(messages) * 64 < self.count():
            for message in messages:
                self.messages.insert(self.first_at(message.seq_id), message)
        else:
            merged = self.live() + messages
            merged.sort(key=_seq_id)
            self.messages = merged
            self.head = 0

    def put_back(self, messages: list[Message]) -> None:
        """Undo a take: the messages were the first of this run."""
        count: i64 = len(messages)
        if count <= self.head:
            self.messages[self.head - count : self.head] = messages
            self.head -= count
        else:
            self.messages = messages + self.live()
            self.head = 0


def _seq_id(message: Message) -> int:
    return int(message.seq_id)


@final
class RamQueue(BackingQueue):
    """Backing of one queue; ``log`` is None when the queue is not durable."""

    def __init__(self, log: MessageLog | None, queue_id: i64) -> None:
        self.queue_id: i64 = queue_id
        self._log = log
        self._returned = _Run()
        self._fresh = _Run()
        self._fetched: _Run = self._fresh  # which of them the last fetch took from
        self._pending: dict[int, Message] = {}
        self._next_seq_id: i64 = 0
        self._reserved_seq_id: i64 = 0
        self._ready_bytes: i64 = 0
        self._expiring: bool = False  # some message here may have a time to die

    def recover(self, messages: list[Message], next_seq_id: i64) -> None:
        """Start from what the log gave back, in ascending order."""
        self._fresh.messages = messages
        self._next_seq_id = next_seq_id
        self._reserved_seq_id = next_seq_id
        for message in messages:
            self._ready_bytes += len(message.content)
            if message.expires_at_ms != 0:
                self._expiring = True

    # -- in ------------------------------------------------------------------------------

    def publish(self, messages: list[Message], now_ms: i64) -> None:
        seq_id = self._next_seq_id
        flags: i64 = 0
        size: i64 = 0
        for message in messages:
            message.seq_id = seq_id
            message.enqueued_at_ms = now_ms
            seq_id += 1
            flags |= message.flags
            size += len(message.content)
            if message.expires_at_ms != 0:
                self._expiring = True
        self._next_seq_id = seq_id
        self._ready_bytes += size
        log = self._log
        if log is not None:
            if seq_id > self._reserved_seq_id - SEQ_IDS_RESERVED // 2:
                self._reserved_seq_id = seq_id + SEQ_IDS_RESERVED
                log.reserve(self.queue_id, self._reserved_seq_id)
            if flags & PERSISTENT:
                log.publish(self.queue_id, messages)
        if len(messages) == 1:
            self._fresh.messages.append(messages[0])
        else:
            self._fresh.messages.extend(messages)

    def requeue(self, messages: list[Message]) -> None:
        ascending = messages
        for i in range(1, len(messages)):
            if messages[i].seq_id < messages[i - 1].seq_id:
                ascending = sorted(messages, key=_seq_id)
                break
        for message in ascending:
            message.flags |= REDELIVERED
            self._ready_bytes += len(message.content)
            if message.flags & LOGGED:
                self._pending.pop(int(message.seq_id), None)
        self._returned.merge(ascending)

    # -- out -----------------------------------------------------------------------------

    def fetch(self, max_messages: i64, max_bytes: i64) -> list[Message]:
        run = self._returned if self._returned.count() > 0 else self._fresh
        taken = run.take(_fitting(run, max_messages, max_bytes))
        self._fetched = run
        size: i64 = 0
        flags: i64 = 0
        for message in taken:
            size += len(message.content)
            flags |= message.flags
        self._ready_bytes -= size
        if flags & LOGGED:
            for message in taken:
                if message.flags & LOGGED:
                    self._pending[int(message.seq_id)] = message
        return taken

    def unfetch(self, messages: list[Message]) -> None:
        for message in messages:
            self._ready_bytes += len(message.content)
            if message.flags & LOGGED:
                self._pending.pop(int(message.seq_id), None)
        # To the run they came from: one that comes back later may belong between the two.
        self._fetched.put_back(messages)

    def ack(self, messages: list[Message]) -> None:
        logged = False
        for message in messages:
            if message.flags & LOGGED:
                logged = True
                self._pending.pop(int(message.seq_id), None)
            message.flags |= SETTLED
        if logged and self._log is not None:
            self._log.ack(self.queue_id, messages)

    def _drop(self, run: _Run, count: i64) -> i64:
        dropped = run.take(count)
        for message in dropped:
            self._ready_bytes -= len(message.content)
        self.ack(dropped)
        return len(dropped)

    def purge(self) -> i64:
        return self._drop(self._returned, self._returned.count()) + self._drop(
            self._fresh, self._fresh.count()
        )

    def delete(self) -> None:
        if self._log is not None:
            self._log.forget_queue(self.queue_id)
        self._returned = _Run()
        self._fresh = _Run()
        self._fetched = self._fresh
        self._pending = {}
        self._ready_bytes = 0

    # -- expiry --------------------------------------------------------------------------

    def expire(self, now_ms: i64) -> i64:
        if not self._expiring:
            return 0
        count = self._drop(self._returned, _expired(self._returned, now_ms))
        if self._returned.count() == 0:
            count += self._drop(self._fresh, _expired(self._fresh, now_ms))
        return count

    def next_expiry_ms(self) -> i64:
        if not self._expiring:
            return 0
        run = self._returned if self._returned.count() > 0 else self._fresh
        if run.count() == 0:
            return 0
        return run.messages[run.head].expires_at_ms

    def may_expire(self) -> bool:
        return self._expiring

    # -- looking -------------------------------------------------------------------------

    def ready_count(self) -> i64:
        return self._returned.count() + self._fresh.count()

    def ready_bytes(self) -> i64:
        return self._ready_bytes

    def next_seq_id(self) -> i64:
        return self._next_seq_id

    def floor_seq_id(self) -> i64:
        if self._returned.count() > 0:
            return self._returned.messages[self._returned.head].seq_id
        if self._fresh.count() > 0:
            return self._fresh.messages[self._fresh.head].seq_id
        return self._next_seq_id

    def read_range(self, start: i64, end: i64, max_messages: i64, max_bytes: i64) -> list[Message]:
        found: list[Message] = []
        size: i64 = 0
        for run in [self._returned, self._fresh]:
            place = run.first_at(start)
            while place < len(run.messages):
                message = run.messages[place]
                if message.seq_id >= end or len(found) >= max_messages:
                    return found
                size += len(message.content)
                if size > max_bytes and len(found) > 0:
                    return found
                found.append(message)
                place += 1
        return found

    def drop_below(self, seq_id: i64) -> i64:
        count: i64 = 0
        for run in [self._returned, self._fresh]:
            count += self._drop(run, run.first_at(seq_id) - run.head)
        return count

    def delivered_seq_ids(self) -> list[int]:
        """Of the ready messages in the log, those a consumer had before (for a clean stop)."""
        return [
            int(message.seq_id)
            for message in self._returned.live() + self._fresh.live()
            if message.flags & REDELIVERED and message.flags & LOGGED
        ]

    def messages_in_file(self, file_no: i64) -> list[Message]:
        """Live messages whose log record is in this file (for compaction)."""
        return [
            message
            for message in [*self._pending.values(), *self._returned.live(), *self._fresh.live()]
            if message.file_no == file_no and message.flags & LOGGED
        ]

    def check(self) -> None:
        last: i64 = -1
        size: i64 = 0
        for message in self._returned.live() + self._fresh.live():
            assert message.seq_id > last, "R1, R2"
            last = message.seq_id
            size += len(message.content)
            assert not message.flags & SETTLED, "R4"
            assert int(message.seq_id) not in self._pending, "R5"
        assert size == self._ready_bytes, "R3"
        assert last < self._next_seq_id, "R6"
        for seq_id, message in self._pending.items():
            assert seq_id == message.seq_id, "R5"
            assert message.flags & LOGGED, "R5"
            assert seq_id < self._next_seq_id, "R6"
        if self._log is not None:
            assert self._next_seq_id <= self._reserved_seq_id, "R6"


def _fitting(run: _Run, max_messages: i64, max_bytes: i64) -> i64:
    """How many of the first messages fit; at least one when there is one."""
    count: i64 = run.count()
    if count > max_messages:
        count = max_messages
    size: i64 = 0
    place: i64 = 0
    while place < count:
        size += len(run.messages[run.head + place].content)
        if size > max_bytes and place > 0:
            return place
        place += 1
    return count


def _expired(run: _Run, now_ms: i64) -> i64:
    """How many of the first messages are over their time."""
    count: i64 = 0
    while count < run.count():
        expires_at_ms = run.messages[run.head + count].expires_at_ms
        if expires_at_ms == 0 or expires_at_ms > now_ms:
            break
        count += 1
    return count
