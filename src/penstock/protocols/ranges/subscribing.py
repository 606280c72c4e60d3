"""Which queues a pipeline reads, and from where: ``penstock_ranges.subscriptions``.

**A group of an exchange** reads a queue of its own, called ``spark.EXCHANGE:GROUP``, durable and
bound by the keys of the subscription: live consumers of the exchange notice nothing.  **A channel
of a topic** is NSQ's, and its queue is called as ``topology.topics`` says.  Both are made when a
stream asks for them, as often as it likes; asking needs the rights that a client needs for what
has to be made, and to read the queue.

**Keys that are bound but not asked for** are refused: either they are left over from another
subscription, and the table would hold messages that are not wanted, or they are meant, and are to
be named.

**A pattern** finds the queues of the virtual host whose names match it, in slices of a turn, since
there may be very many.  Whether the user may read one is asked when it is opened: names are no
secret in a virtual host.

**Where a reader begins** is kept (``_start``) because Spark asks again after a crash as long as
nothing was committed.  Until then nothing is acknowledged either, not even what the position
skips (``ReadRequests``): who asked for the wrong position may ask for another one.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, ClassVar, Final, cast, final

from penstock.broker.broker import Broker
from penstock.broker.rules.judges import READ
from penstock.broker.rules.rights import Rights
from penstock.broker.topology.topics import is_name, queue_name
from penstock.broker.topology.vhost import Vhost
from penstock.core import patterns
from penstock.core.errors import NotFound, PreconditionFailed, QueueElsewhere
from penstock.core.pending import Pending, then
from penstock.protocols.nsq.rights import check_subscribe
from penstock.protocols.ranges.leases import RangeLeases, named
from penstock.protocols.ranges.reading import ReadRequests
from penstock.protocols.ranges.request_handler import RequestHandler
from penstock.protocols.ranges.sources import source_of
from penstock.queues.queue import Queue
from penstock.queues.stream import StreamQueue
from penstock.routing.exchanges import Exchange
from penstock_ranges import subscriptions
from penstock_ranges.frames import MalformedFrame

if TYPE_CHECKING:
    from penstock.protocols.ranges.session import RangeSession

WHO_MAKES: Final = "streaming queries and pipelines make it, batch reads and --dry-run do not"
GROUP_PREFIX: Final = "spark."
GROUP_SEPARATOR: Final = ":"
QUEUE_NAME_BYTES_MAX: Final = 255
SEARCH_SLICE_S: Final = 0.002
"""Of one turn, for names that a pattern is compared with."""

ALL_KEYS: Final = {"topic": "#", "fanout": "", "headers": "", "x-nsq-topic": ""}
"""What a binding must be called that gets everything, of exchanges that have such a thing."""


def group_queue_name(exchange: str, group: str) -> str:
    """Raises PreconditionFailed when no group may be called so."""
    if group == "" or GROUP_SEPARATOR in group:
        raise PreconditionFailed(f"a group has a name without colons, not '{group}'")
    name = f"{GROUP_PREFIX}{exchange}{GROUP_SEPARATOR}{group}"
    if len(name.encode()) > QUEUE_NAME_BYTES_MAX:
        raise PreconditionFailed(
            f"the queue of group '{group}' would be called '{name}', which is more than"
            f" {QUEUE_NAME_BYTES_MAX} bytes: shorten the group's name"
        )
    return name


@final
class SubscriptionRequests(RequestHandler):
    """What is read is known to ``reading``."""

    kinds: ClassVar = frozenset(
        (subscriptions.SUBSCRIBE, subscriptions.START, subscriptions.OFFSET_AT)
    )

    def __init__(
        self, session: "RangeSession", broker: Broker, leases: RangeLeases, reading: ReadRequests
    ) -> None:
        super().__init__(session, broker)
        self._leases = leases
        self._reading = reading
        # What goes on in the next turn, or when a cluster has agreed on what it makes.
        self._suspended: Callable[[], None] | None = None

    @property
    def busy(self) -> bool:
        return self._suspended is not None

    def request(self, kind: int, payload: bytes) -> None:
        if kind == subscriptions.SUBSCRIBE:
            self._subscribe(payload)
        elif kind == subscriptions.START:
            self._start(*subscriptions.decode_start(payload))
        else:
            self._offset_at(payload)

    def tick(self) -> None:
        go_on, self._suspended = self._suspended, None
        if go_on is not None:
            go_on()

    def failed(self) -> None:
        self._suspended = None

    # -- which queues ----------------------------------------------------------------------

    def _subscribe(self, payload: bytes) -> None:
        make, by, names = subscriptions.decode_subscribe(payload)
        if by == subscriptions.BY_PATTERN:
            self._search(_Search(self.vhost(), names[0], may_be_none=make))
            return
        found = partial(self._found, make, by, names)
        self._subscribed(self.broker.changes.ask(self.session.client.actor).run(found))

    def _go_on(self, pending: Pending) -> None:
        self._subscribed(pending.resume())

    def _subscribed(self, outcome: object) -> None:
        if isinstance(outcome, Pending):
            self._suspended = partial(self._go_on, outcome)
        else:
            self.session.send(subscriptions.encode_subscribed(cast(list[str], outcome)))

    def _search(self, search: "_Search") -> None:
        if search.step():
            self._subscribed(search.found)
        else:
            self._suspended = partial(self._search, search)

    def _found(self, make: bool, by: int, names: list[str]) -> list[str] | Pending:
        rights = Rights(self.user(), self.vhost().name)
        if by in (subscriptions.BY_QUEUES, subscriptions.BY_STREAM):
            queues = [self._queue(rights, name) for name in names]
            for queue in queues:
                _check_kind(queue, by == subscriptions.BY_STREAM, make)
            return [self._readable(queue) for queue in queues]
        if by == subscriptions.BY_EXCHANGE:
            found = self._queue_of_group(rights, names[0], names[1], names[2:], make)
        else:
            found = self._queue_of_channel(rights, names[0], names[1], make)
        return then(found, lambda queue: [self._readable(queue)])

    def _readable(self, queue: Queue) -> str:
        """Its name; raises why it cannot be read by positions."""
        queue.check_owner(self.session)
        with suppress(QueueElsewhere):  # then its master's node says whether it has positions
            source_of(queue)
        return queue.name

    def _queue(self, rights: Rights, name: str) -> Queue:
        rights.read("queue", name)
        return self.vhost().queue(name)

    def _queue_of_group(
        self, rights: Rights, source: str, group: str, keys: list[str], make: bool
    ) -> Queue | Pending:
        vhost = self.vhost()
        if source == "":
            raise PreconditionFailed(
                "the default exchange has no groups: read its queues by option queue"
            )
        name = group_queue_name(source, group)
        rights.read("queue", name)
        queue = vhost.queues.get(name)
        if queue is None and not make:
            raise NotFound(
                f"group '{group}' of exchange '{source}' has no queue yet ('{name}' in vhost"
                f" '{vhost.name}'): {WHO_MAKES}"
            )
        exchange = vhost.exchange(source)
        if queue is None:
            rights.configure("queue", name)
        wanted = keys or _all_keys(exchange)
        missing = _missing(exchange, queue, wanted, make)
        for key in missing:
            rights.bind("queue", name, source)
            rights.topic(READ, exchange, key)
        if queue is None:
            vhost.declare_queue(name, True, None, False, {})
        return vhost.changes.then(partial(self._bind, name, source, missing))

    def _bind(self, name: str, source: str, keys: list[str]) -> Queue | Pending:
        vhost = self.vhost()
        queue = vhost.queue(name)
        bound = [vhost.bind_queue(queue, source, key, {}) for key in keys]
        filled = next((one for one in bound if one is not None), None)  # a history goes once
        return then(filled, lambda _: queue)

    def _queue_of_channel(
        self, rights: Rights, topic: str, channel: str, make: bool
    ) -> Queue | Pending:
        vhost = self.vhost()
        for what, name in (("topic", topic), ("channel", channel)):
            if not is_name(name):
                raise PreconditionFailed(f"'{name}' is no name of a {what}")
        check_subscribe(rights, vhost, topic, channel)
        found = vhost.topics.topics.get(topic)
        if not make and (found is None or channel not in found.channels):
            raise NotFound(
                f"topic '{topic}' has no channel '{channel}' yet"
                f" ('{queue_name(topic, channel)}' in vhost '{vhost.name}'): {WHO_MAKES}"
            )
        made = then(vhost.topics.topic(topic), lambda there: vhost.topics.channel(there, channel))
        return then(made, lambda there: there.queue)

    # -- from where ------------------------------------------------------------------------

    def _start(self, request: str, seq_id: int) -> None:
        vhost, read = self._reading.opened()
        if seq_id < 0 or seq_id > self._reading.source().next():
            raise MalformedFrame(f"START at {seq_id}, which does not exist yet")
        if isinstance(read, StreamQueue) and self._reading.group != "":
            begin = self._leases.groups.start(vhost, read, self._reading.group, request, seq_id)
            self.session.send(subscriptions.encode_started(begin))
            return
        queue = self._reading.owned_queue()
        stored = self._leases.start(vhost, queue)
        if request == "":
            if stored is not None:
                self._leases.forget_start(vhost, queue)
        elif stored is not None and stored[0] == request:
            seq_id = stored[1]
        else:
            self._leases.store_start(vhost, queue, request, seq_id)
        self.session.send(subscriptions.encode_started(seq_id))

    def _offset_at(self, payload: bytes) -> None:
        timestamp_ms, low, high = subscriptions.decode_offset_at(payload)
        _, queue = self._reading.opened()
        source = self._reading.source()
        if not 0 <= low <= high <= source.next():
            raise MalformedFrame(f"OFFSET_AT between {low} and {high}, which is no range here")
        share = self._leases.share
        if share.left(self.session.now_ms, source.publishers_wait()) <= 0:
            self._suspended = partial(self._offset_at, payload)
            queue.wake()  # so that the loop comes back at once
            return
        found = source.search(timestamp_ms, low, high)
        if found is None:
            self._suspended = partial(self._offset_at, payload)
            return
        share.spend(source.take_looked_bytes())
        self.session.send(subscriptions.encode_offset(*found))


@final
class _Search:
    """The queues of a virtual host that a pattern means."""

    def __init__(self, vhost: Vhost, pattern: str, *, may_be_none: bool) -> None:
        """Raises PreconditionFailed for one that is none, or that could take too long."""
        self._may_be_none = may_be_none  # a stream waits for queues, a batch read does not
        self._vhost = vhost
        self._pattern = pattern
        try:
            self._expression = patterns.compiled(rf"\A(?:{pattern})\Z")
        except patterns.Refused as error:
            raise PreconditionFailed(f"queuesPattern '{pattern}': {error}") from None
        self._names: Iterator[str] = iter(list(vhost.queues))
        self.found: list[str] = []

    def step(self) -> bool:
        """So much as a turn allows; True: that was all of it.

        Raises NotFound, PreconditionFailed.
        """
        until_s = perf_counter() + SEARCH_SLICE_S
        for name in self._names:
            if self._expression.match(name) is not None:
                self._take(name)
            if perf_counter() >= until_s:
                return False
        if not self.found and not self._may_be_none:
            raise NotFound(
                f"no queue in vhost '{self._vhost.name}' matches queuesPattern '{self._pattern}'"
            )
        self.found.sort()
        return True

    def _take(self, name: str) -> None:
        queue = self._vhost.queues.get(name)
        if queue is None or queue.is_stream or queue.exclusive:
            return
        if len(self.found) == subscriptions.NAMES_MAX:
            raise PreconditionFailed(
                f"more than {subscriptions.NAMES_MAX} queues in vhost '{self._vhost.name}' match"
                f" queuesPattern '{self._pattern}': choose fewer"
            )
        self.found.append(name)


def _all_keys(exchange: Exchange) -> list[str]:
    key = ALL_KEYS.get(exchange.type)
    if key is None:
        raise PreconditionFailed(
            f"exchange '{exchange.name}' is of type '{exchange.type}', which has no binding that"
            " gets everything: name the keys with option routingKey"
        )
    return [key]


def _check_kind(queue: Queue, stream: bool, make: bool) -> None:
    """A stream is looked at as any queue is, but not read as one."""
    if queue.is_stream != stream and (stream or make):
        raise PreconditionFailed(f"{named(queue)} is {'no' if stream else 'a'} stream")


def _missing(exchange: Exchange, queue: Queue | None, wanted: list[str], make: bool) -> list[str]:
    """Keys that have to be bound; raises when that is not all there is to do."""
    ways = {} if queue is None else exchange.bound.get(id(queue), {})
    bound = {binding.routing_key for binding in ways.values()}
    surplus = sorted(bound - set(wanted))
    if queue is not None and surplus:
        raise PreconditionFailed(
            f"{named(queue)} is bound to exchange '{exchange.name}' by '{surplus[0]}', too, which"
            " is not in routingKey: name it, unbind it, or read under another group"
        )
    missing = [key for key in dict.fromkeys(wanted) if key not in bound]
    if queue is not None and missing and not make:
        raise PreconditionFailed(
            f"{named(queue)} is not bound to exchange '{exchange.name}' by '{missing[0]}':"
            " a batch read leaves bindings as they are"
        )
    return missing
