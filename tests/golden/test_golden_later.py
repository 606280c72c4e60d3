"""What builds after 0.1.0 leave on the disk beside streams is opened by the broker of today.

``later-clean.tar.gz`` and ``later-killed.tar.gz`` are a node that stands alone, stopped in order or
by SIGKILL: a user with two passwords, a virtual host that is protected from deletion and whose
queues are quorum queues by default, and such a queue.  They are made anew only if a format changes:

    PYTHONPATH=src:. python -m tests.golden.test_golden_later
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pika
import pytest

from penstock.cli.data.audit import audit_directory
from tests.golden.lines import GoldenBroker
from tests.golden.make import kill, names_no_place, pack, unpack
from tests.golden.test_golden_streams import ENDINGS, HERE, SETTINGS

USER = "turning"
PASSWORDS = ("the older one", "the newer one")
VHOST = "safe"
QUEUE = "orders"
BODIES = [b"m0", b"m1", b"m2"]


def connect(broker: GoldenBroker, password: str) -> pika.BlockingConnection:
    credentials = pika.PlainCredentials(USER, password)
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.amqp_port, VHOST, credentials)
    )


def fill(broker: GoldenBroker) -> None:
    broker.manage("PUT", f"/api/vhosts/{VHOST}", {"default_queue_type": "quorum"})
    broker.manage("POST", f"/api/vhosts/{VHOST}/deletion/protection")
    broker.manage("PUT", f"/api/users/{USER}", {"password": PASSWORDS[0], "tags": "monitoring"})
    rights = dict.fromkeys(("configure", "write", "read"), ".*")
    broker.manage("PUT", f"/api/permissions/{VHOST}/{USER}", rights)
    path = f"/api/penstock/users/{USER}/passwords"
    broker.manage("POST", path, {"password": PASSWORDS[1]})
    with connect(broker, PASSWORDS[0]) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare(QUEUE, durable=True)
        for body in BODIES:
            channel.basic_publish("", QUEUE, body, pika.BasicProperties(delivery_mode=2))


@pytest.mark.parametrize("ending", ENDINGS)
def test_users_and_quorum_queues_are_what_they_were(ending: str, tmp_path: Path) -> None:
    broker = GoldenBroker(tmp_path, SETTINGS)
    unpack(HERE / f"later-{ending}.tar.gz", tmp_path)
    assert audit_directory(str(broker.data_dir))["damages"] == []
    with broker:
        for password in PASSWORDS:
            connect(broker, password).close()
        vhost = broker.manage("GET", f"/api/vhosts/{VHOST}")
        assert vhost["default_queue_type"] == "quorum"
        assert vhost["protected_from_deletion"] is True
        assert broker.manage("GET", f"/api/queues/{VHOST}/{QUEUE}")["type"] == "quorum"
        with connect(broker, PASSWORDS[1]) as connection:
            channel = connection.channel()
            found = [channel.basic_get(QUEUE, auto_ack=True)[2] for _ in BODIES]
        assert found == BODIES


def make(ending: str) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-golden-") as scratch:
        broker = GoldenBroker(Path(scratch) / "made", SETTINGS)
        broker.start()
        fill(broker)
        if ending == "killed":
            kill(broker)
        else:
            broker.stop()
        names_no_place(broker.data_dir, HERE.parents[1])
        pack(broker.data_dir, HERE / f"later-{ending}.tar.gz")


if __name__ == "__main__":
    for one in ENDINGS:
        make(one)
