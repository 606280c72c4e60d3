"""Letters that are dear to route are buried some in each turn, in order (the class of H11)."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.helpers import raw_codec as codec
from tests.helpers.connection_pair import QuietBroker

LETTERS = 4


@pytest.mark.parametrize("refused", [False, True], ids=["expired", "refused by a full queue"])
def test_one_turn_routes_some_of_them(refused: bool) -> None:
    chance = random.Random(1)
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    for _ in range(200):
        pattern = ".".join(chance.choice("a*##") for _ in range(50))
        where = {"queue": "q", "exchange": "amq.topic", "routing_key": pattern}
        client.send(codec.method_frame(1, "queue.bind", **where, nowait=True))
    client.call("queue.bind", queue="q", exchange="amq.topic", routing_key="#")
    arguments: dict[str, object] = {"x-dead-letter-exchange": "amq.topic"}
    if refused:
        arguments |= {"x-max-length": 0, "x-overflow": "reject-publish-dlx"}
    else:
        arguments |= {"x-message-ttl": 0}
    client.call("queue.declare", queue="short", arguments=arguments)
    client.call("exchange.declare", exchange="f", type="fanout")
    client.call("queue.bind", queue="short", exchange="f", routing_key="")
    fates = node.broker.dead_letters.fates
    for number in range(LETTERS):
        key = ".".join("a" for _ in range(80 + number))
        method = codec.method_frame(1, "basic.publish", exchange="f", routing_key=key)
        client.send(method + codec.content_frames(1, b"%d" % number, {}), run=False)
    buried = [0]
    while buried[-1] < LETTERS and len(buried) < 100:
        node.turn.begin(node.now_ms, node.mono_ms)
        node.turn.run(node.now_ms, False)
        buried.append(int(fates.expired + fates.too_many))
    assert max(after - before for before, after in pairwise(buried)) == 1
    node.run()
    client.consume("q")
    assert [one for one in client.bodies() if one] == [b"%d" % one for one in range(LETTERS)]
    node.check()
