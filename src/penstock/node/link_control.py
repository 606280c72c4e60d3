"""``LinkControl``: which shovels and federation links this node runs, and how they reach it.

In: runtime parameters and policies, looked at in each turn of the loop, and the static shovels of
the settings.  In a cluster one node runs
all links, the first of those that are up; while that changes two may run one, and a message come
twice.
"""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as CallTimeout
from functools import partial
from typing import Any, Final, TypeVar

from penstock.broker.administration import Administration
from penstock.broker.broker import Broker
from penstock.broker.federation import QUEUE, FederatedEnd, federated_ends
from penstock.broker.rules.parameter_values import SHOVEL, check_parameter
from penstock.client.endpoint import ConnectionLost
from penstock.clocks import mono_ms, wall_ms
from penstock.core.checksum import crc32
from penstock.core.clock_types import MonoMs
from penstock.core.errors import BrokerError, NotFound, PreconditionFailed, SettingInvalid
from penstock.core.json_reading import json_of
from penstock.links.dialing import Dialer
from penstock.links.federated_exchange import FederatedExchange, keeps_its_queue
from penstock.links.federated_queue import FederatedQueue
from penstock.links.federation import FederationSpec
from penstock.links.link import RUNNING, STARTING, TERMINATED, Link, LinkSet, Run
from penstock.links.shovel import DURATION, Shovel, ShovelSpec
from penstock.management.facts.sessions import LinkInspector, Row
from penstock.node.sessions import Sessions
from penstock.runtime.connection import Connection
from penstock.runtime.loop import Loop
from penstock.secrets.links import link_uri
from penstock.secrets.sources import revealed, secret_of
from penstock.settings.settings import Settings

CALL_TIMEOUT_S: Final = 10.0
LOOK_MS: Final = 1000
"""Queues and exchanges are looked through for federated ones at most so often."""
LOOK_AT_ONCE_S: Final = 0.005
"""And so long in a turn."""
RECONNECT_DELAY_S: Final = 5
DECLARATIONS: Final = ("src-declarations", "dest-declarations")
"""Keys of static shovels which a parameter has not."""
PREDECLARED: Final = ("src-predeclared", "dest-predeclared")
STATUS: Final = {STARTING: STARTING, TERMINATED: "error"}

T = TypeVar("T")


