"""The broker of a golden directory as a process.

``GoldenBroker`` is a ``LiveBroker`` of any checkout: that which stands here opens directories, that
of a release makes them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from penstock.client.amqp import Connection
from penstock.client.endpoint import Endpoint
from tests.helpers.management_api import manage
from tests.helpers.nsq_live import NsqLiveBroker


class GoldenBroker(NsqLiveBroker):
    """``checkout``: whose sources and interpreter run it, if not these."""

    def __init__(
        self, directory: Path, settings: Mapping[str, str], checkout: Path | None = None
    ) -> None:
        super().__init__(directory, None, **settings)
        self.ready_timeout_s = 60.0
        self._checkout = checkout

    def command(self) -> list[str]:
        _, *words = super().command()
        if self._checkout is None:
            return [sys.executable, *words]
        return [str(self._checkout / ".venv/bin/python"), *words]

    def environment(self) -> dict[str, str]:
        given = super().environment()
        if self._checkout is not None:
            given.pop("PENSTOCK_PURE", None)  # a release is run as it was built
            given["PYTHONPATH"] = f"{self._checkout}/src"
        return given

    def manage(self, method: str, path: str, body: object = None) -> Any:
        """A request to the management API as guest."""
        return manage(self.http_url + path, body, method)

    def amqp(self, vhost: str = "/") -> Connection:
        return Connection(Endpoint("127.0.0.1", self.amqp_port, "guest", "guest", vhost))

    def children(self) -> list[int]:
        found = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(pid) for pid in found.split()]


def spelt(name: str) -> str:
    """A name in a path of the management API."""
    return quote(name.encode(errors="surrogateescape"), safe="")
