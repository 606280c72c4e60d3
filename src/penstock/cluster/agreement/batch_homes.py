"""``BatchHomes``: which node publishes a producer's batch, agreed on in the cluster.

In: keys of the coordinator, and what this node's staging has decided and published.  Out: claims.

A batch is decided by a transaction of one node's ``definitions.db``, and its sets are on that disk
(``transfers/staging.py``).  If a program that lost its node committed the batch at another one, it
might be published twice.  So before a node decides, it *claims*:

    batches/<vhost>/<user>/<producer>
                                 {"batch": n, "node": decides and publishes it, "done": false}

on condition that the key is as it was; when all of the batch is published, ``done`` becomes true.

    asked for batch b at a node       b < n, or b = n and done   published: nothing is to be done
                                      b = n, claimed here         it is decided here, if it was not
                                      b = n, claimed elsewhere    refused: that node is to be asked
                                      b > n, or no key            it may be staged, and is claimed
                                                                  with the commit

A claim is no decision: a node that has one and died before it decided stages and decides later,
and no other node does meanwhile.  What was staged and not claimed binds no node.  That a program
asks for b > n says that n is published: it asks only when it was told so.

A node that was forgotten does not come back with what it had, so its claims that are not done
are void; part of such a batch may be there then.  A node that staged before there were claims
(and founds a cluster with what it has) tells its last batches when it has joined.

Release 0.1 put ``batches/<vhost>/<producer>``, without the user.  Such a claim counts for each user
that has none of its own yet: whose it is the nodes tell when they have joined.

Keys that are done go when their producer is forgotten (``producer_ttl_ms``; or at once, when there
are more than ``CLAIMS_MAX``), by the node in them, or by any if that node was forgotten.

Invariants (``check``):
  H1  a batch that is being published here is claimed here, or was decided before there were claims
"""

import json
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, final

from penstock.broker.broker import Broker
from penstock.broker.transfers.batch_claims import CLAIMED, PENDING, PUBLISHED, BatchClaims
from penstock.broker.transfers.producers import Key
from penstock.cluster.agreement.coordinator import (
    ABSENT,
    UNCERTAIN,
    Change,
    Condition,
    Coordinator,
    Event,
    Proposal,
)
from penstock.cluster.agreement.coordinator import PENDING as UNDER_WAY
from penstock.cluster.agreement.membership import Membership
from penstock.cluster.agreement.metadata import path
from penstock.cluster.agreement.mirror_keys import kind_of, parts_of
from penstock.core.clock_types import WallMs
from penstock.core.errors import Corrupt, NoMaster, QueueElsewhere
from penstock.storage.definitions.staging import NO_BATCH

BATCHES: Final = "batches"
VERSION: Final = 1
LOOK_MS: Final = 1000
"""For what is done and not said yet, and for what is old."""
LOOKED_AT_ONCE: Final = 1000
CLAIMS_MAX: Final = 20_000
"""Of more, those go at once whose producers are forgotten: each batch write makes one."""
AT_ONCE: Final = 64
"""Proposals under way without a waiting caller."""

OF_NO_USER: Final = ""
"""In the place of the user: a claim as release 0.1 has it."""


def _name_of(key: Key) -> str:
    vhost, user, producer = key
    return path(BATCHES, vhost, *([] if user == OF_NO_USER else [user]), producer)


def _key_of(name: str) -> Key:
    vhost, *user, producer = parts_of(name)
    return (vhost, user[0] if user else OF_NO_USER, producer)


class Claim(NamedTuple):
    """What is agreed on; ``revision`` of its key, ``at_ms`` when it was put."""

    batch: int
    node: str
    done: bool
    at_ms: WallMs
    revision: int


def claim_from_json(key: str, value: str, revision: int) -> Claim:
    """Raises Corrupt."""
    fields = json.loads(value)
    if not isinstance(fields, dict) or fields.pop("v", None) != VERSION:
        raise Corrupt(f"what the cluster keeps under {key!r} has a version that is not known")
    try:
        claim = Claim(**fields, revision=revision)
    except TypeError as error:
        raise Corrupt(f"what the cluster keeps under {key!r} cannot be read: {error}") from error
    return claim


def claim_to_json(batch: int, node: str, done: bool, at_ms: WallMs) -> str:
    fields = {"v": VERSION, "batch": batch, "node": node, "done": done, "at_ms": at_ms}
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


