"""The lease of this member in etcd: granted, kept alive, and known to have ended.

In: when the node's own loop was last seen turning (``alive_at_ms``).  A node whose loop stands
still must be given up by the others, so then its lease is not kept alive.  Out: until when it
can be relied on, counted from when the last request that etcd answered was *sent*, less a
margin for clocks that do not run alike; and whether it has ended for good.

Time is CLOCK_BOOTTIME: a machine that slept has slept through its lease.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from penstock.core.clock_types import BootMs
from penstock.node.coordination.etcd_http import EtcdFailed, EtcdHttp
from penstock.node.coordination.etcd_names import EtcdNames, number
from penstock.node.coordination.etcd_watch import retry_s

KEEP_ALIVE_PARTS: Final = 3
"""It is kept alive at this part of its time."""
MARGIN_PARTS: Final = 6
STILL_PARTS: Final = 2
"""A loop that has not turned for this part of the time is taken for dead."""
LOOK_S: Final = 0.05

log = logging.getLogger("penstock.etcd")


def boot_ms() -> BootMs:
    """The clock of leases."""
    return BootMs(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000)


class EtcdLease:
    """``lease`` 0: there is none, or none any more.

    ``check`` comes before each new one, and raises ``EtcdFailed`` when there must be none.
    """

    def __init__(
        self,
        http: EtcdHttp,
        names: EtcdNames,
        on_change: Callable[[], None],
        check: Callable[[], Awaitable[None]],
    ) -> None:
        self.lease = 0
        self.valid_until_ms = BootMs(0)
        self.alive_at_ms = boot_ms()
        self._http = http
        self._names = names
        self._on_change = on_change
        self._check = check
        self._ttl_ms = http.options.lease_ttl_s * 1000
        self._wanted = asyncio.Event()
        self._keep_at_ms = BootMs(0)

    def turned(self, now_ms: BootMs) -> None:
        """The node's own loop."""
        self.alive_at_ms = now_ms

    def want(self) -> None:
        """A lease, after one that ended."""
        self._wanted.set()

    async def run(self) -> None:
        failures = 0
        while True:
            try:
                if self.lease == 0:
                    await self._wanted.wait()
                    await self.grant()
                else:
                    await self._keep()
                failures = 0
            except EtcdFailed as error:
                log.debug("the lease was not kept alive: %s", error)
                failures += 1
                # Another endpoint may answer: that cannot wait long.
                await asyncio.sleep(min(retry_s(failures), self._ttl_ms / 1000 / 10))

    async def grant(self) -> None:
        await self._check()
        sent_ms = boot_ms()
        answer = await self._http.call("lease/grant", {"TTL": str(self._ttl_ms // 1000)})
        self._ttl_ms = number(answer, "TTL") * 1000  # etcd has a least time of its own
        self._wanted.clear()
        self._rely(sent_ms)
        self.lease = number(answer, "ID")
        self._on_change()

    def _rely(self, sent_ms: BootMs) -> None:
        self.valid_until_ms = BootMs(sent_ms + self._ttl_ms - self._ttl_ms // MARGIN_PARTS)
        self._keep_at_ms = BootMs(sent_ms + self._ttl_ms // KEEP_ALIVE_PARTS)

    async def _keep(self) -> None:
        wait_ms = self._keep_at_ms - boot_ms()
        if wait_ms > 0:
            await asyncio.sleep(wait_ms / 1000)
        if boot_ms() - self.alive_at_ms > self._ttl_ms // STILL_PARTS:
            await asyncio.sleep(LOOK_S)
            return
        if await self._renewed():
            return
        # A leader that is new may not know the lease yet.  It has caught up after a read.
        await self._http.call("kv/range", self._names.all_keys("", 0, 1))
        if not await self._renewed():
            await self._check()  # an etcd that has lost its data knows no lease, and ends none
            self.has_ended()

    async def _renewed(self) -> bool:
        lease, sent_ms = self.lease, boot_ms()
        # Twice, so that there is time for a second endpoint.
        timeout_s = self._ttl_ms / 1000 / KEEP_ALIVE_PARTS / 2
        answer = await self._http.call("lease/keepalive", {"ID": str(lease)}, timeout_s)
        if number(answer.get("result", {}), "TTL") <= 0:
            return False
        self._rely(sent_ms)
        return True

    def has_ended(self) -> None:
        if self.lease:
            log.warning("the lease of this node has ended in etcd")
            self.lease = 0
            self.valid_until_ms = BootMs(0)
            self._on_change()

    async def give_back(self) -> None:
        lease, self.lease, self.valid_until_ms = self.lease, 0, BootMs(0)
        if lease:
            await self._http.call("lease/revoke", {"ID": str(lease)})
