"""Changes an administrator makes: users, permissions, virtual hosts, limits, policies, parameters.

In: what an administrator asks for.  Out: the broker goes by it from now on, and the
definitions keep it; or a refusal (NotFound, PreconditionFailed, NotImplementedYet) and nothing has
changed.  Who asks, and whether they may, is the caller's business.

Whatever decides about a publish moves the epoch of the virtual host: routes carry the judgement
about their user with them.
"""

import base64
import binascii
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.parameters import CLUSTER_NAME
from penstock.broker.policy_change import PolicyChange
from penstock.broker.rules.access import (
    KNOWN_HASHINGS,
    NO_LIMIT,
    SCRYPT,
    PasswordHash,
    User,
    hashes_in,
    joined,
)
from penstock.broker.rules.budget import VHOST_LIMITS
from penstock.broker.rules.erlang_terms import term
from penstock.broker.rules.parameter_values import check_parameter
from penstock.broker.rules.policies import Policy, check_policy
from penstock.broker.topology.vhost import Vhost
from penstock.core import patterns
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.pending import Pending
from penstock.storage.definitions.parameters import ParameterRecord, delete_parameter, put_parameter
from penstock.storage.definitions.records import (
    NO_METADATA,
    PermissionRecord,
    PolicyRecord,
    TopicPermissionRecord,
    UserRecord,
    VhostMetadata,
    VhostRecord,
)

CLUSTER_ID: Final = "internal_cluster_id"
"""A global parameter that the node itself goes by: it is made once and stays."""
USER_LIMITS: Final = ("max-connections", "max-channels")
LIMIT_MAX: Final = 2**31 - 1
BYTES_MAX: Final = 2**60


def limits_of(vhost: Vhost) -> dict[str, int]:
    """Those that are set."""
    limits = vhost.budget.limits()
    return {name: value for name, value in limits.items() if value > NO_LIMIT}


def user_limits_of(user: User) -> dict[str, int]:
    """Those that are set."""
    values = (int(user.max_connections), int(user.max_channels))
    return {name: n for name, n in zip(USER_LIMITS, values, strict=True) if n > int(NO_LIMIT)}


def check_pattern(pattern: str) -> None:
    try:
        patterns.check(pattern)
    except patterns.Refused as error:
        raise PreconditionFailed(f"invalid_regexp '{pattern}': {error}") from None


def left_out_at_start(broker: Broker) -> list[str]:
    """What is kept and does nothing: patterns that this release refuses, a line each."""
    rules: list[tuple[str, str]] = []
    for vhost in broker.vhosts.values():
        book = vhost.policies
        for kind, policies in (
            ("policy", book.policies),
            ("operator policy", book.operator_policies),
        ):
            rules += [
                (f"{kind} '{policy.name}' in vhost '{vhost.name}'", policy.pattern)
                for policy in policies.values()
            ]
    for user in broker.users.users.values():
        for name, given in user.vhosts.items():
            rules += [(f"permission of '{user.name}' in vhost '{name}'", one) for one in given]
        for (name, exchange), those in user.topics.items():
            what = f"topic permission of '{user.name}' for '{exchange}' in vhost '{name}'"
            rules += [(what, without_variables(one)) for one in those]
    lines: list[str] = []
    for what, pattern in rules:
        try:
            patterns.check(pattern)
        except patterns.Refused as error:
            lines.append(f"{what}: its pattern covers nothing: {error}")
    return lines


def without_variables(pattern: str) -> str:
    """A topic permission's: they stand for names."""
    return pattern.replace("{username}", "").replace("{vhost}", "")


