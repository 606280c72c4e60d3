"""Kinds of error and the codes peers are told."""

from __future__ import annotations

import inspect

import pytest

from penstock.core import errors as kinds
from penstock.protocols.amqp.codec import errors
from penstock.protocols.amqp.codec.errors import (
    ProtocolViolation,
    reply_code,
    reply_text,
    violation,
)


@pytest.mark.parametrize(
    "error, code, text",
    [
        (kinds.NotFound("no queue 'x' in vhost '/'"), 404, "NOT_FOUND - no queue 'x' in vhost '/'"),
        (kinds.AccessRefused("a"), 403, "ACCESS_REFUSED - a"),
        (kinds.ResourceLocked("a"), 405, "RESOURCE_LOCKED - a"),
        (kinds.PreconditionFailed("a"), 406, "PRECONDITION_FAILED - a"),
        (kinds.Blocked("the disk is full"), 406, "PRECONDITION_FAILED - the disk is full"),
        (kinds.NotAllowed("a"), 530, "NOT_ALLOWED - a"),
        (kinds.CommandInvalid("a"), 503, "COMMAND_INVALID - a"),
        (kinds.NotImplementedYet("a"), 540, "NOT_IMPLEMENTED - a"),
        (kinds.Corrupt("/var/lib/penstock/log.7"), 541, "INTERNAL_ERROR"),
        (ZeroDivisionError("x"), 541, "INTERNAL_ERROR"),
        (violation(501, "bad frame", 0x3C0028), 501, "FRAME_ERROR - bad frame"),
    ],
)
def test_kinds_have_codes(error: Exception, code: int, text: str) -> None:
    assert reply_code(error) == (code, text.partition(" - ")[0])
    assert reply_text(error) == text


def test_every_kind_a_broker_raises_has_a_code_of_its_own() -> None:
    abstract = {kinds.BrokerError, kinds.ConnectionError_}
    of_leases = {kinds.NotInFlight, kinds.NotOwner}  # only NSQ settles by id
    no_room = {kinds.Blocked}  # RabbitMQ has no answer for a declaration on a full disk
    undecided = {kinds.Unavailable}  # RabbitMQ's code without a majority is that of its own faults
    # Kinds of another, for readers of ranges and for NSQ over HTTP.
    elsewhere = {kinds.QueueElsewhere, kinds.NoMaster, kinds.AuthRequired}
    elsewhere |= {kinds.LoginRefused, kinds.EntryRefused}  # both are 403
    others = abstract | of_leases | no_room | undecided | elsewhere
    raised = [
        kind
        for _, kind in inspect.getmembers(kinds, inspect.isclass)
        if issubclass(kind, kinds.BrokerError) and kind not in others
    ]
    codes = [reply_code(kind("text"))[0] for kind in raised]
    assert 541 not in codes
    assert len(set(codes)) == len(codes)


def test_that_nothing_can_be_decided_is_told_with_its_reason() -> None:
    """Unlike a fault of ours, whose reason stays in the log."""
    error = kinds.Unavailable("the cluster cannot decide at present: no majority")
    assert reply_code(error) == (541, "INTERNAL_ERROR")
    assert reply_text(error) == f"INTERNAL_ERROR - {error}"
    assert reply_text(AssertionError("secret")) == "INTERNAL_ERROR"


def test_kinds_and_codes_agree_on_what_closes_the_connection() -> None:
    for kind, code in errors.KIND_CODES:
        assert errors.is_hard(code) == issubclass(kind, kinds.ConnectionError_), kind


def test_soft_codes_close_only_the_channel() -> None:
    soft = [code for code in errors.NAMES if not errors.is_hard(code)]
    assert soft == [311, 312, 313, 403, 404, 405, 406]
    assert len(errors.NAMES) == 18


def test_a_violation_says_what_it_closes_and_who_did_it() -> None:
    broken = violation(505, "expected header", 0x3C0028)
    assert (broken.code, broken.name, broken.hard) == (505, "UNEXPECTED_FRAME", True)
    assert (broken.text, broken.method_key) == ("expected header", 0x3C0028)
    assert str(broken) == broken.reply_text() == "UNEXPECTED_FRAME - expected header"
    assert not violation(404, "gone").hard
    soft = ProtocolViolation(404, "NOT_FOUND", "gone", False, 0)
    assert reply_code(soft) == (404, "NOT_FOUND")