class LinkControl(LinkInspector):
    """Of one node; ``look`` and ``stop`` on the data loop, the others by any thread."""

    def __init__(
        self,
        broker: Broker,
        loop: Loop,
        sessions: Sessions,
        administration: Administration,
        settings: Settings,
    ) -> None:
        """Raises SettingInvalid for a static shovel that no parameter could be."""
        self._broker = broker
        self._loop = loop
        self._sessions = sessions
        self._administration = administration
        self._default_user = settings.default_user  # where no user has set the parameter
        self._predeclared = settings.shovel_topology_predeclared
        self._least_s = settings.shovel_delete_after_duration_floor_s
        self._static = {
            ("", name): self._spec("", name, value)
            for name, value in static_shovels_in(settings).items()
        }
        self._shovels_seen = (-1, False)
        self._federation_seen: tuple[object, ...] = ()
        self._looked_ms = MonoMs(0)
        self._survey: Iterator[list[FederatedEnd]] | None = None
        self._surveyed: dict[Any, FederationSpec] = {}
        self._start_ms = MonoMs(0)
        self._opened = 0
        self._dialer = Dialer(self._open_local, partial(link_uri, settings))
        self._shovels = LinkSet(self._shovel)
        self._federation = LinkSet(self._federation_link)

    # -- on the loop -----------------------------------------------------------------------

    def look(self) -> None:
        """Follow what has changed."""
        homes = self._broker.changes.homes()
        runs_here = not homes or min(homes) == self._broker.options.node_name
        count = self._broker.parameters.change_count
        if (count, runs_here) != self._shovels_seen:
            self._shovels_seen = (count, runs_here)
            self._shovels.follow(self._wanted_shovels() if runs_here else {})
        now_ms = mono_ms()
        if self._survey is None and now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            epochs = tuple(int(vhost.epoch) for vhost in self._broker.vhosts.values())
            seen = (count, runs_here, int(self._broker.policy_epoch), epochs)
            if seen != self._federation_seen:
                self._federation_seen = seen
                self._surveyed = {}
                self._survey = self._federated_ends() if runs_here else iter(())
        if self._survey is not None:
            self._go_on_looking(self._survey)
        if now_ms >= self._start_ms and not (
            self._shovels.start_some() and self._federation.start_some()
        ):
            self._start_ms = MonoMs(now_ms + LOOK_MS)

    def _federated_ends(self) -> Iterator[list[FederatedEnd]]:
        for vhost in list(self._broker.vhosts.values()):
            yield from federated_ends(vhost, self._broker.parameters)

    def _go_on_looking(self, survey: Iterator[list[FederatedEnd]]) -> None:
        until_s = time.monotonic() + LOOK_AT_ONCE_S
        for ends in survey:
            for end in ends:
                spec = FederationSpec(*end)._replace(user=end.user or self._default_user)
                self._surveyed[_key(spec)] = spec
            if time.monotonic() >= until_s:
                return
        self._survey = None
        self._federation.follow(self._surveyed)

    def _wanted_shovels(self) -> dict[Any, ShovelSpec]:
        return self._static | {
            (one.vhost, one.name): self._spec(one.vhost, one.name, one.value, one.user)
            for one in self._broker.parameters.of_component(SHOVEL)
            if isinstance(one.value, dict)
        }

    def _spec(self, vhost: str, name: str, value: dict[str, Any], user: str = "") -> ShovelSpec:
        """With what the settings say where the value does not."""
        value = dict.fromkeys(PREDECLARED, self._predeclared) | value
        if DURATION in value:
            value[DURATION] = max(value[DURATION], self._least_s)
        return ShovelSpec(vhost, name, value, user or self._default_user)

    def stop(self) -> None:
        self._shovels.stop()
        self._federation.stop()

    # -- links -----------------------------------------------------------------------------

    def _shovel(self, spec: ShovelSpec) -> Link:
        delay_s = float(spec.value.get("reconnect-delay", RECONNECT_DELAY_S))
        return Link(
            f"{spec.kind} shovel '{spec.name}'" + f" in vhost '{spec.vhost}'" * bool(spec.vhost),
            lambda: Shovel(spec, self._dialer, self._broker.cluster_name()),
            delay_s,
            lambda: self._ask(partial(self._delete_shovel, spec.vhost, spec.name)),
        )

    def _federation_link(self, spec: FederationSpec) -> Link:
        delay_s = float(spec.value.get("reconnect-delay", RECONNECT_DELAY_S))
        kind = FederatedQueue if spec.kind == QUEUE else FederatedExchange

        def open_run() -> Run:
            return kind(spec, self._dialer, self, self._broker.cluster_name())

        name = f"{spec.kind} '{spec.name}' in vhost '{spec.vhost}'"
        title = f"federation link of {name} with upstream '{spec.upstream}'"
        own = kind is FederatedExchange and not keeps_its_queue(spec)
        leaves = f"its queue and exchange at '{spec.upstream}'" if own else ""
        return Link(title, open_run, delay_s, leaves=leaves)

    def _delete_shovel(self, vhost: str, name: str) -> None:
        """It has moved all; an administrator may have been faster."""
        try:
            self._administration.delete_parameter(vhost, SHOVEL, name)
        except NotFound:
            return

    # -- what links ask --------------------------------------------------------------------

    def bindings(self, vhost: str, exchange: str, seen: int) -> tuple[int, list[Any]] | None:
        def ask() -> tuple[int, list[Any]] | None:
            there = self._broker.vhosts.get(vhost)
            found = None if there is None else there.exchanges.get(exchange)
            if there is None or found is None:
                return None
            epoch = int(there.epoch)
            if epoch == seen:
                return None
            return epoch, found.bindings()

        told = self._ask(ask)
        if told is None:
            return None
        return told[0], [(one.routing_key, one.arguments) for one in told[1]]

    def wants(self, vhost: str, queue: str) -> bool:
        def ask() -> bool:
            there = self._broker.vhosts.get(vhost)
            found = None if there is None else there.queues.get(queue)
            if found is None or found.backing.ready_count() > 0:
                return False
            return found.spare_room(1) > 0 or found.consumers_anywhere() > len(found.consumers)

        return self._ask(ask)

    def _ask(self, function: Callable[[], T]) -> T:
        """Run it on the loop; raises ConnectionLost when that fails or does not come about."""
        try:
            return self._loop.call(function).result(CALL_TIMEOUT_S)
        except CallTimeout as error:
            raise ConnectionLost("this node does not answer") from error
        except (OSError, BrokerError) as error:
            raise ConnectionLost(f"this node: {error}") from error

    def _open_local(self, user: str) -> socket.socket:
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise ConnectionLost(f"this node: {error}") from error
        try:
            self._ask(partial(self._adopt, theirs, user))
        except ConnectionLost:
            ours.close()
            theirs.close()
            raise
        return ours

    def _adopt(self, sock: socket.socket, user: str) -> None:
        now_ms = wall_ms()
        sock.setblocking(False)
        self._opened += 1
        here = (self._broker.options.node_name, 0)
        connection = Connection(sock, ("link", self._opened), mono_ms(), own=here)
        self._loop.adopt(connection, self._sessions.inside(user, now_ms))

    # -- what management asks --------------------------------------------------------------

    def shovels(self) -> list[Row]:
        return [
            {
                "node": self._broker.options.node_name,
                **({"vhost": spec.vhost} if spec.vhost else {}),
                "name": spec.name,
                "type": spec.kind,
                **row,
            }
            for spec, row in self._shovels.rows()
        ]

    def restart_shovel(self, vhost: str, name: str) -> bool:
        return self._shovels.restart((vhost, name))

    def federation_links(self) -> list[Row]:
        return [
            {"node": self._broker.options.node_name, **_federation_row(spec, row)}
            for spec, row in self._federation.rows()
        ]

    def restart_federation_link(self, vhost: str, link_id: str) -> bool:
        keys = [_key(spec) for spec, _ in self._federation.rows() if spec.vhost == vhost]
        return any(_id(key) == link_id and self._federation.restart(key) for key in keys)


