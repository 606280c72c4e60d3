"""What a policy says of mirrored queues: its ``ha-`` keys, read and checked.

In: a policy's definition.  Out: its ``HaPolicy``, or a refusal in the words of RabbitMQ 3.10.8.
``queue_options`` says what the keys are and may hold.

``ha-promote-on-failure`` is ``when-synced`` where nothing is said.  RabbitMQ's is ``always``: it
makes a mirror master that lacks messages which were confirmed (K3 of docs/design/clusters.md).

Which queue goes by which is ``PolicyBook``'s (``ha_policy``); where its copies are, the cluster's.
"""

from typing import Final, NamedTuple

from penstock.broker.rules.erlang_terms import term
from penstock.broker.rules.queue_options import POLICY_KEYS
from penstock.core.errors import PreconditionFailed

ALWAYS: Final = "always"
WHEN_SYNCED: Final = "when-synced"
SYNC_BATCH: Final = 4096
COUNT_MAX: Final = 1 << 31
"""More copies, or messages at once, than there ever are: a larger number is this one."""

HA_KEYS: Final = tuple(key for key in POLICY_KEYS if key.startswith("ha-"))


class HaPolicy(NamedTuple):
    """``mode`` "" = there shall be no mirrors."""

    mode: str = ""
    copies: int = 0  # of "exactly"
    nodes: tuple[str, ...] = ()  # of "nodes"
    automatic: bool = False
    batch_messages: int = SYNC_BATCH
    on_failure: str = WHEN_SYNCED
    on_shutdown: str = WHEN_SYNCED


NO_MIRRORS: Final = HaPolicy()
"""Of queues that no policy mirrors, and of those that cannot be mirrored."""


def read_ha_policy(definition: dict[str, object]) -> HaPolicy:
    """Of a policy's definition, whose other keys are others' business."""
    if "ha-mode" not in definition:
        if any(key in definition for key in HA_KEYS):
            raise PreconditionFailed(
                "ha-mode must be specified to specify ha-params, ha-sync-mode or"
                " ha-promote-on-shutdown"
            )
        return NO_MIRRORS
    copies, nodes = 0, list[str]()
    mode = definition["ha-mode"]
    if not isinstance(mode, str) or mode not in POLICY_KEYS["ha-mode"].words:
        raise PreconditionFailed(f"{term(mode)} is not a valid ha-mode value")
    if mode == "all":
        if "ha-params" in definition:
            raise PreconditionFailed('ha-mode="all" does not take parameters')
    elif mode == "exactly":
        copies = _positive(definition, "ha-params", 'ha-mode="exactly" takes an integer')
    else:
        nodes = _names(definition)
    automatic = _word(definition, "ha-sync-mode", "manual") == "automatic"
    batch_messages = SYNC_BATCH
    if "ha-sync-batch-size" in definition:
        what = "ha-sync-batch-size takes an integer greater than 0"
        batch_messages = _positive(definition, "ha-sync-batch-size", what)
    on_shutdown = _word(definition, "ha-promote-on-shutdown", WHEN_SYNCED)
    on_failure = _word(definition, "ha-promote-on-failure", WHEN_SYNCED)
    return HaPolicy(mode, copies, tuple(nodes), automatic, batch_messages, on_failure, on_shutdown)


def _positive(definition: dict[str, object], key: str, what: str) -> int:
    value = definition.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise PreconditionFailed(f"{what}, {_given(definition, key)} given")
    return min(value, COUNT_MAX)


def _names(definition: dict[str, object]) -> list[str]:
    params = definition.get("ha-params")
    if not isinstance(params, list):
        given = _given(definition, "ha-params")
        raise PreconditionFailed(f'ha-mode="nodes" takes a list, {given} given')
    if not params:
        raise PreconditionFailed('ha-mode="nodes" list must be non-empty')
    wrong = [name for name in params if not isinstance(name, str)]
    if wrong:
        raise PreconditionFailed(
            f'ha-mode="nodes" takes a list of strings, {term(wrong)} was not a string'
        )
    return [str(name) for name in params]


def _given(definition: dict[str, object], key: str) -> str:
    return term(definition[key]) if key in definition else "none"


def _word(definition: dict[str, object], key: str, absent: str) -> str:
    value, words = definition.get(key, absent), POLICY_KEYS[key].words
    if not isinstance(value, str) or value not in words:
        raise PreconditionFailed(f'{key} must be "{words[0]}" or "{words[1]}", got {term(value)}')
    return value
