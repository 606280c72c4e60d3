"""The publishing side of one channel: runs go to queues, confirms come back.

    PublishRun ─► vhost.route ─► vhost.publish ─► journal position ─► confirms
                     (or kept until tx.commit)

Messages whose way depends on more than their address (headers, CC, BCC) are opened and routed
one by one; all others of a run go together.

In confirm mode every publish is answered when it is safe; in tx mode every commit is, by
the same count: a channel is in one of them or in neither, for as long as it lives.

Raises ``BrokerError`` for the session to turn into a close.
"""

from functools import partial
from time import perf_counter_ns
from typing import Final, cast, final

from mypy_extensions import i64

from penstock.broker.broker import UNSTAMPED
from penstock.broker.rules.confirms import ConfirmLedger
from penstock.broker.topology.routes import (
    COPY_STEPS,
    Route,
    any_refuses,
    are_histories,
    count_published,
    waits,
)
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs
from penstock.core.confirm_watermark import PendingConfirm
from penstock.core.counting.traffic import Traffic
from penstock.core.credit import cost_of
from penstock.core.errors import PreconditionFailed, Unavailable, Undecided
from penstock.core.long_work import AT_ONCE, FREEING_STEPS, LongWork
from penstock.core.message import ASKS_REPLY, COPIES, Address, Message
from penstock.core.pending import Pending, Ticket
from penstock.core.steps import STEPS_MAX, steps
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.encoder import short_bytes, write_ack, write_nack, write_return
from penstock.protocols.amqp.codec.events import PublishRun
from penstock.protocols.amqp.codec.properties import body_of
from penstock.protocols.amqp.codec.routing_facts import BCC, routing_facts
from penstock.protocols.amqp.copies import check_copies, copy_keys, without_its_bcc
from penstock.protocols.amqp.deadlines import EXTEND_KEY, Deadlines
from penstock.protocols.amqp.firehose import trace_publishes
from penstock.protocols.amqp.link import Link
from penstock.protocols.amqp.publish_buffer import PublishBuffer
from penstock.protocols.amqp.replies import ReplyChannel
from penstock.protocols.amqp.spans import note_publishes
from penstock.protocols.amqp.stamping import stamped
from penstock.protocols.amqp.wide_publish import QUEUES_AT_ONCE, WidePublish
from penstock.routing.matcher import RoutingContext

NO_ROUTE: Final[i64] = 312
RUN_STEPS: Final[i64] = 4
"""Of each run that a commit publishes."""
PUBLISH_STEPS: Final[i64] = 40
"""And of each message."""
_NO_ROUTE_TEXT: Final = short_bytes("NO_ROUTE")
_NONE: Final[set[int]] = set()

Taken = tuple[i64, set[int]]
"""The journal position that makes a run safe, 0 = nothing was logged; the places in the run of the
messages that some queue had no room for."""


@final
class Forgetting(LongWork):
    """Frees what was held for a commit."""

    def __init__(self, held: list[PublishRun]) -> None:
        self._held = held

    def step(self) -> bool:
        left = AT_ONCE
        while len(self._held) > 0 and left > 0:
            left -= len(self._held.pop().messages)
        steps.count(FREEING_STEPS * (AT_ONCE - left))
        return len(self._held) > 0


