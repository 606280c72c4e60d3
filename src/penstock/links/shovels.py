"""``Shovels``: one link for each parameter of the component ``shovel``, as long as it is there.

In: all parameters, whenever some have changed; whether this node is the one that runs them.  Out:
links that start and stop, and their rows.  A shovel that has moved all it was to move asks for the
deletion of its parameter.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from penstock.links.dialing import Dialer
from penstock.links.link import Link, Row
from penstock.links.shovel import Shovel, reconnect_delay_s


class ShovelParameter(NamedTuple):
    """``value`` was checked; ``user``: as whom it acts at this node."""

    vhost: str
    name: str
    value: dict[str, Any]
    user: str


class Shovels:
    """Of one node."""

    def __init__(
        self,
        dialer: Dialer,
        cluster_name: Callable[[], str],
        done: Callable[[str, str], None],
    ) -> None:
        """``done``: the shovel of this virtual host and name has moved all; any thread calls it."""
        self._dialer = dialer
        self._cluster_name = cluster_name
        self._done = done
        self._links: dict[tuple[str, str], tuple[ShovelParameter, Link]] = {}

    def follow(self, parameters: Sequence[ShovelParameter]) -> None:
        """These run from now on, and no others."""
        wanted = {(one.vhost, one.name): one for one in parameters}
        for key, (parameter, link) in list(self._links.items()):
            if wanted.get(key) != parameter:
                link.stop()
                del self._links[key]
        for key, parameter in wanted.items():
            if key not in self._links:
                link = self._link(parameter)
                self._links[key] = (parameter, link)
                link.start()

    def _link(self, parameter: ShovelParameter) -> Link:
        vhost, name, value, user = parameter
        return Link(
            f"shovel '{name}' in vhost '{vhost}'",
            lambda: Shovel(vhost, name, value, self._dialer, user, self._cluster_name()),
            reconnect_delay_s(value),
            partial(self._done, vhost, name),
        )

    def restart(self, vhost: str, name: str) -> bool:
        """Connect anew; False: there is no such shovel here."""
        found = self._links.get((vhost, name))
        if found is not None:
            found[1].restart()
        return found is not None

    def rows(self) -> list[Row]:
        """As RabbitMQ's ``/api/shovels`` has them, but for the node."""
        return [
            {"vhost": vhost, "name": name, "type": "dynamic", **link.row()}
            for (vhost, name), (_, link) in list(self._links.items())
        ]
