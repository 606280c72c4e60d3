"""The publishing side of one NSQ connection: runs go to topics, answers return in order.

    PublishRun ─► topics.publish ─► journal position ─► Answer ─► OK, when it is on disk
    any other answer ────────────────────────────────────┘   at once, but never out of turn

NSQ's answers carry nothing that says which command they belong to, so they leave in the order of
the commands: an answer waits behind those before it.  ``OK`` waits until the journal is on disk as
far as its messages need, and until other nodes have said that they have theirs; in fast mode it
does not.  Where such a node is lost the answer is ``E_PUB_FAILED`` (or as the command is called).

While publishers are held (an alarm, or no credit), runs wait here with the place of their answer;
what consumers send goes on.  What waits is counted as held, answers too, so that a client that goes
on sending is not read any more at last.
"""

from collections import deque
from time import perf_counter_ns
from typing import Final, final

from mypy_extensions import i64

from penstock.broker.topology.topics import Topic
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm, all_done, any_lost
from penstock.core.counting.traffic import Traffic
from penstock.core.credit import cost_of
from penstock.core.errors import BrokerError, NotFound
from penstock.core.pending import Pending
from penstock.protocols.nsq.codec.commands import BadCommand, PublishRun
from penstock.protocols.nsq.codec.frames import OK, error_frame
from penstock.protocols.nsq.shared import NsqShared
from penstock.runtime.publish_credit import PublishCredit
from penstock.runtime.session import Session

NO_WAITS: Final[list[PendingConfirm]] = []
HELD: Final[i64] = 1 << 62
"""As a position: what it answers has not been done yet."""
HELD_MESSAGE_BYTES: Final[i64] = 256
"""What a message that is held takes besides its body."""
HELD_ANSWER_BYTES: Final[i64] = 128
"""And what an answer takes that waits, besides its bytes."""


@final
class Answer:
    """What is to be said when the journal is on disk so far."""

    def __init__(
        self, position: i64, frames: bytes, last: bool = False, held_bytes: i64 = 0
    ) -> None:
        self.position: i64 = position
        self.frames = frames
        self.last: bool = last  # nothing is said after it
        self.held_bytes: i64 = held_bytes  # as which it is counted
        self.waits: list[PendingConfirm] = NO_WAITS
        self.verb: str = ""

    def wait_for(self, waits: list[PendingConfirm], verb: str) -> None:
        """Other nodes have to confirm it too."""
        self.waits = waits
        self.verb = verb

    def published(self, position: i64, frames: bytes) -> None:
        """Its run was held, and is published now."""
        self.position = position
        self.frames = frames

    def failed(self, frames: bytes) -> None:
        """An error is said in its place, and nothing after it."""
        self.frames = frames
        self.last = True

    def confirmed(self) -> bool:
        """Have other nodes answered?  One of them may have been lost."""
        if not all_done(self.waits):
            return False
        if any_lost(self.waits):
            text = f"{self.verb} failed: the node of a channel was lost"
            self.failed(error_frame(f"E_{self.verb}_FAILED", text))
        self.waits = NO_WAITS
        return True


