"""Synchronisation: a mirror gets the messages from before it joined, while the queue goes on.

Two quiet objects.  The mirror's ``Joiner`` asks, chunk after chunk
(``MirrorGroup`` drives both); the master's ``Syncer`` answers
each question with one chunk, straight to the mirror and not round the ring.  Nothing is taken from
the queue, nothing waits for the mirror, and no more than one chunk is on its way: the next question
comes when the last chunk is on the mirror's disk.

    question   "I know nothing of [low, upto).  Of it I have these places, from before."
    chunk      "As of parcel ``number``, this is how [low, upto) differs."

A chunk's operations are those of a parcel: 'A' what the mirror has and the master has not, 'P' what
it lacks, 'L' and 'E' what is delayed or was counted of the rest.  Its ``low`` may be above the
question's: then it was enough for once.  ``next``: no parcel up to that number reached that place.
``left``: about how many messages there are below.

**From the newest to the oldest.**  Each chunk lies below all that the mirror has, so it goes to the
front of a queue without consumers, which is cheap at any length; the other way round each
chunk would land in the middle.  And what consumers take meanwhile is the oldest: it need not be
sent at all.  So a synchronisation ends, however fast the queue is: it sends at most what was there
when it began.

**Why order does not matter.**  The mirror hears every parcel; a chunk comes by another way, sooner
or later.  Let S(n) be the master's set as parcel n leaves it, M the last parcel the mirror applied,
C the set it has, K the places it knows.  Claim: at every place p in K, C agrees with S(M).

  Parcels keep it.  Parcel M+1 says everything in which S(M+1) differs from S(M).  At p in K it is
  done to C as it was to S.  At p outside K a publish makes p known, with what was published: right.
  An end makes p known, with nothing there: right, for an ended place never lives again (K5).
  Delays and attempts outside K are remembered, the last for each place.

  A chunk of [low, upto) as of N is held back until M >= N, and then done.  At p in K it does
  nothing.  At p outside K, p was neither published nor ended by a parcel that the mirror heard.
  All parcels N+1 to M were heard, so p lives in S(M) exactly if it does in S(N), which the chunk
  says; its delay and attempts are those of S(N) but for parcels N+1 to M, and what these said is
  remembered, and comes after.  (Something from before N may be remembered too: then the chunk has
  the same, or nothing newer was said.)  So p agrees, and [low, upto) may be added to K.

  Held back until M >= N, because a master may die between: what its last parcels did may never
  have been told to any member, so a chunk that knows of it would lie about its successor's set.  A
  chunk that was not done when the master died is dropped; K stays, for the successor's set is
  S(M) too (K6).  So a synchronisation goes on where it was, with another master.  (But not with
  one that came back with what its disk had: then this copy is lost, see replica.py.)

  K is everything: C = S(M).  The mirror says so when that is on its disk.

**Hearing the first parcel.**  A mirror that asks before it has heard any parcel cannot know what
is under way to it.  So the master sends an empty one, and answers as of that or a later one.

**A copy that returns** says which places it has, in at most some thousand ranges at a time.  A
number means one message for ever (K5), so what both have is the same message.  Of its attempts the
record on the mirror's disk may know fewer than the master's: those are not read to be compared.

Rejected: a snapshot first and parcels afterwards (memory for all that happens meanwhile); blocking
the queue, as RabbitMQ does; ranges of everything at the beginning (their number has no bound).

Invariants (``check``):
  Y1  one question is under way, or one chunk held back, never both
"""

from typing import Final, final

from librt.strings import write_i64_be
from mypy_extensions import i64

from penstock.backing.variable_queue import VariableQueue
from penstock.cluster.mirrors.backing import MirroredBacking
from penstock.cluster.mirrors.operations import (
    DELAY,
    END,
    Pieces,
    ranges_of,
    spelled,
    write_counts,
    write_publish,
    write_ranges,
)
from penstock.cluster.mirrors.replica import Replica
from penstock.cluster.mirrors.stream_copy import StreamSource
from penstock.cluster.mirrors.sync_codec import (
    CHUNK,
    CHUNK_BYTES,
    Chunk,
    SyncAsk,
    encode_question,
    read_chunk,
    read_question,
    write_head,
)
from penstock.core.byte_reader import Malformed
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.message import Message
from penstock.storage.journal.journal import Journal