class Administration:
    """The one hand that changes these things while the broker runs."""

    def __init__(self, broker: Broker, segment_entries: int) -> None:
        self._broker = broker
        self._changes = broker.changes
        self._segment_entries = segment_entries

    # -- queues --------------------------------------------------------------------------

    def pause_queue(self, vhost_name: str, name: str, paused: bool) -> None:
        """A paused queue takes messages and gives none; a durable one remembers it."""
        vhost = self._broker.vhost(vhost_name)
        queue = vhost.queue(name)
        queue.check_owner(None)
        if self._changes.proposes:
            self._changes.pause_queue(queue, paused)
            return
        queue.set_paused(paused)
        vhost.touch(queue)
        if name in vhost.queue_ids:
            self._broker.definitions.pause_queue(vhost_name, name, paused)

    # -- users ---------------------------------------------------------------------------

    def user(self, name: str) -> User:
        user = self._broker.users.users.get(name)
        if user is None:
            raise NotFound(f"no user '{name}'")
        return user

    def _note(self, kind: str, facts: tuple[object, ...]) -> None:
        self._broker.events.note(kind, facts)

    def put_user(self, name: str, password_hash: str, hashing: str, tags: list[str]) -> None:
        """Make or change one; what an existing one may do stays."""
        if name == "":
            raise PreconditionFailed("a user needs a name")
        _check_hashes(password_hash, hashing)
        record = UserRecord(name, password_hash, hashing, tags)
        if self._changes.propose_put(record):
            return
        user = self._broker.users.users.get(name)
        if user is None:
            self._broker.users.users[name] = User(name, password_hash, tags, hashing)
            self._note("user_created", (name,))
        else:
            if user.password_hash != password_hash:
                kind = "user_password_changed" if password_hash else "user_password_cleared"
                self._note(kind, (name,))
            user.change(password_hash, hashing, tags)
        if user is not None or tags:
            self._note("user_tags_set", (name, ",".join(tags)))
        self._broker.definitions.put_user(record)

    def keep_renewed_hashes(self) -> None:
        """Of users who logged in with an older hash; those that have another by now keep it."""
        users = self._broker.users
        for name, before, password_hash in users.passwords.take_renewed():
            user = users.users.get(name)
            if user is not None and before in [one.text for one in user.hashes]:
                new = PasswordHash(password_hash, SCRYPT)
                user.renew_hash(before, password_hash)
                self._put_hashes(user, [new if one.text == before else one for one in user.hashes])

    def add_password(self, name: str, hashed: PasswordHash) -> None:
        """A second one; the first stays until it is dropped, or a password is set."""
        user = self.user(name)
        if user.password_hash == "":
            raise PreconditionFailed(f"user '{name}' has no password: set one")
        if len(user.hashes) > 1:
            raise PreconditionFailed(f"user '{name}' has two passwords: drop one")
        self._put_hashes(user, [hashed, *user.hashes])

    def drop_password(self, name: str, is_older: bool) -> None:
        """The older or the newer one of two."""
        user = self.user(name)
        if len(user.hashes) == 1:
            raise PreconditionFailed(f"user '{name}' has one password")
        self._put_hashes(user, [user.hashes[0 if is_older else 1]])

    def _put_hashes(self, user: User, hashes: list[PasswordHash]) -> None:
        self.put_user(user.name, *joined(hashes), user.tags)

    def delete_user(self, name: str) -> None:
        """With the user's rights: sessions that are there may do nothing more, and end soon."""
        user = self.user(name)
        if self._changes.proposes:
            self._changes.delete(UserRecord(name, "", "", []))
            return
        del self._broker.users.users[name]
        self._note("user_deleted", (name,))
        user.delete()
        for vhost in self._broker.vhosts.values():
            vhost.forget_routes()
        self._broker.definitions.delete_user(name)

    def put_permission(
        self, user_name: str, vhost_name: str, configure: str, write: str, read: str
    ) -> None:
        user = self.user(user_name)
        vhost = self._broker.vhost(vhost_name)
        for pattern in (configure, write, read):
            check_pattern(pattern)
        record = PermissionRecord(user_name, vhost_name, configure, write, read)
        if self._changes.propose_put(record):
            return
        user.permit(vhost_name, configure, write, read)
        self._note("permission_set", (user_name, vhost_name, configure, write, read))
        vhost.forget_routes()
        self._broker.definitions.put_permission(record)

    def delete_permission(self, user_name: str, vhost_name: str) -> None:
        """Whether there was one or not."""
        user = self.user(user_name)
        vhost = self._broker.vhost(vhost_name)
        if self._changes.proposes:
            self._changes.delete(PermissionRecord(user_name, vhost_name, "", "", ""))
            return
        user.forbid(vhost_name)
        self._note("permission_deleted", (user_name, vhost_name))
        vhost.forget_routes()
        self._broker.definitions.delete_permission(user_name, vhost_name)

    def put_topic_permission(
        self, user_name: str, vhost_name: str, exchange: str, write: str, read: str
    ) -> None:
        user = self.user(user_name)
        vhost = self._broker.vhost(vhost_name)
        for pattern in (write, read):
            check_pattern(without_variables(pattern))
        record = TopicPermissionRecord(user_name, vhost_name, exchange, write, read)
        if self._changes.propose_put(record):
            return
        vhost.forget_routes()
        self._note("topic_permission_set", (user_name, vhost_name, exchange, write, read))
        self._keep_topic_permission(user, record)

    def _keep_topic_permission(self, user: User, record: TopicPermissionRecord) -> None:
        user.topics[(record.vhost, record.exchange)] = (record.write, record.read)
        self._broker.definitions.put_topic_permission(record)

    def delete_topic_permissions(
        self, user_name: str, vhost_name: str, exchange: str | None = None
    ) -> None:
        """For that exchange, or for all of the virtual host; whether there were some or not."""
        user = self.user(user_name)
        vhost = self._broker.vhost(vhost_name)
        there = {place: user.topics[place] for place in user.topics if place[0] == vhost_name}
        if self._changes.proposes:
            for _, name in there:
                if exchange is None or name == exchange:
                    gone = TopicPermissionRecord(user_name, vhost_name, name, "", "")
                    self._changes.delete(gone)
            return
        self._broker.definitions.delete_topic_permissions(user_name, vhost_name)
        self._note("topic_permission_deleted", (user_name, vhost_name))
        for place, those in there.items():
            del user.topics[place]
            if exchange is not None and place[1] != exchange:
                record = TopicPermissionRecord(user_name, *place, *those)
                self._keep_topic_permission(user, record)
        vhost.forget_routes()

    # -- virtual hosts ---------------------------------------------------------------------

    def put_vhost(self, name: str, metadata: VhostMetadata = NO_METADATA) -> None:
        if name == "":
            raise PreconditionFailed("a virtual host needs a name")
        if self._changes.propose_put(VhostRecord(name, 0, metadata)):
            return
        vhost = self._broker.vhosts.get(name)
        kind = "vhost_updated"
        if vhost is None:
            vhost = self._broker.add_vhost(name, self._segment_entries)
            metadata = self._broker.options.types.of_new_vhost(metadata)
            kind = "vhost_created"
        text, tags, *others = metadata
        self._note(kind, (name, text, ",".join(tags), *others))
        vhost.describe(metadata)
        self._broker.definitions.put_vhost(VhostRecord(name, vhost.segment_entries, metadata))

    def seed_vhost(self, name: str) -> Pending | None:
        """Give one that is new what virtual hosts begin with (``rules/vhost_defaults.py``)."""
        defaults = self._broker.options.vhost_defaults
        limits, users = defaults.limits(name), defaults.users(name)
        if limits:
            self.set_vhost_limits(name, limits)
        for policy in defaults.policies(name):
            self.put_policy(name, policy, operator=True)
        for user, _ in users:
            if user.name not in self._broker.users.users:
                self.put_user(*user)

        def let_in() -> None:
            for _, permission in users:
                self.put_permission(*permission)

        return self._changes.then(let_in)

    def trace(self, name: str, *, on: bool) -> None:
        """Copy its messages to the firehose, or no longer; a restart forgets it."""
        self._broker.vhost(name).trace(on=on)

    # -- limits --------------------------------------------------------------------------

    def set_vhost_limits(self, name: str, limits: dict[str, int]) -> None:
        """In the place of those it had."""
        self._broker.vhost(name)
        self._set_limits("vhost", name, VHOST_LIMITS, limits)

    def set_user_limits(self, name: str, limits: dict[str, int]) -> None:
        """In the place of those the user had."""
        self.user(name)
        self._set_limits("user", name, USER_LIMITS, limits)

    def _set_limits(
        self, scope: str, owner: str, known: tuple[str, ...], limits: dict[str, int]
    ) -> None:
        for name, value in limits.items():
            if name not in known:
                where = "limits" if scope == "vhost" else "user-limits"
                raise PreconditionFailed(
                    f"Unrecognised terms [{{{term(name)},{term(value)}}}] in {where}"
                )
            if isinstance(value, bool) or not isinstance(value, int):
                raise PreconditionFailed(f"{name} should be a number, actually was {term(value)}")
            most = BYTES_MAX if name.endswith("-bytes") else LIMIT_MAX
            if value > most:
                raise PreconditionFailed(f"{name} is more than {most}")
        kept = {name: value for name, value in limits.items() if value > NO_LIMIT}
        self._changes.check_room()
        if self._changes.proposes:
            self._changes.put_limits(scope, owner, kept)
            return
        for name in known:
            self._broker.limit(scope, owner, name, kept.get(name, NO_LIMIT))
        if kept:
            self._note(f"{scope}_limits_set", (owner, *[kept.get(name) for name in known]))
        else:
            self._note(f"{scope}_limits_cleared", (owner,))
        self._broker.definitions.put_limits(scope, owner, kept)

    # -- policies ------------------------------------------------------------------------

    def put_policy(self, vhost_name: str, policy: Policy, operator: bool = False) -> None:
        """It holds at once, for every queue and exchange it covers."""
        vhost = self._broker.vhost(vhost_name)
        check_policy(policy, operator)
        record = PolicyRecord(
            vhost_name,
            _kind(operator),
            policy.name,
            policy.pattern,
            policy.apply_to,
            policy.priority,
            policy.definition,
        )
        if self._changes.propose_put(record):
            return
        book = vhost.policies
        policies = book.operator_policies if operator else book.policies
        policies[policy.name] = policy
        facts = policy.name, policy.pattern, policy.apply_to, policy.priority
        self._note("policy_set", (vhost_name, *facts))
        _policies_changed(self._broker, vhost)
        self._broker.definitions.put_policy(record)

    def delete_policy(self, vhost_name: str, name: str, operator: bool = False) -> None:
        vhost = self._broker.vhost(vhost_name)
        policies = vhost.policies.operator_policies if operator else vhost.policies.policies
        if name not in policies:
            raise NotFound(f"no policy '{name}' in vhost '{vhost_name}'")
        if self._changes.proposes:
            kind = _kind(operator)
            self._changes.delete(PolicyRecord(vhost_name, kind, name, "", "", 0, {}))
            return
        del policies[name]
        kind = "operator_policy_deleted" if operator else "policy_deleted"
        self._note(kind, (vhost_name, name))
        _policies_changed(self._broker, vhost)
        self._broker.definitions.delete_policy(vhost_name, _kind(operator), name)

    # -- parameters ----------------------------------------------------------------------

    def put_global_parameter(self, name: str, value: object) -> None:
        """Anything may be kept; of these values the node goes by its cluster's name only."""
        if name == CLUSTER_ID and self._broker.parameters.find(name) is not None:
            raise PreconditionFailed(f"{CLUSTER_ID} stays what it is")
        if name == CLUSTER_NAME and not (isinstance(value, str) and value):
            raise PreconditionFailed(f"{CLUSTER_NAME} should be a text, actually was {term(value)}")
        self._put_parameter(ParameterRecord(name, value))

    def delete_global_parameter(self, name: str) -> None:
        if name == CLUSTER_ID:
            raise PreconditionFailed(f"{CLUSTER_ID} stays what it is")
        self._delete_parameter(name, "", "", f"no global parameter '{name}'")

    def put_parameter(self, record: ParameterRecord) -> None:
        """Of a component in a virtual host; raises NotFound and PreconditionFailed."""
        self._broker.vhost(record.vhost)
        check_parameter(record.component, record.name, record.value)
        self._put_parameter(record)

    def delete_parameter(self, vhost: str, component: str, name: str) -> None:
        self._delete_parameter(name, vhost, component, "no such parameter")

    def _put_parameter(self, record: ParameterRecord) -> None:
        if self._changes.propose_put(record):
            return
        self._broker.parameters.put(record)
        component = record.component or None, record.name
        self._note("parameter_set", (record.vhost or None, *component))
        put_parameter(self._broker.definitions.change, record)

    def _delete_parameter(self, name: str, vhost: str, component: str, missing: str) -> None:
        record = self._broker.parameters.find(name, vhost, component)
        if record is None:
            raise NotFound(missing)
        if self._changes.proposes:
            self._changes.delete(record)
            return
        self._broker.parameters.remove(name, vhost, component)
        self._note("parameter_deleted", (vhost or None, component or None, name))
        delete_parameter(self._broker.definitions.change, record)


def _check_hashes(password_hash: str, hashing: str) -> None:
    """Of a password or two; raises PreconditionFailed."""
    for one in hashing.split(" "):
        if one not in KNOWN_HASHINGS:
            raise PreconditionFailed(f"unknown hashing algorithm '{one}'")
    try:
        for text, _ in hashes_in(password_hash, hashing):
            base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise PreconditionFailed("password_hash is no base64") from None


def _kind(operator: bool) -> str:
    return "operator" if operator else "policy"


def _policies_changed(broker: Broker, vhost: Vhost) -> None:
    """Queues and exchanges go by what holds now, and every route is found anew."""
    vhost.policies.changed(broker.next_policy_epoch())
    broker.queue_turns.long_works.start(PolicyChange(broker, vhost))
