"""Settings of TLS: one set for all listeners, and for each of them a list of what differs.

The settings ``ssl_…`` are those of AMQP, and of every other listener as far as its list says
nothing else.  An entry of a list is one of these settings without ``ssl_``, and its value:

    https_tls = ["certfile=/etc/ui.pem", "keyfile=/etc/ui.key", "verify=verify_peer"]

``tls_view`` gives the settings as a listener with such a list sees them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.settings.kinds import Boolean, Form, Integer, NameList, Secret, Setting, Text, Value

if TYPE_CHECKING:
    from penstock.settings.settings import Settings

DISTINGUISHED_NAME: Final = "distinguished_name"
COMMON_NAME: Final = "common_name"
ALTERNATIVE_NAME: Final = "subject_alternative_name"
VERSIONS: Final = ("1.2", "1.3")
OF_KEY: Final = ("keyfile", "password")
"""These belong to the certificate beside which they stand."""


def _is_sni(text: str) -> bool:
    name, _, files = text.partition("=")
    return bool(name and files.partition(":")[0])


def _is_word(text: str) -> bool:
    word, _, value = text.partition("=")
    setting = WORDS.get(word)
    read = None if setting is None else setting.from_text(value)
    return setting is not None and read is not None and setting.within_bounds(read)


SNI: Final = Form("entries such as broker.example.com=/etc/c.pem:/etc/c.key", _is_sni)
OVERRIDES: Final = Form(
    "settings `ssl_…` without this prefix, such as certfile=/etc/c.pem", _is_word
)
_AS = (
    ", where it differs from the settings `ssl_…`. An entry is one of them without `ssl_`, `=` and"
)
_AS += " its value."


class TlsSettings:
    # fmt: off
    ssl_certfile = Text("",
        "Certificate of the broker in PEM, followed by those up to its authority. Empty: no TLS.",
        min_bytes=0)
    ssl_keyfile = Text("", "Private key of that certificate in PEM.", min_bytes=0)
    ssl_password = Secret("", "Password of that key, and of those of `ssl_sni`.", min_bytes=0)
    ssl_sni = NameList((),
        "More certificates, for clients that ask for a host name (SNI). An entry is the name, or"
        " `*.` and a domain; `=`; the certificate's file; and `:` with that of its key if it is"
        " another. All other clients get `ssl_certfile`.", form=SNI)
    ssl_min_version = Text("1.2", "Oldest version of TLS that clients may use.", choices=VERSIONS)
    ssl_max_version = Text("1.3", "Newest version of TLS that clients may use.", choices=VERSIONS)
    ssl_ciphers = Text("",
        "Cipher suites of TLS 1.2, as OpenSSL names them, with colons between. Those of TLS 1.3 are"
        " always offered. Empty: OpenSSL's defaults.", min_bytes=0)
    ssl_cacertfile = Text("",
        "Certificates in PEM of the authorities whose clients are trusted.", min_bytes=0)
    ssl_verify = Text("verify_none",
        "`verify_peer` asks clients for a certificate and refuses one that no authority of"
        " `ssl_cacertfile` has signed.", choices=("verify_none", "verify_peer"))
    ssl_fail_if_no_peer_cert = Boolean(False,
        "With `verify_peer`: refuse clients that have no certificate.")
    ssl_depth = Integer(10, 0, 100,
        "With `verify_peer`: how many certificates may be between a client's and that of the"
        " authority.")
    ssl_crl_check = Text("no",
        "With `verify_peer`: whether to refuse clients whose certificate, or one of its chain"
        " (`chain`), is in a revocation list of `ssl_crlfile`. Each authority concerned must have a"
        " list there that has not expired.", choices=("no", "peer", "chain"))
    ssl_crlfile = Text("", "Revocation lists in PEM.", min_bytes=0)
    ssl_cert_login_from = Text("",
        "Part of a verified certificate that names the user. With it clients log in without a"
        " password: AMQP clients by SASL EXTERNAL, and HTTP clients. Empty: not offered.",
        choices=("", DISTINGUISHED_NAME, COMMON_NAME, ALTERNATIVE_NAME))
    ssl_cert_login_san_type = Text("dns",
        "With `subject_alternative_name`: the kind of name that counts.",
        choices=("dns", "ip", "email", "uri"))
    ssl_cert_login_san_index = Integer(0, 0, 1000,
        "Which of these names; the first is 0.")
    https_tls = NameList((), f"TLS of the management API{_AS}", form=OVERRIDES)
    prometheus_tls = NameList((), f"TLS of the metrics' port{_AS}", form=OVERRIDES)
    nsq_tls = NameList((), f"TLS of NSQ, over TCP and HTTP{_AS}", form=OVERRIDES)
    nsqlookupd_tls = NameList((), f"TLS of nsqlookupd's ports{_AS}", form=OVERRIDES)
    cluster_tls = NameList((),
        "The same for TLS between nodes, which `cluster_tls_certfile` switches on. Both sides must"
        " show a certificate in any case.", form=OVERRIDES)
    # fmt: on


WORDS: Final[Mapping[str, Setting]] = {
    key.removeprefix("ssl_"): setting
    for key, setting in vars(TlsSettings).items()
    if key.startswith("ssl_")
}
"""What the entry of a list may begin with."""


def tls_view(settings: "Settings", key: str) -> "Settings":
    """As the listener sees them whose list ``key`` is, such as ``https_tls``; "": all others."""
    entries = settings.value_of(key) if key else ()
    assert isinstance(entries, tuple)
    return overridden(settings, [str(entry) for entry in entries], f"in {key}")


def overridden(settings: "Settings", entries: list[str], reason: str) -> "Settings":
    """The settings with these entries of a list, each of which is valid, in force."""
    found: dict[str, Value] = {}
    for entry in entries:
        word, _, text = entry.partition("=")
        value = WORDS[word].from_text(text)
        assert value is not None
        before = found.get(f"ssl_{word}")
        if isinstance(before, tuple) and isinstance(value, tuple):  # of several, each an entry
            value = before + value
        found[f"ssl_{word}"] = value
    if "ssl_certfile" in found:
        found = {f"ssl_{word}": "" for word in OF_KEY} | found
    return settings.with_values(found, reason) if found else settings
