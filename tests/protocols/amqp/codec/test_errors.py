"""Kinds of error and the codes peers are told."""

from __future__ import annotations

import inspect

import pytest

from penstock.core import errors as kinds
from penstock.protocols.amqp.codec import errors
from penstock.protocols.amqp.codec.errors import ProtocolViolation, reply_code


@pytest.mark.parametrize(
    "error, code, name",
    [
        (kinds.NotFound("no queue 'x' in vhost '/'"), 404, "NOT_FOUND"),
        (kinds.AccessRefused("a"), 403, "ACCESS_REFUSED"),
        (kinds.ResourceLocked("a"), 405, "RESOURCE_LOCKED"),
        (kinds.PreconditionFailed("a"), 406, "PRECONDITION_FAILED"),
        (kinds.Blocked("the disk is full"), 406, "PRECONDITION_FAILED"),
        (kinds.NotAllowed("a"), 530, "NOT_ALLOWED"),
        (kinds.CommandInvalid("a"), 503, "COMMAND_INVALID"),
        (kinds.NotImplementedYet("a"), 540, "NOT_IMPLEMENTED"),
        (kinds.Corrupt("/var/lib/penstock/log.7"), 541, "INTERNAL_ERROR"),
        (ZeroDivisionError("x"), 541, "INTERNAL_ERROR"),
        (ProtocolViolation(501, "bad frame", 0x3C0028), 501, "FRAME_ERROR"),
    ],
)
def test_kinds_have_codes(error: Exception, code: int, name: str) -> None:
    assert reply_code(error) == (code, name)


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


def test_kinds_and_codes_agree_on_what_closes_the_connection() -> None:
    for kind, code in errors.KIND_CODES:
        assert errors.is_hard(code) == issubclass(kind, kinds.ConnectionError_), kind


def test_soft_codes_close_only_the_channel() -> None:
    soft = [code for code in errors.NAMES if not errors.is_hard(code)]
    assert soft == [311, 312, 313, 403, 404, 405, 406]
    assert len(errors.NAMES) == 18


def test_a_violation_says_what_it_closes_and_who_did_it() -> None:
    broken = ProtocolViolation(505, "expected header", 0x3C0028)
    assert (broken.code, broken.name) == (505, "UNEXPECTED_FRAME")
    assert (broken.text, broken.method_key) == ("expected header", 0x3C0028)
    assert str(broken) == "UNEXPECTED_FRAME - expected header"
    assert reply_code(ProtocolViolation(404, "gone")) == (404, "NOT_FOUND")
