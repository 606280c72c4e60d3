"""Texts of operators and peers that Python refuses in ways of its own are refused as any other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.broker.oauth.servers import oauth_options
from penstock.broker.rules.vhost_defaults import VhostDefaults
from penstock.core.errors import SettingInvalid
from penstock.core.json_reading import json_of
from penstock.node.coordination.etcd_http import NotReached, understood
from penstock.protocols.nsq.authority import identified_in
from penstock.secrets.encryption import WrongKey, term_of_text
from penstock.settings.erlang_reader import TermsInvalid, read_terms
from penstock.settings.settings import load_settings

DEEP = "[" * 100_000
LONG = "1" * 5000
HALF_OF_A_CHARACTER = "\udcff"


@pytest.mark.parametrize(
    "read, refusal",
    [
        (json_of, ValueError),
        (oauth_options, SettingInvalid),
        (VhostDefaults, SettingInvalid),
        (lambda text: understood(text.encode()), NotReached),
        (lambda text: identified_in(text.encode()), ValueError),
        (lambda text: load_settings(f"a = {text}", {}, {}, "penstock.toml"), SettingInvalid),
        (lambda text: read_terms(f"[{text}]."), TermsInvalid),
    ],
)
def test_what_is_too_deep_or_too_long_is_refused(
    read: Callable[[str], object], refusal: type[Exception]
) -> None:
    for text in (DEEP, LONG):
        with pytest.raises(refusal):
            read(text)


def test_half_of_a_character_is_no_term() -> None:
    for text in (f'<<"{HALF_OF_A_CHARACTER}">>', f'"{HALF_OF_A_CHARACTER}"'):
        with pytest.raises(WrongKey):
            term_of_text(text)
