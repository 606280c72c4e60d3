"""Until when the certificates of a PEM file hold.

In: a file with certificates, as a listener loads it.  Out: for each of them the moment at which it
expires, in seconds since 1970.  Python's ``ssl`` tells this of a verified peer only, so the few
fields before the date are walked over here; whether the certificate is any good is not our
question.
"""

import calendar
import re
import ssl
import time
from typing import Final

from penstock.core.errors import SettingInvalid

_PEM: Final = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL | re.ASCII
)
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_VERSION: Final = 0xA0
_LONG_FORM: Final = 0x80
_BEFORE_VALIDITY: Final = 3
"""Serial number, algorithm and issuer."""


def expiry_dates(path: str) -> list[int]:
    """Of every certificate in the file, in its order; raises SettingInvalid."""
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            found = _PEM.findall(file.read())
        return [expiry_date(ssl.PEM_cert_to_DER_cert(pem)) for pem in found]
    except (OSError, ValueError) as error:
        raise SettingInvalid(f"{path}: a certificate cannot be read: {error}") from error


def expiry_date(der: bytes) -> int:
    """The end of one certificate's validity; raises ValueError."""
    try:
        _, certificate, _ = _element(der)
        _, signed, _ = _element(certificate)
        tag, _, rest = _element(signed)
        if tag != _VERSION:
            rest = signed
        for _ in range(_BEFORE_VALIDITY):
            _, _, rest = _element(rest)
        _, validity, _ = _element(rest)
        _, _, end = _element(validity)
        tag, text, _ = _element(end)
        return _seconds(tag, text.decode("ascii"))
    except IndexError as error:
        raise ValueError("it ends too early") from error


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Tag and content of the first element, and what comes behind it."""
    size, start = data[1], 2
    if size & _LONG_FORM:
        count = size & ~_LONG_FORM
        start += count
        size = int.from_bytes(data[2:start], "big")
    return data[0], data[start : start + size], data[start + size :]


def _seconds(tag: int, text: str) -> int:
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError(f"a date has the tag {tag}")
    if tag == _UTC_TIME:  # two digits of the year; 50 is 1950
        text = ("19" if text >= "50" else "20") + text
    return calendar.timegm(time.strptime(text, "%Y%m%d%H%M%SZ"))
