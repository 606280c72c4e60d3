"""The table of the listeners: it has them all, and SECURITY.md says the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.settings.listener_table import (
    AS_NSQ_USER,
    LISTENERS,
    NAMES,
    NOTHING,
    listener_at,
    open_listeners,
    security_rows,
    stays_here,
)
from penstock.settings.settings import DECLARED, load_settings

SECURITY = Path(__file__).resolve().parents[2] / "SECURITY.md"
HEAD = "|---|---|---|---|---|---|\n"


def test_every_setting_of_a_place_is_in_the_table() -> None:
    places = {key for key in DECLARED if key.endswith(("_port", "unix_socket"))}
    assert {kind.place_key for kind in LISTENERS} == places
    binds = {key for key in DECLARED if key == "bind" or key.endswith("_bind")}
    assert {key for kind in LISTENERS for key in kind.binds} == binds
    named = {
        key for kind in LISTENERS for key in (*kind.opened_by, kind.widened_by, *kind.log_in_by)
    }
    assert named - {""} <= set(DECLARED)


def test_the_table_of_security_is_this_one() -> None:
    text = SECURITY.read_text()
    shown = text.partition(HEAD)[2].partition("\n\n")[0]
    assert shown.splitlines() == security_rows()


def test_threats_are_said_of_each_listener() -> None:
    threats = SECURITY.read_text().partition("## Threats at each port")[2].partition("\n## ")[0]
    named = {
        key
        for row in threats.splitlines()
        if row.startswith("|")
        for key in re.findall("`(\\w+)`", row.split("|")[1])
    }
    assert named == {kind.place_key for kind in LISTENERS}


def test_on_a_public_address_only_what_names_nothing_needs_no_log_in() -> None:
    settings = load_settings(None, {}, {"bind": "0.0.0.0"})
    may = {kind.place_key: kind.without_log_in(settings) for kind in open_listeners(settings)}
    public = {key for key in may if not stays_here(listener_at(key).address(settings))}
    assert public == {"amqp_port", "http_port", "prometheus_port", "nsq_port", "nsq_http_port"}
    assert may["amqp_port"] == may["nsq_port"] == NOTHING
    assert may["nsq_http_port"] == "`/ping`"
    assert NAMES not in may["prometheus_port"]


@pytest.mark.parametrize(
    "text, key, may",
    [
        ('nsq_user = "ann"', "nsq_port", AS_NSQ_USER),
        ('nsq_user = "ann"\nnsq_auth_required = true', "nsq_port", NOTHING),
        ("nsq_auth_required = true", "nsq_http_port", "`/ping`"),
    ],
)
def test_settings_widen_and_narrow_what_needs_no_log_in(text: str, key: str, may: str) -> None:
    assert listener_at(key).without_log_in(load_settings(text, {}, {})) == may


@pytest.mark.parametrize(
    "text, key, is_open",
    [
        ("", "ssl_port", False),
        ('ssl_certfile = "c"', "ssl_port", True),
        ('ssl_certfile = "c"\nssl_port = 0', "ssl_port", True),
        ('ssl_certfile = "c"\nnsq_https_port = 0', "nsq_https_port", False),
        ("amqp_listener = false", "amqp_port", False),
        ("nsq_port = 0", "nsq_port", False),
        ("", "unix_socket", False),
        ("", "cluster_port", False),
    ],
)
def test_a_door_is_open_by_its_port_and_what_it_needs(text: str, key: str, is_open: bool) -> None:
    assert listener_at(key).is_open(load_settings(text, {}, {})) is is_open
