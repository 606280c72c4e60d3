"""Static shovels of advanced.config, as the values that parameters of dynamic ones have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.core.errors import SettingInvalid
from penstock.node.link_control import static_shovels_in
from penstock.settings.rabbitmq_conf import translate
from penstock.settings.settings import load_settings

TODAY = """[{rabbitmq_shovel, [{shovels, [{'of today', [
  {source, [{protocol, amqp091}, {uris, ["amqp://", "amqp://other"]},
            {declarations, [{'queue.declare', [{queue, <<"in">>}, durable,
                              {arguments, [{<<"x-max-length">>, long, 9}]}]},
                            {'queue.bind', [{exchange, <<"x">>}, {queue, <<"in">>}]}]},
            {queue, <<"in">>}, {prefetch_count, 100}, {delete_after, never}]},
  {destination, [{uris, ["amqp://"]},
                 {declarations, [{'exchange.declare',
                                  [{exchange, <<"x">>}, {type, <<"fanout">>}]}]},
                 {publish_properties, [{delivery_mode, 2}]},
                 {publish_fields, [{exchange, <<>>}, {routing_key, <<"out">>}]},
                 {add_forward_headers, true}]},
  {ack_mode, on_publish}, {reconnect_delay, 7}]}]}]}]."""
OLD = """[{rabbitmq_shovel, [{shovels, [{old, [
  {sources, [{broker, "amqp://"}, {declarations, ['queue.declare']}]},
  {destinations, [{brokers, ["amqp://a", "amqp://b"]}]},
  {queue, <<>>}, {publish_fields, [{exchange, <<"amq.topic">>}]}]}]}]}]."""


def shovels(text: str) -> dict[str, Any]:
    found = translate([("advanced.config", text)])
    assert not found.warnings
    return static_shovels_in(load_settings("", {}, {}, conf=[("advanced.config", text)]))


def test_the_form_of_today() -> None:
    arguments = {"queue": "in", "durable": True, "arguments": {"x-max-length": 9}}
    bound = {"queue": "in", "exchange": "x", "routing_key": "", "arguments": {}}
    assert shovels(TODAY) == {
        "of today": {
            "ack-mode": "on-publish",
            "reconnect-delay": 7,
            "src-protocol": "amqp091",
            "src-uri": ["amqp://", "amqp://other"],
            "src-declarations": [["queue.declare", arguments], ["queue.bind", bound]],
            "src-queue": "in",
            "src-prefetch-count": 100,
            "src-delete-after": "never",
            "dest-uri": ["amqp://"],
            "dest-declarations": [["exchange.declare", {"exchange": "x", "kind": "fanout"}]],
            "dest-publish-properties": {"delivery_mode": 2},
            "dest-exchange": "",
            "dest-exchange-key": "out",
            "dest-add-forward-headers": True,
        }
    }


def test_the_form_before_3_7() -> None:
    assert shovels(OLD) == {
        "old": {
            "ack-mode": "on-confirm",
            "src-uri": ["amqp://"],
            "src-declarations": [["queue.declare", {}]],
            "src-queue": "",
            "dest-uri": ["amqp://a", "amqp://b"],
            "dest-declarations": [],
            "dest-exchange": "amq.topic",
        }
    }


@pytest.mark.parametrize(
    "before, after, why",
    [
        ("{ack_mode, on_publish}", "{ack_mode, often}", "of today: ack_mode is one of"),
        ("{delete_after, never}", "{delete_often, 1}", "source: delete_often is not known"),
        ("durable", "{durability, 1}", "declarations: queue.declare has no durability"),
        ("'queue.bind'", "'queue.delete'", "queue.delete: one of queue.declare"),
        ('{queue, <<"in">>}, durable', "durable, durable", "durable stands twice"),
        ('{uris, ["amqp://", "amqp://other"]}', "{uris, 7}", "source: uris: a list is needed"),
        ("long, 9", "9", "each argument is {name, type, value}"),
    ],
)
def test_a_term_of_another_form_stops_the_start_and_is_named(
    before: str, after: str, why: str
) -> None:
    assert before in TODAY
    with pytest.raises(SettingInvalid, match=r"line 1: shovel\.shovels: ") as raised:
        shovels(TODAY.replace(before, after))
    assert why in str(raised.value)


@pytest.mark.parametrize(
    "before, after, why",
    [
        ("amqp091", "amqp10", "src-protocol should be one of"),
        ("{prefetch_count, 100}", "{prefetch_count, -1}", "src-prefetch-count should be"),
        ('"amqp://other"', '"http://other"', "src-uri is not a valid URI"),
        ("{delivery_mode, 2}", "{delivery, 2}", "Unrecognised terms"),
    ],
)
def test_what_a_parameter_could_not_be_stops_the_start(before: str, after: str, why: str) -> None:
    with pytest.raises(SettingInvalid, match="static_shovels: of today") as raised:
        shovels(TODAY.replace(before, after))
    assert why in str(raised.value)


@pytest.mark.parametrize("text", ["[", "[]", "7", json.dumps({"a": 7})])
def test_the_setting_is_an_object_of_objects(text: str) -> None:
    with pytest.raises(SettingInvalid, match="static_shovels"):
        static_shovels_in(load_settings("", {}, {"static_shovels": text}))


def test_passwords_are_not_in_what_is_said_of_the_line() -> None:
    text = TODAY.replace("amqp://other", "amqp://a:secret@other")
    found = translate([("x.conf", ""), ("advanced.config", text)])
    assert "secret" in str(found.values["static_shovels"])
    assert "secret" not in str(found.warnings)
