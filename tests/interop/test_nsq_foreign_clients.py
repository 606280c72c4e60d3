"""go-nsq and nsqjs, unmodified, each in the conversation of NSQ_CONVERSATION.md.

With ``PENSTOCK_TEST_NSQD`` naming the program nsqd the same tests run against it, which is how
each expectation here was proved.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance_nsq.case import Place
from tests.conformance_nsq.servers import Nsqd, Penstock
from tests.helpers import certificates
from tests.helpers.nsq_line import RawNsq, batch
from tests.interop.programs import NSQ_PROGRAMS, Program, built, finish, missing_reason, start

Say = Callable[..., dict[str, Any]]
LAYERS = ("plain", "tls", "snappy", "deflate", "tls,snappy", "tls,deflate")

# The first test of a program may have to fetch its libraries.
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(certificates.MISSING is not None, reason=str(certificates.MISSING)),
]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Where the server listens, with a certificate."""
    program = os.environ.get("PENSTOCK_TEST_NSQD")
    family = Nsqd(Path(program)) if program else Penstock()
    with family.serve("tls") as known:
        yield known


@pytest.fixture(scope="module", params=NSQ_PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> tuple[Program, Path]:
    reason = missing_reason(request.param)
    if reason:
        pytest.skip(reason)
    return request.param, built(request.param)


@pytest.fixture
def say(program: tuple[Program, Path], place: Place) -> Say:
    def say(word: str, *words: object, layers: str = "plain") -> dict[str, Any]:
        address = f"127.0.0.1:{place.port}"
        authority = f"{place.certificates}/ca.pem"
        return finish(start(*program, word, address, *words, LAYERS=layers, AUTHORITY=authority))

    return say


@pytest.fixture
def topic(request: pytest.FixtureRequest, program: tuple[Program, Path]) -> str:
    """A name that no other test uses."""
    word = hashlib.sha256(request.node.name.encode()).hexdigest()[:12]
    return f"{program[0].name}-{word}"


def body(number: int, size: int) -> bytes:
    return (b"%08d:" % number).ljust(size, bytes([number % 251]))


def digest(numbers: range, size: int) -> str:
    return hashlib.sha256(b"".join(body(number, size) for number in numbers)).hexdigest()


def taken(place: Place, topic: str, count: int) -> list[tuple[bytes, int]]:
    """What a client that knows frames only gets from the channel ``c``, finished one by one."""
    client = RawNsq("127.0.0.1", place.port)
    client.magic()
    assert client.call_off_record(f"SUB {topic} c").text == "OK"
    client.send_off_record(b"RDY 100\n")
    found = []
    for _ in range(count):
        event = client.receive_quietly(20)
        assert event.kind == "message", event
        client.settle("FIN", event)
        found.append((event.body, event.attempts))
    client.close_socket()
    return sorted(found)


@pytest.mark.parametrize("layers", LAYERS)
def test_what_it_publishes_is_read_byte_by_byte(
    place: Place, say: Say, topic: str, layers: str
) -> None:
    assert say("publish", topic, 5, 600, 200, layers=layers) == {"confirmed": 600}
    wanted = [(body(number, 200), 1) for number in range(5, 605)]
    assert taken(place, topic, 600) == wanted


@pytest.mark.parametrize("layers", LAYERS)
def test_it_reads_what_is_published(place: Place, say: Say, topic: str, layers: str) -> None:
    client = RawNsq("127.0.0.1", place.port)
    client.magic()
    bodies = [body(number, 200) for number in range(400)]
    for at in range(0, 400, 100):
        answer = client.call_off_record(f"MPUB {topic}", batch(*bodies[at : at + 100]))
        assert answer.text == "OK"
    client.close_socket()
    said = say("consume", topic, "c", 400, layers=layers)
    assert said == {"count": 400, "sha256": digest(range(400), 200), "attempts": 1}


@pytest.mark.parametrize("layers", ["plain", "tls,deflate", "snappy"])
def test_large_messages(say: Say, topic: str, layers: str) -> None:
    assert say("publish", topic, 0, 6, 400_000, layers=layers) == {"confirmed": 6}
    said = say("consume", topic, "c", 6, layers=layers)
    assert said["sha256"] == digest(range(6), 400_000)


def test_touch_requeue_and_deferral(say: Say, topic: str) -> None:
    assert say("behave", topic) == {
        "bodies": ["held", "held", "later"],
        "attempts": [1, 2, 1],
        "held": True,
        "requeued": True,
        "deferred": True,
    }
