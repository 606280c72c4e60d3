"""Stories of users who may not do everything: permissions, topics, identities, limits.

Needs a broker that has loaded ``restricted_definitions``, so these are no ordinary cases: they have
a runner of their own (``test_restricted.py``).  Like those, they assert nothing and leave a
transcript.  The numbers are those of the checklist of AMQP behaviours.
"""

from collections.abc import Callable
from typing import Any

from tests.conformance.case import World
from tests.conformance.restricted_definitions import COMBINATIONS
from tests.helpers import raw_codec as codec
from tests.helpers.raw_amqp import CLOSED, SILENCE, RawClient

STORIES: dict[str, Callable[[World], None]] = {}
Method = tuple[str, dict[str, Any]]


def story(function: Callable[[World], None]) -> Callable[[World], None]:
    STORIES[function.__name__] = function
    return function


def client_of(w: World, user: str, vhost: str = "/", name: str = "A") -> RawClient:
    client = w.raw(name)
    client.open(user=user, password=user, vhost=vhost)
    client.open_channel(1)
    return client


def _leave(client: RawClient) -> None:
    """Close the connection and wait: only then are its exclusive queues gone everywhere."""
    client.send_off_record(codec.method_frame(0, "connection.close", code=200))
    while client.receive_quietly().name not in ("connection.close-ok", CLOSED, SILENCE):
        pass
    client.close_socket()


def _each_combination(w: World, *attempts: Method) -> None:
    """What users with each combination of permissions are told, one channel per attempt."""
    for combination in COMBINATIONS:
        w.say(f"may {combination or 'nothing'}")
        client = client_of(w, f"p-{combination}")
        for method, fields in attempts:
            client.send(1, method, **fields)
            w.outcome(client)
        _leave(client)


@story
def declaring_queues_27_100(w: World) -> None:
    _each_combination(
        w,
        ("queue.declare", {"queue": "perm-new"}),
        ("queue.declare", {"queue": "q", "durable": True}),
        ("queue.declare", {"queue": "q", "passive": True}),
        ("queue.declare", {"queue": "perm-none", "passive": True}),
        ("queue.declare", {"queue": "q"}),
        ("queue.declare", {"queue": "", "exclusive": True}),
        ("queue.delete", {"queue": "perm-new"}),
        ("queue.delete", {"queue": "perm-none"}),
    )


@story
def declaring_exchanges_27_100(w: World) -> None:
    _each_combination(
        w,
        ("exchange.declare", {"exchange": "perm-x", "type": "direct"}),
        ("exchange.declare", {"exchange": "there", "type": "direct", "durable": True}),
        ("exchange.declare", {"exchange": "there", "type": "fanout", "durable": True}),
        ("exchange.declare", {"exchange": "there", "passive": True}),
        ("exchange.declare", {"exchange": "amq.topic", "type": "topic", "durable": True}),
        ("exchange.declare", {"exchange": "amq.mine", "type": "topic"}),
        ("exchange.declare", {"exchange": "", "type": "direct"}),
        ("exchange.delete", {"exchange": "perm-x"}),
        ("exchange.delete", {"exchange": "perm-none"}),
        ("exchange.delete", {"exchange": "amq.topic"}),
        ("exchange.delete", {"exchange": ""}),
    )
    client = client_of(w, "p-")
    w.attempt(client, "exchange.declare", exchange="perm-x", type="sideways")


@story
def binding_queues_27_100(w: World) -> None:
    bound = {"queue": "q", "exchange": "there", "routing_key": "k"}
    _each_combination(
        w,
        ("queue.bind", bound),
        ("queue.bind", bound | {"exchange": ""}),
        ("queue.bind", bound | {"exchange": "perm-none"}),
        ("queue.bind", bound | {"queue": "perm-none"}),
        ("queue.unbind", bound),
        ("queue.unbind", bound | {"exchange": ""}),
        ("queue.unbind", bound | {"exchange": "perm-none"}),
        ("queue.unbind", bound | {"queue": "perm-none"}),
    )


@story
def binding_exchanges_27_100(w: World) -> None:
    bound = {"destination": "there", "source": "source", "routing_key": "k"}
    _each_combination(
        w,
        ("exchange.bind", bound),
        ("exchange.bind", bound | {"source": ""}),
        ("exchange.bind", bound | {"destination": ""}),
        ("exchange.bind", bound | {"source": "perm-none"}),
        ("exchange.bind", bound | {"destination": "perm-none"}),
        ("exchange.unbind", bound),
        ("exchange.unbind", bound | {"source": ""}),
        ("exchange.unbind", bound | {"source": "perm-none"}),
        ("exchange.unbind", bound | {"destination": "perm-none"}),
    )


@story
def reading_100(w: World) -> None:
    _each_combination(
        w,
        ("basic.get", {"queue": "q"}),
        ("basic.get", {"queue": "perm-none"}),
        ("queue.purge", {"queue": "q"}),
        ("queue.purge", {"queue": "perm-none"}),
        ("basic.consume", {"queue": "q", "consumer_tag": "c"}),
        ("basic.consume", {"queue": "perm-none", "consumer_tag": "d"}),
    )