WINDOW: Final[i64] = 4096
"""So many places the master looks at in a step, and so many steps it makes for a chunk."""
WINDOWS_MAX: Final[i64] = 32
ASK_AGAIN_MS: Final[i64] = 15_000
"""An answer that has not come by then is not waited for; one that comes later still counts."""


# -- the mirror's side ---------------------------------------------------------------------


@final
class Joiner:
    """Asks until the replica is complete; its owner carries questions and chunks."""

    def __init__(self, replica: Replica, journal: Journal) -> None:
        self.replica: Replica = replica
        self.received_count: i64 = 0
        self.received_bytes: i64 = 0
        self.left: i64 = 0  # messages still to come, about
        self._journal: Journal = journal
        self._term: i64 = replica.term
        self._asked: SyncAsk | None = None
        self._held: Chunk | None = None
        self._asked_ms = MonoMs(0)
        self._done_position: i64 = -1  # of the journal, behind the last chunk; -1 = none waits

    def next_question(self) -> bytes | None:
        """What to ask now; None = nothing, or not yet."""
        if self._term != self.replica.term:
            self.cancel()
        if self.replica.is_lost or not self.replica.is_ready:
            return None
        if self._asked is not None or self._held is not None:
            return None
        if self._done_position > self._journal.durable_position:
            return None
        self._done_position = -1
        for part in range(len(self.replica.parts)):
            asked = self.replica.parts[part].question(self.replica.term, self.replica.number, part)
            if asked is not None:
                self._term = self.replica.term
                self._asked = asked
                return encode_question(asked)
        return None

    def ask(self, now_ms: MonoMs) -> bytes | None:
        """As ``next_question``; one whose answer does not come is asked again.

        It, or its answer, may have been for another joining of this member.
        """
        question = self.next_question()
        if question is None and self.is_waiting() and now_ms - self._asked_ms > ASK_AGAIN_MS:
            self.cancel()
            question = self.next_question()
        if question is not None:
            self._asked_ms = now_ms
        return question

    def is_waiting(self) -> bool:
        """For an answer."""
        return self._asked is not None

    def awaits_disk(self) -> bool:
        """The last chunk is not on it."""
        return self._done_position > self._journal.durable_position

    def cancel(self) -> None:
        """The link is gone, or the master: what is on its way does not count."""
        self._asked = None
        self._held = None

    def take_chunk(self, data: bytes) -> None:
        """One that is no longer waited for is dropped."""
        chunk = read_chunk(data)
        asked = self._asked
        if asked is None or self._is_past(chunk) or chunk.part != asked.part:
            return
        if chunk.upto != asked.upto or chunk.low < asked.low:
            return  # it answers a question that was cancelled
        self._asked = None
        self._held = chunk
        self.received_bytes += len(data)
        self.advance()

    def advance(self) -> None:
        """A parcel was applied: the chunk that was held back may be done now."""
        chunk = self._held
        if chunk is None:
            return
        if self._is_past(chunk):
            self._held = None
        elif chunk.number <= self.replica.number:
            self._held = None
            self.received_count += self.replica.parts[chunk.part].cover(chunk)
            self.left = chunk.left
            self._done_position = self._journal.position

    def _is_past(self, chunk: Chunk) -> bool:
        """Of another master; or not needed any more."""
        return chunk.term != self.replica.term or self.replica.is_lost

    def is_done(self) -> bool:
        """Everything is here, and on the disk."""
        if not self.replica.is_complete() or not self.replica.is_durable():
            return False
        return self._done_position <= self._journal.durable_position

    def check(self) -> None:
        """Assert Y1."""
        assert self._asked is None or self._held is None, "Y1"


