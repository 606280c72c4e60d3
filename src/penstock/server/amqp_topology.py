"""``exchange.*`` and ``queue.*`` of one channel: declare, bind, purge, delete.

What a user may, and what is wrong with a request, ``broker.declaring`` and the virtual host
know.  Here is one memory: the last queue declared on this channel, which is meant wherever a
method leaves the queue's name out.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker import declaring
from penstock.broker.replies import REPLY_TO
from penstock.core.errors import AccessRefused, CommandInvalid, NotFound
from penstock.queues.queue import Queue
from penstock.server.amqp_link import Link
from penstock.wire.amqp import methods as m
from penstock.wire.amqp.methods import Method

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

    def _reply(self, method: Method, key: int, values: list[object]) -> None:
        if method.fields.get("nowait") is not True:
            self.link.send(self.number, key, values)

    # -- queues --------------------------------------------------------------------------

    def queue_method(self, method: Method) -> None:
        self.link.take_share()
        key = method.key
        if key == m.QUEUE_DECLARE:
            self._declare_queue(method)
            return
        if key == m.QUEUE_DELETE:
            self._queue_delete(method)
            return
        if key == m.QUEUE_PURGE:
            queue = self.readable_queue(method)
            self._reply(method, m.QUEUE_PURGE_OK, [queue.purge()])
        elif key == m.QUEUE_BIND:
            self._bind(method)
        elif key == m.QUEUE_UNBIND:
            self._unbind(method)
        else:
            raise CommandInvalid("unimplemented method")

    def readable_queue(self, method: Method) -> Queue:
        """The queue that is meant, to be read from; raises AccessRefused or ResourceLocked."""
        name = self.meant_queue(method)
        self.link.rights.read("queue", name)
        queue = self.link.vhost.queue(name)
        queue.check_owner(self.link.session)
        return queue

    def _bind(self, method: Method) -> None:
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
        self._reply(method, m.QUEUE_BIND_OK, [])

    def _unbind(self, method: Method) -> None:
        link = self.link
        declaring.unbind_queue(
            link.vhost,
            link.rights,
            self.meant_queue(method),
            name_in(method, "exchange"),
            self._bind_key(method),
            method.table("arguments"),
        )
        self._reply(method, m.QUEUE_UNBIND_OK, [])

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

    def _declare_queue(self, method: Method) -> None:
        link = self.link
        vhost = link.vhost
        name = name_in(method, "queue")
        if name.startswith(REPLY_TO):
            self._find_reply_consumer(method, name)
            return
        if method.flag("passive"):
            queue = vhost.queue(name)
            queue.check_owner(link.session)
            vhost.touch(queue, link.now_ms)
        else:
            declare = declaring.declare_queue
            if name == "":
                name = link.new_name("amq.gen-")
                declare = declaring.make_queue
            queue = declare(
                vhost,
                link.rights,
                name,
                method.flag("durable"),
                link.session if method.flag("exclusive") else None,
                method.flag("auto_delete"),
                method.table("arguments"),
                link.now_ms,
            )
        if queue.owner is link.session:
            link.owned[queue.name] = queue
        self._last_queue = queue.name
        counts: list[object] = [queue.name, queue.backing.ready_count(), len(queue.consumers)]
        self._reply(method, m.QUEUE_DECLARE_OK, counts)

    def _find_reply_consumer(self, method: Method, name: str) -> None:
        """Declared, however, such a name only tells whether somebody waits behind it."""
        if name != REPLY_TO and name not in self.link.broker.replies.consumers:
            raise NotFound(f"no {self.link.vhost.queue_text(name)}")
        self._last_queue = name
        self._reply(method, m.QUEUE_DECLARE_OK, [name, 0, 1])

    def _queue_delete(self, method: Method) -> None:
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
        self._reply(method, m.QUEUE_DELETE_OK, [count])

    def delete_queue(self, queue: Queue) -> None:
        self.link.tell_cancelled(self.link.vhost.delete_queue(queue))

    # -- exchanges -----------------------------------------------------------------------

    def exchange_method(self, method: Method) -> None:
        link = self.link
        link.take_share()
        key = method.key
        if key == m.EXCHANGE_DECLARE:
            self._declare_exchange(method)
        elif key == m.EXCHANGE_DELETE:
            name = name_in(method, "exchange")
            declaring.delete_exchange(link.vhost, link.rights, name, method.flag("if_unused"))
            self._reply(method, m.EXCHANGE_DELETE_OK, [])
        elif key == m.EXCHANGE_BIND:
            self._bind_exchange(method)
        elif key == m.EXCHANGE_UNBIND:
            self._unbind_exchange(method)
        else:
            raise CommandInvalid("unimplemented method")

    def _bind_exchange(self, method: Method) -> None:
        declaring.bind_exchange(
            self.link.vhost,
            self.link.rights,
            name_in(method, "destination"),
            name_in(method, "source"),
            method.text("routing_key"),
            method.table("arguments"),
        )
        self._reply(method, m.EXCHANGE_BIND_OK, [])

    def _unbind_exchange(self, method: Method) -> None:
        declaring.unbind_exchange(
            self.link.vhost,
            self.link.rights,
            name_in(method, "destination"),
            name_in(method, "source"),
            method.text("routing_key"),
            method.table("arguments"),
        )
        self._reply(method, m.EXCHANGE_UNBIND_OK, [])

    def _declare_exchange(self, method: Method) -> None:
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
        self._reply(method, m.EXCHANGE_DECLARE_OK, [])
