"""Where a queue's master and mirrors should be: pure decisions, names of nodes in and out.

    ha-mode   ha-params        the copies that are wanted
    all       none             one on every running node
    exactly   N                the master, the mirrors there are (the eldest first), and others by
                               chance, until there are N or no node is left
    nodes     list of names    those of the list that run

The master stays where it is if it is on the list, or as long as no copy on the list is synced;
then the first of the list that is synced takes over, and the former master goes.  A list of which
nothing runs leaves the master alone.  A mirror that was lost is replaced because it is missing
from what is wanted; with ``nodes`` there may be no node to replace it.

**Locators** say where a new queue's master is put: ``client-local`` with the client,
``min-masters`` on the node with the fewest, ``random`` by chance.  Chance is a function.

**Rebalancing** moves masters to mirrors that are synced, one at a time, from the node with
most of them to the one with the fewest, while that makes the difference smaller.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.broker.rules.erlang_terms import term
from penstock.broker.rules.ha_policy import HaPolicy
from penstock.core.errors import PreconditionFailed
from penstock.settings.cluster import CLIENT_LOCAL, MIN_MASTERS, RANDOM

Chance = Callable[[int], int]
"""``chance(n)`` is one of 0 to n - 1."""


# -- copies --------------------------------------------------------------------------------


class Placement(NamedTuple):
    """``mirrors`` in the order in which they are, or are to be, members."""

    master: str
    mirrors: list[str]


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
    if locator == RANDOM:
        return candidates[chance(len(candidates))]
    if locator == MIN_MASTERS:
        fewest = min(masters.get(node, 0) for node in candidates)
        equals = [node for node in candidates if masters.get(node, 0) == fewest]
        return client_node if client_node in equals else equals[0]
    if locator != CLIENT_LOCAL:
        raise PreconditionFailed(f"{term(locator)} invalid queue-master-locator value")
    return client_node if client_node in candidates else candidates[0]


class Move(NamedTuple):
    queue: str
    source: str
    target: str


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