@final
class Publishing:
    """Of one channel."""

    def __init__(
        self,
        link: Link,
        number: i64,
        intake: PublishBuffer,
        replies: ReplyChannel,
        deadlines: Deadlines,
        traffic: Traffic,
    ) -> None:
        self.link = link
        self.vhost: Final[Vhost] = link.vhost
        self.number: i64 = number
        self.intake = intake
        self.replies = replies
        self.deadlines = deadlines
        self.traffic = traffic
        self.spans: Final = link.broker.queue_context.sampling.spans
        self.confirms: ConfirmLedger | None = None
        self.transactional: bool = False
        self._held: list[PublishRun] = []  # until the commit
        self._held_bytes: i64 = 0
        self.held_count: i64 = 0  # messages
        self._commit_waits: list[PendingConfirm] = []
        self.rest: PublishRun | None = None
        self._ticket: Ticket | None = None

    # -- modes ---------------------------------------------------------------------------

    def select_confirms(self) -> None:
        if self.transactional:
            raise PreconditionFailed("cannot switch from tx to confirm mode")
        if self.confirms is None:
            self.confirms = ConfirmLedger()

    def select_transactions(self) -> None:
        if self.transactional:
            return
        if self.confirms is not None:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        self.confirms = ConfirmLedger()
        self.transactional = True

    # -- publishing ----------------------------------------------------------------------

    def publish(self, run: PublishRun, route: Route) -> bool:
        """Enqueue; True when confirms may now be written.

        What this turn had no time for is taken by ``take_rest``, and published in another one.
        """
        link = self.link
        count: i64 = len(run.messages)
        if not run.resumed:
            self.traffic.publish(count, self.confirms is not None and not self.transactional)
            budget = self.vhost.budget
            budget.allowance -= count
            if budget.allowance <= 0:
                link.broker.budgets.spent(self.vhost)
            if route.topic is not None:
                count_published(route.topic, run.messages)
            if link.stamping != UNSTAMPED:
                run.replace(stamped(run.messages, link.now_ms, link.stamping))
            if run.flags & ASKS_REPLY:
                run.replace(self.replies.name_in(run.messages))
        if self.transactional:
            if run.flags & COPIES:
                check_copies(run.messages)
            self._keep(run)
            return False
        position, refused = self._enqueue(route, run)
        count = len(run.messages)
        if count == 0:
            return False
        confirms = self.confirms
        if len(link.broker.waits.noted) > 0:
            self._confirm_away(count, position, refused)
        elif len(refused) > 0:
            self._confirm_some(count, position, refused)
        elif confirms is not None:
            durable_position = link.broker.engine.journal.durable_position
            confirms.published(count, position, durable_position, link.now_ms)
        return confirms is not None

    def _enqueue(self, route: Route, run: PublishRun) -> Taken:
        """What a copy on another node has to confirm, too, is in ``broker.waits.noted``."""
        link = self.link
        read_ms = run.read_ms
        if read_ms != link.now_ms:
            run.enter(link.now_ms)
        if run.first is None and (route.needs_headers or run.flags & COPIES):
            return self._publish_singly(route, run, read_ms)
        if run.first is not None or len(route.queues) > QUEUES_AT_ONCE:
            return self._publish_widely(route, run, read_ms)
        if len(route.queues) > 1:
            self._leave_rest(run, len(route.queues) - 1)
        messages = run.messages
        passed = len(messages) * len(route.queues)
        route.traffic.count(len(messages), passed)
        if self.vhost.tracing:
            trace_publishes(link, self.number, run.address, [], messages, route.queues)
        if self.spans.on:
            note_publishes(link, run.address, messages, route.queues, read_ms)
        if len(route.queues) == 0:
            self._unrouted(run.address, messages)
            return 0, _NONE
        self.traffic.route(passed)
        store = link.broker.engine.store
        stored = store.unsealed_bytes
        position: i64 = 0
        refused = _NONE
        flow = link.broker.flow
        since = perf_counter_ns() if flow.measuring else 0
        if route.refuses:
            position, refused = self.vhost.publish_some(route.queues, messages, link.now_ms)
        else:
            position = self.vhost.publish(route.queues, messages, link.now_ms)
        if flow.measuring:
            flow.count_publishing(perf_counter_ns() - since)
        stored = store.unsealed_bytes - stored
        if flow.enabled and flow.must_charge(route.queues, stored):
            cost = cost_of(len(messages), run.size_bytes)
            self.intake.charge(route.queues, cost, position > 0, stored)
        return position, refused

    def _publish_widely(self, route: Route, run: PublishRun, read_ms: WallMs) -> Taken:
        """The first message to some of its queues; with the last of them it is out of the run."""
        link = self.link
        wide = None if run.first is None else cast(WidePublish, run.first)
        if wide is None:
            messages, queues = run.messages[:1], route.queues
            wide = WidePublish(messages[0], queues)
            route.traffic.count(1, len(queues))
            self.traffic.route(len(queues))
            if self.vhost.tracing:
                trace_publishes(link, self.number, run.address, [], messages, queues)
            if self.spans.on:
                note_publishes(link, run.address, messages, queues, read_ms)
        store, flow = link.broker.engine.store, link.broker.flow
        stored = store.unsealed_bytes
        before = wide.position
        there = wide.publish(self.vhost, link.now_ms)
        stored = store.unsealed_bytes - stored
        if flow.enabled and flow.must_charge(there, stored):
            cost = cost_of(1, run.messages[0].size)
            self.intake.charge(there, cost, wide.position > before, stored)
        if not wide.is_over():
            self.rest = run.rest(0, wide)
            steps.count(STEPS_MAX)  # the next turn goes on
            return 0, _NONE
        if len(run.messages) > 1:
            self.rest = run.rest(1)
            steps.count(STEPS_MAX)
        link.broker.waits.note(wide.waits)
        return wide.position, {0} if wide.refused else _NONE

    def _leave_rest(self, run: PublishRun, copies: i64) -> None:
        """What this turn has no time for, at so many copies of each message."""
        most = 1 + self.link.steps_left() // (copies * COPY_STEPS)
        if len(run.messages) > most:
            self.rest = run.rest(most)

    def _confirm_away(self, count: i64, position: i64, refused: set[int]) -> None:
        """Some of the run has gone to other nodes."""
        waits = self.take_waits()
        confirms = self.confirms
        if confirms is None:
            return
        first = confirms.last_number + 1
        durable_position = self.link.broker.engine.journal.durable_position
        confirms.published_away(count, position, durable_position, self.link.now_ms, waits)
        for place in sorted(refused):
            confirms.deny(first + place)

    def take_waits(self) -> list[PendingConfirm]:
        """Raises Unavailable where the publisher is to go to another node."""
        waits = self.link.broker.waits.take()
        for wait in waits:
            if wait.away_text != "":
                raise Unavailable(wait.away_text)
        return waits

    def _confirm_some(self, count: i64, position: i64, refused: set[int]) -> None:
        """A publisher with confirms is told which messages the queues took."""
        confirms = self.confirms
        if confirms is None:
            return
        link = self.link
        durable_position = link.broker.engine.journal.durable_position
        for place in range(count):
            if place not in refused:
                confirms.published(1, position, durable_position, link.now_ms)
                continue
            alone = confirms.unconfirmed_count() == 0  # else "up to" would say no to others
            confirms.refuse()
            write_nack(link.session.out, self.number, confirms.last_number, alone)

    def _unrouted(self, address: Address, messages: list[Message]) -> None:
        """No queue takes it; a consumer of direct replies may, and is not counted."""
        answered = False
        if address.exchange == "":
            answered = self.link.broker.replies.publish([address.routing_key], messages)
            if address.routing_key == EXTEND_KEY:
                mono_ms = self.link.broker.idleness.now_ms
                for message in messages:
                    self.deadlines.extend(body_of(message.content), mono_ms)
                return
        if address.mandatory:
            self._return(messages)
        elif not answered:
            self.traffic.unroutable(len(messages), False)

    def take_rest(self) -> PublishRun | None:
        """What is left of the last run, because finding routes took long, or ``take_ticket``."""
        rest, self.rest = self.rest, None
        return rest

    def take_ticket(self) -> Ticket | None:
        """What that rest waits for, if it is not time: may the user publish there?"""
        ticket, self._ticket = self._ticket, None
        return ticket

    def _publish_singly(self, route: Route, run: PublishRun, read_ms: WallMs) -> Taken:
        """Message by message, each opened; raises PreconditionFailed for a wrong CC or BCC.

        Those for which this turn has no time are no longer in the run (``take_rest``).
        """
        link = self.link
        address, messages = run.address, run.messages
        flow = link.broker.flow
        store = link.broker.engine.store
        position: i64 = 0
        refused: set[int] = set()
        for place in range(len(messages)):
            if place > 0 and link.has_routed_enough():
                self.rest = run.rest(place)
                break
            message = messages[place]
            facts = routing_facts(message.content)
            context = RoutingContext(facts, link.now_ms)
            copies = copy_keys(facts)
            queues = route.queues
            if route.needs_headers or copies:
                try:
                    queues = link.reached(address, context, copies)
                except Undecided as undecided:
                    self.rest, self._ticket = run.rest(place), undecided.ticket
                    break
            if BCC in facts and not waits(queues):
                message = without_its_bcc(message)
            if self.vhost.tracing:
                trace_publishes(link, self.number, address, copies, [message], queues)
            if self.spans.on:
                note_publishes(link, address, [message], queues, read_ms)
            answered = (len(queues) == 0 or copies) and self._answer(address, copies, message)
            if are_histories(queues):
                if address.mandatory:
                    self._return([message])
                elif not answered:
                    self.traffic.unroutable(1, False)
            if len(queues) == 0:
                continue
            route.traffic.count(0, len(queues))
            self.traffic.route(len(queues))
            stored = store.unsealed_bytes
            at: i64 = 0
            noted = len(link.broker.waits.noted)
            if any_refuses(queues):
                at, over = self.vhost.publish_some(queues, [message], link.now_ms)
                if over:
                    refused.add(place)
            else:
                at = self.vhost.publish(queues, [message], link.now_ms)
            if context.passed is not None and place not in refused:
                context.remember()
            if len(link.broker.waits.noted) > noted:
                for wait in link.broker.waits.noted[noted:]:
                    wait.cover(place, 1)
            stored = store.unsealed_bytes - stored
            if flow.enabled and flow.must_charge(queues, stored):
                self.intake.charge(queues, cost_of(1, message.size), at > 0, stored)
            position = at if at > 0 else position
        route.traffic.count(len(run.messages), 0)
        return position, refused

    def _answer(self, address: Address, copies: list[str], message: Message) -> bool:
        """A consumer of direct replies takes it before the queues, which may drop the content."""
        if address.exchange == "":
            keys = [address.routing_key, *copies]
            return self.link.broker.replies.publish(keys, [message.copy_for_queue()])
        return False

    def _return(self, messages: list[Message]) -> None:
        link = self.link
        self.traffic.unroutable(len(messages), True)
        out, frame_max = link.session.out, link.decoder.frame_max
        for message in messages:
            write_return(out, self.number, NO_ROUTE, _NO_ROUTE_TEXT, message, frame_max)

    def write_confirms(self) -> None:
        """Say "up to N" for everything that has become safe."""
        confirms = self.confirms
        if confirms is None:
            return
        count = confirms.take()
        if self.transactional:
            for _ in range(count):
                self.link.send(self.number, m.TX_COMMIT_OK, [])
            return
        if len(confirms.denied) > 0:
            for number in confirms.take_denied():
                write_nack(self.link.session.out, self.number, number, False)
        if count > 0:
            self.traffic.confirm(count)
            write_ack(self.link.session.out, self.number, confirms.acked, count > 1)

    # -- transactions --------------------------------------------------------------------

    def _keep(self, run: PublishRun) -> None:
        ram = self.link.broker.engine.ram
        if not ram.take_uncommitted(run.size_bytes):
            raise PreconditionFailed(
                f"transactions that are not committed would take more than a quarter of the"
                f" {int(ram.limit_bytes)} bytes there are for messages"
            )
        self._held.append(run)
        self._held_bytes += run.size_bytes
        self.held_count += len(run.messages)

    def rollback(self) -> None:
        self.link.broker.engine.ram.give_back_uncommitted(self._held_bytes)
        self._held_bytes = self.held_count = 0
        held, self._held = self._held, []
        self.link.broker.queue_turns.long_works.start(Forgetting(held))

    def commit(self, place: int = 0) -> bool | Pending:
        """Publish what was held; False when some queue had no room for some of it.

        Finding the routes may take several turns: those below ``place`` are found.  Raises
        ``NotFound`` or ``AccessRefused`` before anything is published, when an exchange or a right
        went away before all had theirs.
        """
        while place < len(self._held):
            if self.link.has_routed_enough():
                return Pending(None, partial(self.commit, place))
            self.link.route(self._held[place].address)
            steps.count(RUN_STEPS)
            place += 1
        return self._publish_held(0, True)

    def _publish_held(self, place: int, all_taken: bool) -> bool | Pending:
        link = self.link
        while place < len(self._held):
            if link.has_routed_enough():
                del self._held[:place]
                return Pending(None, partial(self._publish_held, 0, all_taken))
            run = self._held[place]
            again = partial(self._publish_held, place, all_taken)
            try:
                route = link.route(run.address)
            except Undecided as undecided:
                return Pending(undecided.ticket, again)
            _, refused = self._enqueue(route, run)
            steps.count(RUN_STEPS + PUBLISH_STEPS * len(run.messages))
            self._commit_waits += self.take_waits()
            all_taken = all_taken and not refused
            rest = self.take_rest()
            if rest is None:
                place += 1
                continue
            self._held[place] = rest
            ticket = self.take_ticket()
            if ticket is not None:
                return Pending(ticket, partial(self._publish_held, place, all_taken))
        self.rollback()
        return all_taken

    def take_commit_waits(self) -> list[PendingConfirm]:
        """What other nodes have to confirm of the last commit."""
        waits, self._commit_waits = self._commit_waits, []
        return waits

    def committed(self, position: i64) -> None:
        """The commit is safe, and answered, when the log is durable up to ``position``."""
        durable_position = self.link.broker.engine.journal.durable_position
        confirms = cast(ConfirmLedger, self.confirms)
        confirms.published(1, position, durable_position, self.link.now_ms)

    # -- what is safe by now -------------------------------------------------------------

    def advance(self, durable_position: i64) -> None:
        """The journal is on disk so far."""
        broker = self.link.broker
        confirms = cast(ConfirmLedger, self.confirms)
        confirms.advance(durable_position, broker.events.now_ms, broker.traffic.confirm_times)
        self.write_confirms()
