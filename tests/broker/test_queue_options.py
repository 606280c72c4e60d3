"""Each row of the table of options is what arguments, policies and queues go by."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from penstock.broker.rules.arguments import check_exchange_arguments, check_queue_arguments
from penstock.broker.rules.equivalence import check_same_arguments
from penstock.broker.rules.policies import Policy, PolicyBook, check_policy
from penstock.broker.rules.queue_options import (
    AGE,
    ARGUMENTS,
    EXCHANGE,
    FLAG,
    LIMIT,
    MILLISECONDS,
    NUMBER,
    OPERATORS,
    OPTIONS,
    QUEUE_ARGUMENTS,
    START,
    TEXT,
    WORD,
    Option,
)
from penstock.core.errors import BrokerError, PreconditionFailed
from penstock.queues.context import CLASSIC, QUORUM

ROOT = Path(__file__).resolve().parents[2]
WHAT = "queue 'q' in vhost '/'"
TYPES: dict[str, type] = {
    NUMBER: int,
    MILLISECONDS: int,
    FLAG: bool,
    WORD: str,
    TEXT: str,
    AGE: str,
    START: str,
    EXCHANGE: str,
}
TYPED = [option for option in OPTIONS if option.kind in TYPES]


def named(option: Option) -> str:
    return option.name


def good(option: Option) -> list[object]:
    """The example, all words, and the bounds of a number."""
    bounds = [bound for bound in (option.lowest, option.highest) if bound is not None]
    is_range = option.is_number and not option.words
    return [option.example, *option.words, *(bounds if is_range else [])]


def bad(option: Option) -> list[object]:
    values: list[object] = [None, [], 1.5]
    if TYPES[option.kind] is int:
        values += [option.lowest - 1, True]
        values += [option.highest + 1] if option.highest is not None else []
    return values + (["", "nonsense"] if option.kind in (WORD, AGE, START) else [])


def check_argument(option: Option, value: object) -> None:
    arguments: dict[str, object] = {str(option.argument): value}
    if option.name == "dead-letter-routing-key":
        arguments["x-dead-letter-exchange"] = ""
    arguments.setdefault("x-queue-type", option.types[0])
    if option.applies_to == "queue":
        check_queue_arguments(arguments, WHAT)
    else:
        check_exchange_arguments("direct", arguments, WHAT)


def check_key(option: Option, value: object, operator: bool = False) -> None:
    definition = {option.name: value}
    if option.name.startswith("ha-"):
        definition = {"ha-mode": "exactly", "ha-params": 2} | definition
        if value in ("all", "nodes"):
            definition["ha-params"] = ["a"]
        if value == "all":
            del definition["ha-params"]
    if option.name == "delayed-retry-type":
        definition["delayed-retry-min"] = 1
    check_policy(Policy("p", "", "all", 0, definition), operator)


def test_no_name_stands_twice() -> None:
    assert len({option.name for option in OPTIONS}) == len(OPTIONS)
    assert len(ARGUMENTS) == sum(option.argument is not None for option in OPTIONS)


@pytest.mark.parametrize("option", ARGUMENTS.values(), ids=named)
def test_arguments_are_checked_by_their_rows(option: Option) -> None:
    for value in good(option):
        check_argument(option, value)
    for value in bad(option):
        with pytest.raises(PreconditionFailed, match=f"'{option.argument}'"):
            check_argument(option, value)


@pytest.mark.parametrize("option", QUEUE_ARGUMENTS.values(), ids=named)
def test_every_argument_of_a_queue_is_compared(option: Option) -> None:
    key = str(option.argument)
    check_same_arguments(QUEUE_ARGUMENTS, WHAT, {key: option.example}, {key: option.example})
    other = 77 if TYPES[option.kind] is int else "other"
    with pytest.raises(PreconditionFailed, match=f"inequivalent arg '{key}'"):
        check_same_arguments(QUEUE_ARGUMENTS, WHAT, {key: option.example}, {key: other})


@pytest.mark.parametrize("option", OPTIONS, ids=named)
def test_policies_are_checked_by_their_rows(option: Option) -> None:
    if not option.in_policies:
        with pytest.raises(BrokerError, match=r"not recognised|policy setting"):
            check_key(option, option.example)
        return
    for value in good(option):
        check_key(option, value)
    if option.kind not in TYPES:
        return
    for value in bad(option):
        if value != (option.highest or 0) + 1:  # a policy's numbers go on
            with pytest.raises(PreconditionFailed):
                check_key(option, value)


@pytest.mark.parametrize("option", OPTIONS, ids=named)
def test_operators_say_what_is_a_limit(option: Option) -> None:
    policy = Policy("o", "", "queues", 0, {option.name: option.example})
    if option.name == "delayed-retry-type":
        policy.definition["delayed-retry-min"] = 1
    if option.merge == LIMIT or option.operator:
        check_policy(policy, True)
    else:
        with pytest.raises(BrokerError, match=r"not recognised|policy setting"):
            check_policy(policy, True)


def row_of(book: PolicyBook, kind: str) -> dict[str, object]:
    return book.queue_row(book.queue_settings("q", {"x-queue-type": kind}).policies)


@pytest.mark.parametrize("option", [one for one in TYPED if one.in_policies], ids=named)
def test_which_value_holds(option: Option) -> None:
    """Of policy and operator policy, as people are told of a queue."""
    one, other = (7, 5) if TYPES[option.kind] is int else ("b", "a")
    book = PolicyBook()
    book.policies["p"] = Policy("p", "", "all", 0, {option.name: one})
    book.operator_policies["o"] = Policy("o", "", "all", 0, {option.name: other})
    holds = other if option.merge == LIMIT or option.operator == OPERATORS else one
    kind = QUORUM if option.unsuited == CLASSIC else CLASSIC
    assert row_of(book, kind)["effective_policy_definition"] == {option.name: holds}


@pytest.mark.parametrize("option", [one for one in OPTIONS if one.unsuited], ids=named)
def test_a_policy_does_not_reach_queues_that_cannot_have_its_keys(option: Option) -> None:
    book = PolicyBook()
    definition = {option.name: option.example, "max-length": 5}
    book.policies["p"] = Policy("p", "", "all", 0, definition)
    other = QUORUM if option.unsuited == CLASSIC else CLASSIC
    assert row_of(book, option.unsuited)["policy"] is None
    assert row_of(book, other)["policy"] == "p"


def test_the_page_is_of_this_table() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "gen_queue_options_doc.py"))
    assert tool["main"](["--check"]) == 0, "run python tools/gen_queue_options_doc.py"
