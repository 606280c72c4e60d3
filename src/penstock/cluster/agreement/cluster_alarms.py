"""``ClusterAlarms``: what each node of the cluster is short of, known to all of them.

    alarms/<name>    leased: the resources, while there are any

In: events of the coordinator, and what this node is short of.  Out: what the others are short of
(an alarm of one node blocks the publishers of all), and proposals of this node's own key.  The key
goes with the lease of its node: a node that is gone blocks nothing.

  A1  of this node nothing is listed under ``elsewhere``
  A2  a node that is listed is short of something
"""

import json
from collections.abc import Sequence
from typing import Final, final

from penstock.cluster.agreement.coordinator import Change, Coordinator, Event, Proposal
from penstock.cluster.agreement.membership import AGAIN_MS, JOINED, Membership, fields_of, name_in
from penstock.cluster.agreement.metadata import path
from penstock.core.clock_types import BootMs
from penstock.core.errors import Corrupt

ALARMS: Final = "alarms"
VERSION: Final = 1


@final
class ClusterAlarms:
    """``elsewhere``: node to resources, in the order of the nodes' names."""

    def __init__(self, coordinator: Coordinator, membership: Membership) -> None:
        self.elsewhere: dict[str, list[str]] = {}
        self._coordinator = coordinator
        self._membership = membership
        self._name = membership.here.name
        self._known_here: list[str] = []  # by the cluster
        self._asked: Proposal | None = None
        self._again_at_ms = BootMs(0)
        for entry in coordinator.snapshot():
            self._hear(entry.key, entry.value)

    def hear(self, events: Sequence[Event]) -> bool:
        """True: something may have changed elsewhere."""
        before = self.elsewhere
        for event in events:
            self._hear(event.key, event.value)
        return self.elsewhere is not before

    def _hear(self, key: str, value: str | None) -> None:
        if key.partition("/")[0] != ALARMS:
            return
        name = name_in(key)
        resources = [] if value is None else _resources(name, value)
        if name == self._name:
            self._known_here = resources
            return
        found = {**self.elsewhere, name: resources}
        self.elsewhere = {one: found[one] for one in sorted(found) if found[one]}

    def tell(self, resources: list[str], now_ms: BootMs) -> None:
        """This node is short of them; proposed until the cluster knows it."""
        if self._asked is not None and not self._asked.done:
            return
        if resources == self._known_here or now_ms < self._again_at_ms:
            return
        if self._membership.state != JOINED or self._coordinator.why_not():
            return
        self._again_at_ms = BootMs(now_ms + AGAIN_MS)
        value = json.dumps({"v": VERSION, "resources": resources}) if resources else None
        change = Change(path(ALARMS, self._name), value, leased=value is not None)
        self._asked = self._coordinator.propose([], [change])

    def check(self) -> None:
        """A1 and A2."""
        assert self._name not in self.elsewhere, "A1"
        assert all(self.elsewhere.values()), "A2"


def _resources(name: str, value: str) -> list[str]:
    found: list[object] = fields_of(ALARMS, name, value, {"resources": list})["resources"]
    texts = [one for one in found if isinstance(one, str)]
    if not texts or len(texts) != len(found):
        raise Corrupt(f"{ALARMS}/{name}: resources are some texts, and not {found!r}")
    return texts
