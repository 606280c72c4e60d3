"""``exchange.*`` and ``queue.*`` of one channel: declare, bind, purge, delete.

First the user's rights are asked (``broker.rights``), in RabbitMQ's order.  All other errors are
the virtual host's, with one memory of our own: the last queue declared on this
channel, which is meant wherever a method leaves the queue's name out.
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.broker.replies import REPLY_TO
from penstock.broker.rights import READ
from penstock.core.errors import AccessRefused, CommandInvalid, NotFound
from penstock.queues.queue import Queue
from penstock.routing.exchanges import EXCHANGE_TYPES
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
        vhost = self.link.vhost
        name = self.meant_queue(method)
        source = name_in(method, "exchange")
        key = self._bind_key(method)
        self._may_bind("queue", name, source, key)
        vhost.exchange(source)  # missing both, the exchange is the one to be told
        queue = vhost.queue(name)
        queue.check_owner(self.link.session)
        vhost.bind_queue(queue, source, key, method.table("arguments"))
        self._reply(method, m.QUEUE_BIND_OK, [])

    def _unbind(self, method: Method) -> None:
        vhost = self.link.vhost
        name = self.meant_queue(method)
        source = name_in(method, "exchange")
        key = self._bind_key(method)
        self._may_bind("queue", name, source, key)
        queue = vhost.queues.get(name)
        if queue is not None:
            vhost.unbind_queue(queue, source, key, method.table("arguments"))
        self._reply(method, m.QUEUE_UNBIND_OK, [])

    def _may_bind(self, kind: str, destination: str, source: str, routing_key: str) -> None:
        link = self.link
        link.rights.bind(kind, destination, source)
        link.rights.topic(READ, link.vhost.exchanges.get(source), routing_key)

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
            if name == "":
                name = link.new_name("amq.gen-")
            elif name.startswith("amq.") and name not in vhost.queues:
                raise AccessRefused(f"queue name '{name}' contains reserved prefix 'amq.*'")
            link.rights.configure("queue", name)
            if name not in vhost.queues:
                self._may_dead_letter(name, method.table("arguments"))
            queue = vhost.declare_queue(
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

    def _may_dead_letter(self, queue: str, arguments: dict[str, object]) -> None:
        """Who makes a queue whose messages move on must be able to move them."""
        target = arguments.get("x-dead-letter-exchange")
        if isinstance(target, str):
            self.link.rights.read("queue", queue)
            self.link.rights.write("exchange", target)

    def _queue_delete(self, method: Method) -> None:
        name = self.meant_queue(method)
        self.link.rights.configure("queue", name)
        queue = self.link.vhost.queues.get(name)
        count: i64 = 0
        if queue is not None:
            queue.check_owner(self.link.session)
            self.link.vhost.check_deletable(
                queue, method.flag("if_unused"), method.flag("if_empty")
            )
            count = queue.backing.ready_count()
            self.delete_queue(queue)
        self._reply(method, m.QUEUE_DELETE_OK, [count])

    def delete_queue(self, queue: Queue) -> None:
        self.link.tell_cancelled(self.link.vhost.delete_queue(queue))

    # -- exchanges -----------------------------------------------------------------------

    def exchange_method(self, method: Method) -> None:
        self.link.take_share()
        key = method.key
        vhost = self.link.vhost
        if key == m.EXCHANGE_DECLARE:
            self._declare_exchange(method)
        elif key == m.EXCHANGE_DELETE:
            self._delete_exchange(method)
            self._reply(method, m.EXCHANGE_DELETE_OK, [])
        elif key == m.EXCHANGE_BIND:
            source, destination, routing_key = self._ways(method)
            vhost.bind_exchange(destination, source, routing_key, method.table("arguments"))
            self._reply(method, m.EXCHANGE_BIND_OK, [])
        elif key == m.EXCHANGE_UNBIND:
            source, destination, routing_key = self._ways(method)
            vhost.unbind_exchange(destination, source, routing_key, method.table("arguments"))
            self._reply(method, m.EXCHANGE_UNBIND_OK, [])
        else:
            raise CommandInvalid("unimplemented method")

    def _ways(self, method: Method) -> tuple[str, str, str]:
        """Source, destination and routing key of a binding that the user may make or end."""
        source = name_in(method, "source")
        destination = name_in(method, "destination")
        routing_key = method.text("routing_key")
        self._may_bind("exchange", destination, source, routing_key)
        return source, destination, routing_key

    def _delete_exchange(self, method: Method) -> None:
        name = name_in(method, "exchange")
        if name != "" and not name.startswith("amq."):  # those are refused to everybody
            self.link.rights.configure("exchange", name)
        self.link.vhost.delete_exchange(name, method.flag("if_unused"))

    def _may_declare_exchange(self, name: str, kind: str, arguments: dict[str, object]) -> None:
        """What is wrong with the type or the name for everybody is not said here."""
        if name == "" or kind not in EXCHANGE_TYPES:
            return
        rights = self.link.rights
        rights.configure("exchange", name)
        target = arguments.get("alternate-exchange")
        if name not in self.link.vhost.exchanges and isinstance(target, str):
            rights.read("exchange", name)
            rights.write("exchange", target)

    def _declare_exchange(self, method: Method) -> None:
        vhost = self.link.vhost
        name = name_in(method, "exchange")
        if method.flag("passive"):
            if name == "":
                raise AccessRefused("operation not permitted on the default exchange")
            vhost.exchange(name)
        else:
            arguments = method.table("arguments")
            self._may_declare_exchange(name, method.text("type"), arguments)
            vhost.declare_exchange(
                name,
                method.text("type"),
                method.flag("durable"),
                method.flag("auto_delete"),
                method.flag("internal"),
                arguments,
            )
        self._reply(method, m.EXCHANGE_DECLARE_OK, [])
