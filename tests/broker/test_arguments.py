"""What RabbitMQ 3.10.8 answered when a queue was declared with one odd argument."""

from __future__ import annotations

import pytest

from penstock.broker.rules.arguments import check_queue_arguments
from penstock.core.errors import PreconditionFailed
from penstock.routing.headers import float_term

TEN_YEARS_MS = 315_360_000_000

ACCEPTED = [
    ("x-message-ttl", 4_294_967_296),
    ("x-message-ttl", TEN_YEARS_MS),
    ("x-message-ttl", 0),
    ("x-expires", TEN_YEARS_MS),
    ("x-expires", 1),
    ("x-queue-master-locator", "client-local"),
    ("x-queue-master-locator", "min-masters"),
    ("x-queue-master-locator", "random"),
]
REFUSED = [
    ("x-message-ttl", TEN_YEARS_MS + 1, "{value_too_large,315360000001}"),
    ("x-message-ttl", -5, "{value_negative,-5}"),
    ("x-message-ttl", "5", '"expected integer, got longstr"'),
    ("x-message-ttl", b"\xff", '"expected integer, got binary"'),
    ("x-expires", TEN_YEARS_MS + 1, "{value_too_large,315360000001}"),
    ("x-expires", 0, "{value_zero,0}"),
    ("x-expires", -1, "{value_negative,-1}"),
    ("x-expires", True, '"expected integer, got bool"'),
    ("x-expires", None, '"expected integer, got void"'),
    ("x-expires", [1], '"expected integer, got array"'),
    ("x-expires", {"a": 1}, '"expected integer, got table"'),
    ("x-queue-mode", "odd", "\"unsupported queue mode 'odd'\""),
    ("x-queue-mode", 5, "{unacceptable_type,signedint}"),
]


@pytest.mark.parametrize("key,value", ACCEPTED)
def test_accepted(key: str, value: object) -> None:
    check_queue_arguments({key: value}, "queue 'q' in vhost '/'")


@pytest.mark.parametrize("key,value,term", REFUSED)
def test_refused_in_rabbitmqs_words(key: str, value: object, term: str) -> None:
    with pytest.raises(PreconditionFailed) as refusal:
        check_queue_arguments({key: value}, "queue 'q' in vhost '/'")
    assert str(refusal.value) == f"invalid arg '{key}' for queue 'q' in vhost '/': {term}"


LOCATOR = "x-queue-master-locator"


@pytest.mark.parametrize(
    "value, why",
    [
        ("near", '"<<"near">> invalid queue-master-locator value"'),
        ("", '"<<>> invalid queue-master-locator value"'),
        ("CLIENT-LOCAL", '"<<"CLIENT-LOCAL">> invalid queue-master-locator value"'),
        (1, "{unacceptable_type,signedint}"),
        (None, "{unacceptable_type,void}"),
    ],
)
def test_a_locator_that_nobody_knows(value: object, why: str) -> None:
    """RabbitMQ crashes over it (541), and takes it from exclusive queues, which are located."""
    what = "queue 'q' in vhost '/'"
    with pytest.raises(PreconditionFailed) as refusal:
        check_queue_arguments({LOCATOR: value}, what)
    assert str(refusal.value) == f"invalid arg '{LOCATOR}' for {what}: {why}"
    check_queue_arguments({LOCATOR: value}, what, exclusive=True)


def test_refusals_name_types_by_values_and_not_by_widths() -> None:
    """What RabbitMQ calls byte, unsignedshort or float."""
    for value, shown in ((7, "signedint"), (1 << 40, "long"), (1.5, "double")):
        with pytest.raises(PreconditionFailed, match=f"{{unacceptable_type,{shown}}}"):
            check_queue_arguments({"x-queue-mode": value}, "queue 'q' in vhost '/'")


@pytest.mark.parametrize(
    "value, shown",
    [
        *((0.0, "0.0"), (-0.0, "-0.0"), (10.0, "10.0"), (100.0, "100.0"), (1000.0, "1.0e3")),
        *((1200.0, "1.2e3"), (123000.0, "1.23e5"), (12300000.0, "1.23e7"), (100000.5, "100000.5")),
        *((0.05, "0.05"), (0.012, "0.012"), (0.00123, "0.00123"), (0.000123, "1.23e-4")),
        *((0.0001, "0.0001"), (1e-7, "1.0e-7"), (1e20, "1.0e20"), (-1.5e300, "-1.5e300")),
        *((9007199254740991.0, "9007199254740991.0"), (2.0**53, "9.007199254740992e15")),
        (float("inf"), "inf"),
    ],
)
def test_floats_are_written_as_erlang_writes_them(value: float, shown: str) -> None:
    """``io:format("~p", [Value])``."""
    assert float_term(value) == shown
