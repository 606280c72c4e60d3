"""Definitions in RabbitMQ's JSON on their way in: all of a broker, or one virtual host.

In: what ``definitions.exporting`` or a RabbitMQ has written.  It adds and changes, and removes
nothing.  What cannot be honoured is left out and named, a line each, in ``left_out``; the rest is
taken.  A policy loses only the keys that this release does not know how to obey.  Work is done in
steps, so that a broker that serves clients is not held up by ten thousand queues.

Quiet: no file, no clock; salts for passwords that come in the clear come in as a function.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from penstock.broker.administration import CLUSTER_ID, Administration
from penstock.broker.broker import Broker
from penstock.broker.rules.access import HASHING, hash_password
from penstock.broker.rules.arguments import UNSAID, check_default_type
from penstock.broker.rules.erlang_terms import term
from penstock.broker.rules.policies import Policy
from penstock.broker.topology.internal_queues import is_internal
from penstock.broker.topology.mirror_copies import is_copy
from penstock.broker.topology.vhost import Vhost
from penstock.core.errors import AccessRefused, Blocked, BrokerError, PreconditionFailed
from penstock.core.events.book import NODE, Actor
from penstock.core.pending import Pending
from penstock.queues.context import CLASSIC
from penstock.storage.definitions.parameters import ParameterRecord
from penstock.storage.definitions.records import VhostMetadata

Json = dict[str, Any]
SaltSource = Callable[[], bytes]

OF_A_VHOST: Final = ("parameters", "policies", "exchanges", "queues", "bindings")
OF_ALL: Final = (
    "users",
    "vhosts",
    "permissions",
    "topic_permissions",
    "global_parameters",
    *OF_A_VHOST,
)
"""Sections in the order in which they are imported: what is referred to comes first."""
ABOUT_THE_FILE: Final = (
    "rabbit_version", "rabbitmq_version", "product_name", "product_version",
    "rabbitmq_definition_format", "original_cluster_name", "explanation",
)  # fmt: skip
TYPES_CHANGED: Final = "penstock_types_changed"
"""Section of an export that says which arguments JSON could not carry as they are."""
MADE_BY_NODES: Final = ("amq.rabbitmq.log", "amq.rabbitmq.event")
"""Exchanges of an export which a node makes where a setting asks for them."""
NAME_MAX_BYTES: Final = 255
"""What a name on the line may have."""
_NAMES: Final = frozenset(
    ("name", "user", "vhost", "exchange", "source", "destination", "routing_key")
)


class ImportPlan:
    """The rows of a file in the order in which they are taken; made without the broker."""

    def __init__(self, definitions: object, vhost_name: str = "") -> None:
        """Raises PreconditionFailed when this is no file of definitions."""
        if not isinstance(definitions, dict):
            raise PreconditionFailed("definitions are a JSON object")
        known = OF_A_VHOST if vhost_name else OF_ALL
        self.vhost_name = vhost_name
        self.left_out = [
            f"section '{key}' is not known here"
            for key in definitions
            if key not in known and key not in ABOUT_THE_FILE
        ]
        self.rows: list[tuple[str, Json]] = []
        for section in known:
            rows = definitions.get(section, [])
            if not isinstance(rows, list):
                raise PreconditionFailed(f"'{section}' is a list of objects")
            for row in rows:
                if not isinstance(row, dict):
                    raise PreconditionFailed(f"'{section}' is a list of objects")
                self.rows.append((section, row))
        self.rows.reverse()  # the next one is the last: what was taken is let go with its slice


class DefinitionsImport:
    """One file on its way in; ``left_out`` names what was not taken, and why."""

    def __init__(
        self,
        broker: Broker,
        administration: Administration,
        plan: ImportPlan,
        new_salt: SaltSource,
        actor: Actor = NODE,
    ) -> None:
        """``actor``: whose request the import is."""
        self.left_out = plan.left_out
        self._actor = actor
        self._broker = broker
        self._admin = administration
        self._new_salt = new_salt
        self._vhost_name = plan.vhost_name
        self._rows = plan.rows
        if plan.vhost_name:
            broker.vhost(plan.vhost_name)
        self._waiting: list[tuple[Pending, str, Json]] = []  # what a cluster has to agree on

    def run(self, steps: int) -> bool:
        """Take so many more; True when all is done.

        In a cluster rows wait until all have agreed on them, those of a section together.
        """
        waiting, self._waiting = self._waiting, []
        for pending, section, row in waiting:
            self._take(pending.resume, section, row)
        for _ in range(min(steps - len(waiting), len(self._rows))):
            section, row = self._rows[-1]
            if self._waiting and self._waiting[0][1] != section:
                return False  # what is referred to comes first
            self._rows.pop()
            ask = self._broker.changes.ask(self._actor)
            self._take(partial(ask.run, partial(self._take_row, section, row)), section, row)
        return not self._rows and not self._waiting

    @property
    def waits(self) -> bool:
        """There is nothing to do but to wait for the cluster."""
        return bool(self._waiting)

    def _take(self, step: Callable[[], object], section: str, row: Json) -> None:
        """A row; whatever is wrong with it costs this row only.

        Raises Blocked: on a full disk the others find no room either.
        """
        try:
            outcome = step()
        except Blocked:
            raise
        except BrokerError as error:
            self._leave_out(section, row, str(error))
        else:
            if isinstance(outcome, Pending):
                self._waiting.append((outcome, section, row))

    def _take_row(self, section: str, row: Json) -> Pending | None:
        if section == "users":
            return self._user(row)
        if section == "vhosts":
            return self._take_vhost(row)
        if section == "permissions":
            names = [_text(row, key) for key in ("user", "vhost", "configure", "write", "read")]
            self._admin.put_permission(*names)
        elif section == "topic_permissions":
            names = [_text(row, key) for key in ("user", "vhost", "exchange", "write", "read")]
            self._admin.put_topic_permission(*names)
        elif section == "parameters":
            self._parameter(row)
        elif section == "policies":
            self._put_policy(row, row, operator=False)
        elif section == "exchanges":
            self._exchange(row)
        elif section == "queues":
            self._queue(row)
        elif section == "bindings":
            return self._binding(row)
        else:
            self._global_parameter(row)
        return None

    def _leave_out(self, section: str, row: Json, why: str) -> None:
        name = row.get("name")
        if section == "bindings":
            name = f"{row.get('source')}' to '{row.get('destination')}"
        elif name is None:
            name = row.get("user")
        kind = "policy" if section == "policies" else section.removesuffix("s")
        vhost = row.get("vhost", self._vhost_name)
        where = f" in vhost '{vhost}'" if vhost else ""
        line = f"{kind.replace('_', ' ')} '{name}'{where}: {why}"
        if not (self._broker.changes.proposes and line in self.left_out):  # of a second run
            self.left_out.append(line)

    # -- users and virtual hosts -------------------------------------------------------------

    def _user(self, row: Json) -> Pending | None:
        name = _text(row, "name")
        hashing = _text(row, "hashing_algorithm", HASHING)
        hashed = _text(row, "password_hash", "")
        if "password" in row and not hashed:
            self._broker.users.passwords.rule.check(_text(row, "password"))
            hashing = HASHING
            hashed = hash_password(_text(row, "password"), self._new_salt())
            row["password_hash"], row["hashing_algorithm"] = hashed, hashing
        self._admin.put_user(name, hashed, hashing, tags_in(row.get("tags", [])))
        if not row.get("limits"):
            return None
        limits = _table(row, "limits")
        return self._broker.changes.then(partial(self._admin.set_user_limits, name, limits))

    def _take_vhost(self, row: Json) -> Pending | None:
        name = _text(row, "name")
        metadata = _table(row, "metadata")
        description = _text(metadata, "description", _text(row, "description", ""))
        tags = tags_in(metadata.get("tags", row.get("tags", [])))
        kind = metadata.get("default_queue_type", row.get("default_queue_type"))
        check_default_type(kind)
        known = self._broker.vhosts.get(name)
        is_protected = known is not None and known.metadata.protected_from_deletion
        is_protected = _flag(metadata, "protected_from_deletion", absent=is_protected)
        default = "" if kind in UNSAID else str(kind)
        told = VhostMetadata(description, tuple(tags), default, is_protected)
        self._admin.put_vhost(name, told)
        is_new = self._broker.changes.at_first(known is None)
        return self._broker.changes.then(partial(self._vhost_fields, name, row, is_new))

    def _vhost_fields(self, name: str, row: Json, is_new: bool) -> Pending | None:
        """The fields of a virtual host that is there."""
        seeding = self._admin.seed_vhost(name) if is_new else None
        if row.get("limits"):
            self._admin.set_vhost_limits(name, _table(row, "limits"))
        if "tracing" in row:
            self._admin.trace(name, on=_flag(row, "tracing"))
        return seeding

    def _vhost(self, row: Json) -> Vhost:
        return self._broker.vhost(self._vhost_name or _text(row, "vhost"))

    # -- rules ---------------------------------------------------------------------------

    def _parameter(self, row: Json) -> None:
        component = _text(row, "component")
        if component == "operator_policy":
            self._put_policy(row, _table(row, "value"), operator=True)
        elif component == "vhost-limits":
            limits = _table(row, "value") if row.get("value") else {}
            self._admin.set_vhost_limits(self._vhost(row).name, limits)
        else:
            name, vhost = _text(row, "name"), self._vhost(row).name
            self._admin.put_parameter(
                ParameterRecord(name, row.get("value"), vhost, component, self._actor.user)
            )

    def _global_parameter(self, row: Json) -> None:
        name = _text(row, "name")
        # A cluster keeps its identity, whatever definitions it takes.
        if name != CLUSTER_ID:
            self._admin.put_global_parameter(name, row.get("value"))

    def _put_policy(self, row: Json, rule: Json, *, operator: bool) -> None:
        """``rule``: where pattern and definition stand."""
        vhost = self._vhost(row)
        definition = _table(rule, "definition")
        priority = rule.get("priority", 0)
        small = isinstance(priority, int) and abs(priority) < 1 << 31
        if isinstance(priority, bool) or not small:
            raise PreconditionFailed(f"priority should be a number, actually was {term(priority)}")
        policy = Policy(
            _text(row, "name"),
            _text(rule, "pattern"),
            _text(rule, "apply-to", "all"),
            priority,
            definition,
        )
        self._admin.put_policy(vhost.name, policy, operator)

    # -- topology ------------------------------------------------------------------------

    def _exchange(self, row: Json) -> None:
        name = _text(row, "name")
        if name in MADE_BY_NODES:
            return
        self._vhost(row).declare_exchange(
            name,
            _text(row, "type"),
            _flag(row, "durable", absent=True),
            _flag(row, "auto_delete"),
            _flag(row, "internal"),
            _table(row, "arguments"),
        )

    def _queue(self, row: Json) -> None:
        name = _text(row, "name")
        if name == "":
            raise PreconditionFailed("a queue needs a name")
        if is_internal(name) or is_copy(name):
            raise AccessRefused(f"queue name '{name}' is one of those no client sees")
        arguments = _table(row, "arguments")
        if row.get("type", CLASSIC) != CLASSIC:  # newer releases say it here too
            arguments.setdefault("x-queue-type", row["type"])
        durable = _flag(row, "durable", absent=True)
        vhost, auto_delete = self._vhost(row), _flag(row, "auto_delete")
        arguments = vhost.typed(arguments, durable, False, auto_delete)
        vhost.declare_queue(name, durable, None, auto_delete, arguments)

    def _binding(self, row: Json) -> Pending | None:
        vhost = self._vhost(row)
        source, destination = _text(row, "source"), _text(row, "destination")
        key, arguments = _text(row, "routing_key", ""), _table(row, "arguments")
        kind = _text(row, "destination_type", "queue")
        if kind == "queue":
            return vhost.bind_queue(vhost.queue(destination), source, key, arguments)
        if kind == "exchange":
            return vhost.bind_exchange(destination, source, key, arguments)
        raise PreconditionFailed(f"unknown destination_type '{kind}'")


# -- values --------------------------------------------------------------------------------


def _text(row: Json, key: str, absent: str | None = None) -> str:
    value = row.get(key, absent)
    if not isinstance(value, str):
        raise PreconditionFailed(f"'{key}' is missing" if key not in row else f"'{key}' is no text")
    try:
        size = len(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise PreconditionFailed(f"'{key}' is no text") from None
    if key in _NAMES and size > NAME_MAX_BYTES:
        raise PreconditionFailed(f"'{key}' has more than {NAME_MAX_BYTES} bytes")
    return value


def _flag(row: Json, key: str, *, absent: bool = False) -> bool:
    value = row.get(key, absent)
    if not isinstance(value, bool):
        raise PreconditionFailed(f"'{key}' is neither true nor false")
    return value


def _table(row: Json, key: str) -> Json:
    """A copy: what is declared keeps it."""
    value = row.get(key, {})
    if not isinstance(value, dict):
        raise PreconditionFailed(f"'{key}' is no object")
    return dict(value)


def tags_in(value: object) -> list[str]:
    """A list, or text with commas as releases before 3.9 wrote it."""
    if isinstance(value, str):
        return [tag.strip() for tag in value.split(",") if tag.strip()]
    if isinstance(value, list) and all(isinstance(tag, str) for tag in value):
        return list(value)
    raise PreconditionFailed("'tags' is no list of names")