# -- the master's side ---------------------------------------------------------------------


@final
class Syncer:
    """Answers one mirror; ``batch_messages`` is the queue's ``ha-sync-batch-size``."""

    def __init__(self, mirrored: MirroredBacking, batch_messages: i64, now_ms: MonoMs) -> None:
        self.sent_count: i64 = 0
        self.sent_bytes: i64 = 0
        self.looked_count: i64 = 0  # messages compared or sent
        self.left: i64 = 0  # messages below, about, when the last chunk was made
        self._mirrored: MirroredBacking = mirrored
        self._source: StreamSource | None = None
        if mirrored.stream is not None:
            self._source = StreamSource(mirrored.stream)
        self._batch: i64 = batch_messages
        self._began_ms: MonoMs = now_ms
        self._question: SyncAsk | None = None
        self._part: i64 = -1  # of the last chunk
        self._below: i64 = 0  # messages of this part below it, about

    def ask(self, data: bytes) -> None:
        """A question has come.  Of a mirror that has heard nothing yet it begins a parcel."""
        question = read_question(data)
        if question.part >= max(len(self._mirrored.parts), 1):
            raise Malformed(f"the queue has no part {int(question.part)}")
        if question.term != self._mirrored.term:
            return  # for another master, or from before the mirror heard of this one
        self._question = question
        if question.number == 0:
            self._mirrored.parcel()

    def cancel(self) -> None:
        self._question = None
        if self._source is not None:
            self._source.close()

    def has_question(self) -> bool:
        return self._question is not None

    def is_reading(self) -> bool:
        """Of a stream: the answer is on its way from the disk."""
        return self._source is not None and self._question is not None

    def take_chunk(self) -> bytes | None:
        """To be sent to the mirror; call it in a turn right after ``take_operations``.

        None = there is no question, or the answer is not read yet, or the queue has a fault: then
        it cannot be copied.
        """
        question = self._question
        if question is None:
            return None
        assert not self._mirrored.has_operations()
        if self._source is not None:
            return self._chunk_of(self._source, question)
        self._question = None
        chunk = _Answer(self._mirrored, question, self._batch)
        chunk.look()
        left = self._left_behind(question, chunk)
        data = chunk.encode(left)
        if data is None:
            return None
        self.looked_count += chunk.looked_count
        self.sent_count += len(chunk.messages)
        self.sent_bytes += len(data)
        self.left = left
        return data

    def _chunk_of(self, source: StreamSource, question: SyncAsk) -> bytes | None:
        messages = source.read(question.low)
        if messages is None:
            return None
        self._question = None
        self.looked_count += len(messages)
        self.sent_count += len(messages)
        self.left = source.left_behind(messages, question.low)
        data = source.encode(messages, question, self._mirrored.number, self.left)
        self.sent_bytes += len(data)
        return data

    # -- progress --------------------------------------------------------------------------

    def _left_behind(self, question: SyncAsk, chunk: "_Answer") -> i64:
        """Messages to be looked at behind this chunk: below it, and in the parts that follow.

        What is published meanwhile comes without being asked for, what is consumed goes from the
        front: so what is below is what was, less what was looked at, and no more than there is.
        """
        part = question.part
        queue = self._mirrored.parts[part]
        if part != self._part:
            self._part = part
            self._below = _count(queue)
        self._below -= chunk.looked_count
        there = _count(queue) - chunk.looked_count
        if self._below > there:
            self._below = there
        if self._below < 0 or queue.copies.last_place(chunk.low) < 0:
            self._below = 0
        left = self._below
        for other in self._mirrored.parts[int(part) + 1 :]:
            left += _count(other)
        return left

    def rate(self, now_ms: MonoMs) -> i64:
        """Messages per second since it began."""
        passed_ms = now_ms - self._began_ms
        return self.looked_count * 1000 // passed_ms if passed_ms > 0 else 0

    def eta_ms(self, now_ms: MonoMs) -> i64:
        """How much longer it takes at the present rate; -1 = not known yet."""
        passed_ms = now_ms - self._began_ms
        if self.left == 0:
            return 0
        return self.left * passed_ms // self.looked_count if self.looked_count > 0 else -1


