"""Where a queue's master and mirrors should be: pure decisions, names of nodes in and out.

    ha-mode   ha-params        the copies that are wanted
    all       none             one on every running node
    exactly   N                the master, the mirrors there are (the eldest first), and others by
                               chance, until there are N or no node is left
    nodes     list of names    those of the list that run

The master stays where it is if it is on the list, or as long as no copy on the list is synced;
then the first of the list that is synced takes over, and the former master goes.  A list of which
nothing runs leaves the master alone.  A mirror that was lost is replaced because it is missing
from what is wanted; with ``nodes`` there may be nobody to replace it.

**Locators** say where a new queue's master is put: ``client-local`` with the client,
``min-masters`` with whom has the fewest, ``random`` by chance.  Chance is a function.

**Rebalancing** moves masters to mirrors that are synced, one at a time, from who has most of them
to who has fewest, while that makes the difference smaller.
"""

from collections.abc import Callable, Sequence
from typing import Final, final

from penstock.core.errors import PreconditionFailed

Chance = Callable[[int], int]
"""``chance(n)`` is one of 0 to n - 1."""

HA_MODES: Final = ("all", "exactly", "nodes")
LOCATORS: Final = ("client-local", "min-masters", "random")
SYNC_BATCH: Final = 4096


@final
class HaPolicy:
    """What a policy says of mirrors; ``mode`` "" = there shall be none."""

    def __init__(self) -> None:
        self.mode = ""
        self.copies = 0  # of "exactly"
        self.nodes: list[str] = []  # of "nodes"
        self.automatic = False
        self.batch_messages = SYNC_BATCH
        self.on_failure = "when-synced"
        self.on_shutdown = "when-synced"


_HA_KEYS: Final = (
    "ha-params",
    "ha-sync-mode",
    "ha-sync-batch-size",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
)


def read_ha_policy(definition: dict[str, object]) -> HaPolicy:
    """Of a policy's definition, whose other keys are others' business; RabbitMQ's words."""
    policy = HaPolicy()
    if "ha-mode" not in definition:
        if any(key in definition for key in _HA_KEYS):
            raise PreconditionFailed(
                "ha-mode must be specified to specify ha-params, ha-sync-mode or"
                " ha-promote-on-shutdown"
            )
        return policy
    mode = definition["ha-mode"]
    if mode not in HA_MODES:
        raise PreconditionFailed(f"{_shown(mode)} is not a valid ha-mode value")
    policy.mode = str(mode)
    if policy.mode == "all":
        if "ha-params" in definition:
            raise PreconditionFailed('ha-mode="all" does not take parameters')
    elif policy.mode == "exactly":
        _read_exactly(policy, definition)
    else:
        _read_nodes(policy, definition)
    policy.automatic = _word(definition, "ha-sync-mode", ("manual", "automatic")) == "automatic"
    policy.on_shutdown = _word(definition, "ha-promote-on-shutdown", ("when-synced", "always"))
    policy.on_failure = _word(definition, "ha-promote-on-failure", ("when-synced", "always"))
    batch = definition.get("ha-sync-batch-size", SYNC_BATCH)
    if not _is_positive(batch):
        raise PreconditionFailed(
            f"ha-sync-batch-size takes an integer greater than 0, {_shown(batch)} given"
        )
    assert isinstance(batch, int)
    policy.batch_messages = batch
    return policy


def _read_exactly(policy: HaPolicy, definition: dict[str, object]) -> None:
    params = definition.get("ha-params", "none")
    if not _is_positive(params):
        raise PreconditionFailed(f'ha-mode="exactly" takes an integer, {_shown(params)} given')
    assert isinstance(params, int)
    policy.copies = params


def _read_nodes(policy: HaPolicy, definition: dict[str, object]) -> None:
    params = definition.get("ha-params", "none")
    if params == []:
        raise PreconditionFailed('ha-mode="nodes" list must be non-empty')
    if not isinstance(params, list):
        raise PreconditionFailed(f'ha-mode="nodes" takes a list, {_shown(params)} given')
    wrong = [name for name in params if not isinstance(name, str)]
    if wrong:
        raise PreconditionFailed(
            f'ha-mode="nodes" takes a list of strings, {_shown(wrong)} was not a string'
        )
    policy.nodes = list(params)


