"""What an NSQ client can make this node keep, and what becomes of one that has ended."""

from __future__ import annotations

import pytest

from tests.helpers.nsq_pair import NsqBroker
from tests.helpers.raw_nsq import identify, pub


@pytest.fixture
def node() -> NsqBroker:
    return NsqBroker()


def test_who_goes_on_before_its_layer_is_up_is_refused(node: NsqBroker) -> None:
    client = node.nsq_client()
    node.broker.admission.vhost_reasons["/"] = "over budget"
    node.run()
    client.send(pub("t", b"m") + identify(feature_negotiation=True, deflate=True))
    for _ in range(40):
        client.send(b"x" * 4096)
    assert len(client.session._line.take_rest()) <= 64 * 1024
    node.broker.admission.vhost_reasons.clear()
    node.run()
    assert client.heard()[2:] == [b"E_INVALID more than 65536 bytes before a layer was up"]
    assert client.lost
    assert node.layers.put == []