def static_shovels_in(settings: Settings) -> dict[str, dict[str, Any]]:
    """The values by name, with their URIs in the clear.  Raises SettingInvalid."""
    try:
        found = json_of(secret_of(settings, "static_shovels") or "{}")
    except ValueError as error:
        raise SettingInvalid(f"static_shovels is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise SettingInvalid("static_shovels is no JSON object")
    for name, value in found.items():
        told = value if isinstance(value, dict) else {}
        for key in ("src-uri", "dest-uri"):
            if key in told:
                told[key] = _uris(told[key], f"static_shovels: {name}: {key}", settings)
        parameter = {key: one for key, one in told.items() if key not in DECLARATIONS}
        try:
            check_parameter(SHOVEL, name, parameter)
        except PreconditionFailed as error:
            raise SettingInvalid(f"static_shovels: {name}: {error}") from error
    return found


def _uris(given: object, where: str, settings: Settings) -> object:
    """A URI, or a list of some, in the clear; what is neither stays as it is."""
    if isinstance(given, list):
        return [_uris(one, where, settings) for one in given]
    return revealed(given, where, settings) if isinstance(given, str) else given


def _key(spec: FederationSpec) -> tuple[str, ...]:
    return (spec.vhost, spec.kind, spec.name, spec.upstream, spec.upstream_name)


def _id(key: tuple[str, ...]) -> str:
    """Eight hex digits, as RabbitMQ's."""
    return f"{crc32(repr(key).encode('utf-8', 'surrogateescape')):08x}"


def _federation_row(spec: FederationSpec, row: Row) -> Row:
    """As RabbitMQ's ``/api/federation-links`` has it."""
    more = {key: one for key, one in row.items() if key not in ("state", "reason")}
    if "reason" in row:
        more["error"] = row["reason"]
    return {
        spec.kind: spec.name,
        f"upstream_{spec.kind}": spec.upstream_name,
        "type": spec.kind,
        "vhost": spec.vhost,
        "upstream": spec.upstream,
        "id": _id(_key(spec)),
        "status": STATUS.get(str(row.get("state")), RUNNING),
        **more,
    }
