"""The generator's engine against the broker's own codec: what one writes the other reads."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.load import (
    KEY_DELIVER,
    KEY_PUBLISH,
    BrokenStream,
    Composer,
    DeliveryScanner,
    SendTimes,
    due_after_ns,
    due_count,
)
from penstock.client.plan import LoadPlan
from penstock.client.sink import delivery_composer
from penstock.client.templates import composer_for
from penstock.protocols.amqp.codec import methods as m
from penstock.protocols.amqp.codec.methods import decode_method, encode_method
from penstock.protocols.amqp.codec.properties import (
    Properties,
    body_of,
    decode_properties,
    encode_content,
)

UNLIMITED = 1 << 40
SECOND_NS = 1_000_000_000


@dataclass
class Sent:
    """A publish, taken apart by the codec."""

    exchange: str
    routing_key: str
    properties: Properties
    body: bytes
    frame_sizes: list[int]

    @property
    def stamp_ns(self) -> int:
        return int.from_bytes(self.body[:8], "big")

    @property
    def sequence(self) -> int:
        return int.from_bytes(self.body[8:16], "big") & (1 << 48) - 1


def read_frames(data: bytes) -> list[bytes]:
    frames = []
    at = 0
    while at < len(data):
        end = at + 8 + int.from_bytes(data[at + 3 : at + 7], "big")
        assert data[end - 1] == 0xCE
        frames.append(data[at:end])
        at = end
    return frames


def read_publishes(data: bytes) -> list[Sent]:
    frames = read_frames(data)
    starts = [index for index, frame in enumerate(frames) if frame[0] == 1]
    found = []
    for start, stop in zip(starts, [*starts[1:], len(frames)], strict=True):
        method = decode_method(frames[start][7:-1])
        assert method.key == m.BASIC_PUBLISH
        content = b"".join(frames[start + 1 : stop])
        sizes = [len(frame) for frame in frames[start:stop]]
        exchange, key = method.text("exchange"), method.text("routing_key")
        found.append(Sent(exchange, key, decode_properties(content), body_of(content), sizes))
    return found


def plan(**fields: object) -> LoadPlan:
    defaults = {"uri": "amqp://127.0.0.1/", "count": 1}
    return LoadPlan(**(defaults | fields)).check()  # type: ignore[arg-type]


def test_composed_publishes_are_what_the_plan_says() -> None:
    composer = composer_for(plan(size_min_bytes=40, size_max_bytes=40, persistent=True), 3, 4096)
    sent = read_publishes(composer.compose(5, 1 << 20, 1234))
    assert [message.sequence for message in sent] == [1, 2, 3, 4, 5]
    assert {message.stamp_ns for message in sent} == {1234}
    assert {int.from_bytes(message.body[8:10], "big") for message in sent} == {3}
    assert {(message.exchange, message.routing_key) for message in sent} == {("", "penstock.bench")}
    assert {message.properties.delivery_mode for message in sent} == {2}
    assert {len(message.body) for message in sent} == {40}


@pytest.mark.parametrize("size", [0, 1, 7, 8, 15, 16, 17, 4088, 4089, 20_000])
def test_every_size_arrives_in_frames_the_peer_accepts(size: int) -> None:
    composer = composer_for(plan(size_min_bytes=size, size_max_bytes=size), 0, 4096)
    first, second = read_publishes(composer.compose(2, 1 << 20, 99))
    assert len(first.body) == len(second.body) == size
    assert max(first.frame_sizes) <= 4096
    if size >= 8:
        assert first.stamp_ns == 99
    if size >= 16:
        assert (first.sequence, second.sequence) == (1, 2)


def test_a_run_ends_at_its_count_or_its_bytes() -> None:
    composer = composer_for(plan(size_min_bytes=1000, size_max_bytes=1000), 0, 4096)
    assert len(read_publishes(composer.compose(7, 1 << 20, 1))) == 7
    run = composer.compose(UNLIMITED, 10_000, 1)
    assert 10_000 <= len(run) < 12_000
    assert composer.compose(0, 10_000, 1) == b""


def test_varied_publishes_differ_from_their_neighbours_in_every_respect_asked_for() -> None:
    varied = plan(
        varied=True,
        size_min_bytes=16,
        size_max_bytes=65_536,
        exchange="x",
        exchange_type="topic",
        routing_key="k.%d",
        keys=50,
    )
    sent = read_publishes(composer_for(varied, 0, 131_072).compose(2200, 1 << 30, 1))
    for one, other in itertools.pairwise(sent):
        assert one.routing_key != other.routing_key
        # The stamp differs anyway: without it neighbours must differ too.
        assert (one.properties, one.body[16:]) != (other.properties, other.body[16:])
    assert len({message.routing_key for message in sent}) == 50
    assert {message.properties.priority for message in sent} == set(range(10))
    sizes = sorted(len(message.body) for message in sent)
    assert 16 <= sizes[0] < 32
    assert 32_768 < sizes[-1] <= 65_536
    assert 600 < sizes[len(sizes) // 2] < 1700  # evenly over the powers of two
    headers = [message.properties.headers or {} for message in sent]
    assert {len(table) for table in headers} == {1, 2, 3, 4, 5, 6}


def test_two_runs_of_a_varied_plan_send_the_same() -> None:
    varied = plan(size_min_bytes=16, size_max_bytes=900)
    runs = [composer_for(varied, 2, 131_072).compose(50, 1 << 30, 7) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != composer_for(varied, 1, 131_072).compose(50, 1 << 30, 7)


@given(st.integers(1, 10**7), st.integers(1, 8), st.integers(0, 10**6), st.data())
def test_what_is_due_is_what_the_stamps_say(
    rate: int, publishers: int, sequence: int, data: st.DataObject
) -> None:
    offset = data.draw(st.integers(0, publishers - 1))
    due_ns = int(due_after_ns(sequence, rate, publishers, offset))
    exact = (sequence * publishers + offset) * SECOND_NS / rate
    assert due_ns <= exact < due_ns + 1.001
    # Rounding down to a nanosecond, the message is due at most one nanosecond later.
    assert due_count(due_ns + 1, rate, publishers, offset) >= sequence + 1
    if due_ns > 0:
        assert due_count(due_ns - 1, rate, publishers, offset) <= sequence


def test_rated_runs_are_stamped_with_the_time_they_are_due() -> None:
    composer = composer_for(plan(publishers=2, count=2, rate=4), 1, 4096)
    sent = read_publishes(composer.compose_due(3, 1 << 20, 1000, 4, 2, 1))
    quarter_ns = SECOND_NS // 4
    wanted = [1000 + quarter_ns, 1000 + 3 * quarter_ns, 1000 + 5 * quarter_ns]
    assert [message.stamp_ns for message in sent] == wanted


# -- deliveries ----------------------------------------------------------------------------


def chunks_of(stream: bytes, seed: int, longest: int) -> list[bytes]:
    chance = random.Random(seed)
    found = []
    at = 0
    while at < len(stream):
        size = chance.randint(1, longest)
        found.append(stream[at : at + size])
        at += size
    return found


@given(
    st.sampled_from([0, 5, 16, 100, 5000, 140_000]),
    st.integers(0, 10**6),
    st.sampled_from([1, 8, 50, 2000, 10**6]),
)
def test_deliveries_are_counted_wherever_the_chunks_are_cut(
    size: int, seed: int, longest: int
) -> None:
    longest = max(longest, size // 50)  # a few hundred chunks at most
    composer = delivery_composer(1, "c1", size)
    stream = composer.compose(12, 1 << 30, 1000)
    scanner = DeliveryScanner(KEY_DELIVER, 1, 1, 0)
    for chunk in chunks_of(stream, seed, longest):
        scanner.feed(chunk, 5000)
    assert scanner.messages == 12
    assert scanner.body_bytes == 12 * size
    assert (scanner.out_of_order, scanner.foreign, scanner.redelivered) == (0, 0, 0)
    assert scanner.control == []
    assert scanner.latency.count == (12 if size >= 8 else 0)
    assert scanner.latency.greatest == (4000 if size >= 8 else 0)


def test_a_message_counts_when_its_last_byte_has_come() -> None:
    stream = delivery_composer(1, "c", 5000).compose(1, 1 << 20, 1)
    scanner = DeliveryScanner(KEY_DELIVER, 1, 1, 1)
    scanner.feed(stream[:-1], 10)
    assert (scanner.messages, len(scanner.acks)) == (0, 0)
    scanner.feed(stream[-1:], 20)
    assert scanner.messages == 1
    assert scanner.latency.greatest == 19


def delivery(tag: int, body: bytes, *, channel: int = 1, redelivered: bool = False) -> bytes:
    method = encode_method(channel, m.BASIC_DELIVER, ("consumer", tag, redelivered, "x", "key"))
    return method + encode_content(Properties(), body, channel, 131_072)


def stamped(publisher: int, sequence: int) -> bytes:
    mark = publisher << 48 | sequence
    return (1).to_bytes(8, "big") + mark.to_bytes(8, "big") + b"rest"


def test_order_is_judged_per_channel_and_publisher() -> None:
    scanner = DeliveryScanner(KEY_DELIVER, 2, 2, 0)
    for channel, publisher, sequence in [
        (1, 0, 1),
        (1, 1, 1),
        (1, 0, 2),
        (2, 0, 2),  # another queue has its own order
        (1, 0, 4),  # a gap is no disorder: others consume as well
    ]:
        scanner.feed(delivery(1, stamped(publisher, sequence), channel=channel), 10)
    assert scanner.out_of_order == 0
    scanner.feed(delivery(1, stamped(0, 3)), 10)
    scanner.feed(delivery(1, stamped(0, 3)), 10)
    scanner.feed(delivery(1, stamped(2, 9)), 10)
    scanner.feed(delivery(1, stamped(1, 2), redelivered=True), 10)
    assert scanner.out_of_order == 2  # 3 after 4, and 3 a second time
    assert scanner.foreign == 1
    assert scanner.redelivered == 1


def acks_in(scanner: DeliveryScanner) -> list[tuple[int, int, bool]]:
    found = []
    for frame in read_frames(scanner.acks.getvalue()):
        method = decode_method(frame[7:-1])
        assert method.key == m.BASIC_ACK
        channel = int.from_bytes(frame[1:3], "big")
        found.append((channel, method.number("delivery_tag"), method.flag("multiple")))
    return found


def test_acks_come_one_by_one_or_every_nth_with_the_rest_at_the_end() -> None:
    each = DeliveryScanner(KEY_DELIVER, 1, 1, 1)
    third = DeliveryScanner(KEY_DELIVER, 300, 1, 3)
    for tag in range(1, 6):
        each.feed(delivery(tag, b"body"), 1)
        third.feed(delivery(tag, b"body", channel=300), 1)
    assert acks_in(each) == [(1, tag, False) for tag in range(1, 6)]
    assert acks_in(third) == [(300, 3, True)]
    third.settle_rest()
    assert acks_in(third) == [(300, 3, True), (300, 5, True)]


def test_other_methods_are_handed_on_with_their_channel() -> None:
    scanner = DeliveryScanner(KEY_DELIVER, 1, 1, 0)
    cancel = encode_method(1, m.BASIC_CANCEL, ("consumer", False))
    close = encode_method(0, m.CONNECTION_CLOSE, (320, "CONNECTION_FORCED - " + "x" * 200, 0, 0))
    heartbeat = b"\x08\x00\x00\x00\x00\x00\x00\xce"
    for chunk in chunks_of(delivery(1, b"") + cancel + heartbeat + close, 1, 30):
        scanner.feed(chunk, 1)
    assert scanner.messages == 1
    assert scanner.control == [(1, cancel[7:-1]), (0, close[7:-1])]


def test_a_method_longer_than_any_delivery_is_read_too() -> None:
    product: dict[str, object] = {"product": "x" * 5000}
    start = encode_method(0, m.CONNECTION_START, (0, 9, product, b"PLAIN", b"en_US"))
    scanner = DeliveryScanner(KEY_DELIVER, 1, 1, 0)
    scanner.feed(start[:3000], 1)
    scanner.feed(start[3000:] + delivery(1, b"after"), 1)
    assert scanner.control == [(0, start[7:-1])]
    assert scanner.messages == 1


@pytest.mark.parametrize(
    "stream",
    [
        delivery(1, b"body")[:-1] + b"\x00",
        delivery(1, b"body", channel=2),
        delivery(1, b"body") + delivery(1, b"body")[-12:],
    ],
    ids=["frame end", "channel", "body without header"],
)
def test_a_broken_stream_is_said_to_be_one(stream: bytes) -> None:
    with pytest.raises(BrokenStream):
        DeliveryScanner(KEY_DELIVER, 1, 1, 0).feed(stream, 1)


def test_the_scanner_counts_publishes_for_the_sink() -> None:
    scanner = DeliveryScanner(KEY_PUBLISH, 1, 2, 0)
    scanner.feed(composer_for(plan(), 1, 131_072).compose(9, 1 << 20, 1), 2)
    assert (scanner.messages, scanner.control) == (9, [])


# -- confirms ------------------------------------------------------------------------------


def confirm(tag: int, *, multiple: bool = False, nack: bool = False) -> bytes:
    if nack:
        return encode_method(1, m.BASIC_NACK, (tag, multiple, False))
    return encode_method(1, m.BASIC_ACK, (tag, multiple))


@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 1))))
def test_confirms_are_counted_like_a_set_would(
    window: int, steps: list[tuple[bool, bool, float]]
) -> None:
    ledger = SendTimes(window)
    open_tags: set[int] = set()
    sent = nacked = 0
    for multiple, nack, where in steps:
        room = ledger.room()
        assert room <= window - len(open_tags)
        ledger.note_sent(room, 100 + sent)
        open_tags |= set(range(sent + 1, sent + room + 1))
        sent += room
        tag = sorted(open_tags)[int(where * (len(open_tags) - 1))]
        settled = {other for other in open_tags if other <= tag} if multiple else {tag}
        open_tags -= settled
        nacked += len(settled) if nack else 0
        ledger.feed(confirm(tag, multiple=multiple, nack=nack), 1_000_000)
        assert ledger.confirmed == sent - len(open_tags)
        assert ledger.nacked == nacked
        assert ledger.latency.count == ledger.confirmed


def test_confirm_latency_is_counted_from_each_messages_own_time() -> None:
    ledger = SendTimes(10)
    ledger.note_sent(2, 1_000)
    ledger.note_sent(1, 5_000)
    ledger.feed(confirm(3, multiple=True), 6_000)
    assert ledger.latency.packed() == packed_of([5_000, 5_000, 1_000])
    ledger.note_due(1, 10_000, 1, 1, 0)  # message 4 is due three seconds after the start
    ledger.feed(confirm(4), 10_000 + 3 * SECOND_NS + 77)
    assert ledger.latency.packed() == packed_of([77, 5_000, 5_000, 1_000])


def packed_of(values: list[int]) -> list[list[int]]:
    from penstock.core.counting.histogram import Histogram

    histogram = Histogram()
    for value in values:
        histogram.add(value, 1)
    return histogram.packed()


def test_confirms_cut_anywhere_and_mixed_with_other_methods() -> None:
    ledger = SendTimes(100)
    ledger.note_sent(30, 1)
    blocked = encode_method(0, m.CONNECTION_BLOCKED, ("low on memory",))
    stream = blocked + b"".join(confirm(tag) for tag in range(1, 31))
    for chunk in chunks_of(stream, 3, 25):
        ledger.feed(chunk, 2)
    assert ledger.confirmed == 30
    assert ledger.control == [(0, blocked[7:-1])]


def test_a_confirm_of_what_was_never_sent_is_a_broken_stream() -> None:
    ledger = SendTimes(5)
    ledger.note_sent(2, 1)
    with pytest.raises(BrokenStream, match="message 3"):
        ledger.feed(confirm(3), 1)


def test_a_template_is_refused_when_its_stamp_has_no_known_size() -> None:
    with pytest.raises(AssertionError):
        Composer(0).add_template(b"prefix", b"suffix", 12)
