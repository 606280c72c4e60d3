"""oslo.messaging as OpenStack's services use it, with quorum queues.

app.py KIND server NAME     answers calls, prints what it hears
app.py KIND client          calls, casts and notifies once; prints the sum

KIND: ``quorum``, or ``streams`` where one stream of a topic has what is for all its servers.
"""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import oslo_messaging
from oslo_concurrency import lockutils
from oslo_config import cfg

URL = os.environ["INTEROP_BROKER_URL"].replace("amqp://", "rabbit://")
COUNT = 20
QUORUM = {
    "rabbit_quorum_queue": True,
    "rabbit_transient_quorum_queue": True,
    "use_queue_manager": True,
}
OPTIONS: dict[str, dict[str, object]] = {
    "quorum": QUORUM,
    "streams": QUORUM | {"rabbit_stream_fanout": True, "rabbit_qos_prefetch_count": 100},
}


def configure(kind: str, name: str) -> cfg.ConfigOpts:
    cfg.CONF([])
    lockutils.set_defaults(str(Path.cwd()))  # the queue manager locks a file of the host
    oslo_messaging.get_rpc_transport(cfg.CONF, url=URL)  # registers the driver's options
    for option, value in {**OPTIONS[kind], "processname": name}.items():
        cfg.CONF.set_override(option, value, group="oslo_messaging_rabbit")
    return cfg.CONF


class Compute:
    """What a server answers."""

    def double(self, _context: dict[str, Any], number: int) -> int:
        return 2 * number

    def note(self, _context: dict[str, Any], text: str) -> None:
        print(f"noted {text}", flush=True)


class Audit:
    """What becomes of notifications."""

    def info(self, _context: object, publisher: str, kind: str, payload: Any, _more: Any) -> None:
        print(f"heard {kind} of {publisher}: {payload}", flush=True)


def serve(kind: str, name: str) -> None:
    conf = configure(kind, name)
    rpc = oslo_messaging.get_rpc_transport(conf, url=URL)
    target = oslo_messaging.Target(topic="compute", server=name)
    oslo_messaging.get_rpc_server(rpc, target, [Compute()]).start()
    notes = oslo_messaging.get_notification_transport(conf, url=URL)
    topics = [oslo_messaging.Target(topic="audit")]
    oslo_messaging.get_notification_listener(notes, topics, [Audit()]).start()
    print("server is up", flush=True)
    threading.Event().wait()


def call(kind: str) -> None:
    conf = configure(kind, "client")
    transport = oslo_messaging.get_rpc_transport(conf, url=URL)
    client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic="compute"))
    print("sum", sum(client.call({}, "double", number=number) for number in range(COUNT)))
    client.prepare(fanout=True).cast({}, "note", text="to all")
    client.prepare(server="one").cast({}, "note", text="to one")
    notes = oslo_messaging.get_notification_transport(conf, url=URL)
    notifier = oslo_messaging.Notifier(notes, "client", driver="messagingv2", topics=["audit"])
    notifier.info({}, "vm.started", {"id": 7})


if __name__ == "__main__":
    its_kind, role, *words = sys.argv[1:]
    serve(its_kind, *words) if role == "server" else call(its_kind)
