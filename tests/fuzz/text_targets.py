"""Parsers of texts that strangers or operators write; a row is valid texts, a parser, its refusal.

Invariant: whatever the text, the parser ends soon with a value, or with the one exception that it
promises.  A text is a valid one with wounds, or pieces of valid ones put together anew.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from penstock.auth.http_backend import CannotAsk, reply_in
from penstock.broker.oauth.keys import KeyInvalid, from_pem, key_set
from penstock.broker.oauth.servers import oauth_options
from penstock.broker.oauth.tokens import TokenRefused, bearer_token
from penstock.core.errors import SettingInvalid
from penstock.secrets.encryption import Encryption, WrongKey, term_as_written, term_of_text
from penstock.settings.erlang_reader import TermsInvalid, read_terms
from penstock.settings.kinds import Setting
from penstock.settings.rabbitmq_conf import translate
from penstock.settings.rabbitmq_keys import GATHERED, OBEYED
from penstock.settings.settings import DECLARED, load_settings
from penstock.tls.names import KINDS, alternative_name, common_name, distinguished_name
from tests.fuzz import mutate
from tests.fuzz.targets import Target, last_input

Refusals = type[Exception] | tuple[type[Exception], ...]
PIECE: Final = re.compile(r"\w+|\s+|.", re.DOTALL)
RSA_KEY: Final = {"kty": "RSA", "kid": "a", "use": "sig", "alg": "RS256", "e": "AQAB",
                  "n": "sXchDaQebHnPiGvyDOAT4saGEUetSyo9MKLOoWFsueri23bOdgWp4Dy1WlUzewbgBHod5pcM"
                       "9H95GQRV3JDXboIRROSBigeC5yjU1hGzHHyXss8UDprecbAYxknTcQkhslANGRUZmdTOQ5qT"
                       "RsLAt6BTYuyvVRdhS8exSZEy_c4gs_7svlJJQ4H9_NxsiIoLwAEk7-Q3UXERGYw_75IDrGA8"
                       "4-lA_-Ct4eTlXHBIY2EaV7t7LjJaynVJCpkv4LKjTTAumiGUIuQhrNhZLuF_RJLqHpM2kgWF"
                       "LU7-VTdL1VbC2tejvcI2BlMkEpk1BzBZI0KQB0GaDWFLN-aEAw3vRw"}  # fmt: skip
EC_KEY: Final = {"kty": "EC", "crv": "P-256", "kid": "b",
                 "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
                 "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}  # fmt: skip
OAUTH: Final = {
    "resource_server_id": "rabbitmq", "issuer": "https://a.example", "verify_aud": True,
    "preferred_username_claims": ["user_name"], "scope_aliases": {"api": "read:*/*"},
    "resource_servers": {"a": {"id": "a", "oauth_provider_id": "p"}},
    "oauth_providers": {"p": {"issuer": "https://p.example", "https.verify": "verify_peer"}},
    "signing_keys": {"k": "/etc/k.pem"}, "algorithms": ["RS256"], "default_key": "k",
}  # fmt: skip
PEM: Final = (
    "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEMKBCTNIcKUSDii11ySs3526iDZ8A\n"
    "iTo7Tu6KPAqv7D7gS2XpJFbZiItSs3m9+9Ue6GnvHw/GW2ZZaVtszggXIw==\n-----END PUBLIC KEY-----\n"
)
TERMS: Final = (
    '[{rabbit, [{tcp_listeners, [5672, {"::1", 5673}]}, {vm_memory_high_watermark, {absolute,'
    ' "1GB"}},'
    ' {default_permissions, [<<".*">>, <<".*">>, <<".*">>]}, {log, [{file, [{level, info}]}]},'
    " {cluster_nodes, {['rabbit@a', 'rabbit@b'], disc}}, {auth_backends,"
    ' [rabbit_auth_backend_http]}, {default_pass, {encrypted, <<"abc">>}}]}, % of 2#101, $a\n'
    ' {rabbitmq_shovel, [{shovels, [{s, [{sources, [{broker, "amqp://"}]}, {queue, <<"q">>}]}]}]}].'
)
CONF_VALUES: Final = (
    *(
        "true",
        "false",
        "none",
        "1",
        "0.4",
        "-1",
        "10GB",
        "1 GB",
        "127.0.0.1:5672",
        ":::1",
        "infinity",
    ),
    *(
        "verify_peer",
        "a, b",
        "/etc/x.pem",
        "encrypted:abc",
        "amqp://u:p@h/%2F",
        "''",
        '"',
        "9" * 30,
    ),
)
TEXT_MAX: Final = 64 * 1024
"""No caller takes longer ones from a stranger."""
ENCRYPTION: Final = Encryption(b"p", iterations=1)


class TextParser(NamedTuple):
    """``texts``: valid ones."""

    texts: tuple[str, ...]
    parse: Callable[[str], object]
    refusals: Refusals


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _opened(text: str) -> object:
    return term_as_written(ENCRYPTION.decrypt(text))


def _names(text: str) -> object:
    """Of a certificate, as ``ssl`` shows it: in UTF-8."""
    words = text.encode("utf-8", "replace").decode().split(",")
    pairs = tuple(((kind, value),) for kind, value in itertools.pairwise(words))
    flat = tuple(pair for (pair,) in pairs)
    found = [alternative_name(flat, kind, len(text) % 3) for kind in KINDS]
    return common_name(pairs), distinguished_name(pairs), found


def _conf_texts() -> tuple[str, ...]:
    keys = [key.replace("$", "") for key in (*OBEYED, *GATHERED)]
    return tuple(f"{key} = {CONF_VALUES[at % len(CONF_VALUES)]}\n" for at, key in enumerate(keys))


def _toml_text(setting: Setting) -> str:
    value = setting.default
    shown = list(value) if isinstance(value, tuple) else value
    return f"{setting.key} = {json.dumps(shown)}\n"


PARSERS: Final[dict[str, TextParser]] = {
    "key_sets": TextParser(
        (json.dumps({"keys": [RSA_KEY, EC_KEY]}), json.dumps({"keys": [EC_KEY]})),
        lambda text: key_set(_octets(text)),
        KeyInvalid,
    ),
    "pem_keys": TextParser((PEM,), lambda text: from_pem(_octets(text)), KeyInvalid),
    "oauth_settings": TextParser((json.dumps(OAUTH),), oauth_options, SettingInvalid),
    "bearer_tokens": TextParser(("Bearer a.b.c", "bearer  a"), bearer_token, TokenRefused),
    "http_answers": TextParser(
        ("allow administrator monitoring", "deny", "deny because", " ALLOW\n"), reply_in, CannotAsk
    ),
    "encrypted_values": TextParser(
        tuple(
            ENCRYPTION.encrypt(term_of_text(term), bytes(16), bytes(16))
            for term in ('<<"secret">>', '"secret"', "secret")
        ),
        _opened,
        WrongKey,
    ),
    "erlang_texts": TextParser(('<<"a b">>', '"a\\"b"', "atom"), term_of_text, WrongKey),
    "certificate_names": TextParser(
        ("commonName,a b,DNS,*.example,email,x@y,URI,u:v,IP Address,::1,organizationName, #é",),
        _names,
        (),
    ),
    "erlang_terms": TextParser((TERMS,), read_terms, TermsInvalid),
    "advanced_config": TextParser(
        (TERMS,), lambda text: translate([("rabbitmq.config", text)]), SettingInvalid
    ),
    "rabbitmq_conf": TextParser(
        _conf_texts(), lambda text: translate([("rabbitmq.conf", text)]), SettingInvalid
    ),
    "penstock_toml": TextParser(
        tuple(map(_toml_text, DECLARED.values())),
        lambda text: load_settings(text, {}, {}, "penstock.toml"),
        SettingInvalid,
    ),
}


def _target(parser: TextParser) -> Target:
    def target(rng: random.Random, _corpus: list[bytes]) -> None:
        text = _text(rng, parser.texts)
        last_input[:] = [_octets(text)]
        try:
            parser.parse(text)
        except parser.refusals:
            return

    return target


def _text(rng: random.Random, texts: tuple[str, ...]) -> str:
    chosen = "".join(rng.choices(texts, k=rng.choice((1, 1, 1, 2, 5))))
    if rng.random() < 0.5:
        chosen = _put_together(rng, chosen)
    if rng.random() < 0.5:
        data = _octets(chosen)
        for _ in range(rng.randint(1, 3)):
            data = mutate.blind(rng, data)
        chosen = data.decode("utf-8", rng.choice(("surrogateescape", "replace")))
    return chosen[:TEXT_MAX]


def _put_together(rng: random.Random, text: str) -> str:
    """Its pieces: one taken, doubled, many times over, or two exchanged."""
    pieces: list[Any] = PIECE.findall(text)
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        kind = rng.randrange(4)
        if kind == 0:
            pieces[at] = ""
        elif kind == 1:
            pieces[at] = pieces[other]
        elif kind == 2:
            pieces[at] = pieces[at][:20] * rng.choice((2, 30, 3000))
        else:
            pieces[at], pieces[other] = pieces[other], pieces[at]
    return "".join(pieces)


TARGETS: Final[dict[str, Target]] = {name: _target(parser) for name, parser in PARSERS.items()}
