"""The private network of the cluster's tests: what is cut is silent, and what is healed goes on."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.helpers.namespaces import PrivateNetwork, missing_reason

pytestmark = pytest.mark.namespaces

ECHO = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind((sys.argv[1], 7))
print("ready", flush=True)
while True:
    data, peer = one.recvfrom(100)
    one.sendto(data, peer)
"""
ASK = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.settimeout(0.3)
one.sendto(b"hello", (sys.argv[1], 7))
try:
    print(one.recv(100).decode())
except TimeoutError:
    print("silence")
"""


@pytest.fixture(scope="module")
def network() -> Iterator[PrivateNetwork]:
    reason = missing_reason()
    if reason is not None:
        pytest.skip(reason)
    with PrivateNetwork(2) as network:
        echo = network.popen(
            0, [sys.executable, "-c", ECHO, network.address(0)], stdout=subprocess.PIPE
        )
        assert echo.stdout is not None
        assert echo.stdout.readline() == b"ready\n"
        yield network
        echo.kill()
        echo.wait()
        echo.stdout.close()


def is_heard(network: PrivateNetwork) -> bool:
    """A busy machine may need more than one question."""
    return any(answer(network) == "hello" for _ in range(10))


def answer(network: PrivateNetwork) -> str:
    asked = network.on(1, [sys.executable, "-c", ASK, network.address(0)])
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()


def test_hosts_reach_each_other_and_this_process_reaches_them(network: PrivateNetwork) -> None:
    assert is_heard(network)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(5)
        one.sendto(b"from here", (network.address(0), 7))
        assert one.recv(100) == b"from here"


@pytest.mark.parametrize("way", [(0, 1), (1, 0)])
def test_what_is_cut_is_silent_until_it_is_healed(
    network: PrivateNetwork, way: tuple[int, int]
) -> None:
    network.cut_one_way(*way)
    try:
        assert answer(network) == "silence"
    finally:
        network.heal()
    assert is_heard(network)


def test_sides_of_a_split_hear_nothing_of_each_other(network: PrivateNetwork) -> None:
    network.split({0}, {1})
    try:
        assert answer(network) == "silence"
    finally:
        network.heal()
    assert is_heard(network)
