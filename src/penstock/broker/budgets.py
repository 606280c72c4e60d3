"""``Budgets``: which virtual hosts use more than they may, and why their publishers are held.

    queues of a virtual host ─► bytes in memory, bytes on disk ─┐
    what was published since the last look ─► tokens left ──────┴─► ``reasons``, by virtual host

Messages that wait out of sight count too: delayed ones, staged ones, copies of mirrored queues.
Three budgets (budget.py), each a limit of the virtual host:

    max-memory-bytes   messages in memory: contents and objects, ready and unacknowledged
    max-disk-bytes     messages on disk: all contents of durable queues, of others what was paged
    max-publish-rate   messages per second that clients publish

Who is over one has a reason; its publishers are held, its consumers go on, other virtual hosts too.
Sizes have hysteresis: over the limit sets the reason, nine tenths of it take it away.  So a
publisher does not hear ``blocked`` and ``unblocked`` at every message that is taken.

The rate is a bucket of tokens that holds one second of it.  Publishing takes them
(``Budget.allowance``), time brings them back; an empty bucket sets the reason, at the next look or
at once when a publisher is seen to have emptied it (``spent``), and half a bucket takes it away.
What is published over it, the rest of one read, is paid back first.  So in any time t no more than
``rate * (t + 1)`` messages come, and one read for each connection.

Sizes are counted anew at each look, which costs a step for each queue; with very many queues the
looks are rarer (``QUEUES_PER_MS``).  A limit of 0 lets nothing through.

Invariants (``check``):
  B1  a reason belongs to a virtual host that has a budget
  B2  no bucket holds more than its second
"""

from typing import Final, final

from mypy_extensions import i64

from penstock.backing.interface import BackingQueue
from penstock.broker.topology.vhost import Vhost
from penstock.core.clock_types import WallMs

LOW_ON_MEMORY: Final = "low on memory in virtual host"
LOW_ON_DISK: Final = "low on disk in virtual host"
PUBLISH_RATE: Final = "publish rate of virtual host"
AND: Final = " & "
"""As RabbitMQ joins the reasons of its alarms."""
QUEUES_PER_MS: Final[i64] = 200


@final
class Usage:
    """What was found at the last look at a virtual host."""

    def __init__(self, vhost: Vhost) -> None:
        self.memory_bytes: i64 = 0
        self.disk_bytes: i64 = 0
        self.low_on_memory: bool = False
        self.low_on_disk: bool = False
        self.over_rate: bool = False
        self._vhost = vhost
        self._measured_at_ms = WallMs(0)

    def look(self, now_ms: WallMs) -> None:
        """Measure it, unless that was done of late, and judge it."""
        interval_ms: i64 = len(self._vhost.queues) // QUEUES_PER_MS
        if not 0 <= now_ms - self._measured_at_ms < interval_ms:
            self._measured_at_ms = now_ms
            self._measure()
        budget = self._vhost.budget
        self.low_on_memory = _is_over(
            self.memory_bytes, budget.max_memory_bytes, self.low_on_memory
        )
        self.low_on_disk = _is_over(self.disk_bytes, budget.max_disk_bytes, self.low_on_disk)
        if budget.allowance <= 0:
            self.over_rate = True
        elif budget.allowance >= (budget.max_publish_rate + 1) // 2:
            self.over_rate = False

    def spent(self) -> None:
        """The bucket is empty."""
        self.over_rate = True

    def _measure(self) -> None:
        vhost = self._vhost
        backings = [queue.backing for queue in vhost.queues.values()]
        backings += [one.backing for one in vhost.internal_queues.queues.values()]
        backings += vhost.copies.backings()
        self.memory_bytes = sum([memory_bytes(backing) for backing in backings])
        self.disk_bytes = sum([disk_bytes(backing) for backing in backings])

    def reason(self, name: str) -> str:
        reasons: list[str] = []
        if self.low_on_memory:
            reasons.append(f"{LOW_ON_MEMORY} '{name}'")
        if self.low_on_disk:
            reasons.append(f"{LOW_ON_DISK} '{name}'")
        if self.over_rate:
            reasons.append(f"{PUBLISH_RATE} '{name}'")
        return AND.join(reasons)


@final
class Budgets:
    """``reasons``: why whose publishers are to be held; the gate (admission.py) looks there."""

    def __init__(self, vhosts: dict[str, Vhost], reasons: dict[str, str]) -> None:
        self.reasons: dict[str, str] = reasons
        self.usages: dict[str, Usage] = {}
        self._vhosts = vhosts

    def tick(self, now_ms: WallMs) -> None:
        """A few times a second."""
        for name in list(self.usages):
            vhost = self._vhosts.get(name)
            if vhost is None or not vhost.budget.is_set():
                del self.usages[name]
                self.reasons.pop(name, None)
        for vhost in self._vhosts.values():
            if vhost.budget.is_set():
                self._look(vhost, now_ms)

    def spend(self, vhost: Vhost, count: i64) -> None:
        """So many messages were published."""
        if not vhost.budget.spend(count):
            self.spent(vhost)

    def spent(self, vhost: Vhost) -> None:
        """A publisher has found the bucket empty: do not wait for the next look."""
        usage = self._usage(vhost)
        if not usage.over_rate:
            usage.spent()
            self._tell(vhost, usage)

    def _usage(self, vhost: Vhost) -> Usage:
        usage = self.usages.get(vhost.name)
        if usage is None:
            usage = Usage(vhost)
            self.usages[vhost.name] = usage
        return usage

    def _look(self, vhost: Vhost, now_ms: WallMs) -> None:
        vhost.budget.refill(now_ms)
        usage = self._usage(vhost)
        usage.look(now_ms)
        self._tell(vhost, usage)

    def _tell(self, vhost: Vhost, usage: Usage) -> None:
        reason = usage.reason(vhost.name)
        if reason != "":
            self.reasons[vhost.name] = reason
        else:
            self.reasons.pop(vhost.name, None)

    def check(self) -> None:
        """Assert the invariants."""
        for name in self.reasons:
            assert self.usages[name].reason(name) == self.reasons[name], "B1"
        for vhost in self._vhosts.values():
            budget = vhost.budget
            if budget.max_publish_rate >= 0:
                assert budget.allowance <= budget.max_publish_rate, "B2"


def memory_bytes(backing: BackingQueue) -> i64:
    size: i64 = 0
    for part in backing.parts():
        size += part.ram_bytes()
    return size


def disk_bytes(backing: BackingQueue) -> i64:
    size: i64 = 0
    for part in backing.parts():
        size += part.tiers.disk_bytes()
    return size


def _is_over(used: i64, limit: i64, was_over: bool) -> bool:
    if limit < 0:
        return False
    if limit == 0:
        return True
    if used > limit:
        return True
    return was_over and used > limit - limit // 10
