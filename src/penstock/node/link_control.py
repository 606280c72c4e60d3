"""``LinkControl``: which shovels this node runs, and how they reach it.

In: the runtime parameters, looked at in each turn of the loop.  In a cluster one node runs them
all, the first of those that are up; while that changes two may run one, and a message come twice.
"""

import socket
from concurrent.futures import TimeoutError as CallTimeout
from functools import partial

from penstock.broker.administration import CLUSTER_NAME, Administration
from penstock.broker.broker import Broker
from penstock.broker.rules.parameter_values import SHOVEL
from penstock.client.endpoint import ConnectionLost
from penstock.clocks import wall_ms
from penstock.core.errors import NotFound
from penstock.links.dialing import Dialer
from penstock.links.shovels import ShovelParameter, Shovels
from penstock.management.facts.links import LinkInspector
from penstock.management.facts.rows import Row
from penstock.node.sessions import Sessions
from penstock.runtime.connection import Connection
from penstock.runtime.loop import Loop

OPEN_TIMEOUT_S = 10.0


class LinkControl(LinkInspector):
    """Of one node; all but ``rows`` and ``restart`` on the data loop."""

    def __init__(
        self,
        broker: Broker,
        loop: Loop,
        sessions: Sessions,
        administration: Administration,
        default_user: str,
    ) -> None:
        """``default_user``: as whom a link acts here whose parameter no user has set."""
        self._broker = broker
        self._loop = loop
        self._sessions = sessions
        self._administration = administration
        self._default_user = default_user
        self._seen = (-1, False)
        self._opened = 0
        self._shovels = Shovels(Dialer(self._open_local), self._cluster_name, self._done)

    def look(self) -> None:
        """Follow what has changed."""
        homes = self._broker.changes.homes()
        runs_here = not homes or min(homes) == self._broker.node_name
        now = (self._broker.parameters.change_count, runs_here)
        if now != self._seen:
            self._seen = now
            self._shovels.follow(self._wanted() if runs_here else [])

    def _wanted(self) -> list[ShovelParameter]:
        return [
            ShovelParameter(one.vhost, one.name, one.value, one.user or self._default_user)
            for one in self._broker.parameters.of_component(SHOVEL)
            if isinstance(one.value, dict)
        ]

    def stop(self) -> None:
        self._shovels.follow([])

    # -- for threads -----------------------------------------------------------------------

    def rows(self) -> list[Row]:
        return [{"node": self._broker.node_name, **row} for row in self._shovels.rows()]

    def restart(self, vhost: str, name: str) -> bool:
        return self._shovels.restart(vhost, name)

    def _cluster_name(self) -> str:
        return str(self._broker.parameters.value(CLUSTER_NAME) or self._broker.node_name)

    def _done(self, vhost: str, name: str) -> None:
        self._loop.call(partial(self._delete, vhost, name))

    def _delete(self, vhost: str, name: str) -> None:
        """Of a shovel that has moved all; an administrator may have been faster."""
        try:
            self._administration.delete_parameter(vhost, SHOVEL, name)
        except NotFound:
            return

    def _open_local(self, user: str) -> socket.socket:
        """Raises ConnectionLost when the loop does not take it."""
        ours, theirs = socket.socketpair()
        try:
            self._loop.call(partial(self._adopt, theirs, user)).result(OPEN_TIMEOUT_S)
        except CallTimeout as error:
            ours.close()
            theirs.close()
            raise ConnectionLost("this node takes no connections") from error
        return ours

    def _adopt(self, sock: socket.socket, user: str) -> None:
        now_ms = wall_ms()
        sock.setblocking(False)
        self._opened += 1
        here = (self._broker.node_name, 0)
        connection = Connection(sock, ("link", self._opened), now_ms, own=here)
        self._loop.adopt(connection, self._sessions.inside(user, now_ms))
