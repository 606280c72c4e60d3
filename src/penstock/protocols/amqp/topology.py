"""``exchange.*`` and ``queue.*`` of one channel: declare, bind, purge, delete.

What a user may, and what is wrong with a request, ``topology.declaring`` and the virtual host
know.  Here is one memory: the last queue declared on this channel, which is meant wherever a
method leaves the queue's name out.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from mypy_extensions import i64

from penstock.broker.rules.arguments import check_without_name
from penstock.broker.topology import declaring
from penstock.broker.transfers.replies import REPLY_TO
from penstock.core.errors import AccessRefused, CommandInvalid, NotFound
from penstock.core.pending import Pending, then
from penstock.core.steps import steps
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import Method
from penstock.protocols.amqp.link import Link
from penstock.queues.queue import Queue

Answer = tuple[int, list[object]]
"""Which method says that it is done, and its arguments."""
Bind = Callable[..., Pending | None]

_CR_LF: Final = {13: None, 10: None}
VALUE_STEPS: Final[i64] = 100
"""Of one value of the arguments: judged, kept, written down, told of."""


def name_in(method: Method, field: str) -> str:
    """A name as RabbitMQ reads it: without carriage returns and line feeds."""
    text = method.text(field)
    if "\n" in text or "\r" in text:
        return text.translate(_CR_LF)
    return text


def values_in(arguments: object) -> i64:
    """Of a table, in nested ones too."""
    if isinstance(arguments, dict):
        return sum([values_in(value) for value in arguments.values()])
    if isinstance(arguments, list):
        return sum([values_in(value) for value in arguments])
    return 1


@final
class TopologyMethods:
    """Handles the two classes of methods for one channel."""

    def __init__(self, link: Link, number: i64) -> None:
        self.link = link
        self.number: i64 = number
        self._last_queue: str = ""

    def handle(self, method: Method) -> Pending | None:
        """None: it is answered."""
        link = self.link
        if not link.take_share():
            return Pending(None, partial(self.handle, method))
        steps.count(VALUE_STEPS * values_in(method.fields.get("arguments")))
        if method.key == m.QUEUE_DECLARE:
            name = name_in(method, "queue")
            if name == "" and not method.flag("passive"):
                check_without_name(self._typed(method))
                name = link.new_name("amq.gen-")
            verb = partial(self._declare_queue, method, name)
        else:
            verb = partial(self._do, method)
        return then(link.ask().run(verb), partial(self._answer, method))

    def _typed(self, method: Method) -> dict[str, object]:
        durable, exclusive = method.flag("durable"), method.flag("exclusive")
        arguments = method.table("arguments")
        return self.link.vhost.typed(arguments, durable, exclusive, method.flag("auto_delete"))

    def _answer(self, method: Method, answer: Answer) -> None:
        key, values = answer
        if method.fields.get("nowait") is not True:
            self.link.send(self.number, key, values)

    def _do(self, method: Method) -> Answer | Pending:
        link, key = self.link, method.key
        if key == m.QUEUE_DELETE:
            return self._queue_delete(method)
        if key == m.QUEUE_PURGE:
            return self._purge(method)
        if key == m.QUEUE_BIND:
            return self._bind_queue(method, declaring.bind_queue, m.QUEUE_BIND_OK)
        if key == m.QUEUE_UNBIND:
            return self._bind_queue(method, declaring.unbind_queue, m.QUEUE_UNBIND_OK)
        if key == m.EXCHANGE_DECLARE:
            return self._declare_exchange(method)
        if key == m.EXCHANGE_DELETE:
            name = name_in(method, "exchange")
            declaring.delete_exchange(link.vhost, link.rights, name, method.flag("if_unused"))
            return m.EXCHANGE_DELETE_OK, []
        if key == m.EXCHANGE_BIND:
            return self._bind_exchange(method, declaring.bind_exchange, m.EXCHANGE_BIND_OK)
        if key == m.EXCHANGE_UNBIND:
            return self._bind_exchange(method, declaring.unbind_exchange, m.EXCHANGE_UNBIND_OK)
        raise CommandInvalid("unimplemented method")

    # -- queues --------------------------------------------------------------------------

    def _purge(self, method: Method) -> Answer | Pending:
        return then(
            self.readable_queue(method).purge(),
            lambda count: (m.QUEUE_PURGE_OK, [count]),
            partial(self._purge, method),
        )

    def readable_queue(self, method: Method) -> Queue:
        """The queue that is meant, to be read from; raises AccessRefused or ResourceLocked."""
        name = self.meant_queue(method)
        self.link.rights.read("queue", name)
        queue = self.link.vhost.queue(name)
        queue.check_owner(self.link.session)
        return queue

    def _bind_queue(self, method: Method, verb: Bind, done: int) -> Answer | Pending:
        """``verb``: binds or unbinds."""
        link = self.link
        bound = verb(
            link.vhost,
            link.rights,
            self.meant_queue(method),
            name_in(method, "exchange"),
            self._bind_key(method),
            method.table("arguments"),
            link.session,
        )
        return then(bound, lambda _: (done, []))

    def _bind_key(self, method: Method) -> str:
        """Queue and key both left out: the key is the name of the last declared queue."""
        key = method.text("routing_key")
        if key == "" and name_in(method, "queue") == "":
            return self._last_queue
        return key

    def meant_queue(self, method: Method) -> str:
        """The name in the method, or that of the queue declared last."""
        name = name_in(method, "queue") or self._last_queue
        if name == "":
            raise NotFound("no previously declared queue")
        return name

    def _declare_queue(self, method: Method, name: str) -> Answer | Pending:
        link = self.link
        vhost = link.vhost
        if name.startswith(REPLY_TO):
            return self._find_reply_consumer(name)
        if method.flag("passive"):
            link.rights.see("queue", name)
            queue = vhost.queue(name)
            queue.check_owner(link.session)
            vhost.touch(queue)
            return self._declared(method, name)
        is_ours = name_in(method, "queue") == ""
        declare = declaring.make_queue if is_ours else declaring.declare_queue
        declare(
            vhost,
            link.rights,
            name,
            method.flag("durable"),
            link.session if method.flag("exclusive") else None,
            method.flag("auto_delete"),
            method.table("arguments"),
        )
        return vhost.changes.then(partial(self._declared, method, name))

    def _declared(self, method: Method, name: str) -> Answer | Pending:
        """It is there: how many messages and consumers has it?"""
        link = self.link
        queue = link.vhost.queue(name)
        if queue.owner is link.session:
            link.owned[name] = queue
        self._last_queue = name
        if queue.remote and method.fields.get("nowait") is True:
            return m.QUEUE_DECLARE_OK, []
        return then(
            queue.counts(),
            lambda counts: (m.QUEUE_DECLARE_OK, [name, *counts]),
            partial(self._declare_queue, method, name),
        )

    def _find_reply_consumer(self, name: str) -> Answer:
        """Declared, however, such a name only tells whether its channel still consumes replies."""
        if name != REPLY_TO and name not in self.link.broker.replies.consumers:
            raise NotFound(f"no {self.link.vhost.queue_text(name)}")
        self._last_queue = name
        return m.QUEUE_DECLARE_OK, [name, 0, 1]

    def _queue_delete(self, method: Method) -> Answer | Pending:
        link = self.link
        deleted = declaring.delete_queue(
            link.vhost,
            link.rights,
            self.meant_queue(method),
            link.session,
            method.flag("if_unused"),
            method.flag("if_empty"),
        )
        return then(deleted, self._deleted)

    def _deleted(self, outcome: declaring.Deleted) -> Answer:
        count, consumers = outcome
        self.link.tell_cancelled(consumers)
        return m.QUEUE_DELETE_OK, [count]

    def delete_queue(self, queue: Queue) -> None:
        self.link.tell_cancelled(self.link.vhost.delete_queue(queue))

    # -- exchanges -----------------------------------------------------------------------

    def _bind_exchange(self, method: Method, verb: Bind, done: int) -> Answer | Pending:
        """``verb``: binds or unbinds."""
        bound = verb(
            self.link.vhost,
            self.link.rights,
            name_in(method, "destination"),
            name_in(method, "source"),
            method.text("routing_key"),
            method.table("arguments"),
        )
        return then(bound, lambda _: (done, []))

    def _declare_exchange(self, method: Method) -> Answer:
        link = self.link
        name = name_in(method, "exchange")
        if method.flag("passive"):
            if name == "":
                raise AccessRefused("operation not permitted on the default exchange")
            link.rights.see("exchange", name)
            link.vhost.exchange(name)
        else:
            declaring.declare_exchange(
                link.vhost,
                link.rights,
                name,
                method.text("type"),
                method.flag("durable"),
                method.flag("auto_delete"),
                method.flag("internal"),
                method.table("arguments"),
            )
        return m.EXCHANGE_DECLARE_OK, []
