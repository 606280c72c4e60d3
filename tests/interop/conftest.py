"""Unmodified clients against a broker process: fixtures they share.

Every test here is marked ``interop``.  With ``PENSTOCK_TEST_URL=rabbitmq`` the same tests run
against the real RabbitMQ, which is how each expectation in this folder was proved.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.helpers.broker_process import BrokerProcess

HERE = Path(__file__).parent
_numbers = itertools.count(1)
# Its errors are raised as well; a lost connection, meant or not, fills pages otherwise.
logging.getLogger("pika").setLevel(logging.CRITICAL)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.interop)


@pytest.fixture
def name() -> str:
    """A name that no other test of this process uses."""
    return f"interop-{next(_numbers)}"


@pytest.fixture
def connect_to() -> Iterator[Callable[..., pika.BlockingConnection]]:
    """Opens pika connections to a URL; they are closed after the test."""
    opened: list[pika.BlockingConnection] = []

    def open_one(url: str, **changes: object) -> pika.BlockingConnection:
        parameters = pika.URLParameters(url)
        for key, value in changes.items():
            setattr(parameters, key, value)
        connection = pika.BlockingConnection(parameters)
        opened.append(connection)
        return connection

    yield open_one
    for connection in opened:
        if connection.is_open:
            connection.close()
        else:
            # pika leaves two sockets open when the broker goes away.
            connection._cleanup()


@pytest.fixture
def connect(
    broker: BrokerProcess, connect_to: Callable[..., pika.BlockingConnection]
) -> Callable[..., pika.BlockingConnection]:
    """Opens pika connections to the shared broker; keywords change the parameters."""
    return functools.partial(connect_to, broker.url)


@pytest.fixture
def connection(connect: Callable[..., pika.BlockingConnection]) -> pika.BlockingConnection:
    return connect()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> BlockingChannel:
    return connection.channel()
