"""Certificates for tests, made by the ``openssl`` program: an authority and whom it vouches for."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from copy import copy
from pathlib import Path

MISSING = None if shutil.which("openssl") else "the openssl program is not installed"
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


class Authority:
    """Signs for ``subject``s; its files lie in one directory."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.certificate = directory / f"{name}.pem"
        self.key = directory / f"{name}.key"
        _openssl(
            *("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN=Test {name}"),
            *("-addext", "keyUsage=critical,keyCertSign,cRLSign"),
            *("-keyout", str(self.key), "-out", str(self.certificate)),
        )

    def sign(
        self, name: str, subject: str, names: str = "", *, ca: bool = False
    ) -> tuple[str, str]:
        """Certificate and key, as paths; ``subject`` and other ``names`` as openssl spells them."""
        certificate, key, request = (
            self.directory / f"{name}.{ending}" for ending in ("pem", "key", "csr")
        )
        _openssl(
            *("req", *_NEW_KEY, "-utf8", "-subj", subject),
            *("-keyout", str(key), "-out", str(request)),
        )
        extensions = self.directory / f"{name}.ext"
        known = "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
        if ca:
            known += "basicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign,cRLSign\n"
        extensions.write_text(known + (f"subjectAltName={names}\n" if names else ""))
        _openssl(
            *("x509", "-req", "-in", str(request), "-out", str(certificate), "-days", "2"),
            *("-extfile", str(extensions)),
            *("-CA", str(self.certificate), "-CAkey", str(self.key), "-CAcreateserial"),
        )
        return str(certificate), str(key)

    def under(self, name: str) -> Authority:
        """Another authority, vouched for by this one; its file of certificates has both."""
        certificate, key = self.sign(name, f"/CN=Test {name}", ca=True)
        lower = copy(self)
        lower.certificate, lower.key = Path(certificate), Path(key)
        return lower

    def revocation_list(self, *certificates: str) -> str:
        """A file that says that these are revoked, and holds for a day."""
        index = self.directory / f"{self.key.stem}.index"
        index.touch()
        settings = self.directory / f"{self.key.stem}.cnf"
        settings.write_text(
            f"[ca]\ndefault_ca=d\n[d]\ndatabase={index}\ndefault_md=sha256\n"
            f"default_crl_days=1\ncertificate={self.certificate}\nprivate_key={self.key}\n"
        )
        for certificate in certificates:
            _openssl("ca", "-config", str(settings), "-revoke", certificate)
        listed = self.directory / f"{self.key.stem}.crl"
        _openssl("ca", "-config", str(settings), "-gencrl", "-out", str(listed))
        return str(listed)

    def client_context(self, own: tuple[str, str] | None = None) -> ssl.SSLContext:
        """Trusts us and nobody else; shows ``own``, a certificate and its key."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if own is not None:
            context.load_cert_chain(*own)
        return context


def encrypted(key: str, password: str) -> str:
    """The same key in another file, with a password."""
    _openssl("pkey", "-in", key, "-aes256", "-passout", f"pass:{password}", "-out", f"{key}.enc")
    return f"{key}.enc"


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)
