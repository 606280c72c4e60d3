"""``exchange.*`` and ``queue.*`` of one channel: declare, bind, purge, delete.

What a user may, and what is wrong with a request, ``topology.declaring`` and the virtual host
know.  Here is one memory: the last queue declared on this channel, which is meant wherever a
method leaves the queue's name out.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, final

from mypy_extensions import i64

from penstock.broker.topology import declaring
from penstock.broker.transfers.replies import REPLY_TO
from penstock.core.errors import AccessRefused, CommandInvalid, NotFound
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import Method
from penstock.protocols.amqp.link import Link
from penstock.queues.queue import Queue

Answer = tuple[int, list[object]]
"""Which method says that it is done, and its arguments."""

_CR_LF: Final = {13: None, 10: None}


def name_in(method: Method, field: str) -> str:
    """A name as RabbitMQ reads it: without carriage returns and line feeds."""
    text = method.text(field)
    if "\n" in text or "\r" in text:
        return text.translate(_CR_LF)
    return text


@final
class TopologyMethods:
    """Handles the two classes of methods for one channel."""

    def __init__(self, link: Link, number: i64) -> None:
        self.link = link
        self.number: i64 = number
        self._last_queue: str = ""
        self._new_queue: str = ""  # the name of one without a name, while it is being declared

    def _answer(self, method: Method, ask: Callable[[Method], Answer]) -> None:
        """What was asked for, and then the answer to it; raises Away while that waits."""
        if self.link.broker.changes.proposes:
            key, values = self.link.ask().run(partial(ask, method))
        else:
            key, values = ask(method)
        if method.fields.get("nowait") is not True:
            self.link.send(self.number, key, values)

    # -- queues --------------------------------------------------------------------------

    def queue_method(self, method: Method) -> None:
        self.link.take_share()
        self._answer(method, self._queue_method)

    def _queue_method(self, method: Method) -> Answer:
        key = method.key
        if key == m.QUEUE_DECLARE:
            return self._declare_queue(method)
        if key == m.QUEUE_DELETE:
            return self._queue_delete(method)
        if key == m.QUEUE_PURGE:
            queue = self.readable_queue(method)
            return m.QUEUE_PURGE_OK, [queue.purge()]
        if key == m.QUEUE_BIND:
            return self._bind(method)
        if key == m.QUEUE_UNBIND:
            return self._unbind(method)
        raise CommandInvalid("unimplemented method")

    def readable_queue(self, method: Method) -> Queue:
        """The queue that is meant, to be read from; raises AccessRefused or ResourceLocked."""
        name = self.meant_queue(method)
        self.link.rights.read("queue", name)
        queue = self.link.vhost.queue(name)
        queue.check_owner(self.link.session)
        return queue

    def _bind(self, method: Method) -> Answer:
        link = self.link
        declaring.bind_queue(
            link.vhost,
            link.rights,
            self.meant_queue(method),
            name_in(method, "exchange"),
            self._bind_key(method),
            method.table("arguments"),
            link.session,
        )
        return m.QUEUE_BIND_OK, []

    def _unbind(self, method: Method) -> Answer:
        link = self.link
        declaring.unbind_queue(
            link.vhost,
            link.rights,
            self.meant_queue(method),
            name_in(method, "exchange"),
            self._bind_key(method),
            method.table("arguments"),
            link.session,
        )
        return m.QUEUE_UNBIND_OK, []

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

    def _declare_queue(self, method: Method) -> Answer:
        link = self.link
        vhost = link.vhost
        name = name_in(method, "queue")
        if name.startswith(REPLY_TO):
            return self._find_reply_consumer(name)
        if method.flag("passive"):
            queue = vhost.queue(name)
            queue.check_owner(link.session)
            vhost.touch(queue)
        else:
            declare = declaring.declare_queue
            if name == "":
                # The same one until it is there, should it have to wait for a cluster.
                name = self._new_queue or link.new_name("amq.gen-")
                self._new_queue = name
                declare = declaring.make_queue
            made = declare(
                vhost,
                link.rights,
                name,
                method.flag("durable"),
                link.session if method.flag("exclusive") else None,
                method.flag("auto_delete"),
                method.table("arguments"),
            )
            queue = vhost.changes.declared(made)
        self._new_queue = ""
        if queue.owner is link.session:
            link.owned[queue.name] = queue
        self._last_queue = queue.name
        if queue.remote and method.fields.get("nowait") is True:
            return m.QUEUE_DECLARE_OK, []
        ready, consumers = queue.counts()
        return m.QUEUE_DECLARE_OK, [queue.name, ready, consumers]

    def _find_reply_consumer(self, name: str) -> Answer:
        """Declared, however, such a name only tells whether somebody waits behind it."""
        if name != REPLY_TO and name not in self.link.broker.replies.consumers:
            raise NotFound(f"no {self.link.vhost.queue_text(name)}")
        self._last_queue = name
        return m.QUEUE_DECLARE_OK, [name, 0, 1]

    def _queue_delete(self, method: Method) -> Answer:
        link = self.link
        count, consumers = declaring.delete_queue(
            link.vhost,
            link.rights,
            self.meant_queue(method),
            link.session,
            method.flag("if_unused"),
            method.flag("if_empty"),
        )
        link.tell_cancelled(consumers)
        return m.QUEUE_DELETE_OK, [count]

    def delete_queue(self, queue: Queue) -> None:
        self.link.tell_cancelled(self.link.vhost.delete_queue(queue))

    # -- exchanges -----------------------------------------------------------------------

    def exchange_method(self, method: Method) -> None:
        self.link.take_share()
        self._answer(method, self._exchange_method)

    def _exchange_method(self, method: Method) -> Answer:
        link = self.link
        key = method.key
        if key == m.EXCHANGE_DECLARE:
            return self._declare_exchange(method)
        if key == m.EXCHANGE_DELETE:
            name = name_in(method, "exchange")
            declaring.delete_exchange(link.vhost, link.rights, name, method.flag("if_unused"))
            return m.EXCHANGE_DELETE_OK, []
        if key == m.EXCHANGE_BIND:
            return self._bind_exchange(method)
        if key == m.EXCHANGE_UNBIND:
            return self._unbind_exchange(method)
        raise CommandInvalid("unimplemented method")

    def _bind_exchange(self, method: Method) -> Answer:
        declaring.bind_exchange(
            self.link.vhost,
            self.link.rights,
            name_in(method, "destination"),
            name_in(method, "source"),
            method.text("routing_key"),
            method.table("arguments"),
        )
        return m.EXCHANGE_BIND_OK, []

    def _unbind_exchange(self, method: Method) -> Answer:
        declaring.unbind_exchange(
            self.link.vhost,
            self.link.rights,
            name_in(method, "destination"),
            name_in(method, "source"),
            method.text("routing_key"),
            method.table("arguments"),
        )
        return m.EXCHANGE_UNBIND_OK, []

    def _declare_exchange(self, method: Method) -> Answer:
        link = self.link
        name = name_in(method, "exchange")
        if method.flag("passive"):
            if name == "":
                raise AccessRefused("operation not permitted on the default exchange")
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
