"""The plan of a load run: one value, checked once, handed to every process of the run.

``LoadPlan.check`` refuses what cannot work, naming the option as the command line spells
it; whatever passes is carried out as it stands, so a result can be read from its plan.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Final, Self

from penstock.client.endpoint import Endpoint

EXCHANGE_TYPES: Final = ("direct", "fanout", "topic", "headers")
PREFETCH_MAX: Final = 65_535
SIZE_MAX_BYTES: Final = 128 * 1024 * 1024
KEYS_MAX: Final = 100_000

VARIED_SIZES_BYTES: Final = (16, 65_536)
VARIED_EXCHANGE: Final = "penstock.bench"
VARIED_KEYS: Final = 1000


class PlanInvalid(ValueError):
    """The options contradict each other or the protocol; the text names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One run.  0 switches an optional thing off; ``%d`` in a key counts over ``keys``."""

    uri: str
    publishers: int = 1
    consumers: int = 1
    queue: str = "penstock.bench"
    queues: int = 1
    exchange: str = ""
    exchange_type: str = ""
    routing_key: str = ""
    keys: int = 1
    bindings: tuple[str, ...] = ()
    size_min_bytes: int = 1024
    size_max_bytes: int = 1024
    varied: bool = False
    stamped: bool = True
    rate: int = 0
    confirm: int = 0
    in_flight: int = 0
    prefetch: int = 0
    ack_every: int = 0
    persistent: bool = False
    durable: bool = False
    queue_arguments: dict[str, object] = field(default_factory=dict)
    duration_s: float = 0.0
    warmup_s: float = 0.0
    count: int = 0
    deadline_s: float = 0.0
    cleanup: bool = False

    # -- reading a plan ----------------------------------------------------------------

    def queue_names(self) -> list[str]:
        if self.queues == 1:
            return [self.queue]
        return [f"{self.queue}-{number}" for number in range(1, self.queues + 1)]

    def queues_of_consumer(self, consumer: int) -> list[str]:
        """Consumers share queues, or each takes several, so that every queue has one."""
        names = self.queue_names()
        if self.consumers >= self.queues:
            return [names[consumer % self.queues]]
        return names[consumer :: self.consumers]

    def publish_keys(self, publisher: int) -> list[str]:
        if self.exchange:
            return expand(self.routing_key, self.keys)
        names = self.queue_names()
        if self.publishers >= self.queues:
            return [names[publisher % self.queues]]
        return names[publisher :: self.publishers]

    def queue_bindings(self) -> list[tuple[str, str]]:
        """(queue, binding key): a counted pattern is dealt out, another goes to every queue."""
        if not self.exchange:
            return []
        names = self.queue_names()
        found: list[tuple[str, str]] = []
        for pattern in self.bindings or (self.routing_key,):
            if "%d" in pattern:
                keys = expand(pattern, self.keys)
                found += [(names[i % self.queues], key) for i, key in enumerate(keys)]
            else:
                found += [(name, pattern) for name in names]
        return found

    def one_queue_each(self) -> bool:
        """True when every message surely lands in exactly one queue."""
        return not self.exchange

    def quota(self, publisher: int) -> int:
        """How many messages this publisher sends; 0 = until the time is over."""
        share, rest = divmod(self.count, max(1, self.publishers))
        return share + (1 if publisher < rest else 0)

    def credit(self, publisher: int) -> int:
        share, rest = divmod(self.in_flight, max(1, self.publishers))
        return share + (1 if publisher < rest else 0)

    def limit_s(self) -> float:
        """When the run is broken off, whatever happens."""
        if self.deadline_s:
            return self.deadline_s
        return self.warmup_s + self.duration_s + 30.0 if self.duration_s else 120.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        fields = json.loads(text)
        fields["bindings"] = tuple(fields["bindings"])
        return cls(**fields)

    # -- judging a plan ----------------------------------------------------------------

    def check(self) -> Self:
        try:
            endpoint = Endpoint.parse(self.uri)
        except ValueError as error:
            raise PlanInvalid(f"--uri {error}") from None
        if endpoint.tls is not None:
            raise PlanInvalid("--uri: the load generator has no TLS")
        self._check_numbers()
        self._check_names()
        self._check_end()
        self._check_flow()
        return self

    def _check_numbers(self) -> None:
        for name in ("publishers", "consumers", "rate", "confirm", "in_flight", "ack_every"):
            if getattr(self, name) < 0:
                raise PlanInvalid(f"--{name.replace('_', '-')} cannot be negative")
        if self.publishers + self.consumers == 0:
            raise PlanInvalid("--publishers 0 and --consumers 0 leave nothing to do")
        if self.queues < 1:
            raise PlanInvalid("--queues must be at least 1")
        if not 1 <= self.keys <= KEYS_MAX:
            raise PlanInvalid(f"--keys must be 1 to {KEYS_MAX}")
        if not 0 <= self.prefetch <= PREFETCH_MAX:
            raise PlanInvalid(f"--prefetch must be 0 to {PREFETCH_MAX}: AMQP has 16 bits for it")
        if not 0 <= self.size_min_bytes <= self.size_max_bytes <= SIZE_MAX_BYTES:
            raise PlanInvalid(
                f"--size-range {self.size_min_bytes}:{self.size_max_bytes}: "
                f"wanted 0 <= smallest <= largest <= {SIZE_MAX_BYTES}"
            )

    def _check_names(self) -> None:
        if not self.queue:
            raise PlanInvalid("--queue must name a queue: every process has to find the same one")
        if self.exchange_type and self.exchange_type not in EXCHANGE_TYPES:
            raise PlanInvalid(
                f"--exchange-type {self.exchange_type!r}: wanted one of {', '.join(EXCHANGE_TYPES)}"
            )
        if self.exchange_type and not self.exchange:
            raise PlanInvalid("--exchange-type needs --exchange: the default exchange has its type")
        if self.exchange_type == "headers":
            raise PlanInvalid(
                "--exchange-type headers: bindings by header cannot be given here, "
                "so nothing would be routed by them"
            )
        for option, given in (("--routing-key", self.routing_key), ("--binding", self.bindings)):
            if given and not self.exchange:
                raise PlanInvalid(
                    f"{option} needs --exchange: through the default exchange a message "
                    "goes to the queue its key names"
                )
        counted = "%d" in self.routing_key or any("%d" in key for key in self.bindings)
        if self.keys > 1 and not counted:
            raise PlanInvalid("--keys needs a %d in --routing-key or --binding")
        if self.varied and self.keys == 1 and self.queues == 1:
            raise PlanInvalid("--varied varies the routing key: give --keys and a %d in the key")

    def _check_end(self) -> None:
        if self.duration_s < 0 or self.warmup_s < 0 or self.deadline_s < 0:
            raise PlanInvalid("--duration, --warmup and --deadline cannot be negative")
        if (self.count > 0) == (self.duration_s > 0):
            raise PlanInvalid("give either --count or --duration: every run must end")
        if self.warmup_s and not self.duration_s:
            raise PlanInvalid("--warmup needs --duration: a counted run is measured as a whole")
        if self.count and self.count < self.publishers:
            raise PlanInvalid("--count must give every publisher at least one message")
        if self.deadline_s and self.deadline_s < self.warmup_s + self.duration_s:
            raise PlanInvalid("--deadline comes before --warmup and --duration are over")

    def _check_flow(self) -> None:
        if self.prefetch and not self.ack_every:
            raise PlanInvalid("--prefetch without --ack-every: a broker ignores it on auto-ack")
        if self.prefetch and self.ack_every > self.prefetch:
            raise PlanInvalid(
                f"--ack-every {self.ack_every} would wait for ever: "
                f"--prefetch {self.prefetch} lets no more messages come unacknowledged"
            )
        if not self.publishers and (self.rate or self.confirm or self.in_flight):
            raise PlanInvalid("--rate, --confirm and --in-flight need publishers")
        if not self.consumers and (self.prefetch or self.ack_every):
            raise PlanInvalid("--prefetch and --ack-every need consumers")
        if self.in_flight:
            self._check_in_flight()
        if self.varied and not self.stamped:
            raise PlanInvalid("--varied needs stamps: without them bodies of one size are alike")

    def _check_in_flight(self) -> None:
        if not self.consumers:
            raise PlanInvalid("--in-flight needs consumers: they give the publishers room")
        if self.in_flight < self.publishers:
            raise PlanInvalid("--in-flight must give every publisher at least one message")
        if self.exchange and self.queues > 1:
            raise PlanInvalid(
                "--in-flight with --exchange works for one queue only: "
                "a message that reaches two would give room twice"
            )


def expand(pattern: str, keys: int) -> list[str]:
    if "%d" not in pattern:
        return [pattern]
    return [pattern.replace("%d", str(number)) for number in range(keys)]
