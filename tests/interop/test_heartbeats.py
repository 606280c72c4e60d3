"""How often the broker gives a sign of life, measured on the socket.

Clients count silence too: amqp091-go, for one, gives up after one and a half intervals.  RabbitMQ
looks twice per interval and sends when it has sent nothing since, so it is never silent for much
longer than one interval, whenever the last real frame went out.
"""

from __future__ import annotations

import itertools
import selectors
import time

from tests.helpers.broker_process import BrokerProcess
from tests.helpers.raw_amqp import RawClient, open_client

HEARTBEAT = b"\x08\x00\x00\x00\x00\x00\x00\xce"
PHASES = 10
LISTEN_S = 3.0
SILENCE_MAX_S = 1.3


def test_the_broker_is_never_silent_for_long(broker: BrokerProcess) -> None:
    """Ten clients with an interval of a second, each last answered at its own tenth of a second.

    A broker with a slow clock of its own is late for some of them.
    """
    clients = [open_client(broker.url, heartbeat=1) for _ in range(PHASES)]
    heard: dict[RawClient, list[float]] = {}
    for client in clients:
        client.call(1, "queue.declare", queue="", exclusive=True)
        heard[client] = [time.monotonic()]
        time.sleep(1 / PHASES)
    with selectors.DefaultSelector() as waiting:
        for client in clients:
            waiting.register(client.sock, selectors.EVENT_READ, client)
        while time.monotonic() < heard[clients[-1]][0] + LISTEN_S:
            for key, _ in waiting.select(0.1):
                assert client_hears(key.data), "the broker closed the connection"
                heard[key.data].append(time.monotonic())
            for client in clients:
                client.sock.sendall(HEARTBEAT)
    ended = time.monotonic()
    for client in clients:
        client.close_socket()
    longest_s = [
        max(later - earlier for earlier, later in itertools.pairwise([*times, ended]))
        for times in heard.values()
    ]
    assert max(longest_s) < SILENCE_MAX_S, sorted(longest_s)


def client_hears(client: RawClient) -> bool:
    return client.sock.recv(4096) != b""
