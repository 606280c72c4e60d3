"""What clients may ask of a cluster's metadata, and which answers are true.

Each request is an ``Asking``: how it is done, and a judge of its answer, which gets what the store
had at some moment meanwhile.  ``metadata_world.py`` asks by chance.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.administration import Administration
from penstock.broker.rules.access import HASHING, hash_password
from penstock.broker.rules.policies import Policy
from penstock.broker.rules.rights import Rights
from penstock.broker.topology import declaring
from penstock.broker.topology.vhost import Vhost
from penstock.cluster.agreement import metadata as md
from penstock.core.errors import BrokerError, NotFound, PreconditionFailed, ResourceLocked
from penstock.core.pending import then

if TYPE_CHECKING:
    from tests.simulation.metadata_world import Session

QUEUES: Final = ("q0", "q1", "q2")
EXCHANGES: Final = ("x0", "x1", "x2")
KEYS: Final = ("k0", "k1")
HASHED: Final = hash_password("x", b"salt")


class Asking:
    """One request; ``judge`` gets the states of the store while it lasted, and what was said."""

    def __init__(self, what: str, run: Callable[[], Any], judge: Callable[..., bool]) -> None:
        self.what = what
        self.run = run
        self.judge = judge
        self.from_revision = 0


class Requests:
    """``anything`` is one by chance; ``slow``: the node may hear late of what has gone."""

    def __init__(self, rng: random.Random, *, slow: bool) -> None:
        self.rng = rng
        self.slow = slow

    def anything(self, session: Session) -> Asking:
        kinds = (
            *(self.declare_queue,) * 8,
            *(self.delete_queue,) * 2,
            *(self.declare_exchange,) * 6,
            *(self.delete_exchange,) * 2,
            *(self.bind,) * 9,
            *(self.unbind,) * 2,
            self.put_policy,
            self.delete_policy,
            self.put_user,
            self.delete_user,
            self.put_vhost,
            self.delete_vhost,
            self.limit,
            self.pause,
        )
        return self.rng.choice(kinds)(session)

    def _admin(self, session: Session) -> Administration:
        return Administration(session.broker, 64)

    def _where(self, session: Session) -> tuple[Callable[[], Vhost], Rights]:
        broker = session.broker
        user = broker.users.users["guest"]
        rights = Rights(user, "/")  # those of "/" are asked for in "v" too
        return lambda: broker.vhost(session.vhost), rights

    def declare_queue(self, session: Session) -> Asking:
        rng = self.rng
        name = rng.choice(QUEUES)
        durable, auto_delete = rng.random() < 0.7, rng.random() < 0.2
        owner = session if rng.random() < 0.25 else None
        arguments: dict[str, object] = rng.choice(({}, {}, {"x-max-length": 5}))
        vhost, rights = self._where(session)
        key = md.path(md.QUEUES, session.vhost, name)
        member = session.member if owner else ""

        def run() -> object:
            declaring.declare_queue(vhost(), rights, name, durable, owner, auto_delete, arguments)
            return vhost().changes.then(lambda: vhost().queue(name).incarnation)

        def judge(keys: dict[str, str], said: object) -> bool:
            if key not in keys:
                # It may have gone, with a lease or by another client, before a slow node says so.
                gone = f"vhosts/{session.vhost}" not in keys or self.slow
                return isinstance(said, NotFound) and gone
            meta = md.read(key, keys[key])
            assert isinstance(meta, md.QueueMeta)
            same = (meta.durable, meta.auto_delete) == (durable, auto_delete)
            same = same and meta.arguments == arguments and meta.owner == member
            if isinstance(said, str):  # of a slow node it may be that of a later queue, too
                return same and (self.slow or said == meta.incarnation)
            return isinstance(said, (PreconditionFailed, ResourceLocked)) and (
                not same or meta.owner != ""
            )

        return Asking(f"declare {name}", run, judge)

    def delete_queue(self, session: Session) -> Asking:
        name = self.rng.choice(QUEUES)
        vhost, rights = self._where(session)
        key = md.path(md.QUEUES, session.vhost, name)

        def run() -> object:
            deleted = declaring.delete_queue(vhost(), rights, name, session, False, False)
            return then(deleted, lambda outcome: outcome[0])

        def judge(keys: dict[str, str], said: object) -> bool:
            if isinstance(said, BrokerError):
                return isinstance(said, (ResourceLocked, NotFound))
            return key not in keys

        return Asking(f"delete {name}", run, judge)

    def declare_exchange(self, session: Session) -> Asking:
        rng = self.rng
        name, kind = rng.choice(EXCHANGES), rng.choice(("direct", "direct", "fanout"))
        durable, auto_delete = rng.random() < 0.7, rng.random() < 0.5
        vhost, rights = self._where(session)
        key = md.path(md.EXCHANGES, session.vhost, name)

        def run() -> object:
            return declaring.declare_exchange(
                vhost(), rights, name, kind, durable, auto_delete, False, {}
            )

        def judge(keys: dict[str, str], said: object) -> bool:
            if key not in keys:
                return isinstance(said, NotFound)
            meta = md.read(key, keys[key])
            assert isinstance(meta, md.ExchangeMeta)
            same = (meta.type, meta.durable, meta.auto_delete) == (kind, durable, auto_delete)
            return same if said is None else isinstance(said, PreconditionFailed) and not same

        return Asking(f"declare {name}", run, judge)

    def delete_exchange(self, session: Session) -> Asking:
        name, if_unused = self.rng.choice(EXCHANGES), self.rng.random() < 0.3
        vhost, rights = self._where(session)
        key = md.path(md.EXCHANGES, session.vhost, name)

        def run() -> object:
            return declaring.delete_exchange(vhost(), rights, name, if_unused)

        def judge(keys: dict[str, str], said: object) -> bool:
            if isinstance(said, BrokerError):
                return if_unused or isinstance(said, NotFound)
            return key not in keys

        return Asking(f"delete {name}", run, judge)

    def _binding(self, session: Session) -> tuple[Any, ...]:
        rng = self.rng
        source = rng.choice((*EXCHANGES, "amq.direct"))
        kind = rng.choice(("queue", "queue", "exchange"))
        destination = rng.choice(QUEUES if kind == "queue" else EXCHANGES)
        routing_key = rng.choice(KEYS)
        arguments: dict[str, object] = rng.choice(({}, {"a": 1}))
        record = md.BindingRecord(session.vhost, source, destination, kind, routing_key, arguments)
        return source, kind, destination, routing_key, arguments, md.key_of(record)

    def bind(self, session: Session) -> Asking:
        source, kind, destination, routing_key, arguments, key = self._binding(session)
        vhost, rights = self._where(session)

        def run() -> object:
            if kind == "queue":
                return declaring.bind_queue(
                    vhost(), rights, destination, source, routing_key, arguments, session
                )
            return declaring.bind_exchange(
                vhost(), rights, destination, source, routing_key, arguments
            )

        def judge(keys: dict[str, str], said: object) -> bool:
            if isinstance(said, BrokerError):
                return isinstance(said, (NotFound, ResourceLocked))
            return key in keys

        return Asking(f"bind {source} {destination}", run, judge)

    def unbind(self, session: Session) -> Asking:
        source, kind, destination, routing_key, arguments, key = self._binding(session)
        vhost, rights = self._where(session)

        def run() -> object:
            if kind == "queue":
                return declaring.unbind_queue(
                    vhost(), rights, destination, source, routing_key, arguments, session
                )
            return declaring.unbind_exchange(
                vhost(), rights, destination, source, routing_key, arguments
            )

        def judge(keys: dict[str, str], said: object) -> bool:
            if isinstance(said, (NotFound, ResourceLocked)):
                return True
            ends = {md.path(md.EXCHANGES, session.vhost, source)}
            return key not in keys or not (ends - {md.path(md.EXCHANGES, "/", "amq.direct")}) & (
                keys.keys()
            )

        return Asking(f"unbind {source} {destination}", run, judge)

    # -- administration ------------------------------------------------------------------------

    def put_policy(self, session: Session) -> Asking:
        rng = self.rng
        operator = rng.random() < 0.3
        policy = Policy("p", "^q", "queues", 0, {"max-length": rng.randrange(5)})
        kind = md.OPERATOR_POLICIES if operator else md.POLICIES
        key = md.path(kind, session.vhost, "p")

        def run() -> object:
            return self._admin(session).put_policy(session.vhost, policy, operator)

        def judge(keys: dict[str, str], said: object) -> bool:
            if isinstance(said, NotFound):
                return md.path(md.VHOSTS, session.vhost) not in keys
            record = md.read(key, keys[key]) if key in keys else None
            return isinstance(record, md.PolicyRecord) and record.definition == policy.definition

        return Asking("policy", run, judge)

    def delete_policy(self, session: Session) -> Asking:
        key = md.path(md.POLICIES, session.vhost, "p")

        def run() -> object:
            return self._admin(session).delete_policy(session.vhost, "p")

        return Asking("unpolicy", run, lambda keys, _said: key not in keys)

    def put_user(self, session: Session) -> Asking:
        tags = [f"t{self.rng.randrange(3)}"]
        key = md.path(md.USERS, "u")

        def run() -> object:
            self._admin(session).put_user("u", HASHED, HASHING, tags)
            if "u" in session.broker.users.users:
                self._admin(session).put_permission("u", "/", ".*", ".*", ".*")
            return None

        def judge(keys: dict[str, str], said: object) -> bool:
            record = md.read(key, keys[key]) if key in keys else None
            return isinstance(record, md.UserRecord) and record.tags == tags

        return Asking("user", run, judge)

    def delete_user(self, session: Session) -> Asking:
        key = md.path(md.USERS, "u")
        return Asking(
            "unuser",
            lambda: self._admin(session).delete_user("u"),
            lambda keys, _said: key not in keys,
        )

    def put_vhost(self, session: Session) -> Asking:
        text = f"d{self.rng.randrange(3)}"

        def run() -> object:
            return self._admin(session).put_vhost("v", md.VhostMetadata(text))

        def judge(keys: dict[str, str], said: object) -> bool:
            record = md.read("vhosts/v", keys["vhosts/v"]) if "vhosts/v" in keys else None
            return isinstance(record, md.VhostRecord) and record.metadata.description == text

        return Asking("vhost", run, judge)

    def delete_vhost(self, session: Session) -> Asking:
        def run() -> object:
            vhost = session.broker.vhost("v")
            return session.broker.changes.delete(md.VhostRecord(vhost.name))

        return Asking("unvhost", run, lambda keys, _said: "vhosts/v" not in keys)

    def limit(self, session: Session) -> Asking:
        limits = self.rng.choice(({}, {"max-connections": 7}))
        key = md.path(md.LIMITS, "vhost", session.vhost)

        def run() -> object:
            return self._admin(session).set_vhost_limits(session.vhost, limits)

        def judge(keys: dict[str, str], said: object) -> bool:
            if isinstance(said, NotFound):
                return md.path(md.VHOSTS, session.vhost) not in keys
            return (key in keys) == bool(limits)

        return Asking("limit", run, judge)

    def pause(self, session: Session) -> Asking:
        name, paused = self.rng.choice(QUEUES), self.rng.random() < 0.5
        key = md.path(md.QUEUES, session.vhost, name)

        def run() -> object:
            return self._admin(session).pause_queue(session.vhost, name, paused)

        def judge(keys: dict[str, str], said: object) -> bool:
            if isinstance(said, BrokerError):
                return key not in keys or isinstance(said, ResourceLocked)
            meta = md.read(key, keys[key]) if key in keys else None
            return isinstance(meta, md.QueueMeta) and meta.paused == paused

        return Asking("pause", run, judge)
