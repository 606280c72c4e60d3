"""Writing batches: the requests of ``penstock_ranges.staging``, answered by the broker's staging.

    STAGE_BLOCK, PUBLISH ─► AMQP decoder ─► runs ─► judged like publishes of AMQP ─► set, or queues

The decoder is that of AMQP sessions, so a message that gets in here is as sound as any other: its
frames, its properties, who its user-id names, how large it is.  What has no meaning without
a channel is refused: further routing keys (CC, BCC), answers without a queue.  The firehose does
not show what comes this way.

Blocks wait (nothing is answered) while the disk does not keep up, and are not taken while an
alarm or a budget holds publishers: then the peer is told why, and sends them again.
"""

from time import thread_time_ns
from typing import TYPE_CHECKING, ClassVar, Final, final

from penstock.broker.broker import UNSTAMPED, Broker
from penstock.broker.rules.rights import Rights
from penstock.broker.transfers.batch_claims import PENDING, PUBLISHED
from penstock.broker.transfers.producers import Key
from penstock.broker.transfers.staged import FINISHED, GONE, Batch, RunFenced, StagedSet
from penstock.core.clock_types import MonoMs, WallMs
from penstock.core.confirm_watermark import PendingConfirm, all_done, any_lost
from penstock.core.errors import NotFound, PreconditionFailed, Undecided
from penstock.core.message import ASKS_REPLY, COPIES, Address
from penstock.core.steps import steps
from penstock.protocols.amqp.codec.decoder import AmqpDecoder
from penstock.protocols.amqp.codec.encoder import short_bytes
from penstock.protocols.amqp.codec.events import ChannelFailed, ConnectionFailed, Event, PublishRun
from penstock.protocols.amqp.codec.methods import CHANNEL_OPEN, encode_method
from penstock.protocols.amqp.codec.property_scan import ANYBODY
from penstock.protocols.amqp.link import ROUTING_SHARE_NS
from penstock.protocols.amqp.stamping import stamped
from penstock.protocols.ranges.leases import Fenced
from penstock.protocols.ranges.request_handler import RequestHandler
from penstock.queues.queue import Queue
from penstock.routing.steps import RoutingShare
from penstock.storage.journal.journal import Journal
from penstock_ranges import staging as frames
from penstock_ranges.frames import MalformedFrame

if TYPE_CHECKING:
    from penstock.protocols.ranges.session import RangeSession

FRAME_MAX: Final = 131_072
LIST_STEPS: Final = 3
"""Of a byte of a list of staged sets; a name has some five."""
FULL_LOOK_MS: Final = 50
MOVED: Final = "a queue got another master while this was published, which may lack some of it"


@final
class _Judging:
    """A block: ``runs`` may be published, ``events`` are judged next, the last of them first.

    ``patience_ms``: of a PUBLISH; -1 = it belongs to a set.
    """

    def __init__(self, events: list[Event], must_route: bool, patience_ms: int) -> None:
        self.events = events[::-1]
        self.runs: list[PublishRun] = []
        self.must_route = must_route
        self.routed = 0  # messages of the last event that are known to lead somewhere
        self.patience_ms = patience_ms

    def count_routed(self, more: int) -> None:
        self.routed += more

    def take(self, run: PublishRun) -> None:
        """The last event, of which this came, is judged."""
        self.events.pop()
        self.runs.append(run)
        self.routed = 0


@final
class _Publish:
    """A PUBLISH under way: what no queue has taken yet, and how long that may last."""

    def __init__(self, runs: list[PublishRun], deadline_ms: MonoMs) -> None:
        self.runs = runs
        self.deadline_ms = deadline_ms
        self.unroutable = 0
        self.full_at_ms = MonoMs(-FULL_LOOK_MS)
        self.is_doubtful = False  # the user has lost rights since it was judged
        self.position = 0
        self.waits: list[PendingConfirm] = []

    def published(self, count: int, unroutable: int) -> bool:
        """Queues took ``count`` messages of the first run; False: not all."""
        self.unroutable += unroutable
        messages = self.runs[0].messages
        if count < len(messages):
            del messages[:count]
            return False
        self.runs.pop(0)
        return True

    def doubt(self) -> None:
        self.is_doubtful = True

    def wait_for_room(self, now_ms: MonoMs) -> None:
        self.full_at_ms = now_ms

    def is_safe(self, journal: Journal) -> bool:
        """Is all of it on disk, here and where it has to be?"""
        if self.position == 0:
            self.position = int(journal.position)
        return self.position <= journal.durable_position and all_done(self.waits)


