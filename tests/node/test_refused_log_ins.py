"""Guesses at passwords on the sockets of a broker: answered late, and few lines in the log."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest

from penstock.broker.rules.bounded_events import TOLD_MAX
from penstock.broker.rules.log_ins import DELAY_MS, FREE_MAX
from penstock_ranges import frames as range_frames
from tests.helpers import raw_codec as codec
from tests.helpers.live_broker import LiveBroker

GUESSES = int(TOLD_MAX) + 5


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(tmp_path_factory.mktemp("guesses") / "broker") as running:
        yield running


def amqp(sock: socket.socket) -> bytes:
    sock.sendall(codec.PROTOCOL_HEADER)
    sock.recv(1 << 16)
    start_ok = codec.method_frame(
        0,
        "connection.start-ok",
        client_properties={"capabilities": {"authentication_failure_close": True}},
        mechanism="PLAIN",
        response="\0guest\0wrong",
        locale="en_US",
    )
    sock.sendall(start_ok)
    return sock.recv(1 << 16)


def ranges(sock: socket.socket) -> bytes:
    sock.sendall(range_frames.MAGIC + range_frames.encode_login("guest", "wrong", "/"))
    return sock.recv(1 << 16)


@pytest.mark.parametrize(
    "guess, address, word",
    [(amqp, "127.0.0.2", b"ACCESS_REFUSED"), (ranges, "127.0.0.3", b"Login was refused")],
)
def test_guesses_are_answered_late_and_are_few_lines(
    live: LiveBroker, guess: Callable[[socket.socket], bytes], address: str, word: bytes
) -> None:
    port = urlsplit(live.url).port
    assert port is not None

    def answer_s(_number: int) -> float:
        with socket.create_connection(("127.0.0.1", port), 20, (address, 0)) as sock:
            began_s = time.monotonic()
            assert word in guess(sock)
            return time.monotonic() - began_s

    with ThreadPoolExecutor(GUESSES) as pool:
        times_s = list(pool.map(answer_s, range(GUESSES)))
    late = [one for one in times_s if one >= DELAY_MS / 1000 - 0.1]
    assert len(late) == GUESSES - FREE_MAX, times_s
    lines = [one for one in live.output().splitlines() if address in one and "refused" in one]
    assert 0 < len(lines) <= TOLD_MAX