def _count(queue: VariableQueue) -> i64:
    return queue.ready_count() + queue.tiers.pending.count + queue.tiers.delayed.count()


@final
class _Answer:
    """One chunk in the making."""

    def __init__(self, mirrored: MirroredBacking, question: SyncAsk, batch: i64) -> None:
        self.low: i64 = question.upto
        self.messages: list[Message] = []
        self.looked_count: i64 = 0
        self._mirrored: MirroredBacking = mirrored
        self._queue: VariableQueue = mirrored.parts[question.part]
        self._question: SyncAsk = question
        self._have: set[int] = set(spelled(question.have))
        self._kept: list[int] = []  # both have these, highest stretch first
        self._room: i64 = batch
        self._bytes_left: i64 = CHUNK_BYTES

    def look(self) -> None:
        """Downwards, step by step, until it is enough."""
        queue, question = self._queue, self._question
        for _ in range(WINDOWS_MAX):
            upto = queue.copies.last_place(self.low) + 1
            if upto <= question.low:
                self.low = question.low
                break
            start = upto - WINDOW if upto - WINDOW > question.low else question.low
            places = queue.copies.places(start, upto)
            lacking = [seq_id for seq_id in places if seq_id not in self._have]
            is_enough = len(lacking) > 0 and not self._read(lacking)
            if is_enough and self.messages:
                start = self.messages[0].seq_id
            self._kept.extend([one for one in places if one >= start and one in self._have])
            self.low = start
            if is_enough:
                break
        self.looked_count = len(self.messages) + len(self._kept)

    def _read(self, lacking: list[int]) -> bool:
        """Those of them that there is room for, from the end; True = there is more room."""
        wanted = lacking
        if len(wanted) > self._room:
            wanted = wanted[len(wanted) - self._room :]
        found = self._queue.copies.messages_at(wanted, self._bytes_left)
        self.messages = found + self.messages
        self._room -= len(found)
        for message in found:
            self._bytes_left -= message.size
        return len(found) == len(lacking) and self._room > 0 and self._bytes_left > 0

    def encode(self, left: i64) -> bytes | None:
        """``left``: see sync_codec.py; None = what should be told cannot be read."""
        if self._queue.why_stopped() != "":
            return None
        question, mirrored = self._question, self._mirrored
        pieces = Pieces()
        writer = pieces.writer
        writer.append(CHUNK)
        write_head(writer, mirrored.term, mirrored.number, question.part, self.low, question.upto)
        write_i64_be(writer, self._queue.records.next_seq_id)
        write_i64_be(writer, left)
        kept = sorted(self._kept)
        living = set(kept)
        gone = [one for one in self._have if one >= self.low and one not in living]
        write_ranges(writer, END, question.part, WallMs(0), ranges_of(sorted(gone)))
        self._write_messages(pieces)
        if kept:
            for seq_id, until_ms in self._queue.copies.delays_at(kept):
                write_ranges(writer, DELAY, question.part, until_ms, [(seq_id, seq_id + 1)])
            write_counts(writer, question.part, self._queue.copies.attempts_at(kept))
        return pieces.joined()

    def _write_messages(self, pieces: Pieces) -> None:
        if not self.messages:
            return
        seq_ids = [int(message.seq_id) for message in self.messages]
        delays = dict(self._queue.copies.delays_at(seq_ids))
        by_time: dict[WallMs, list[Message]] = {}
        for message in self.messages:
            until_ms = delays.get(int(message.seq_id), WallMs(0))
            by_time.setdefault(until_ms, []).append(message)
        for until_ms, messages in by_time.items():
            write_publish(pieces, self._question.part, until_ms, messages)