def _is_positive(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _word(definition: dict[str, object], key: str, words: tuple[str, str]) -> str:
    value = definition.get(key, words[0])
    if value not in words:
        first, second = sorted(words) if key != "ha-sync-mode" else words
        raise PreconditionFailed(f'{key} must be "{first}" or "{second}", got {_shown(value)}')
    return str(value)


def _shown(value: object) -> str:
    """As Erlang prints it, near enough."""
    return f'<<"{value}">>' if isinstance(value, str) and value != "none" else str(value)


# -- copies --------------------------------------------------------------------------------


@final
class Placement:
    """``mirrors`` in the order in which they are, or are to be, members."""

    def __init__(self, master: str, mirrors: Sequence[str]) -> None:
        self.master = master
        self.mirrors = list(mirrors)

    def __repr__(self) -> str:
        return f"{self.master} with {', '.join(self.mirrors) or 'nobody'}"


def wanted_copies(
    policy: HaPolicy,
    master: str,
    mirrors: Sequence[str],
    synced: Sequence[str],
    running: Sequence[str],
    chance: Chance,
) -> Placement:
    """``mirrors``: those there are, eldest first; ``synced`` may name the master too."""
    here = [node for node in mirrors if node in running]
    if policy.mode == "":
        return Placement(master, [])
    if policy.mode == "all":
        return Placement(master, here + _others(running, [master, *here]))
    if policy.mode == "exactly":
        kept = here[: policy.copies - 1]
        left = _others(running, [master, *kept])
        while len(kept) < policy.copies - 1 and left:
            kept.append(left.pop(chance(len(left))))
        return Placement(master, kept)
    listed = [node for node in dict.fromkeys(policy.nodes) if node in running]
    return _on_listed(listed, master, here, synced)


def _on_listed(
    listed: list[str], master: str, here: Sequence[str], synced: Sequence[str]
) -> Placement:
    if master not in listed:
        successors = [node for node in listed if node in here and node in synced]
        if successors:
            master = successors[0]
    kept = [node for node in here if node in listed and node != master]
    return Placement(master, kept + _others(listed, [master, *kept]))


def _others(nodes: Sequence[str], but: Sequence[str]) -> list[str]:
    return [node for node in nodes if node not in but]


# -- masters -------------------------------------------------------------------------------


def locate_master(
    locator: str,
    policy: HaPolicy,
    client_node: str,
    running: Sequence[str],
    masters: dict[str, int],
    chance: Chance,
) -> str:
    """Of a queue that is being declared; with a list of nodes it is one of these that run."""
    listed = [node for node in policy.nodes if node in running]
    candidates = listed if policy.mode == "nodes" and listed else list(running)
    if locator == "random":
        return candidates[chance(len(candidates))]
    if locator == "min-masters":
        fewest = min(masters.get(node, 0) for node in candidates)
        equals = [node for node in candidates if masters.get(node, 0) == fewest]
        return client_node if client_node in equals else equals[0]
    if locator != "client-local":
        raise PreconditionFailed(f"{_shown(locator)} is not a valid queue-master-locator value")
    return client_node if client_node in candidates else candidates[0]


@final
class Move:
    __slots__ = ("queue", "source", "target")

    def __init__(self, queue: str, source: str, target: str) -> None:
        self.queue = queue
        self.source = source
        self.target = target

    def __repr__(self) -> str:
        return f"{self.queue}: {self.source} to {self.target}"


def rebalance(
    masters: dict[str, str], synced: dict[str, Sequence[str]], running: Sequence[str]
) -> list[Move]:
    """``masters``: queue to node; ``synced``: queue to nodes with a synced copy."""
    where = dict(masters)
    moves: list[Move] = []
    while True:
        move = _best_move(where, synced, running)
        if move is None:
            return moves
        where[move.queue] = move.target
        moves.append(move)


def _best_move(
    where: dict[str, str], synced: dict[str, Sequence[str]], running: Sequence[str]
) -> Move | None:
    counts = dict.fromkeys(running, 0)
    for node in where.values():
        if node in counts:
            counts[node] += 1
    by_count = sorted(running, key=counts.__getitem__)
    for source in reversed(by_count):
        for target in by_count:
            if counts[source] - counts[target] < 2:
                break
            for queue in sorted(where):
                if where[queue] == source and target in synced.get(queue, ()):
                    return Move(queue, source, target)
    return None