@story
def publishing_41_100(w: World) -> None:
    for combination in COMBINATIONS:
        w.say(f"may {combination or 'nothing'}")
        client = client_of(w, f"p-{combination}")
        for exchange, key in (("", "nowhere"), ("there", "k"), ("perm-none", "k"), ("inside", "k"),
                              ("amq.topic", "k"), ("amq.rabbitmq.trace", "k")):  # fmt: skip
            client.publish(1, exchange, key)
            w.outcome_or_barrier(client)
        _leave(client)


@story
def a_refused_publish_among_others_41(w: World) -> None:
    client = client_of(w, "patterns")
    client.call(1, "queue.declare", queue="mine-log", exclusive=True)
    client.call(1, "confirm.select")
    client.publish(1, "", "mine-log", b"1")
    client.expect("basic.ack")
    client.publish(1, "there", "k", b"2")
    w.outcome(client)


@story
def dead_letters_and_alternates_100(w: World) -> None:
    for combination in COMBINATIONS:
        w.say(f"may {combination or 'nothing'}")
        client = client_of(w, f"p-{combination}")
        w.attempt(client, "exchange.declare", exchange=f"perm-ae-{combination}", type="direct",
                  arguments={"alternate-exchange": "there"})  # fmt: skip
        _leave(client)


@story
def dead_letter_queues_100(w: World) -> None:
    for combination in COMBINATIONS:
        w.say(f"may {combination or 'nothing'}")
        client = client_of(w, f"p-{combination}")
        w.attempt(client, "queue.declare", queue="perm-dlx", exclusive=True,
                  arguments={"x-dead-letter-exchange": "there"})  # fmt: skip
        _leave(client)


@story
def patterns_are_searched_100(w: World) -> None:
    client = client_of(w, "patterns")
    for name in ("mine-1", "xmine-1", "catalog", "", "part", "mine-part"):
        w.attempt(client, "queue.declare", queue=name, exclusive=True)
    for name in ("mine-1", "catalog", "part", "mine-part", "q"):
        w.attempt(client, "basic.get", queue=name)
    for name in ("mine-1", "mine-2", "there"):
        client.publish(1, name, "k")
        w.outcome_or_barrier(client)
    client.publish(1, "", "mine-1", mandatory=True)
    w.outcome_or_barrier(client)


@story
def topics_are_checked_88(w: World) -> None:
    client = client_of(w, "topics")
    client.call(1, "queue.declare", queue="topics-q", exclusive=True)
    for exchange in ("amq.topic", "t-none", "amq.direct"):
        for key in ("topics.a", "xtopics.a", "vhost-/-x", "", "#"):
            w.attempt(client, "queue.bind", queue="topics-q", exchange=exchange, routing_key=key)
            client.publish(1, exchange, key)
            w.outcome_or_barrier(client)
    w.attempt(client, "queue.unbind", queue="topics-q", exchange="amq.topic", routing_key="zz")
    for source, key in (("amq.topic", "topics.a"), ("amq.topic", "a"), ("t-none", "topics.a")):
        w.attempt(client, "exchange.bind", source=source, destination="there", routing_key=key)
        w.attempt(client, "exchange.unbind", source=source, destination="there", routing_key=key)


@story
def topics_of_copies_88(w: World) -> None:
    client = client_of(w, "topics")
    client.call(1, "queue.declare", queue="copies-q", exclusive=True)
    w.attempt(client, "queue.bind", queue="copies-q", exchange="amq.topic", routing_key="topics.a")
    for header in ("CC", "BCC"):
        for keys in (["topics.a"], ["topics.b", "xtopics.a"]):
            client.publish(1, "amq.topic", "topics.c", headers={header: keys})
            w.outcome_or_barrier(client)


@story
def publishing_in_anothers_name_87(w: World) -> None:
    for user in ("guest", "monkey"):
        client = client_of(w, user)
        for claimed in (user, "somebody", ""):
            client.publish(1, "", "nowhere", user_id=claimed)
            w.outcome_or_barrier(client)


@story
def virtual_hosts_have_room_7_60(w: World) -> None:
    client = client_of(w, "guest", "two-queues")
    for name in ("a", "b", "c"):
        w.attempt(client, "queue.declare", queue=name, exclusive=True)
    w.attempt(client, "queue.declare", queue="a", exclusive=True)
    w.attempt(client, "queue.declare", queue="", exclusive=True)
    w.attempt(client, "queue.delete", queue="a")
    w.attempt(client, "queue.declare", queue="c", exclusive=True)


def _refused(w: World, user: str, vhost: str, name: str = "A") -> None:
    client = w.raw(name)
    client.login(user, user)
    client.send_off_record(
        codec.method_frame(0, "connection.tune-ok", channel_max=9, frame_max=8192)
    )
    client.send(0, "connection.open", virtual_host=vhost)
    w.fate(client, timed=False)


@story
def no_way_in_7(w: World) -> None:
    _refused(w, "guest", "no-entry")
    _refused(w, "outside", "/")
    _refused(w, "guest", "nowhere")
    _refused(w, "no-connection", "/")
    first = client_of(w, "guest", "one-entry")
    _refused(w, "guest", "one-entry", "B")
    first.call(0, "connection.close", code=200)
    first.close_socket()
    own = client_of(w, "one-connection", name="C")
    _refused(w, "one-connection", "/", "D")
    own.close_socket()


@story
def users_have_few_channels_8(w: World) -> None:
    client = client_of(w, "two-channels")
    client.open_channel(2)
    client.send(3, "channel.open")
    w.fate(client, timed=False)