@final
class BatchHomes(BatchClaims):
    """Of one node."""

    def __init__(
        self,
        broker: Broker,
        coordinator: Coordinator,
        membership: Membership,
        wall_ms: Callable[[], WallMs],
    ) -> None:
        self.claims: dict[Key, Claim] = {}
        self._broker = broker
        self._coordinator = coordinator
        self._membership = membership
        self._here = membership.here.name
        self._wall_ms = wall_ms
        self._asked: dict[Key, tuple[Proposal, list[object]]] = {}
        self._mine: dict[Key, None] = {}  # claimed here and not done
        self._untold: dict[Key, None] | None = None  # decided before there were claims
        self._looked_ms = WallMs(0)
        self._to_look: list[Key] = []
        for entry in coordinator.snapshot():
            if kind_of(entry.key) == BATCHES:
                self._hear(entry.key, entry.value, entry.revision)

    # -- news ----------------------------------------------------------------------------

    def told(self, events: Sequence[Event]) -> None:
        for event in events:
            if kind_of(event.key) == BATCHES:
                self._hear(event.key, event.value, event.revision)

    def _hear(self, name: str, value: str | None, revision: int) -> None:
        key = _key_of(name)
        known = self.claims.get(key)
        if known is not None and known.revision >= revision:
            return
        self._mine.pop(key, None)
        if value is None:
            self.claims.pop(key, None)
            return
        claim = self.claims[key] = claim_from_json(name, value, revision)
        if claim.node == self._here and not claim.done:
            self._mine[key] = None

    # -- for staging and commits -----------------------------------------------------------

    def is_published(self, key: Key, batch: int) -> bool:
        claim = self._claim_of(key)
        if claim is None or batch > claim.batch:
            return False
        if batch < claim.batch or claim.done:
            return True
        if claim.node != self._here and claim.node in self._membership.nodes:
            raise self._elsewhere(key[-1], claim)
        return False

    def _claim_of(self, key: Key) -> Claim | None:
        vhost, _user, producer = key
        return self.claims.get(key) or self.claims.get((vhost, OF_NO_USER, producer))

    def _elsewhere(self, producer: str, claim: Claim) -> QueueElsewhere:
        what = f"batch {claim.batch} of producer '{producer}' was committed at '{claim.node}'"
        if self._membership.nodes[claim.node].living is not None:
            return QueueElsewhere(f"{what}: ask there")
        return NoMaster(
            f"{what}, which is down: how much of it is published is known there only, so it waits"
            " for that node"
        )

    def claim(self, key: Key, batch: int, watcher: object) -> int:
        asked = self._asked.get(key)
        if asked is not None:
            if watcher not in asked[1]:
                asked[1].append(watcher)
            return PENDING
        if self.is_published(key, batch):
            return PUBLISHED
        known = self.claims.get(key)
        if known is not None and known.batch == batch and known.node == self._here:
            return CLAIMED
        why = self._coordinator.why_not()
        if why:
            raise NoMaster(f"the cluster cannot decide now where this batch is published: {why}")
        self._propose(key, batch, False, [watcher])
        return PENDING

    def _propose(self, key: Key, batch: int, done: bool, watchers: list[object]) -> None:
        self._ask(key, claim_to_json(batch, self._here, done, self._wall_ms()), watchers)

    def _ask(self, key: Key, value: str | None, watchers: list[object]) -> None:
        known = self.claims.get(key)
        name = _name_of(key)
        condition = Condition(name, ABSENT if known is None else known.revision)
        proposal = self._coordinator.propose([condition], [Change(name, value)])
        self._asked[key] = (proposal, watchers)

    # -- the turn --------------------------------------------------------------------------

    def turn(self, now_ms: WallMs) -> None:
        """Behind ``told``: what was accepted is known by then."""
        for key, (proposal, watchers) in list(self._asked.items()):
            if proposal.state == UNDER_WAY:
                continue
            if proposal.state == UNCERTAIN and self._coordinator.why_not() and not watchers:
                continue
            del self._asked[key]
            # The watchers ask again: by then the key says what became of it.
            self._broker.staging.told.extend(watchers)
        if self._mine:
            self._say_what_is_done()
        if not 0 <= now_ms - self._looked_ms < LOOK_MS and not self._coordinator.why_not():
            self._looked_ms = now_ms
            self._tell_last_batches()
            self._forget_old()

    def _say_what_is_done(self) -> None:
        if self._coordinator.why_not():
            return
        for key in list(self._mine):
            batch = self.claims[key].batch
            if key not in self._asked and len(self._asked) < AT_ONCE and self._is_done(key, batch):
                self._propose(key, batch, True, [])

    def _is_done(self, key: Key, batch: int) -> bool:
        """Decided here, and nothing of it is left to publish."""
        producer = self._broker.staging.producers.known.get(key)
        if producer is None or producer.batch < batch:
            return False
        under_way = self._broker.staging.batches.under_way.get(key)
        return not under_way or under_way[0].number > batch

    def _tell_last_batches(self) -> None:
        """What was decided here before there was a cluster to claim it from, or by release 0.1."""
        known = self._broker.staging.producers.known
        if self._untold is None:
            self._untold = dict.fromkeys(known)
        for key in list(self._untold):
            producer = known.get(key)
            claim = self._claim_of(key)
            told = NO_BATCH if claim is None else claim.batch
            if claim is not None and key not in self.claims:
                told -= 1  # this node claims it again, with its user
            if producer is None or producer.batch <= told:
                del self._untold[key]
            elif len(self._asked) >= AT_ONCE:
                return
            elif key not in self._asked:
                self._propose(key, producer.batch, self._is_done(key, producer.batch), [])

    def _forget_old(self) -> None:
        """Some at a time."""
        if not self._to_look:
            self._to_look = list(self.claims)
        known = self._broker.staging.producers.known
        before_ms = self._wall_ms() - self._broker.staging.producer_ttl_ms
        for _ in range(min(LOOKED_AT_ONCE, len(self._to_look))):
            if len(self._asked) >= AT_ONCE:
                return
            key = self._to_look.pop()
            claim = self.claims.get(key)
            if claim is None or key in self._asked or key in known:
                continue
            if not claim.done and key[1] != OF_NO_USER:
                continue
            ours = claim.node == self._here or claim.node not in self._membership.nodes
            too_many = len(self.claims) > CLAIMS_MAX and key[1] != OF_NO_USER
            if ours and (claim.at_ms < before_ms or too_many):
                self._ask(key, None, [])

    def check(self) -> None:
        """Assert the numbered invariants."""
        for key, batches in self._broker.staging.batches.under_way.items():
            claim = self._claim_of(key)
            untold = self._untold is None or key in self._untold
            assert untold or (claim is not None and claim.batch >= batches[0].number), "H1"
