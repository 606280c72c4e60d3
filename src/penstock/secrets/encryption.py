"""Encrypted values of a configuration, as RabbitMQ's ``rabbitmqctl encode`` makes them.

    base64(salt (16 bytes), initial vector (16), cipher text)

The key is PBKDF2 of passphrase and salt, by HMAC with a hash; the cipher is AES in CBC mode, padded
as PKCS 7 has it.  The clear text is an Erlang term in the external format, here always a text: a
binary (``<<"x">>``), a string (``"x"``) or an atom.  Source: ``credentials_obfuscation_pbe`` of
RabbitMQ 3.10.8, and Erlang/OTP's "External Term Format".

``cryptography`` does AES (the extra ``crypto``).
"""

import base64
import binascii
import hashlib
import re
from typing import Any, Final, NamedTuple

from penstock.core.errors import SettingInvalid
from penstock.settings.secrets import CIPHER, CIPHERS, HASHES, HASHING, ITERATIONS

SALT_BYTES: Final = 16
BLOCK_BYTES: Final = 16
VERSION: Final = 131
BINARY: Final = 109
STRING: Final = 107
ATOMS: Final = {100: (2, "latin-1"), 118: (2, "utf-8"), 115: (1, "latin-1"), 119: (1, "utf-8")}
"""Tag ─► bytes of the length, and how the name is written."""
ATOM: Final = re.compile(r"[a-z][A-Za-z0-9_@]{0,254}")
WRITTEN: Final = re.compile(r'(<<)?"((?:[^"\\]|\\.)*)"(?(1)(?:/utf8)?>>)', re.DOTALL)


class WrongKey(SettingInvalid):
    """The passphrase, cipher, hash or iterations are others, or the text is no encrypted one."""


class Encryption(NamedTuple):
    """How values are encrypted; names as RabbitMQ has them."""

    passphrase: bytes
    cipher: str = CIPHER
    hashing: str = HASHING
    iterations: int = ITERATIONS

    def decrypt(self, text: str) -> bytes:
        """The clear term; raises WrongKey."""
        try:
            packed = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise WrongKey("it is not base64") from None
        salt, rest = packed[:SALT_BYTES], packed[SALT_BYTES:]
        vector, sealed = rest[:BLOCK_BYTES], rest[BLOCK_BYTES:]
        if not sealed or len(sealed) % BLOCK_BYTES:
            raise WrongKey("it is not as long as an encrypted value is")
        step = self._cipher(salt, vector).decryptor()
        padded = step.update(sealed) + step.finalize()
        count = padded[-1]
        if not 1 <= count <= BLOCK_BYTES or padded[-count:] != bytes([count]) * count:
            raise WrongKey("it does not open with this passphrase, cipher, hash and iterations")
        return bytes(padded[:-count])

    def encrypt(self, clear: bytes, salt: bytes, vector: bytes) -> str:
        """The inverse; both random."""
        count = BLOCK_BYTES - len(clear) % BLOCK_BYTES
        step = self._cipher(salt, vector).encryptor()
        sealed = step.update(clear + bytes([count]) * count) + step.finalize()
        return base64.b64encode(salt + vector + sealed).decode()

    def _cipher(self, salt: bytes, vector: bytes) -> Any:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher  # noqa: PLC0415 - an extra
            from cryptography.hazmat.primitives.ciphers.algorithms import AES  # noqa: PLC0415
            from cryptography.hazmat.primitives.ciphers.modes import CBC  # noqa: PLC0415
        except ImportError as error:
            raise SettingInvalid(
                "encrypted values need `pip install penstock-broker[crypto]`"
            ) from error
        key = hashlib.pbkdf2_hmac(
            HASHES[self.hashing], self.passphrase, salt, self.iterations, CIPHERS[self.cipher]
        )
        return Cipher(AES(key), CBC(vector))


def text_of_term(term: bytes) -> str:
    """Of a clear term; raises WrongKey for one that is no text."""
    written = term_as_written(term)
    return written.removeprefix("<<").removesuffix(">>")[1:-1] if written[:1] in '<"' else written


def term_as_written(term: bytes) -> str:
    """``<<"x">>``, ``"x"`` or ``x``, without escapes; raises WrongKey for one that is no text."""
    if len(term) < 2 or term[0] != VERSION:
        raise WrongKey("it does not open with this passphrase, cipher, hash and iterations")
    tag, body = term[1], term[2:]
    try:
        if tag == BINARY and int.from_bytes(body[:4], "big") == len(body) - 4:
            return f'<<"{body[4:].decode()}">>'
        if tag == STRING and int.from_bytes(body[:2], "big") == len(body) - 2:
            return f'"{body[2:].decode("latin-1")}"'
        if tag in ATOMS:
            width, encoding = ATOMS[tag]
            return body[width:].decode(encoding)
    except UnicodeDecodeError:
        pass
    raise WrongKey("it is encrypted, but no text")


def term_of_text(written: str) -> bytes:
    """Of ``<<"x">>``, ``"x"`` (of Latin-1) or the atom ``x``; raises WrongKey for another term."""
    if ATOM.fullmatch(written):
        return bytes([VERSION, 119, len(written)]) + written.encode()
    found = WRITTEN.fullmatch(written.strip())
    if found is None:
        raise WrongKey("""only texts are encrypted: '<<"text">>' or '"text"'""")
    text = re.sub(r"\\(.)", r"\1", found[2])
    try:
        data = text.encode("utf-8" if found[1] else "latin-1")
    except UnicodeEncodeError:
        raise WrongKey('a string is of Latin-1, and <<"text">> of UTF-8') from None
    if found[1]:
        return bytes([VERSION, BINARY]) + len(data).to_bytes(4, "big") + data
    if not 0 < len(data) < 1 << 16:
        raise WrongKey("a string has 1 to 65535 characters")
    return bytes([VERSION, STRING]) + len(data).to_bytes(2, "big") + data
