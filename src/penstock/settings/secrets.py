"""Settings of secrets: how encrypted values are opened, passwords and certificates of links.

How a secret is written is said in ``penstock.secrets.sources``, which reads it.
"""

from collections.abc import Mapping
from typing import Final

from penstock.core.amqp_uri import AmqpUri, parse_amqp_uri
from penstock.settings.kinds import Form, Integer, NameList, Secret, Text, form_of, is_plain

CIPHERS: Final[Mapping[str, int]] = {"aes_128_cbc": 16, "aes_192_cbc": 24, "aes_256_cbc": 32}
"""Name ─► bytes of the key."""
CIPHER: Final = "aes_128_cbc"
HASHING: Final = "sha256"
ITERATIONS: Final = 1
HASHES: Final = {"sha": "sha1", **{name: name for name in ("sha224", "sha256", "sha384", "sha512")}}
"""Name ─► that of OpenSSL."""


def link_place(text: str) -> AmqpUri | None:
    """Whose password an entry has and where to, None = the text says something else, or more."""
    try:
        uri = parse_amqp_uri(text if "://" in text else f"amqps://{text}", vhost="")
    except ValueError:
        return None
    is_place = uri.user and uri.host and uri.password is None and not uri.vhost and not uri.options
    return uri if is_place else None


def _is_link(text: str) -> bool:
    place, _, source = text.partition("=")
    return bool(link_place(place) and form_of(source)) and not is_plain(source)


LINKS: Final = Form(
    "entries such as amqps://shovel@broker.example.com=file:/etc/penstock/s.pass", _is_link
)
DIRECTORIES: Final = Form(
    "directories such as /etc/penstock/links", lambda text: text.startswith("/")
)


class SecretSettings:
    # fmt: off
    config_passphrase = Secret("",
        "Passphrase that decrypts values that begin with `encrypted:`.", min_bytes=0)
    config_cipher = Text(CIPHER, "Their cipher, as RabbitMQ names it.", choices=tuple(CIPHERS))
    config_hash = Text(HASHING, "The hash by which their key is derived.", choices=tuple(HASHES))
    config_iterations = Integer(ITERATIONS, 1, 10_000_000,
        "The iterations of that. These three have RabbitMQ's defaults, which are weak: give"
        " `penstockctl encode` more iterations, and the same number here.")
    link_passwords = NameList((),
        "Passwords of shovels and federation links whose URI names a user and no password. An entry"
        " is scheme, user, `@`, host, port (unless it is the scheme's own), `=`, and the place of"
        " the password (`file:`, `command:` or `encrypted:`). A password goes only to this user,"
        " scheme, host and port, and with TLS only to a server that proves the host's name. Without"
        " a scheme it is amqps, and on this machine amqp as well.", form=LINKS)
    link_tls_dirs = NameList((),
        "Directories with the files that URIs of shovels and upstreams may name as `cacertfile`,"
        " `certfile` and `keyfile`. Files elsewhere, and those in `data_dir`, are refused. A user"
        " who may set such URIs can use any certificate whose key is there.",
        form=DIRECTORIES)
    # fmt: on
