"""The reader of NSQ clients: runs, faults with nsqd's words, and any bytes in any pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.topology.topics import is_name
from penstock.protocols.nsq.codec import contents
from penstock.protocols.nsq.codec.commands import (
    Command,
    FinishRun,
    NsqFault,
    PublishRun,
    Request,
    quoted,
)
from penstock.protocols.nsq.codec.ids import IdFactory
from penstock.protocols.nsq.codec.reader import LINE_BYTES_MAX, NsqReader, ReaderLimits
from tests.helpers.raw_nsq import auth, dpub, fin, identify, mpub, pub, sized

NOW_MS = 1_795_000_000_000
KEY = b"0123456789abcdef"


def new_reader() -> NsqReader:
    return NsqReader(ReaderLimits(1000, 5000, 3_600_000), IdFactory(1), is_name)


def read(data: bytes, reader: NsqReader | None = None) -> list[Command]:
    return (reader or new_reader()).receive(data, NOW_MS)


def bodies(run: Command) -> list[bytes]:
    assert isinstance(run, PublishRun)
    return [contents.body(message.content) for message in run.messages]


def fault(data: bytes) -> tuple[str, str]:
    last = read(data)[-1]
    assert isinstance(last, NsqFault)
    return last.code, last.text


# -- runs --------------------------------------------------------------------------------------


def test_publishes_of_one_line_are_one_run() -> None:
    (run, other) = read(pub("t", b"a") + pub("t", b"bc") + pub("t", b"d") + pub("u", b"e"))
    assert isinstance(run, PublishRun)
    assert isinstance(other, PublishRun)
    assert bodies(run) == [b"a", b"bc", b"d"]
    assert (run.verb, run.topic, run.answers, run.size_bytes) == ("PUB", "t", 3, 4)
    assert (other.topic, other.answers) == ("u", 1)
    ids = [contents.id_of(message) for message in run.messages]
    assert ids == sorted(set(ids))
    assert {message.address for message in run.messages} == {b"\x05nsq.t\x00"}


def test_a_run_may_need_more_ids_than_one_unit_of_time_has() -> None:
    reader = NsqReader(ReaderLimits(10, 5_000_000, 0), IdFactory(1), is_name)
    runs = read(mpub("t", [b"m"] * 4_999), reader)
    while reader.full:
        runs += read(b"", reader)
    messages = [one for run in runs if isinstance(run, PublishRun) for one in run.messages]
    assert len({contents.id_of(one) for one in messages}) == 4_999


def test_an_mpub_is_a_run_and_one_answer() -> None:
    (run,) = read(mpub("t", [b"a", b"b"]))
    assert isinstance(run, PublishRun)
    assert bodies(run) == [b"a", b"b"]
    assert run.answers == 1


def test_a_delayed_publish_is_due_later() -> None:
    (run, at_once) = read(dpub("t", 1500, b"a") + dpub("t", 1500, b"b") + dpub("t", 0, b"c"))
    assert isinstance(run, PublishRun)
    assert isinstance(at_once, PublishRun)
    assert (run.until_ms, len(run.messages)) == (NOW_MS + 1500, 2)
    assert at_once.until_ms == 0


def test_finishes_are_one_run() -> None:
    first, nop, last = read(fin(KEY) * 3 + b"NOP\n" + fin(KEY))
    assert isinstance(first, FinishRun)
    assert isinstance(nop, Request)
    assert isinstance(last, FinishRun)
    assert (first.keys, last.keys) == ([KEY] * 3, [KEY])


def test_an_ephemeral_topic_has_transient_messages() -> None:
    (run,) = read(pub("t#ephemeral", b"m"))
    assert isinstance(run, PublishRun)
    assert run.messages[0].flags == 0
    assert run.messages[0].content[53] == 1


def test_a_carriage_return_is_forgiven() -> None:
    (request,) = read(b"RDY 5\r\n")
    assert isinstance(request, Request)
    assert request.params == [b"RDY", b"5"]


def test_after_identify_and_auth_the_reader_waits() -> None:
    reader = new_reader()
    (request,) = read(identify(client_id="x") + b"compressed", reader)
    assert isinstance(request, Request)
    assert (request.verb, request.body) == (b"IDENTIFY", b'{"client_id": "x"}')
    assert reader.paused
    assert reader.take_rest() == b"compressed"
    assert len(read(auth("s") + b"NOP\n", reader)) == 1
    assert len(read(b"", reader)) == 1


# -- faults ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data, code, text",
    [
        (b"PUB\n", "E_INVALID", "PUB insufficient number of parameters"),
        (b"DPUB t\n", "E_INVALID", "DPUB insufficient number of parameters"),
        (b"PUB a b\n" + sized(b""), "E_BAD_MESSAGE", "PUB invalid message body size 0"),
        (b'PUB a"\xff\n', "E_BAD_TOPIC", 'PUB topic name "a\\"\\xff" is not valid'),
        (b"MPUB $\n", "E_BAD_TOPIC", 'E_BAD_TOPIC MPUB topic name "$" is not valid'),
        (b"DPUB t x\n", "E_INVALID", "DPUB could not parse timeout x"),
        (b"DPUB t -1\n", "E_INVALID", "DPUB could not parse timeout -1"),
        (b"DPUB t 3600001\n", "E_INVALID", "DPUB timeout 3600001 out of range 0-3600000"),
        (
            b"DPUB t 9999999999999999999\n",  # more than an i64 holds
            "E_INVALID",
            "DPUB timeout 9999999999999999999 out of range 0-3600000",
        ),
        (b"PUB t\n\xff\xff\xff\xff", "E_BAD_MESSAGE", "PUB invalid message body size -1"),
        (b"PUB t\n\0\0\x03\xe9", "E_BAD_MESSAGE", "PUB message too big 1001 > 1000"),
        (b"MPUB t\n\0\0\x13\x89", "E_BAD_BODY", "MPUB body too big 5001 > 5000"),
        (b"MPUB t\n\0\0\0\0", "E_BAD_BODY", "MPUB invalid body size 0"),
        (b"MPUB t\n\0\0\0\x01\0\0\0\0", "E_BAD_BODY", "MPUB invalid message count 0"),
        (b"MPUB t\n\0\0\0\x03\0\0\0\x01", "E_BAD_BODY", "MPUB invalid body size 3"),
        (b"MPUB t\n\0\0\0\x08\0\0\0\0", "E_BAD_BODY", "MPUB invalid message count 0"),
        (b"MPUB t\n\0\0\0\x08\0\0\x03\xe8", "E_BAD_BODY", "MPUB invalid message count 1000"),
        (
            b"MPUB t\n" + sized(b"\0\0\0\x01\0\0\0\0"),
            "E_BAD_MESSAGE",
            "MPUB invalid message(0) body size 0",
        ),
        (
            b"MPUB t\n" + sized(b"\0\0\0\x01\0\0\x03\xe9"),
            "E_BAD_MESSAGE",
            "MPUB message too big 1001 > 1000",
        ),
        (
            b"MPUB t\n" + sized(b"\0\0\0\x02\0\0\0\x01a"),
            "E_BAD_MESSAGE",
            "MPUB failed to read message(1) body size",
        ),
        (
            b"MPUB t\n" + sized(b"\0\0\0\x01\0\0\0\x02a"),
            "E_BAD_MESSAGE",
            "MPUB failed to read message body",
        ),
        (
            b"MPUB t\n" + sized(b"\0\0\0\x01\0\0\0\x01aNOP\n"),
            "E_BAD_BODY",
            "MPUB body has 4 bytes behind its last message",
        ),
        (b"IDENTIFY\n\0\0\x13\x89", "E_BAD_BODY", "IDENTIFY body too big 5001 > 5000"),
        (b"AUTH\n\0\0\0\0", "E_BAD_BODY", "AUTH invalid body size 0"),
        (b"x" * LINE_BYTES_MAX, "", ""),
    ],
)
def test_what_is_wrong_is_said_as_nsqd_says_it(data: bytes, code: str, text: str) -> None:
    assert fault(data) == (code, text)


def test_what_was_whole_before_a_fault_counts() -> None:
    run, wrong = read(pub("t", b"a") + pub("t", b"x" * 1001))
    assert bodies(run) == [b"a"]
    assert isinstance(wrong, NsqFault)


def test_nothing_is_read_after_a_fault() -> None:
    reader = new_reader()
    read(b"PUB\n", reader)
    assert read(pub("t", b"a"), reader) == []


def test_the_longest_line_is_read() -> None:
    (request,) = read(b"x" * (LINE_BYTES_MAX - 1) + b"\n")
    assert isinstance(request, Request)


def test_quotes_are_gos() -> None:
    assert quoted('é\n\x01"\\'.encode()) == '"é\\n\\x01\\"\\\\"'


# -- any bytes, in any pieces --------------------------------------------------------------------


topics = st.sampled_from(["t", "u", "e#ephemeral"])
good = st.one_of(
    st.builds(pub, topics, st.binary(min_size=1, max_size=40)),
    st.builds(dpub, topics, st.integers(0, 99), st.binary(min_size=1, max_size=9)),
    st.builds(mpub, topics, st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=4)),
    st.builds(fin, st.binary(min_size=16, max_size=16).filter(lambda key: b"\n" not in key)),
    st.sampled_from([b"NOP\n", b"RDY 3\r\n", b"REQ 0123456789abcdef 5\n", b"\n", b"CLS\n"]),
    st.builds(identify, client_id=st.text(max_size=5)),
    st.builds(auth, st.text(min_size=1, max_size=5)),
)
damaged = st.one_of(
    good,
    st.binary(max_size=30),
    st.builds(
        lambda head, size: head + size,
        st.sampled_from([b"PUB t\n", b"MPUB t\n"]),
        st.binary(min_size=4, max_size=12),
    ),
)
streams = st.lists(damaged, max_size=12).map(b"".join)


def flat(commands: list[Command]) -> list[object]:
    """What the commands say, without where runs end and without ids."""
    said: list[object] = []
    for command in commands:
        if isinstance(command, PublishRun):
            found = bodies(command)
            if command.verb == "MPUB":
                said.append((command.topic, found))
            else:
                said += [(command.verb, command.topic, command.until_ms, one) for one in found]
        elif isinstance(command, FinishRun):
            said += command.keys
        elif isinstance(command, Request):
            said.append((command.params, command.body))
        elif isinstance(command, NsqFault):
            said.append((command.code, command.text))
    return said


def read_in_pieces(data: bytes, cuts: list[int]) -> list[object]:
    reader = new_reader()
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    commands: list[Command] = []
    for start, end in itertools.pairwise(places):
        commands += reader.receive(data[start:end], NOW_MS)
        while reader.paused:
            commands += reader.receive(b"", NOW_MS)
    return flat(commands)


@given(streams, st.lists(st.integers(0, 10_000), max_size=8))
def test_pieces_make_no_difference(data: bytes, cuts: list[int]) -> None:
    assert read_in_pieces(data, cuts) == read_in_pieces(data, [])


@given(st.lists(good, max_size=6).map(b"".join))
def test_byte_by_byte_is_the_same(data: bytes) -> None:
    assert read_in_pieces(data, list(range(len(data)))) == read_in_pieces(data, [])


@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing(data: bytes) -> None:
    assert read_in_pieces(data, [7]) == read_in_pieces(data, [])


def test_what_comes_before_a_login_is_short() -> None:
    reader = NsqReader(ReaderLimits(1 << 20, 5 << 20, 3_600_000), IdFactory(1), is_name)
    (wrong,) = read(b"IDENTIFY\n" + (65_537).to_bytes(4, "big"), reader)
    assert isinstance(wrong, NsqFault)
    assert (wrong.code, wrong.text) == ("E_BAD_BODY", "IDENTIFY body too big 65537 > 65536")
