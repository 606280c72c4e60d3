"""oslo.messaging, OpenStack's RPC and notifications, with its settings for quorum queues.

Queues of topics are durable quorum queues, those of replies and fan-out are quorum queues that
expire.  With stream fan-out (``rabbit_stream_fanout``) a topic has one stream in place of these,
which each server reads from where it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from tests.helpers.broker_process import BrokerProcess
from tests.interop.app_process import AppProcess
from tests.interop.programs import OSLO, built

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]  # it may have to fetch its libraries


@pytest.mark.parametrize("kind", ["quorum", "streams"])
def test_calls_casts_and_notifications(
    own_broker: BrokerProcess,
    tmp_path: Path,
    connect_to: Callable[..., pika.BlockingConnection],
    kind: str,
) -> None:
    program = [*OSLO.command(built(OSLO)), kind]

    def started(name: str, *words: str) -> AppProcess:
        return AppProcess(own_broker.url, name, tmp_path, [*words], program)

    with contextlib.ExitStack() as stack:
        one, two = (stack.enter_context(started(name, "server", name)) for name in ("one", "two"))
        for server in (one, two):
            server.wait_for("server is up")
        for times in (1, 2):
            with started("client", "client") as client:
                client.process.wait(60)
                assert "sum 380" in client.log(), client.log()
            for server in (one, two):
                server.wait_for("noted to all", times)
            one.wait_for("noted to one", times)
            if times == 1:  # servers connect again, and find their queues
                own_broker.kill()
                own_broker.start()
        heard = (one.log() + two.log()).count("heard vm.started of client: {'id': 7}")
        assert heard == 2
        assert [server.log().count("noted to all") for server in (one, two)] == [2, 2]
        fanout = [("compute_fanout", "stream")] if kind == "streams" else []
        for queue, its_type in [("compute", "quorum"), *fanout]:
            channel = connect_to(own_broker.url).channel()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
                channel.queue_declare(queue, durable=True)
            assert f"current is '{its_type}'" in refused.value.reply_text