@final
class StagingRequests(RequestHandler):
    """One connection's sets, commits and publishes."""

    kinds: ClassVar = frozenset(range(frames.STAGE_BEGIN, frames.TARGET + 1))

    def __init__(self, session: "RangeSession", broker: Broker) -> None:
        super().__init__(session, broker)
        self._decoder: AmqpDecoder | None = None
        self._staged: StagedSet | None = None
        self._max_bytes = 0
        self._must_route = False
        self._ending = False
        self._batch: Batch | None = None
        self._deadline_ms = MonoMs(0)
        # While the disk does not keep up, or the cluster decides who commits.
        self._held: tuple[int, bytes] | None = None
        self._judging: _Judging | None = None
        self._publish: _Publish | None = None
        self._share = RoutingShare()

    @property
    def busy(self) -> bool:
        return (
            self._ending
            or self._batch is not None
            or self._held is not None
            or self._judging is not None
            or self._publish is not None
        )

    @property
    def unfinished_bytes(self) -> int:
        """Of a content whose end is in a block that has not come."""
        return 0 if self._decoder is None else int(self._decoder.unfinished.size_bytes)

    @property
    def awaits_disk(self) -> bool:
        """Before all of a batch is published a sync would be one of many."""
        return (
            self._ending
            or (self._batch is not None and self._batch.is_published())
            or (self._publish is not None and not self._publish.runs)
        )

    def request(self, kind: int, payload: bytes) -> None:
        try:
            self._request(kind, payload)
        except RunFenced as error:
            raise Fenced(str(error)) from None
        except Undecided:
            self._held = (kind, payload)

    def _request(self, kind: int, payload: bytes) -> None:
        staging = self.broker.staging
        if kind == frames.STAGE_BEGIN:
            self._begin(frames.decode_begin(payload))
        elif kind in (frames.STAGE_BLOCK, frames.PUBLISH):
            self._take(kind, payload)
        elif kind == frames.STAGE_END:
            self._end(frames.decode_end(payload))
        elif kind == frames.TXN_COMMIT:
            steps.count(LIST_STEPS * len(payload))
            self._ask_to_commit(payload)
        elif kind == frames.TXN_ABORT:
            steps.count(LIST_STEPS * len(payload))
            count = staging.abort(self.vhost(), self.user().name, frames.decode_abort(payload))
            self.session.send(frames.encode_aborted(count))
        elif kind == frames.TXN_LAST:
            batch = staging.last_batch(self._producer(frames.decode_last(payload)))
            self.session.send(frames.encode_last_batch(batch))
        else:
            self._target(*frames.decode_target(payload))

    def tick(self) -> None:
        self._look()

    def confirm(self, durable_position: int) -> None:
        self._look()

    def rights_changed(self) -> None:
        """A set is judged once more by its commit."""
        super().rights_changed()
        if self._decoder is not None:
            self._decoder.forget_addresses()
            self._name_publisher(self._decoder)
        if self._publish is not None:
            self._publish.doubt()

    def failed(self) -> None:
        self._leave()

    def lost(self) -> None:
        self._leave()

    # -- staging -----------------------------------------------------------------------------

    def _begin(self, request: frames.BeginRequest) -> None:
        if self._staged is not None:
            raise MalformedFrame("this connection has not ended the set it stages")
        staging = self.broker.staging
        if staging.claims.is_published(self._producer(request.producer), request.batch):
            self.session.send(frames.encode_begun(""))
            return
        staged = staging.begin(
            self.vhost(),
            self.user().name,
            request.producer,
            request.run,
            request.batch,
            self.session.now_ms,
        )
        if staged is not None:
            staged.watch(self.session)
        self._staged = staged
        self._max_bytes = request.max_bytes
        self._must_route = request.must_route
        self._decoder = None
        self.session.send(frames.encode_begun("" if staged is None else staged.name))

    def _take(self, kind: int, payload: bytes) -> None:
        reason = self.broker.admission.reason(self.vhost().name)
        if reason:
            refused = frames.encode_taken(reason)
            if kind == frames.PUBLISH:
                refused = frames.encode_published(reason, 0)
            self.session.send(refused)
            return
        flow = self.broker.flow
        if flow.journal_behind or flow.paging_behind:
            self._held = (kind, payload)
        elif kind == frames.PUBLISH:
            must_route, patience_ms, data = frames.decode_publish(payload)
            if self._staged is not None:
                raise MalformedFrame("PUBLISH while a set is staged")
            self._begin_judging(data, must_route, patience_ms)
        else:
            self._open_set()
            self._begin_judging(payload, self._must_route)

    def _stage(self, runs: list[PublishRun]) -> None:
        staged = self._open_set()
        for run in runs:
            self.broker.staging.stage(staged, run.address, run.messages, self.session.now_ms)
        if staged.record.size_bytes > self._max_bytes:
            raise PreconditionFailed(
                f"the staged set is larger than the {self._max_bytes} bytes it was begun for:"
                " make batches smaller, or raise stageMaxBytes"
            )
        self.session.send(frames.encode_taken(""))

    def _end(self, messages: int) -> None:
        staged = self._open_set()
        if staged.record.messages != messages:
            raise MalformedFrame(
                f"STAGE_END of {messages} messages, {staged.record.messages} whole ones have come"
            )
        self.broker.staging.end(staged)
        self._ending = True

    def _open_set(self) -> StagedSet:
        if self._staged is None:
            raise MalformedFrame("STAGE_BEGIN comes first")
        return self._staged

    def _leave(self) -> None:
        """What was not ended cannot be committed."""
        staged, self._staged = self._staged, None
        batch, self._batch = self._batch, None
        self._held = None
        self._judging = None
        self._publish = None
        self._ending = False
        if staged is not None:
            staged.watch(None)
            if staged.state != FINISHED:
                self.broker.staging.drop(staged)
        if batch is not None:
            batch.watchers.remove(self.session)

    def _producer(self, name: str) -> Key:
        """The user's own of that name."""
        return (self.vhost().name, self.user().name, name)

    # -- committing --------------------------------------------------------------------------

    def _ask_to_commit(self, payload: bytes) -> None:
        """No other node of the cluster may publish it, nor have done so."""
        request = frames.decode_commit(payload)
        vhost, staging = self.vhost(), self.broker.staging
        user, producer, batch = self.user().name, self._producer(request.producer), request.batch
        staging.enter(producer, request.run, self.session.now_ms)
        published = staging.claims.is_published(producer, batch)
        if not published and batch > staging.last_batch(producer):
            staging.finished(vhost, user, request.producer, batch, request.sets)
        claimed = staging.claims.claim(producer, batch, self.session)
        if claimed == PENDING:
            self._held = (frames.TXN_COMMIT, payload)
        elif claimed == PUBLISHED and staging.last_batch(producer) < batch:
            staging.abort(vhost, user, request.sets)
            told = frames.Committed(frames.DUPLICATE, 0, 0, "")
            self.session.send(frames.encode_committed(told))
        else:
            self._commit(request)

    def _commit(self, request: frames.CommitRequest) -> None:
        batch = self.broker.staging.commit(
            self.vhost(),
            self.user().name,
            request.producer,
            request.run,
            request.batch,
            request.sets,
            lambda staged: self._judge_set(staged, request.must_route),
            self.session.now_ms,
        )
        batch.watchers.append(self.session)
        self._batch = batch
        self._deadline_ms = MonoMs(self.session.mono_ms + request.patience_ms)
        self._look()

    def _judge_set(self, staged: StagedSet, must_route: bool) -> None:
        for address in staged.addresses.values():
            self._judge(address)
            route = self.vhost().route(address)
            if must_route and not route.needs_headers:
                self._must_be_bound(address, route.queues)

    # -- publishing without a set ------------------------------------------------------------

    def _go_on_publishing(self, publish: _Publish) -> None:
        session = self.session
        publisher = self.broker.staging.publisher
        self._share.begin()
        while publish.runs and session.mono_ms - publish.full_at_ms >= FULL_LOOK_MS:
            run = publish.runs[0]
            if publish.is_doubtful:
                try:
                    self._judge(run.address)
                except Undecided:
                    return  # its backend was asked
            count = publisher.publish(
                self.vhost(), run.messages, session.now_ms, False, self._share
            )
            self._note_waits(publish)
            if publish.published(count, publisher.unroutable):
                continue
            if publisher.full == "":
                break  # what is dear to route goes on in the next turn
            publish.wait_for_room(session.mono_ms)
            if session.mono_ms >= publish.deadline_ms:
                raise PreconditionFailed(
                    f"{publisher.trouble()}: consume from it, or raise its limit"
                )
        if publish.runs:
            return
        if any_lost(publish.waits):
            raise PreconditionFailed(f"{MOVED}: publish it again")
        if publish.is_safe(self.broker.engine.journal):
            self._publish = None
            session.send(frames.encode_published("", publish.unroutable))

    def _note_waits(self, publish: _Publish) -> None:
        """What goes to another node is sent again if that is lost: there is no "no" half way."""
        for wait in self.broker.waits.take():
            wait.must_arrive()
            publish.waits.append(wait)

    def _target(self, exchange: str, routing_key: str) -> None:
        wire = short_bytes(exchange) + short_bytes(routing_key)
        address = Address(exchange, routing_key, wire, False)
        self._judge(address)
        route = self.vhost().route(address)
        leads = frames.HERE if route.needs_headers or route.queues else frames.NOWHERE
        if any(queue.remote for queue in route.queues):
            leads = frames.ELSEWHERE
        self.session.send(frames.encode_targeted(leads))

    # -- waiting -----------------------------------------------------------------------------

    def _look(self) -> None:
        """Has what this handler waits for happened?"""
        if self._held is not None:
            held, self._held = self._held, None
            self.request(*held)
        if self._judging is not None:
            self._go_on_judging(self._judging)
        if self._ending:
            self._look_at_set(self._open_set())
        if self._batch is not None:
            self._look_at_batch(self._batch)
        if self._publish is not None:
            self._go_on_publishing(self._publish)

    def _look_at_set(self, staged: StagedSet) -> None:
        if staged.state == GONE:
            raise NotFound(f"staged set '{staged.name}' was dropped: run the batch again")
        if staged.state == FINISHED:
            self._ending = False
            self._staged = None
            staged.watch(None)
            self.session.send(frames.encode_ended(staged.record.size_bytes))

    def _look_at_batch(self, batch: Batch) -> None:
        if not batch.done and self.session.mono_ms < self._deadline_ms:
            return
        self._batch = None
        batch.watchers.remove(self.session)
        outcome = frames.DUPLICATE if batch.duplicate else frames.DONE
        if not batch.done:
            outcome = frames.UNDER_WAY
        self.session.send(
            frames.encode_committed(
                frames.Committed(outcome, batch.published, batch.unroutable, batch.why_waiting())
            )
        )

    # -- what comes in -----------------------------------------------------------------------

    def _begin_judging(self, data: bytes, must_route: bool, patience_ms: int = -1) -> None:
        decoder = self._the_decoder()
        events = decoder.receive(data, self.session.now_ms)
        while decoder.full:
            events += decoder.receive(b"", self.session.now_ms)
        self._judging = _Judging(events, must_route, patience_ms)
        self._go_on_judging(self._judging)

    def _go_on_judging(self, judging: _Judging) -> None:
        """Some time in each turn; what comes of the block is done when all of it may be published.

        Looking for a route may take milliseconds, and a block has thousands of addresses.
        """
        until_ns = thread_time_ns() + ROUTING_SHARE_NS
        while judging.events:
            try:
                run = self._judged(judging.events[-1])
            except Undecided:
                return  # its backend was asked
            while judging.must_route and judging.routed < len(run.messages):
                judging.count_routed(self._must_lead_somewhere(run, judging.routed))
                if thread_time_ns() > until_ns:
                    return
            stamping = self.broker.options.stamping
            if stamping != UNSTAMPED:
                run.replace(stamped(run.messages, self.session.now_ms, stamping))
            judging.take(run)
            if judging.events and thread_time_ns() > until_ns:
                return
        self._judging = None
        runs = judging.runs
        self._spend(sum(len(run.messages) for run in runs))
        if judging.patience_ms < 0:
            self._stage(runs)
        else:
            self._publish = _Publish(runs, MonoMs(self.session.mono_ms + judging.patience_ms))
            self._go_on_publishing(self._publish)

    def _judged(self, event: Event) -> PublishRun:
        """Whole messages of one address, which may be published there."""
        if isinstance(event, ChannelFailed):
            raise event.error
        if isinstance(event, ConnectionFailed):
            raise MalformedFrame(f"{event.violation.name}: {event.violation}")
        if not isinstance(event, PublishRun) or event.channel != frames.CHANNEL:
            raise MalformedFrame("a block has basic.publish and contents on channel 1 only")
        if event.address.route_epoch != self.vhost().epoch:
            self._judge(event.address)
        for message in event.messages:
            if message.flags & (COPIES | ASKS_REPLY):
                raise PreconditionFailed(
                    "CC, BCC and direct reply-to are not supported here: publish them by AMQP"
                )
        return event

    def _the_decoder(self) -> AmqpDecoder:
        decoder = self._decoder
        if decoder is None:
            decoder = AmqpDecoder(FRAME_MAX, self.broker.staging.message_bytes_max)
            self._name_publisher(decoder)
            decoder.receive(encode_method(frames.CHANNEL, CHANNEL_OPEN, [""]), WallMs(0))
            self._decoder = decoder
        return decoder

    def _name_publisher(self, decoder: AmqpDecoder) -> None:
        user = self.user()
        decoder.open(ANYBODY if user.may_impersonate else user.name.encode())

    def _judge(self, address: Address) -> None:
        """May its user publish there?  Raises AccessRefused or NotFound."""
        vhost = self.vhost()
        exchange = vhost.exchanges.get(address.exchange)
        rights = Rights(self.user(), vhost.name)
        rights.publish(exchange, address.exchange, address.routing_key)
        steps.limit()
        try:
            vhost.route(address)
        finally:
            steps.unlimit()

    def _must_lead_somewhere(self, run: PublishRun, place: int) -> int:
        """How many of its messages, from that place on, do; raises PreconditionFailed if not one.

        One at a time where their headers decide, which a client may make dear.
        """
        vhost, address = self.vhost(), run.address
        steps.limit()
        try:
            queues = self.broker.staging.publisher.queues_for(
                vhost, address, run.messages[place], self.session.now_ms
            )
        finally:
            steps.unlimit()
        self._must_be_bound(address, queues)
        return 1 if vhost.route(address).needs_headers else len(run.messages) - place

    def _must_be_bound(self, address: Address, queues: list[Queue]) -> None:
        if not queues:
            what = self.vhost().exchange_text(address.exchange)
            raise PreconditionFailed(
                f"messages for {what} with routing key '{address.routing_key}' reach no queue:"
                " bind one, or let them be dropped with mandatory=drop or mandatory=count"
            )

    def _spend(self, count: int) -> None:
        self.broker.budgets.spend(self.vhost(), count)
