"""Dead letters in a whole node without noise: nothing is lost on the way, whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.connection_pair import ClientEnd, QuietBroker


@pytest.fixture
def node() -> QuietBroker:
    return QuietBroker()


def declare(client: ClientEnd, name: str, durable: bool = True, **arguments: object) -> None:
    client.call("queue.declare", queue=name, durable=durable, arguments=arguments)


def with_morgue(client: ClientEnd, **arguments: object) -> None:
    declare(client, "morgue")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "morgue"}
    declare(client, "q", **{f"x-{k.replace('_', '-')}": v for k, v in arguments.items()} | letters)


def counts(node: QuietBroker, name: str) -> tuple[int, int]:
    """Ready, and pending in the backing."""
    backing = node.broker.vhosts["/"].queues[name].backing
    return int(backing.ready_count()), int(backing.tiers.pending.count)


def test_what_died_is_kept_until_its_letter_is_on_disk(node: QuietBroker) -> None:
    client = node.client()
    with_morgue(client)
    client.publish("", "q", b"one", delivery_mode=2)
    node.tick(300)
    taken = client.call("basic.get", queue="q")
    node.committer.hold = True
    client.method(1, "basic.reject", delivery_tag=taken["delivery_tag"], requeue=False)
    assert counts(node, "morgue") == (1, 0)
    assert counts(node, "q") == (0, 1)
    node.committer.hold = False
    node.committer.finish()
    node.tick(300)
    assert counts(node, "q") == (0, 0)
    node.check()


@pytest.mark.parametrize("synced", [False, True])
def test_a_crash_in_between_leaves_one_of_both(tmp_path: Path, synced: bool) -> None:
    definitions = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=definitions)
    client = node.client()
    with_morgue(client)
    for number in range(5):
        client.publish("", "q", b"%d" % number, delivery_mode=2)
    node.tick(300)
    for _ in range(5):
        client.call("basic.get", queue="q")
    node.committer.hold = not synced
    client.method(1, "basic.nack", delivery_tag=5, multiple=True, requeue=False)
    if synced:
        node.tick(300)
        node.tick(300)
    node.definitions.close()
    node.files.kill()
    after = QuietBroker(node.files, definitions)
    found = [counts(after, name)[0] for name in ("q", "morgue")]
    assert found == ([0, 5] if synced else [5, 0])


def test_a_transient_letter_ends_its_message_too(node: QuietBroker) -> None:
    client = node.client()
    with_morgue(client)
    client.publish("", "q", b"transient")
    taken = client.call("basic.get", queue="q")
    client.method(1, "basic.reject", delivery_tag=taken["delivery_tag"], requeue=False)
    node.tick(300)
    assert (counts(node, "q"), counts(node, "morgue")) == ((0, 0), (1, 0))
    node.check()


def test_contents_that_were_paged_out_are_read_for_their_letters() -> None:
    node = QuietBroker(memory_bytes=2_000_000)
    client = node.client()
    with_morgue(client)
    bodies = [b"%d:" % number + b"x" * (6000 if number % 2 else 900) for number in range(600)]
    for number, body in enumerate(bodies):
        client.publish("", "q", body, delivery_mode=2)
        if number % 50 == 0:
            node.tick(300)
    tags = [client.call("basic.get", queue="q")["delivery_tag"] for _ in bodies]
    for _ in range(20):
        node.tick(300)
    vhost = node.broker.vhosts["/"]
    pending = vhost.queues["q"].backing.tiers.pending.live()  # type: ignore[attr-defined]
    assert any(len(message.content) == 0 for message in pending)
    client.method(1, "basic.nack", delivery_tag=tags[-1], multiple=True, requeue=False)
    for _ in range(20):
        node.tick(300)
    assert counts(node, "morgue")[0] == len(bodies)
    taker = node.client()
    taker.consume("morgue")
    found: list[bytes] = []
    while len(found) < len(bodies):
        found += [fields["body"] for _, fields in taker.methods()]
        node.tick(300)
    assert found == bodies


def test_what_is_tried_too_often_dies(node: QuietBroker) -> None:
    client = node.client()
    with_morgue(client, delivery_limit=2)
    client.publish("", "q", b"poison", delivery_mode=2)
    for _ in range(3):
        taken = client.call("basic.get", queue="q")
        client.method(1, "basic.nack", delivery_tag=taken["delivery_tag"], requeue=True)
    node.tick(300)
    assert (counts(node, "q"), counts(node, "morgue")) == ((0, 0), (1, 0))
    letter = client.call("basic.get", queue="morgue")
    assert letter["body"] == b"poison"
    node.check()


def test_a_queue_deleted_meanwhile_has_no_more_letters(node: QuietBroker) -> None:
    client = node.client()
    with_morgue(client)
    client.publish("", "q", b"one", delivery_mode=2)
    taken = client.call("basic.get", queue="q")
    node.committer.hold = True
    client.method(1, "basic.reject", delivery_tag=taken["delivery_tag"], requeue=False)
    client.call("queue.delete", queue="q")
    node.committer.hold = False
    node.committer.finish()
    node.tick(300)
    node.check()


@pytest.mark.slow
def test_a_long_chain_of_letters_does_not_hold_up_a_turn(node: QuietBroker) -> None:
    """Ten thousand messages overflow one queue after the other."""
    client = node.client()
    names = [f"q{number}" for number in range(4)]
    for name, next_name in zip(names, [*names[1:], "morgue"], strict=True):
        declare(
            client,
            name,
            **{
                "x-max-length": 1,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": next_name,
            },
        )
    declare(client, "morgue")
    for number in range(3000):
        client.publish("", "q0", b"%d" % number)
    for _ in range(20):
        node.tick(10)
    assert [counts(node, name)[0] for name in names] == [1, 1, 1, 1]
    assert counts(node, "morgue")[0] == 3000 - 4
    node.check()


def test_bytes_are_those_of_bodies_and_are_counted_right(node: QuietBroker) -> None:
    client = node.client()
    declare(client, "q", **{"x-max-length-bytes": 1000})
    queue = node.broker.vhosts["/"].queues["q"]
    for _ in range(30):
        client.publish("", "q", b"x" * 100, content_type="text/plain")
    assert counts(node, "q")[0] == 10
    assert queue._limiter.body_bytes == 1000
    tags = [client.call("basic.get", queue="q")["delivery_tag"] for _ in range(4)]
    assert queue._limiter.body_bytes == 600
    client.method(1, "basic.nack", delivery_tag=tags[-1], multiple=True, requeue=True)
    assert queue._limiter.body_bytes == 1000
    client.call("queue.purge", queue="q")
    assert queue._limiter.body_bytes == 0
    node.check()


def test_a_forged_first_death_is_replaced_at_the_first_one(node: QuietBroker) -> None:
    """``dlq redrive`` sends a message where its first death says; publishers must not choose it."""
    client = node.client()
    with_morgue(client)
    forged = {"x-first-death-queue": "salaries", "x-first-death-reason": "rejected", "own": 1}
    client.publish("", "q", b"m", headers=forged)
    taken = client.call("basic.get", queue="q")
    client.method(1, "basic.reject", delivery_tag=taken["delivery_tag"], requeue=False)
    node.tick(300)
    client.received = b""
    client.consume("morgue")
    content = b"".join(frame.payload for frame in client.frames() if frame.type == 2)
    assert content.count(b"x-first-death-queue") == 1
    assert b"salaries" not in content
    assert b"own" in content
