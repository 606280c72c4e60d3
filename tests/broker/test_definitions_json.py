"""Definitions in RabbitMQ's JSON: what RabbitMQ 3.10.8 exported, in and out again.

The files in ``recorded`` came from its management API on 2026-11-21 (some users taken out).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.administration import Administration
from penstock.broker.definitions.exporting import DefinitionsExport, export_definitions
from penstock.broker.definitions.importing import DefinitionsImport, ImportPlan
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.protocols.amqp.codec.header_reader import AmqpHeaderReader
from penstock.protocols.amqp.codec.letters import AmqpLetterWriter
from penstock.routing.exchanges import Exchange
from penstock.storage.definitions.records import VhostMetadata
from tests.helpers.connection_pair import QuietBroker
from tests.helpers.sources import AFAR

RECORDED = Path(__file__).parent / "recorded"
ALL = "definitions-3.10.8.json"
SHOP = "definitions-shop-3.10.8.json"


def read(name: str) -> Any:
    return json.loads((RECORDED / name).read_text())


def taken_in(node: QuietBroker, definitions: object, vhost: str = "", steps: int = 3) -> list[str]:
    admin = Administration(node.broker, 64)
    work = DefinitionsImport(node.broker, admin, ImportPlan(definitions, vhost), lambda: b"salt")
    while not work.run(steps):
        pass
    node.definitions.commit()
    return work.left_out


def exported(node: QuietBroker, vhost: str = "") -> Any:
    """As it arrives elsewhere."""
    return json.loads(json.dumps(export_definitions(node.broker, "3.10.8", "0", vhost)))


def rows(definitions: Any, section: str) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in definitions[section])


def test_what_rabbitmq_exported_comes_out_again() -> None:
    node = QuietBroker()
    theirs = read(ALL)
    assert any(row["arguments"].get("x-queue-type") == "quorum" for row in theirs["queues"])
    assert taken_in(node, theirs) == []

    ours = exported(node)
    assert any("ha-mode" in row["definition"] for row in theirs["policies"])
    theirs["parameters"] = [row for row in theirs["parameters"] if row["value"]]
    theirs["vhosts"].append({"name": "closed"})  # which the test's broker had before
    for user in theirs["users"]:
        user["limits"] = {k: v for k, v in user["limits"].items() if v >= 0}
    for section in ("users", "vhosts", "permissions", "topic_permissions", "parameters",
                    "policies", "queues", "exchanges", "bindings"):  # fmt: skip
        assert rows(ours, section) == rows(theirs, section), section
    assert set(theirs) <= set(ours)


def test_our_own_export_is_taken_whole() -> None:
    first, second = QuietBroker(), QuietBroker()
    taken_in(first, read(ALL))
    first.broker.vhosts["shop"].describe(VhostMetadata("of the shop", (), "quorum"))
    ours = exported(first)
    assert taken_in(second, ours) == []
    again = exported(second)
    assert {key: rows(again, key) for key in again if isinstance(again[key], list)} == {
        key: rows(ours, key) for key in ours if isinstance(ours[key], list)
    }
    assert taken_in(second, again) == []  # twice changes nothing
    assert exported(second) == again


def test_the_exchange_of_the_log_is_left_out_and_its_bindings_are_not() -> None:
    node = QuietBroker()
    vhost = node.broker.vhosts["/"]
    vhost.add_exchange(Exchange("/", "amq.rabbitmq.log", "topic", True, False, True, {}))
    queue = vhost.declare_queue("lines", True, None, False, {})
    vhost.bind_queue(queue, "amq.rabbitmq.log", "#", {})
    ours = exported(node)
    assert ours["exchanges"] == []
    assert [row["source"] for row in ours["bindings"]] == ["amq.rabbitmq.log"]
    assert taken_in(node, ours) == []


@pytest.mark.parametrize("vhost", ["", "shop"])
@pytest.mark.parametrize("steps", [1, 7])
def test_in_steps_as_at_once(vhost: str, steps: int) -> None:
    node = QuietBroker()
    taken_in(node, read(ALL))
    work = DefinitionsExport(node.broker, "3.10.8", "0", vhost)
    count = 0
    while not work.run(steps):
        count += steps
    assert work.exported == export_definitions(node.broker, "3.10.8", "0", vhost)
    assert count >= len(work.exported["queues"]) + len(work.exported["bindings"])


def test_what_goes_while_it_is_exported_is_left_out() -> None:
    node = QuietBroker()
    taken_in(node, read(ALL))
    shop = node.broker.vhosts["shop"]
    work = DefinitionsExport(node.broker, "3.10.8", "0", "shop")
    for queue in list(shop.queues.values()):
        shop.delete_queue(queue)
    while not work.run(1):
        pass
    assert work.exported["queues"] == []
    kinds = {row["destination_type"] for row in work.exported["bindings"]}
    assert "queue" not in kinds


def test_it_works_and_survives() -> None:
    node = QuietBroker()
    taken_in(node, read(ALL))
    broker = node.broker
    anna = broker.users.authenticate("anna", "secret", AFAR)
    assert anna.tags == ["management", "monitoring"] or anna.tags == ["monitoring", "management"]
    assert broker.enter(anna, "shop").queues["orders"].limits.message_ttl_ms == 5000
    assert (anna.max_channels, broker.vhosts["shop"].budget.max_queues) == (12, 50)
    assert broker.vhosts["shop"].queues["orders"].limits.expires_ms == 7_200_000
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
    kept = json.loads(json.dumps(export_definitions(again, "3.10.8", "0")))
    ours = exported(node)
    transient = {"passing"}
    ours["queues"] = [row for row in ours["queues"] if row["name"] not in transient]
    for section in ("users", "permissions", "parameters", "policies", "queues", "bindings"):
        assert rows(kept, section) == rows(ours, section)


def test_one_virtual_host_goes_into_another() -> None:
    node = QuietBroker()
    taken_in(node, read(SHOP), "closed")
    closed = node.broker.vhosts["closed"]
    assert {"orders", "idle", "passing"} <= set(closed.queues)
    assert "orders" not in node.broker.vhosts["/"].queues
    assert closed.budget.max_queues == 50
    ours = exported(node, "closed")
    assert set(read(SHOP)) == set(ours)
    assert "vhost" not in ours["queues"][0]
    with pytest.raises(NotFound):
        taken_in(node, {}, "nowhere")
    assert taken_in(node, {"users": []}, "closed") == ["section 'users' is not known here"]


def test_each_wrong_row_is_named_and_costs_only_itself() -> None:
    node = QuietBroker()
    left_out = taken_in(
        node,
        {
            "users": [
                {"name": "a", "password": "pw", "tags": "x, y"},
                {"name": "b", "password_hash": "", "hashing_algorithm": "rot13", "tags": ""},
                {"name": "c", "tags": 5},
                {"tags": ""},
            ],
            "vhosts": [
                {"name": "v", "default_queue_type": "quorum"},
                {"name": "odd type", "metadata": {"default_queue_type": "sparkling"}},
                {"name": "w", "metadata": {"description": "d", "tags": ["t"]}, "tracing": True},
                {"name": "off", "tracing": False},
                {"name": "odd", "tracing": "yes"},
                {"name": "x" * 256},
            ],
            "permissions": [
                {"user": "a", "vhost": "none", "configure": "", "write": "", "read": ""},
                {"user": "a", "vhost": "v", "configure": "(", "write": "", "read": ""},
                {"user": "a", "vhost": "v", "configure": "", "write": ""},
            ],
            "parameters": [
                {"vhost": "v", "component": "nosuch", "name": "s", "value": {}},
                {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"x": 1}},
            ],
            "policies": [
                {"vhost": "v", "name": "p", "pattern": "^", "definition": {"max-age": "1X"}},
                {"vhost": "v", "name": "h", "pattern": "^", "definition": {"ha-mode": "some"}},
                {"vhost": "v", "name": "q", "pattern": "^", "definition": {"nonsense": 1}},
                {"vhost": "v", "name": "r", "pattern": "^", "definition": {"expires": 9},
                 "priority": 1 << 40},
            ],
            "queues": [
                {"vhost": "v", "name": "q", "durable": True, "arguments": {"x-expires": 0}},
                {"vhost": "v", "name": "q", "durable": "yes"},
                {"vhost": "v", "name": "\ud800"},
                {"vhost": "v", "name": "good"},
                {"vhost": "v", "name": "good", "auto_delete": True},
                {"vhost": "v", "name": "typed", "type": "stream", "durable": False},
            ],
            "exchanges": [
                {"vhost": "v", "name": "amq.direct", "type": "direct", "durable": True},
                {"vhost": "v", "name": "amq.mine", "type": "direct", "durable": True},
                {"vhost": "v", "name": "x", "type": "x-sideways"},
            ],
            "bindings": [
                {"vhost": "v", "source": "amq.direct", "destination": "good",
                 "destination_type": "stream", "routing_key": "k", "arguments": {}},
                {"vhost": "v", "source": "amq.direct", "destination": "good"},
            ],
            "shovels": [],
        },
    )  # fmt: skip
    assert left_out == [
        "section 'shovels' is not known here",
        "user 'b': unknown hashing algorithm 'rot13'",
        "user 'c': 'tags' is no list of names",
        "user 'None': 'name' is missing",
        "vhost 'odd type': sparkling is not a valid queue type",
        "vhost 'odd': 'tracing' is neither true nor false",
        f"vhost '{'x' * 256}': 'name' has more than 255 bytes",
        "permission 'a' in vhost 'none': vhost none not found",
        (
            "permission 'a' in vhost 'v': invalid_regexp '(': missing ), unterminated subpattern"
            " at position 0"
        ),
        "permission 'a' in vhost 'v': 'read' is missing",
        "parameter 's' in vhost 'v': component nosuch not found",
        "parameter 'limits' in vhost 'v': Unrecognised terms [{<<\"x\">>,1}] in limits",
        "policy 'p' in vhost 'v': <<\"1X\">> is not a valid max age",
        "policy 'h' in vhost 'v': <<\"some\">> is not a valid ha-mode value",
        "policy 'q' in vhost 'v': [{<<\"nonsense\">>,1}] are not recognised policy settings",
        f"policy 'r' in vhost 'v': priority should be a number, actually was {1 << 40}",
        (
            "exchange 'amq.mine' in vhost 'v': exchange name 'amq.mine' contains reserved prefix"
            " 'amq.*'"
        ),
        "exchange 'x' in vhost 'v': unknown exchange type 'x-sideways'",
        (
            "queue 'q' in vhost 'v': invalid arg 'x-expires' for queue 'q' in vhost 'v':"
            " {value_zero,0}"
        ),
        "queue 'q' in vhost 'v': 'durable' is neither true nor false",
        "queue '\ud800' in vhost 'v': 'name' is no text",
        (
            "queue 'good' in vhost 'v': inequivalent arg 'auto_delete' for queue 'good' in"
            " vhost 'v': received 'true' but current is 'false'"
        ),
        (
            "queue 'typed' in vhost 'v': invalid property 'non-durable' for queue 'typed' in"
            " vhost 'v'"
        ),
        "binding 'amq.direct' to 'good' in vhost 'v': unknown destination_type 'stream'",
    ]
    broker = node.broker
    assert broker.users.authenticate("a", "pw", AFAR).tags == ["x", "y"]
    assert list(broker.vhosts["v"].queues) == ["good"]
    assert broker.vhosts["v"].exchanges["amq.direct"].has_bindings()
    assert broker.vhosts["w"].metadata.tags == ("t",)
    assert (broker.vhosts["w"].tracing, broker.vhosts["off"].tracing) == (True, False)


def test_what_json_cannot_carry_is_named() -> None:
    node = QuietBroker()
    vhost = node.broker.vhosts["/"]
    vhost.declare_queue("q", True, None, False, {"x-mine": b"\x01", "n": float("nan")})
    vhost.declare_queue("mine", True, object(), False, {})
    vhost.bind_queue(vhost.queue("mine"), "amq.direct", "k", {})
    ours = exported(node)
    assert ours["penstock_types_changed"] == [
        "queue 'q' in vhost '/': bytes became text",
        "queue 'q' in vhost '/': number nan became text",
    ]
    assert [row["name"] for row in ours["queues"]] == ["q"]  # an exclusive one is its session's
    assert ours["bindings"] == []


@pytest.mark.parametrize("wrong", [[], "x", {"queues": {}}, {"queues": [5]}, None])
def test_what_is_no_file_of_definitions_is_refused(wrong: object) -> None:
    with pytest.raises(PreconditionFailed):
        taken_in(QuietBroker(), wrong)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    ["name", "vhost", "user", "tags", "limits", "definition", "pattern", "value", "arguments",
     "priority", "component", "type", "durable", "source", "destination", "metadata"]
)  # fmt: skip
NODE = QuietBroker()


@given(
    st.sampled_from(["users", "vhosts", "permissions", "parameters", "policies", "queues",
                     "exchanges", "bindings", "topic_permissions", "global_parameters"]),
    st.dictionaries(FIELDS, JSON | st.sampled_from(["/", "guest", "vhost-limits", "amq.direct"])),
)  # fmt: skip
def test_no_row_breaks_the_import(section: str, row: dict[str, Any]) -> None:
    left_out = taken_in(NODE, {section: [row]})
    assert len(left_out) <= 1 + len(row)


@pytest.mark.parametrize("name", ["amq.mirror.q", "amq.delayed.x", "amq.backlog.t", "amq.staged.1"])
def test_names_no_client_sees_are_not_taken_in(tmp_path: Path, name: str) -> None:
    """The next start would take such a queue for something of its own."""
    path = str(tmp_path / "definitions.db")
    node = QuietBroker(definitions=path)
    row = {"vhost": "/", "name": name, "durable": True, "auto_delete": False, "arguments": {}}
    left_out = taken_in(node, {"queues": [row]})
    assert len(left_out) == 1
    assert f"queue name '{name}' is one of those no client sees" in left_out[0]
    node.definitions.close()
    again = QuietBroker(node.files, path)
    assert again.broker.vhosts["/"].queues == {}
    again.definitions.close()


def test_what_an_export_of_4_3_says_about_itself_is_no_section() -> None:
    about = {
        "rabbitmq_version": "4.3.6",
        "rabbitmq_definition_format": "cluster",
        "original_cluster_name": "rabbit@localhost",
        "explanation": "Definitions of cluster 'rabbit@localhost'",
    }
    assert taken_in(NODE, about) == []


def test_protection_from_deletion_comes_in_and_goes_out() -> None:
    """An import that says nothing of it leaves it as it is."""
    node = QuietBroker()
    for told, kept in (({"protected_from_deletion": True}, True), ({}, True)):
        assert taken_in(node, {"vhosts": [{"name": "v", "metadata": told}]}) == []
        [row] = [one for one in exported(node)["vhosts"] if one["name"] == "v"]
        assert row["metadata"].get("protected_from_deletion", False) is kept
    lifted = {"name": "v", "metadata": {"protected_from_deletion": False}}
    assert taken_in(node, {"vhosts": [lifted]}) == []
    assert not node.broker.vhosts["v"].metadata.protected_from_deletion
    wrong = {"name": "w", "metadata": {"protected_from_deletion": "yes"}}
    [why] = taken_in(node, {"vhosts": [wrong]})
    assert "neither true nor false" in why
