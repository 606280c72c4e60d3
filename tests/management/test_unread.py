"""Looking at messages that cannot be read: the answer is why, not that there are none."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.core.errors import NotFound
from penstock.management.api.queue_actions import QueueActionsApi
from penstock.management.api.search import SearchApi
from tests.helpers.connection_pair import QuietBroker

COUNT = 1500
FAR = 1000
LOOKS: dict[str, Callable[[Any], object]] = {
    "messages": lambda api: QueueActionsApi._look(api, "/", "q", FAR, 5, 0),
    "search": lambda api: SearchApi._slice(api, "/", "q", FAR, 0),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_what_cannot_be_read_is_not_shown_as_nothing(look: Callable[[Any], object]) -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", durable=True, arguments={"x-queue-mode": "lazy"})
    for _ in range(COUNT):
        client.publish("", "q", b"x" * 1000, run=False, delivery_mode=2)
    node.run()
    node.files.fail("pread")
    with pytest.raises(NotFound, match="is stopped"):
        look(SimpleNamespace(_broker=node.broker))