@final
class NsqPublishing(PublishCredit):
    """Of one session."""

    def __init__(self, session: Session, shared: NsqShared, traffic: Traffic) -> None:
        super().__init__(session, shared.broker.flow, session)
        self.traffic = traffic
        self.counts: dict[str, int] = {}  # messages by topic, for an operator who watches
        self._shared = shared
        self._broker = shared.broker
        self._waits: list[PendingConfirm] = NO_WAITS  # of the run that was just published
        self._answers: deque[Answer] = deque()
        self._held: deque[tuple[PublishRun, Answer]] = deque()

    # -- answers ---------------------------------------------------------------------------

    def answer(self, position: i64, frames: bytes) -> None:
        """Say it in its turn; position 0 = nothing has to be on disk for it."""
        if len(self._answers) == 0 and position <= self._broker.engine.journal.durable_position:
            self._session.out.write(frames)
            return
        held_bytes: i64 = 0
        if position == 0:  # nothing else limits how many there are
            held_bytes = HELD_ANSWER_BYTES + len(frames)
            self.count_held(held_bytes)
        self._answers.append(Answer(position, frames, False, held_bytes))

    def finish(self, frames: bytes) -> None:
        """Say it in its turn, and nothing after it."""
        self._answers.append(Answer(0, frames, True))

    def flush(self) -> bool:
        """Say what may be said by now; True when the last word was said."""
        durable_position = self._broker.engine.journal.durable_position
        answers = self._answers
        while len(answers) > 0 and answers[0].position <= durable_position:
            if len(answers[0].waits) > 0 and not answers[0].confirmed():
                return False
            answer = answers.popleft()
            self._session.out.write(answer.frames)
            if answer.held_bytes > 0:
                self.count_held(-answer.held_bytes)
            if answer.last:
                return True
        return False

    def all_said(self) -> bool:
        return len(self._answers) == 0

    def awaits_disk(self) -> bool:
        return len(self._answers) > 0 and self._answers[0].position != HELD

    # -- publishing ------------------------------------------------------------------------

    def has_held(self) -> bool:
        return len(self._held) > 0

    def hold(self, run: PublishRun) -> None:
        """Not now; its answer keeps its place."""
        answer = Answer(HELD, b"")
        self._answers.append(answer)
        self._held.append((run, answer))
        self.count_held(_held_bytes(run))

    def publish_held(self, vhost: Vhost, now_ms: WallMs) -> None:
        """What was held, as far as it goes."""
        while len(self._held) > 0 and self._session.gate == "" and self.credit.balance > 0:
            run, answer = self._held.popleft()
            self.count_held(-_held_bytes(run))
            try:
                answer.published(self._publish(vhost, run, now_ms), _oks(run.answers))
                self._note_waits(answer, run)
            except BadCommand as wrong:
                answer.published(0, b"")
                answer.failed(error_frame(wrong.code, wrong.text))
                self.drop_held()

    def publish(self, vhost: Vhost, run: PublishRun, now_ms: WallMs) -> None:
        """Raises BadCommand."""
        position = self._publish(vhost, run, now_ms)
        if len(self._waits) > 0:
            answer = Answer(position, _oks(run.answers))
            self._note_waits(answer, run)
            self._answers.append(answer)
        else:
            self.answer(position, OK if run.answers == 1 else _oks(run.answers))

    def _note_waits(self, answer: Answer, run: PublishRun) -> None:
        if len(self._waits) > 0:
            answer.wait_for(self._waits, run.verb)
            self._waits = NO_WAITS

    def _publish(self, vhost: Vhost, run: PublishRun, now_ms: WallMs) -> i64:
        """Returns the position its answer waits for; raises BadCommand."""
        count: i64 = len(run.messages)
        cost = cost_of(count, run.size_bytes)
        self.take(cost)
        try:
            topic = vhost.topics.topics.get(run.topic)
            if topic is None:
                topic = _new_topic(vhost, run.topic)
            position = self._enqueue(vhost, topic, run, cost, now_ms)
        except BrokerError as error:
            code = f"E_{run.verb}_FAILED"
            raise BadCommand(code, f"{run.verb} failed {error}") from None
        self._broker.budgets.spend(vhost, count)
        self.counts[run.topic] = self.counts.get(run.topic, 0) + int(count)
        fast = topic.is_fast(self._shared.fast)
        if len(self._broker.waits.noted) > 0:
            waits = self._broker.waits.take()
            self._waits = NO_WAITS if fast else waits
        return 0 if fast else position

    def _enqueue(
        self, vhost: Vhost, topic: Topic, run: PublishRun, cost: i64, now_ms: WallMs
    ) -> i64:
        broker = self._broker
        flow = broker.flow
        store = broker.engine.store
        queues = vhost.topics.route(topic)
        count_published(self.traffic, topic, len(run.messages), len(queues))
        stored = store.unsealed_bytes
        since = perf_counter_ns() if flow.measuring else 0
        position: i64 = 0
        if run.until_ms > 0:
            position = vhost.topics.publish_deferred(
                topic, run.messages, run.size_bytes, run.until_ms, now_ms
            )
        else:
            position = vhost.topics.publish(topic, run.messages, run.size_bytes, now_ms)
        if flow.measuring:
            flow.count_publishing(perf_counter_ns() - since)
        stored = store.unsealed_bytes - stored
        if flow.enabled and len(queues) > 0 and flow.must_charge(queues, stored):
            self.charge(queues, cost, position > 0, stored)
        return position

    def drop_held(self) -> None:
        while len(self._held) > 0:
            run, _ = self._held.popleft()
            self.count_held(-_held_bytes(run))

    def close(self) -> None:
        """The connection is over; what was held was never answered."""
        self.drop_held()
        for answer in self._answers:
            self.count_held(-answer.held_bytes)
        self._answers.clear()
        self.give_up()


def count_published(traffic: Traffic, topic: Topic, count: i64, queue_count: i64) -> None:
    """For an operator who watches: so many messages to so many channels.  Each is answered."""
    traffic.publish(count, True)
    traffic.confirm(count)
    traffic.route(count * queue_count)
    topic.exchange.traffic.count(count, count * queue_count)


def _new_topic(vhost: Vhost, name: str) -> Topic:
    """In the place of one that is gone since its publish was held."""
    topic = vhost.topics.topic(name)
    if isinstance(topic, Pending):  # it cannot be waited for here: others hold the places behind
        raise NotFound(f"topic '{name}' is gone")
    return topic


def _held_bytes(run: PublishRun) -> i64:
    return run.size_bytes + HELD_MESSAGE_BYTES * len(run.messages)


def _oks(count: i64) -> bytes:
    return OK * int(count)
