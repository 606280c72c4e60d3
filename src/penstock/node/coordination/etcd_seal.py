"""Each record of a cluster in etcd carries a checksum that takes the cluster's secret to make.

In: the key in etcd and the value.  Out: checksum, blank, value; and back, or ``WrongSeal``.  The
checksum is HMAC-SHA-256 over the key with its prefix and the value, so that a record counts
under its own key in its own cluster only.  Tried and dropped: a checksum of the key's revision as
well, which would also tell an older record that is put back; etcd chooses the revision after the
value is written.
"""

import hmac
from base64 import urlsafe_b64encode
from typing import Final, final

from penstock.node.coordination.etcd_http import EtcdFailed

PURPOSE: Final = b"records of penstock in etcd"
SEAL_CHARS: Final = 43


class WrongSeal(EtcdFailed):
    """A record was not written by a node that has the secret."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"the record {path!r} has no checksum made with this cluster's secret: another program"
            " than a node of it has written it, or cluster_secret_file has another secret now"
        )


@final
class Seal:
    """Of one cluster; ``secret``: what all its nodes share."""

    def __init__(self, secret: bytes) -> None:
        self._key: Final = hmac.digest(secret, PURPOSE, "sha256")

    def sealed(self, path: str, value: str) -> str:
        """``path``: the key in etcd, with its prefix."""
        told = f"{path}\0{value}".encode()
        checksum = urlsafe_b64encode(hmac.digest(self._key, told, "sha256"))[:SEAL_CHARS]
        return f"{checksum.decode()} {value}"

    def opened(self, path: str, stored: str) -> str:
        """The value; raises WrongSeal."""
        if not self.is_on(path, stored):
            raise WrongSeal(path)
        return stored[SEAL_CHARS + 1 :]

    def is_on(self, path: str, stored: str) -> bool:
        expected = self.sealed(path, stored[SEAL_CHARS + 1 :])
        return hmac.compare_digest(expected.encode(), stored.encode())
