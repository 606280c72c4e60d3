"""The options of queues, exchanges and policies over HTTP: the rows of the broker's own table."""

from __future__ import annotations

from penstock.broker.rules.queue_options import ARGUMENTS, OPTIONS, POLICY_KEYS
from tests.management.conftest import Served

PATH = "/api/penstock/options"


def test_the_options_are_those_of_the_broker(served: Served) -> None:
    rows = served.get(PATH)
    assert [row["name"] for row in rows] == [option.name for option in OPTIONS]
    assert [row["argument"] for row in rows if row["argument"]] == list(ARGUMENTS)
    assert [row["name"] for row in rows if row["policy"]] == list(POLICY_KEYS)
    (overflow,) = [row for row in rows if row["name"] == "overflow"]
    del overflow["doc"]
    assert overflow == {
        "name": "overflow",
        "argument": "x-overflow",
        "policy": True,
        "operator_policy": True,
        "applies_to": "queue",
        "kind": "word",
        "words": ["drop-head", "reject-publish", "reject-publish-dlx"],
        "lowest": 0,
        "highest": None,
        "merge": "the argument, else the policy",
        "label": "Ovfl",
        "types": ["classic", "quorum"],
        "example": "reject-publish",
    }


def test_operator_policies_are_limits_and_what_rabbitmq_takes(served: Served) -> None:
    names = {row["name"] for row in served.get(PATH) if row["operator_policy"]}
    assert names == {
        *("expires", "message-ttl", "max-length", "max-length-bytes", "delivery-limit", "overflow"),
        *("delayed-retry-type", "delayed-retry-min", "delayed-retry-max", "target-group-size"),
        *("max-in-memory-length", "max-in-memory-bytes"),
    }


def test_one_has_to_log_in(served: Served) -> None:
    assert served.raw(PATH).status == 401
