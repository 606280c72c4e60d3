"""``ListenerSet``: the listeners of a node, which may be shut for maintenance and opened again.

Shut, new clients are refused by the system itself, as when the node were down, so that they and
load balancers turn to another one, and nsqlookupds name it no more; connections that are there go
on.  Opened again they have the same ports, also those that the system had chosen.
"""

import logging
from collections.abc import Callable
from typing import Final

from penstock.node.sessions import CLIENT_PLACES
from penstock.runtime.listener import Listener, open_listeners
from penstock.runtime.loop import Loop
from penstock.settings.listener_table import PEER
from penstock.settings.settings import Settings
from penstock.tls.options import TlsSet

logger: Final = logging.getLogger("penstock")


class ListenerSet:
    """On the data loop."""

    def __init__(self, loop: Loop, settings: Settings, tls: TlsSet) -> None:
        self._loop = loop
        self._settings = settings
        self._tls = tls
        self._ports: dict[str, int] = {}
        self.shut = False
        self._announce: Callable[[bool], None] | None = None

    def announce_to(self, listener: Callable[[bool], None]) -> None:
        """It is told from now on whether clients may come."""
        self._announce = listener

    def open(self) -> list[Listener]:
        """Raises OSError, and none is open then."""
        listeners = open_listeners(self._settings, self._tls, CLIENT_PLACES, self._ports)
        self._ports |= {one.protocol: one.port for one in listeners if one.port}
        for listener in listeners:
            self._loop.listen(listener)
        return listeners

    def drain(self) -> None:
        if not self.shut:
            self._loop.stop_listening(to_peers=False)
            self.shut = True
            count = self.client_count()
            logger.warning("draining: no new clients are let in, %d are connected", count)
            if self._announce is not None:
                self._announce(False)

    def client_count(self) -> int:
        """Who is still connected; other nodes of the cluster stay."""
        return sum(one.protocol != PEER for one in self._loop.connections.values())

    def revive(self) -> None:
        """Raises OSError when another process has taken a port meanwhile."""
        if self.shut:
            self.open()
            self.shut = False
            logger.warning("clients are let in again")
            if self._announce is not None:
                self._announce(True)
