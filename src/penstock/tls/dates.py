"""What the certificates of a PEM file say: whose they are, for which names, from when until when.

In: a file with certificates, as a listener loads it.  Out: a ``Certificate`` for each of them.
Python's ``ssl`` tells this of a verified peer only, so their fields are walked over here; whether
the certificate is any good is not our question.
"""

import calendar
import re
import ssl
import time
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Final, NamedTuple

from penstock.core.errors import SettingInvalid

_PEM: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_BMP_STRING: Final = 0x1E
_VERSION: Final = 0xA0
_EXTENSIONS: Final = 0xA3
_LONG_FORM: Final = 0x80
_COMMON_NAME: Final = b"\x55\x04\x03"
_ALTERNATIVE_NAMES: Final = b"\x55\x1d\x11"
_TEXTS: Final = (0x81, 0x82, 0x86)
"""Tags of alternative names that are text: e-mail address, host, URI."""
_IP: Final = 0x87
_IP_BYTES: Final = (4, 16)


class Certificate(NamedTuple):
    """``begins_s`` and ``ends_s``: seconds since 1970; ``subject`` and ``issuer``: common names."""

    path: str
    subject: str
    issuer: str
    names: tuple[str, ...]
    """The alternative names: hosts, addresses, URIs."""
    begins_s: int
    ends_s: int


def certificates(path: str) -> list[Certificate]:
    """Every certificate in the file, in its order; raises SettingInvalid."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            found = _PEM.findall(file.read())
        return [certificate(path, ssl.PEM_cert_to_DER_cert(pem)) for pem in found]
    except (OSError, ValueError) as error:
        raise SettingInvalid(f"{path}: a certificate cannot be read: {error}") from error


def certificate(path: str, der: bytes) -> Certificate:
    """One certificate; raises ValueError."""
    try:
        _, whole, _ = _element(der)
        _, signed, _ = _element(whole)
        fields = list(_elements(signed))
        if fields[0][0] == _VERSION:
            del fields[0]
        _, _, (_, issuer), (_, validity), (_, subject), *others = fields
        begins, ends = _elements(validity)
        names = [name for tag, one in others if tag == _EXTENSIONS for name in _names(one)]
        return Certificate(
            path,
            _common_name(subject),
            _common_name(issuer),
            tuple(names),
            _seconds(*begins),
            _seconds(*ends),
        )
    except IndexError as error:
        raise ValueError("it ends too early") from error


def _common_name(name: bytes) -> str:
    """Empty where there is none."""
    for _, attributes in _elements(name):
        for _, attribute in _elements(attributes):
            (_, kind), (tag, text), *_ = _elements(attribute)
            if kind == _COMMON_NAME:
                return text.decode("utf-16-be" if tag == _BMP_STRING else "utf-8", "replace")
    return ""


def _names(extensions: bytes) -> Iterator[str]:
    _, row, _ = _element(extensions)
    for _, extension in _elements(row):
        (_, kind), *_, (_, value) = _elements(extension)
        if kind != _ALTERNATIVE_NAMES:
            continue
        for tag, name in _elements(_element(value)[1]):
            if tag in _TEXTS:
                yield name.decode("utf-8", "replace")
            elif tag == _IP and len(name) in _IP_BYTES:
                yield str(ip_address(name))


def _elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents."""
    while data:
        tag, content, data = _element(data)
        yield tag, content


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Tag and content of the first element, and what comes behind it."""
    size, start = data[1], 2
    if size & _LONG_FORM:
        count = size & ~_LONG_FORM
        start += count
        size = int.from_bytes(data[2:start], "big")
    return data[0], data[start : start + size], data[start + size :]


def _seconds(tag: int, data: bytes) -> int:
    text = data.decode("ascii")
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError(f"a date has the tag {tag}")
    if tag == _UTC_TIME:  # two digits of the year; 50 is 1950
        text = ("19" if text >= "50" else "20") + text
    return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ"))
