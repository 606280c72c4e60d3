"""IDENTIFY: defaults, limits and texts, as nsqd has them."""

from __future__ import annotations

import json

import pytest

from penstock.protocols.nsq.codec.commands import BadCommand
from penstock.protocols.nsq.codec.identify import IdentifyLimits, Identity


def asked(body: bytes, limits: IdentifyLimits | None = None) -> Identity:
    identity = Identity(limits or IdentifyLimits(), "10.0.0.1")
    identity.take(body)
    return identity


def test_nothing_asked_is_every_default() -> None:
    identity = asked(b"{}")
    assert (identity.client_id, identity.hostname) == ("", "")
    assert identity.heartbeat_ms == 30_000
    assert identity.message_timeout_ms == 60_000
    assert (identity.output_bytes, identity.output_ms) == (16_384, 250)


def test_what_is_asked_within_limits_is_given() -> None:
    body = {
        "client_id": "c",
        "feature_negotiation": True,
        "heartbeat_interval": 1000,
        "msg_timeout": 2000,
        "output_buffer_size": 64,
        "output_buffer_timeout": 25,
        "sample_rate": 10,
        "tls_v1": True,
        "deflate": True,
        "deflate_level": 9,
        "short_id": [1],
    }
    identity = asked(json.dumps(body).encode(), IdentifyLimits(offers_tls=True))
    answer = identity.response()
    assert answer == (
        b'{"max_rdy_count":2500,"version":"1.3.0","max_msg_timeout":900000,"msg_timeout":2000,'
        b'"tls_v1":true,"deflate":true,"deflate_level":6,"max_deflate_level":6,"snappy":false,'
        b'"sample_rate":10,"auth_required":false,"output_buffer_size":64,'
        b'"output_buffer_timeout":25}'
    )
    assert identity.heartbeat_ms == 1000


def test_minus_one_turns_things_off() -> None:
    identity = asked(b'{"heartbeat_interval":-1,"output_buffer_size":-1}')
    assert (identity.heartbeat_ms, identity.output_bytes, identity.output_ms) == (0, 1, 0)


def test_tls_is_given_only_where_there_is_a_certificate() -> None:
    assert not asked(b'{"feature_negotiation":true,"tls_v1":true}').tls


def test_names_are_read_as_go_reads_them() -> None:
    assert asked(b'{"Client_ID":"x","hostname":null}').client_id == "x"
    assert asked(b"null").client_id == ""


@pytest.mark.parametrize(
    "body, text",
    [
        (b'{"heartbeat_interval":999}', "IDENTIFY heartbeat interval (999) is invalid"),
        (b'{"heartbeat_interval":60001}', "IDENTIFY heartbeat interval (60001) is invalid"),
        (b'{"heartbeat_interval":-2}', "IDENTIFY heartbeat interval (-2) is invalid"),
        (b'{"output_buffer_timeout":24}', "IDENTIFY output buffer timeout (24) is invalid"),
        (b'{"output_buffer_size":63}', "IDENTIFY output buffer size (63) is invalid"),
        (b'{"sample_rate":100}', "IDENTIFY sample rate (100) is invalid"),
        (b'{"msg_timeout":999}', "IDENTIFY msg timeout (999) is invalid"),
        (b'{"msg_timeout":900001}', "IDENTIFY msg timeout (900001) is invalid"),
        (b'{"msg_timeout":"1s"}', "IDENTIFY failed to decode JSON body"),
        (b'{"msg_timeout":1.5}', "IDENTIFY failed to decode JSON body"),
        (b'{"sample_rate":4294967296}', "IDENTIFY failed to decode JSON body"),
        (b'{"snappy":1}', "IDENTIFY failed to decode JSON body"),
        (b'{"client_id":NaN}', "IDENTIFY failed to decode JSON body"),
        (b"[]", "IDENTIFY failed to decode JSON body"),
        (b"[" * 100_000, "IDENTIFY failed to decode JSON body"),
    ],
)
def test_what_is_wrong_is_said_as_nsqd_says_it(body: bytes, text: str) -> None:
    with pytest.raises(BadCommand) as refused:
        asked(body)
    assert (refused.value.code, refused.value.text) == ("E_BAD_BODY", text)


def test_both_compressions_are_too_many() -> None:
    with pytest.raises(BadCommand) as refused:
        asked(b'{"feature_negotiation":true,"snappy":true,"deflate":true}')
    assert refused.value.code == "E_IDENTIFY_FAILED"
    assert refused.value.text == "cannot enable both deflate and snappy compression"
