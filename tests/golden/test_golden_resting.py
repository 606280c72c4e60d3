"""What a node leaves whose segments refer to journal files is opened by the broker of today.

``resting-clean.tar.gz`` and ``resting-killed.tar.gz`` are a node that stands alone, stopped in
order or by SIGKILL, with one queue of ``COUNT`` persistent messages of some 4 KB, of which the
first are acknowledged.  They are made anew only if a format changes:

    PYTHONPATH=src:. python -m tests.golden.test_golden_resting
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pika
import pytest

from penstock.cli.data.audit import audit_directory
from penstock.storage.index.segment_codec import REFERENCES
from tests.golden.lines import GoldenBroker
from tests.golden.make import kill, names_no_place, pack, unpack
from tests.golden.test_golden_streams import ENDINGS, HERE, SETTINGS
from tests.helpers.nsq_broker import eventually

COUNT, ENDED = 1000, 100
QUEUE = "rests"


def body(number: int) -> bytes:
    return b"m%d " % number * 800


def connect(broker: GoldenBroker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.amqp_port))


def kinds(broker: GoldenBroker) -> set[int]:
    """Of the blocks in all segments."""
    found: set[int] = set()
    for path in (broker.data_dir / "queues").rglob("*.idx"):
        data, at = path.read_bytes(), 0
        while at + 56 <= len(data) and data[at : at + 3] == b"PSX":
            found.add(int.from_bytes(data[at + 12 : at + 16], "big"))
            at += 56 + int.from_bytes(data[at + 44 : at + 52], "big")
    return found


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_rests_in_the_journal_is_found(ending: str, tmp_path: Path) -> None:
    broker = GoldenBroker(tmp_path, SETTINGS)
    unpack(HERE / f"resting-{ending}.tar.gz", tmp_path)
    assert REFERENCES in kinds(broker)
    report = audit_directory(str(broker.data_dir))
    assert report["damages"] == []
    assert [row["messages"] for row in report["queues"]] == [COUNT - ENDED]
    with broker, connect(broker) as connection:
        channel = connection.channel()
        found = [channel.basic_get(QUEUE, auto_ack=True) for _ in range(COUNT - ENDED)]
        assert [one[2] for one in found] == [body(number) for number in range(ENDED, COUNT)]
        redelivered = {one[0].redelivered for one in found}
        assert redelivered == {ending == "killed"}
        assert channel.basic_get(QUEUE)[0] is None


def make(ending: str) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-golden-") as scratch:
        broker = GoldenBroker(Path(scratch) / "made", SETTINGS)
        broker.start()
        with connect(broker) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            for number in range(COUNT):
                if number == COUNT - 1:
                    channel.confirm_delivery()  # all before it are on disk with it
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", QUEUE, body(number), properties)
            for _ in range(ENDED):
                channel.basic_get(QUEUE, auto_ack=True)
            eventually(lambda: REFERENCES in kinds(broker))
        if ending == "killed":
            kill(broker)
        else:
            broker.stop()
        names_no_place(broker.data_dir, HERE.parents[1])
        pack(broker.data_dir, HERE / f"resting-{ending}.tar.gz")


if __name__ == "__main__":
    for one in ENDINGS:
        make(one)
