"""Looking at messages that cannot be read: the answer is why, not that there are none."""

from __future__ import annotations

import pytest

from penstock.core.errors import NotFound
from penstock.management.api.queues.queue_actions import read_slice
from tests.helpers.connection_pair import QuietBroker

COUNT = 1500
FAR = 1000


@pytest.mark.parametrize("count", [5, 100])
def test_what_cannot_be_read_is_not_shown_as_nothing(count: int) -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", durable=True, arguments={"x-queue-mode": "lazy"})
    for _ in range(COUNT):
        client.publish("", "q", b"x" * 1000, run=False, delivery_mode=2)
    node.run()
    node.files.fail("pread")
    with pytest.raises(NotFound, match="is stopped"):
        read_slice(node.broker, "/", "q", FAR, count, 1 << 20, 0)
