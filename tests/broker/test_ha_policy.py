"""What a policy may say of mirrors; the refusals are RabbitMQ 3.10.8's, asked on 2026-11-22.

For an ``ha-mode`` that is no text it answers 500; that one is refused here in the same words.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.rules.ha_policy import COUNT_MAX, NO_MIRRORS, read_ha_policy
from penstock.core.errors import PreconditionFailed

ALL: dict[str, Any] = {"ha-mode": "all"}
EXACTLY: dict[str, Any] = {"ha-mode": "exactly"}
NODES: dict[str, Any] = {"ha-mode": "nodes"}
NO_MODE = "ha-mode must be specified to specify ha-params, ha-sync-mode or ha-promote-on-shutdown"
NUMBER = 'ha-mode="exactly" takes an integer, {} given'
LIST = 'ha-mode="nodes" takes a list, {} given'
TEXTS = 'ha-mode="nodes" takes a list of strings, {} was not a string'
SYNC = 'ha-sync-mode must be "manual" or "automatic", got {}'
BATCH = "ha-sync-batch-size takes an integer greater than 0, {} given"
SHUTDOWN = 'ha-promote-on-shutdown must be "always" or "when-synced", got {}'
FAILURE = 'ha-promote-on-failure must be "always" or "when-synced", got {}'

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"ha-params": 2}, NO_MODE),
    ({"ha-sync-mode": "automatic"}, NO_MODE),
    ({"ha-sync-batch-size": 5}, NO_MODE),
    ({"ha-promote-on-failure": "always"}, NO_MODE),
    ({"ha-promote-on-shutdown": "always"}, NO_MODE),
    ({"ha-mode": "some"}, '<<"some">> is not a valid ha-mode value'),
    ({"ha-mode": ""}, "<<>> is not a valid ha-mode value"),
    ({"ha-mode": 'x"y'}, '<<"x\\"y">> is not a valid ha-mode value'),
    ({"ha-mode": "a\nb"}, '<<"a\\nb">> is not a valid ha-mode value'),
    ({"ha-mode": 2}, "2 is not a valid ha-mode value"),
    ({"ha-mode": None}, "null is not a valid ha-mode value"),
    ({"ha-mode": ["all"]}, '[<<"all">>] is not a valid ha-mode value'),
    (ALL | {"ha-params": 2}, 'ha-mode="all" does not take parameters'),
    (ALL | {"ha-params": []}, 'ha-mode="all" does not take parameters'),
    (ALL | {"ha-params": None}, 'ha-mode="all" does not take parameters'),
    (EXACTLY, NUMBER.format("none")),
    (EXACTLY | {"ha-params": 0}, NUMBER.format("0")),
    (EXACTLY | {"ha-params": -1}, NUMBER.format("-1")),
    (EXACTLY | {"ha-params": True}, NUMBER.format("true")),
    (EXACTLY | {"ha-params": "2"}, NUMBER.format('<<"2">>')),
    (EXACTLY | {"ha-params": "none"}, NUMBER.format('<<"none">>')),
    (EXACTLY | {"ha-params": 1.5}, NUMBER.format("1.5")),
    (EXACTLY | {"ha-params": 2.0}, NUMBER.format("2.0")),
    (EXACTLY | {"ha-params": None}, NUMBER.format("null")),
    (EXACTLY | {"ha-params": ["a"]}, NUMBER.format('[<<"a">>]')),
    (EXACTLY | {"ha-params": {"a": 1}}, NUMBER.format('#{<<"a">> => 1}')),
    (NODES, LIST.format("none")),
    (NODES | {"ha-params": "a"}, LIST.format('<<"a">>')),
    (NODES | {"ha-params": 3}, LIST.format("3")),
    (NODES | {"ha-params": {"a": 1}}, LIST.format('#{<<"a">> => 1}')),
    (NODES | {"ha-params": []}, 'ha-mode="nodes" list must be non-empty'),
    (NODES | {"ha-params": ["a", 1]}, TEXTS.format("[1]")),
    (
        NODES | {"ha-params": ["a", 1, None, "b", True, 2.5, ["c"]]},
        TEXTS.format('[1,null,true,2.5,[<<"c">>]]'),
    ),
    (ALL | {"ha-sync-mode": "later"}, SYNC.format('<<"later">>')),
    (ALL | {"ha-sync-mode": 1}, SYNC.format("1")),
    (ALL | {"ha-sync-mode": None}, SYNC.format("null")),
    (ALL | {"ha-sync-mode": ["x", 1]}, SYNC.format('[<<"x">>,1]')),
    (ALL | {"ha-sync-mode": {"k": "v"}}, SYNC.format('#{<<"k">> => <<"v">>}')),
    (ALL | {"ha-sync-batch-size": 0}, BATCH.format("0")),
    (ALL | {"ha-sync-batch-size": -3}, BATCH.format("-3")),
    (ALL | {"ha-sync-batch-size": "5"}, BATCH.format('<<"5">>')),
    (ALL | {"ha-sync-batch-size": 1.5}, BATCH.format("1.5")),
    (ALL | {"ha-sync-batch-size": True}, BATCH.format("true")),
    (ALL | {"ha-sync-batch-size": None}, BATCH.format("null")),
    (ALL | {"ha-promote-on-failure": 1}, FAILURE.format("1")),
    (ALL | {"ha-promote-on-failure": "no"}, FAILURE.format('<<"no">>')),
    (ALL | {"ha-promote-on-shutdown": ""}, SHUTDOWN.format("<<>>")),
    (ALL | {"ha-promote-on-shutdown": True}, SHUTDOWN.format("true")),
    # Which one is told when several are wrong:
    (
        ALL | {"ha-sync-mode": "x", "ha-sync-batch-size": 0, "ha-promote-on-failure": "x"},
        SYNC.format('<<"x">>'),
    ),
    (ALL | {"ha-sync-batch-size": 0, "ha-promote-on-shutdown": "x"}, BATCH.format("0")),
    (
        ALL | {"ha-promote-on-failure": "y", "ha-promote-on-shutdown": "x"},
        SHUTDOWN.format('<<"x">>'),
    ),
    (EXACTLY | {"ha-params": 0, "ha-sync-mode": "x"}, NUMBER.format("0")),
    ({"ha-mode": "x", "ha-params": 0}, '<<"x">> is not a valid ha-mode value'),
]


@pytest.mark.parametrize("definition, text", REFUSED)
def test_it_is_refused_in_rabbitmqs_words(definition: dict[str, Any], text: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        read_ha_policy(definition)
    assert str(caught.value) == text


def test_a_whole_policy_is_read() -> None:
    policy = read_ha_policy(
        {
            "ha-mode": "exactly",
            "ha-params": 2,
            "ha-sync-mode": "automatic",
            "ha-sync-batch-size": 100,
            "ha-promote-on-failure": "always",
            "max-length": 5,
        }
    )
    assert (policy.mode, policy.copies, policy.automatic) == ("exactly", 2, True)
    assert (policy.batch_messages, policy.on_failure) == (100, "always")
    assert policy.on_shutdown == "when-synced"


def test_what_holds_where_nothing_is_said() -> None:
    policy = read_ha_policy({"ha-mode": "nodes", "ha-params": ["b@h", "a@h", "b@h"]})
    assert policy.nodes == ("b@h", "a@h", "b@h")
    assert (policy.automatic, policy.batch_messages) == (False, 4096)
    assert (policy.on_failure, policy.on_shutdown) == ("when-synced", "when-synced")
    assert read_ha_policy({"max-length": 5}) is NO_MIRRORS
    assert NO_MIRRORS.mode == ""


def test_a_number_that_nobody_has_is_as_large_as_can_be() -> None:
    """RabbitMQ takes any."""
    policy = read_ha_policy(EXACTLY | {"ha-params": 10**30, "ha-sync-batch-size": 10**30})
    assert (policy.copies, policy.batch_messages) == (COUNT_MAX, COUNT_MAX)
