"""A stop in good order leaves what a start finds as it was: nothing lost, nothing twice."""

from __future__ import annotations

import signal
from pathlib import Path

from penstock.broker.message_moves import MOVE, MessageMove
from penstock.broker.rules.rights import Rights
from penstock.core.message import PERSISTENT, Message
from penstock.node.node import Node
from penstock.protocols.amqp.codec.encoder import short_bytes
from penstock.protocols.amqp.codec.properties import Properties, encode_content
from penstock.settings.settings import load_settings


def started(directory: Path) -> Node:
    return Node(load_settings(None, {}, {"data_dir": str(directory)}))


def counts(node: Node) -> dict[str, int]:
    queues = node.broker.vhosts["/"].queues
    return {name: int(queue.backing.ready_count()) for name, queue in queues.items()}


def test_what_was_moved_and_not_settled_yet_is_not_doubled(tmp_path: Path) -> None:
    node = started(tmp_path)
    vhost = node.broker.vhosts["/"]
    queue, _ = (vhost.declare_queue(name, True, None, False, {}) for name in ("q", "to"))
    content = encode_content(Properties(delivery_mode=2), b"x", 0, 131_072)
    address = short_bytes("") + short_bytes("q")
    vhost.publish_some([queue], [Message(content, address, PERSISTENT, 0) for _ in range(3)], 0)
    rights = Rights(node.broker.users.users["guest"], "/")
    errand = MessageMove(node.broker, rights, vhost, queue, 0, MOVE, ("", "to"))
    assert errand.step([0, 2], 0) == []
    node._close()
    again = started(tmp_path)
    assert again.opening.clean
    assert counts(again) == {"q": 1, "to": 2}
    again._close()


def test_only_a_second_signal_is_quick(tmp_path: Path) -> None:
    node = started(tmp_path)
    ending = node.ending
    ending.ask()  # by the management API; then the service manager stops the process
    ending._signalled(signal.SIGTERM, None)
    assert not ending.quick
    ending._signalled(signal.SIGTERM, None)
    assert ending.quick
    node._close()
