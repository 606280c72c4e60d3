"""Which policy applies, what becomes of argument, policy and operator policy, what is refused.

The refusals are those of RabbitMQ 3.10.8 (its management API was asked on 2026-11-21).
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from penstock.broker.administration import Administration, left_out_at_start
from penstock.broker.rules.ha_policy import NO_MIRRORS
from penstock.broker.rules.policies import (
    Policy,
    PolicyBook,
    QueueSettings,
    check_policy,
)
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from penstock.protocols.amqp.codec.letters import AmqpLetterWriter
from penstock.routing.exchanges import Exchange
from penstock.settings.cluster import LEADER_LOCATORS
from penstock.storage.definitions.records import VhostMetadata
from tests.helpers.connection_pair import QuietBroker

NUMBERS = {
    "message-ttl": ("message_ttl_ms", -1),
    "expires": ("expires_ms", 0),
    "max-length": ("max_length", -1),
    "max-length-bytes": ("max_length_bytes", -1),
    "delivery-limit": ("delivery_limit", -1),
}
TEXTS: dict[str, tuple[str, str | None, tuple[str, str]]] = {
    "overflow": ("overflow", "drop-head", ("reject-publish", "reject-publish-dlx")),
    "queue-mode": ("queue_mode", "default", ("lazy", "default")),
    "queue-master-locator": ("master_locator", "", ("random", "min-masters")),
    "dead-letter-exchange": ("dead_letter_exchange", None, ("", "x")),
    "dead-letter-routing-key": ("dead_letter_routing_key", None, ("", "k")),
}


def policy(definition: dict[str, Any] | None, name: str = "p", **more: Any) -> Policy | None:
    if definition is None:
        return None
    fields = {"pattern": ".*", "apply_to": "all", "priority": 0} | more
    return Policy(name, fields["pattern"], fields["apply_to"], fields["priority"], definition)


def shown(settings: QueueSettings) -> dict[str, object]:
    names = [field for field, _ in NUMBERS.values()] + [text[0] for text in TEXTS.values()]
    return {name: getattr(settings, name) for name in names}


NOTHING = shown(QueueSettings({}))


def test_a_leader_locator_says_in_rabbitmqs_words_where_a_queue_is() -> None:
    for word, locator in LEADER_LOCATORS.items():
        settings = QueueSettings({"x-queue-type": "stream", "x-queue-leader-locator": word})
        assert settings.master_locator == locator
    quorum: dict[str, object] = {"x-queue-type": "quorum"}
    by_policy = QueueSettings(quorum, policy({"queue-leader-locator": "balanced"}))
    assert by_policy.master_locator == "min-masters"


@pytest.mark.parametrize("key", NUMBERS)
def test_of_numbers_the_smallest_holds(key: str) -> None:
    field, absent = NUMBERS[key]
    values = (None, 0, 1, 5)
    for argument, own, operators in product(values, repeat=3):
        given = [value for value in (argument, own, operators) if value is not None]
        merged = QueueSettings(
            {} if argument is None else {"x-" + key: argument},
            policy(None if own is None else {key: own}),
            policy(None if operators is None else {key: operators}),
        )
        assert shown(merged) == NOTHING | {field: min(given, default=absent)}


@pytest.mark.parametrize("key", TEXTS)
def test_of_texts_the_argument_holds(key: str) -> None:
    field, absent, values = TEXTS[key]
    for argument, own in product((None, *values), repeat=2):
        merged = QueueSettings(
            {} if argument is None else {"x-" + key: argument},
            policy({} if own is None else {key: own}),
            policy({} if key == "overflow" else {key: "operators have no say"}),
        )
        first = next((value for value in (argument, own) if value is not None), absent)
        assert shown(merged) == NOTHING | {field: first}


def test_keys_do_not_disturb_each_other() -> None:
    merged = QueueSettings(
        {"x-message-ttl": 9, "x-overflow": "reject-publish", "x-other": 1},
        policy({"message-ttl": 8, "expires": 7, "dead-letter-exchange": "d"}),
        policy({"max-length": 6, "expires": 5}),
    )
    assert shown(merged) == NOTHING | {
        "message_ttl_ms": 8,
        "expires_ms": 5,
        "max_length": 6,
        "overflow": "reject-publish",
        "dead_letter_exchange": "d",
    }


def book(*entries: Policy | None) -> PolicyBook:
    made = PolicyBook()
    made.policies = {entry.name: entry for entry in entries if entry is not None}
    return made


def test_one_policy_applies_and_no_other() -> None:
    made = book(
        policy({}, "low", priority=-1),
        policy({}, "b"),
        policy({}, "a"),
        policy({}, "high", pattern="^mine", priority=3),
        policy({}, "higher", pattern="mine$", apply_to="exchanges", priority=4),
        policy({}, "queues", pattern="q", apply_to="queues", priority=2),
    )

    def names(name: str) -> list[str]:
        found = (made.queue_policy(name), made.exchange_policy(name))
        return [one.name for one in found if one is not None]

    assert names("other") == ["a", "a"]  # of equals the first by name, whatever came first
    assert names("mine") == ["high", "higher"]
    assert names("mine.q") == ["high", "high"]
    assert names("q") == ["queues", "a"]
    assert names("x-mine") == ["a", "higher"]
    assert made.queue_operator_policy("q") is None
    assert book().queue_policy("q") is None


@pytest.mark.parametrize(
    "name, arguments, holds",
    [
        ("x", {}, "p"),
        ("x", {"alternate-exchange": "a"}, "a"),
        ("y", {"alternate-exchange": "a"}, "a"),
        ("y", {}, None),
    ],
)
def test_an_alternate_exchange_by_argument_or_policy(
    name: str, arguments: dict[str, object], holds: str | None
) -> None:
    exchange = Exchange("/", name, "direct", True, False, False, arguments)
    made = book(policy({"alternate-exchange": "p", "nsq-publish-mode": "fast"}, pattern="^x"))
    made.apply_to_exchanges([exchange])
    assert (exchange.alternate, exchange.publish_mode) == (holds, "fast" if name == "x" else "")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "no policy provided"),
    ({"nonsense": 1}, '[{<<"nonsense">>,1}] are not recognised policy settings'),
    ({"max-priority": 5}, '[{<<"max-priority">>,5}] are not recognised policy settings'),
    ({"message-ttl": "a"}, '<<"a">> is not a valid message TTL'),
    ({"message-ttl": -1}, "-1 is not a valid message TTL"),
    ({"message-ttl": 1.5}, "1.5 is not a valid message TTL"),
    ({"message-ttl": True}, "true is not a valid message TTL"),
    ({"expires": 0}, "0 is not a valid queue expiry"),
    ({"max-length": -1}, "-1 is not a valid maximum length"),
    ({"max-length-bytes": -1}, "-1 is not a valid maximum length in bytes"),
    ({"delivery-limit": -2}, "-2 is not a valid delivery limit"),
    ({"overflow": "x"}, '<<"x">> is not a valid overflow value'),
    ({"overflow": 1}, "1 is not a valid overflow value"),
    ({"queue-mode": "x"}, '<<"x">> is not a valid queue-mode value'),
    ({"queue-version": 3}, "3 is not a valid queue-version value"),
    ({"queue-version": "2"}, '<<"2">> is not a valid queue-version value'),
    ({"queue-version": 2.0}, "2.0 is not a valid queue-version value"),
    ({"queue-version": True}, "true is not a valid queue-version value"),
    ({"dead-letter-exchange": 1}, "1 is not a valid dead letter exchange name"),
    ({"dead-letter-routing-key": 1}, "1 is not a valid dead letter routing key"),
    ({"alternate-exchange": 1}, "1 is not a valid alternate exchange name"),
    ({"message-ttl": 1 << 60}, f"{1 << 60} is not a valid message TTL"),
    ({"message-ttl": None}, "null is not a valid message TTL"),
    ({"overflow": ""}, "<<>> is not a valid overflow value"),
    ({"queue-master-locator": "x"}, '<<"x">> invalid queue-master-locator value'),
    ({"queue-master-locator": 1}, "1 invalid queue-master-locator value"),
    ({"queue-master-locator": ""}, "<<>> invalid queue-master-locator value"),
    ({"queue-master-locator": None}, "null invalid queue-master-locator value"),
    ({"queue-master-locator": ["x"]}, '[<<"x">>] invalid queue-master-locator value'),
    (
        {"queue-master-locator": "x", "ha-mode": "y"},
        '<<"x">> invalid queue-master-locator value',
    ),
    # Values first, then what is said of mirrors, and last all that nobody knows.
    ({"ha-mode": "x", "message-ttl": "x"}, '<<"x">> is not a valid message TTL'),
    ({"aaa": 1, "ha-mode": "x", "message-ttl": "x"}, '<<"x">> is not a valid message TTL'),
    ({"nonsense": 1, "ha-mode": "x"}, '<<"x">> is not a valid ha-mode value'),
    (
        {"z": [{"b": None}], "ha-mode": "all", "aaa": 1},
        '[{<<"aaa">>,1},{<<"z">>,[#{<<"b">> => null}]}] are not recognised policy settings',
    ),
    ({"max-age": "7"}, '<<"7">> is not a valid max age'),
    ({"initial-cluster-size": 0}, "0 is not a valid initial cluster size"),
]


@pytest.mark.parametrize("definition, text", REFUSED)
def test_a_wrong_definition_is_refused(definition: dict[str, Any], text: str) -> None:
    with pytest.raises(PreconditionFailed) as caught:
        check_policy(Policy("p", "^q", "all", 0, definition), False)
    assert str(caught.value) == text


GOOD_HA: list[dict[str, Any]] = [
    {"ha-mode": "all"},
    {"ha-mode": "exactly", "ha-params": 2, "ha-sync-mode": "automatic"},
    {"ha-mode": "nodes", "ha-params": ["a@h", "not a node"], "ha-sync-batch-size": 1},
    {"ha-mode": "all", "ha-promote-on-failure": "always", "ha-promote-on-shutdown": "when-synced"},
]


@pytest.mark.parametrize("apply_to", ["queues", "exchanges", "all"])
@pytest.mark.parametrize("definition", GOOD_HA)
def test_what_is_said_of_mirrors_is_taken(definition: dict[str, Any], apply_to: str) -> None:
    check_policy(Policy("p", "^q", apply_to, 0, definition | {"message-ttl": 5}), False)


GOOD_VALUES = dict.fromkeys(NUMBERS, 1) | {key: text[2][1] for key, text in TEXTS.items()}


def test_of_overflows_the_operators_comes_first_and_in_quorum_queues_the_policy() -> None:
    argument, own, operators = "drop-head", "reject-publish", "reject-publish-dlx"
    told = policy({"overflow": own}), policy({"overflow": operators})
    assert QueueSettings({}, *told).overflow == operators
    assert QueueSettings({"x-overflow": argument}, *told).overflow == argument
    quorum = {"x-queue-type": "quorum", "x-overflow": argument}
    assert QueueSettings(quorum, told[0]).overflow == own
    assert QueueSettings(quorum, *told).overflow == operators


def test_a_delivery_limit_below_zero_is_no_limit_and_any_other_is_lower() -> None:
    limits = policy({"delivery-limit": 7}), policy({"delivery-limit": -1})
    assert QueueSettings({}, *limits).delivery_limit == 7
    assert QueueSettings({"x-delivery-limit": -1}, limits[0]).delivery_limit == 7
    assert QueueSettings({"x-delivery-limit": -1}, limits[1]).delivery_limit == -1


def test_every_key_is_taken() -> None:
    values: dict[str, Any] = GOOD_VALUES | {"alternate-exchange": "x", "queue-version": 2}
    check_policy(Policy("p", "^q", "all", 0, values), False)


def test_operators_may_set_limits_only() -> None:
    for key, value in GOOD_VALUES.items():
        operators = Policy("p", "^q", "all", 0, {key: value})
        if key not in (*NUMBERS, "overflow"):
            with pytest.raises(PreconditionFailed, match="are not recognised policy settings"):
                check_policy(operators, True)
        else:
            check_policy(operators, True)


def test_operators_have_no_say_about_mirrors() -> None:
    for definition in ({"ha-mode": "all", "ha-sync-mode": "automatic", "expires": 5},
                       {"ha-sync-mode": "automatic"}, {"ha-mode": "nonsense"}):  # fmt: skip
        with pytest.raises(PreconditionFailed) as caught:
            check_policy(Policy("o", "^q", "queues", 0, dict(definition)), True)
        named = [
            f'{{<<"{key}">>,<<"{value}">>}}' for key, value in definition.items() if "ha" in key
        ]
        assert str(caught.value) == f"[{','.join(named)}] are not recognised policy settings"


def test_wrong_patterns_and_targets() -> None:
    with pytest.raises(PreconditionFailed, match="pattern should be regular expression"):
        check_policy(Policy("p", "(", "all", 0, {"message-ttl": 1}), False)
    with pytest.raises(PreconditionFailed, match="apply-to 'sparkles' unrecognised"):
        check_policy(Policy("p", "", "sparkles", 0, {"message-ttl": 1}), False)


SLOW = "(a+)+$"
LONG = "a" * 60 + "!"


def test_a_pattern_that_could_take_for_ever_is_refused() -> None:
    node = QuietBroker()
    admin = Administration(node.broker, 64)
    with pytest.raises(PreconditionFailed, match="is invalid: could take too long"):
        admin.put_policy("/", Policy("p", SLOW, "all", 0, {"expires": 9}))
    with pytest.raises(PreconditionFailed, match="invalid_regexp"):
        admin.put_permission("guest", "/", SLOW, "", "")
    with pytest.raises(PreconditionFailed, match="invalid_regexp"):
        admin.put_topic_permission("guest", "/", "amq.topic", SLOW, "")


def test_one_that_was_kept_covers_nothing_and_is_named_at_the_start() -> None:
    node = QuietBroker()
    vhost = node.broker.vhosts["/"]
    assert left_out_at_start(node.broker) == []
    vhost.policies.policies["p"] = Policy("p", SLOW, "all", 0, {"expires": 9})
    user = node.broker.users.users["guest"]
    user.topics[("/", "x")] = (".*", "^{username}" + SLOW)
    assert vhost.policies.queue_policy(LONG) is None
    lines = left_out_at_start(node.broker)
    assert [line.partition(":")[0] for line in lines] == [
        "policy 'p' in vhost '/'",
        "topic permission of 'guest' for 'x' in vhost '/'",
    ]
    # What stands beside it and is taken away costs it nothing.
    user.topics[("/", "y")] = ("", "")
    Administration(node.broker, 64).delete_topic_permissions("guest", "/", "y")
    assert list(user.topics) == [("/", "x")]


# -- live ----------------------------------------------------------------------------------


def test_queues_follow_policies_as_they_come_and_go() -> None:
    node = QuietBroker()
    client = node.client()
    admin = Administration(node.broker, 64)
    client.call("queue.declare", queue="q", arguments={"x-expires": 500})
    client.call("queue.declare", queue="other")
    vhost = node.broker.vhosts["/"]
    queue = vhost.queues["q"]
    admin.put_policy("/", Policy("p", "^q", "queues", 0, {"message-ttl": 50}))
    admin.put_policy("/", Policy("o", "", "all", 0, {"expires": 100, "message-ttl": 70}), True)
    assert (queue.limits.message_ttl_ms, queue.limits.expires_ms) == (50, 100)
    client.call("queue.declare", queue="q2")  # made later: it is born with them
    assert (vhost.queues["q2"].limits.message_ttl_ms, vhost.queues["q2"].limits.expires_ms) == (
        50,
        100,
    )
    assert (
        vhost.queues["other"].limits.message_ttl_ms,
        vhost.queues["other"].limits.expires_ms,
    ) == (70, 100)
    client.publish("", "q")
    assert queue.backing.ready_count() == 1
    node.tick(60)
    assert queue.backing.ready_count() == 0
    admin.delete_policy("/", "o", True)
    assert (queue.limits.message_ttl_ms, queue.limits.expires_ms) == (50, 500)
    admin.delete_policy("/", "p")
    assert (queue.limits.message_ttl_ms, queue.limits.expires_ms) == (-1, 500)
    with pytest.raises(NotFound):
        admin.delete_policy("/", "p")
    node.check()


def test_a_queue_expires_by_policy_counted_from_its_coming() -> None:
    node = QuietBroker()
    client = node.client()
    admin = Administration(node.broker, 64)
    client.call("queue.declare", queue="q")
    vhost = node.broker.vhosts["/"]
    node.tick(1000)
    admin.put_policy("/", Policy("p", "^q$", "queues", 0, {"expires": 100}))
    node.tick(99)
    assert "q" in vhost.queues
    node.tick(2)
    assert "q" not in vhost.queues
    client.call("queue.declare", queue="q")
    admin.delete_policy("/", "p")
    node.tick(200)
    assert "q" in vhost.queues
    admin.put_policy("/", Policy("p", "^q$", "queues", 0, {"expires": 9000}))
    admin.put_policy("/", Policy("p", "^q$", "queues", 0, {"expires": 100}))
    node.tick(101)
    assert "q" not in vhost.queues
    node.check()


def test_a_queue_becomes_lazy_by_policy() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    client.publish("", "q", delivery_mode=2)
    admin = Administration(node.broker, 64)
    backing: Any = node.broker.vhosts["/"].queues["q"].backing
    admin.put_policy("/", Policy("p", "^q", "queues", 0, {"queue-mode": "lazy"}))
    assert backing.tiers.lazy
    admin.delete_policy("/", "p")
    assert not backing.tiers.lazy
    node.run()
    node.check()


def test_policies_users_and_limits_survive_a_restart() -> None:
    node = QuietBroker()
    admin = Administration(node.broker, 64)
    admin.put_vhost("v", VhostMetadata("of mine", ("x",), "quorum"))
    admin.put_user("u", "", "rabbit_password_hashing_sha512", ["impersonator"])
    admin.put_permission("u", "v", "a", "b", "c")
    admin.put_topic_permission("u", "v", "t", "^{username}", "e")
    admin.set_user_limits("u", {"max-channels": 3})
    admin.set_vhost_limits("v", {"max-queues": 4, "max-connections": -5})
    admin.put_policy("v", Policy("p", "^q", "queues", 2, {"message-ttl": 5}))
    admin.put_policy("v", Policy("o", "^q", "all", 1, {"message-ttl": 4}), True)
    node.definitions.commit()
    broker = node.broker
    again = type(broker)(
        node.definitions,
        node.engine,
        node.make_backing,
        str,
        [],
        AmqpLetterWriter(),
        AmqpHeaderReader(),
    )
    again.open(node.definitions.load(), 1, 1)
    vhost, user = again.vhosts["v"], again.users.users["u"]
    assert vhost.metadata == ("of mine", ("x",), "quorum", False)
    assert (vhost.budget.max_queues, vhost.budget.max_connections) == (4, -1)
    assert (user.hashing, user.tags) == ("rabbit_password_hashing_sha512", ["impersonator"])
    assert user.vhosts == {"v": ("a", "b", "c")}
    assert user.topics == {("v", "t"): ("^{username}", "e")}
    assert (user.max_channels, user.max_connections) == (3, -1)
    assert vhost.policies.queue_settings("q", {}).message_ttl_ms == 4


def test_administration_refuses_and_changes_nothing() -> None:
    node = QuietBroker()
    admin = Administration(node.broker, 64)
    user = node.broker.users.users["guest"]
    for refused, text in (
        (lambda: admin.put_permission("guest", "/", "(", "", ""), "invalid_regexp"),
        (lambda: admin.put_permission("nobody", "/", "", "", ""), "no user 'nobody'"),
        (lambda: admin.put_permission("guest", "none", "", "", ""), "vhost none not found"),
        (lambda: admin.put_topic_permission("guest", "/", "t", "", "("), "invalid_regexp"),
        (lambda: admin.put_user("u", "?", "rabbit_password_hashing_md5", []), "no base64"),
        (lambda: admin.put_user("u", "", "rot13", []), "unknown hashing algorithm 'rot13'"),
        (lambda: admin.set_vhost_limits("/", {"bogus": 1}), "Unrecognised terms"),
        (lambda: admin.set_user_limits("guest", {"max-queues": 1}), "Unrecognised terms"),
    ):
        with pytest.raises((PreconditionFailed, NotFound), match=text):
            refused()  # type: ignore[no-untyped-call]
    assert user.vhosts == {"/": (".*", ".*", ".*")}
    assert user.topics == {}
    assert list(node.broker.users.users) == ["guest"]


def test_limits_and_dead_letters_come_by_policy() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q")
    client.call("queue.declare", queue="dead")
    admin = Administration(node.broker, 64)
    for _ in range(5):
        client.publish("", "q")
    vhost = node.broker.vhosts["/"]
    definition = {"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    admin.put_policy("/", Policy("p", "^q$", "queues", 0, dict(definition)))
    node.run()
    assert vhost.queues["q"].backing.ready_count() == 2
    assert vhost.queues["dead"].backing.ready_count() == 3
    admin.put_policy("/", Policy("o", "^q$", "queues", 0, {"max-length": 1}), True)
    node.run()
    assert vhost.queues["q"].backing.ready_count() == 1
    node.check()


def row_of(book: PolicyBook, name: str) -> dict[str, object]:
    return book.queue_row(book.queue_settings(name, {}).policies)


def test_people_see_what_holds() -> None:
    made = book(policy({"message-ttl": 5, "queue-mode": "lazy"}, pattern="^x"))
    made.operator_policies = {"o": Policy("o", "^x", "queues", 0, {"message-ttl": 4, "expires": 9})}
    assert row_of(made, "x") == {
        "policy": "p",
        "operator_policy": "o",
        "effective_policy_definition": {"message-ttl": 4, "queue-mode": "lazy", "expires": 9},
    }
    assert row_of(made, "y") == {
        "policy": None,
        "operator_policy": None,
        "effective_policy_definition": {},
    }


# -- mirrors -------------------------------------------------------------------------------


def test_which_queues_are_mirrored() -> None:
    made = book(
        policy({"ha-mode": "all"}, "any", priority=-1),
        policy({"ha-mode": "exactly", "ha-params": 2}, "two", pattern="^two"),
        policy({"message-ttl": 5}, "none", pattern="^none"),
        policy({"ha-mode": "nodes", "ha-params": ["a"]}, "x", apply_to="exchanges", priority=9),
    )
    assert made.ha_policy("two", True, False).copies == 2
    assert made.ha_policy("other", True, False).mode == "all"
    assert made.ha_policy("none", True, False) is NO_MIRRORS, "one policy holds, and no other"
    assert made.ha_policy("two", False, False) is NO_MIRRORS, "not durable"
    assert made.ha_policy("two", True, True) is NO_MIRRORS, "exclusive"
    assert book().ha_policy("two", True, False) is NO_MIRRORS
    assert made.ha_policy("two", True, False) is made.ha_policy("two 2", True, False)


def test_who_remembers_what_holds_hears_of_every_change() -> None:
    node = QuietBroker()
    client = node.client()
    client.call("queue.declare", queue="q", durable=True)
    vhost = node.broker.vhosts["/"]
    policies = vhost.policies
    admin = Administration(node.broker, 64)
    seen = {(policies.epoch, node.broker.policy_epoch)}
    for mode, operator in (("all", False), ("nodes", False), ("", True)):
        definition: dict[str, object] = {"ha-mode": mode} if mode else {"expires": 500}
        if mode == "nodes":
            definition["ha-params"] = ["a@h"]
        admin.put_policy("/", Policy("p", "^q", "queues", 0, definition), operator)
        seen.add((policies.epoch, node.broker.policy_epoch))
        if mode:
            assert policies.ha_policy_of(vhost.queues["q"]).mode == mode
    admin.delete_policy("/", "p")
    seen.add((policies.epoch, node.broker.policy_epoch))
    assert policies.ha_policy_of(vhost.queues["q"]) is NO_MIRRORS
    assert len(seen) == 5
    assert len({one[0] for one in seen}) == len({one[1] for one in seen}) == 5
    admin.put_vhost("v")
    admin.put_policy("v", Policy("p", "^q", "queues", 0, {"expires": 5}))
    assert node.broker.policy_epoch == 5
    assert policies.epoch == 4, "of another virtual host"
    admin.delete_policy("v", "p")
    former = node.broker.vhosts["v"].policies.epoch
    del node.broker.vhosts["v"]
    admin.put_vhost("v")
    assert node.broker.vhosts["v"].policies.epoch == 0
    for _ in range(3):
        admin.put_policy("v", Policy("p", "^q", "queues", 0, {"expires": 5}))
        assert node.broker.vhosts["v"].policies.epoch > former, "made anew: a number of its own"


def test_what_is_said_of_mirrors_is_shown_as_any_other_key() -> None:
    made = book(policy({"ha-mode": "exactly", "ha-params": 2, "max-length": 9}))
    made.operator_policies = {"o": Policy("o", "", "queues", 0, {"max-length": 5})}
    shown_definition = row_of(made, "q")["effective_policy_definition"]
    assert shown_definition == {"ha-mode": "exactly", "ha-params": 2, "max-length": 5}
