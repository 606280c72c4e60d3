"""The lemmas of reigns.py, judged in a world of model_majority.py and in the step that led to it.

Each function raises ``Broken`` with the lemma that does not hold.
"""

from __future__ import annotations

from itertools import combinations

from penstock.cluster.agreement.reigns import NOWHERE, Holding
from tests.models.model_majority import (
    NAMES,
    RULES,
    Copy,
    Record,
    Rules,
    Scope,
    World,
    counted,
    steps_of,
)


class Broken(Exception):
    """A lemma does not hold."""


def judge_confirm(before: World, after: World) -> None:
    new = after.confirmed & ~before.confirmed & ~after.ended
    if new and not after.lost:
        masters = [copy for copy in after.copies if copy.reigns]
        if not any(_is_on_disks(new, after, master.counts) for master in masters):
            raise Broken("Lemma 2: what is confirmed is not on the disks of a majority")


def _begun_again(before: World, after: World) -> str:
    """The copy that was damaged until this step."""
    for name, was, one in zip(NAMES, before.copies, after.copies, strict=False):
        if was.damage and not one.damage:
            return name
    return ""


def _is_on_disks(new: int, world: World, counts: tuple[str, ...]) -> bool:
    disks = [world.copies[NAMES.index(name)].disk for name in counts]
    have = [disk for disk in disks if disk.complete.number < 0 or not new & ~disk.live]
    return len(have) * 2 > len(disks)


def _is_in_each_majority(due: int, world: World, without: str) -> bool:
    copies = world.reign.copies
    disks = [world.copies[NAMES.index(name)].disk for name in copies if name != without]
    have = [disk for disk in disks if disk.complete.number < 0 or not due & ~disk.live]
    return len(have) > len(copies) - world.reign.majority()


def judge(before: World, after: World, rules: Rules = RULES) -> None:
    """What one step led to."""
    reigning = [copy.reigns for copy in after.copies if copy.reigns]
    if len(set(reigning)) < len(reigning):
        raise Broken("Lemma 1: two masters of a term")
    due = after.confirmed & ~after.ended
    if due:
        begun = _begun_again(before, after)
        if begun and not _is_in_each_majority(due, after, begun):
            raise Broken("Lemma 9: a copy is given up, and a majority has not all without it")
        if _newest_lacks(due, after):
            if len(after.elected) == len(before.elected):
                raise Broken("Lemma 1: it was confirmed although there was a newer master")
            raise Broken("Lemma 4: a copy was elected that lacks what was confirmed")
        if not _majorities_have(after, due):
            if len(before.reign.copies) != len(after.reign.copies):
                raise Broken("Lemma 6: the new copies need not have what was confirmed")
            raise Broken("Lemma 3: of a majority the foremost copy lacks a message")
    _copies_are_exact(after)
    if not after.lost and _has_dead_end(after, rules):
        raise Broken("Lemma 8: all copies vote, and none is elected")


def _newest_lacks(due: int, world: World) -> bool:
    live = world.elected[-1].live
    if live is None:
        return False
    return due & ~(live | sum(1 << m for m in world.told[-1] if m >= 0)) != 0


def _majorities_have(world: World, due: int) -> bool:
    """Any majority that votes now, some of it after a restart, elects a copy that has it."""
    for nodes in combinations(world.reign.copies, world.reign.majority()):
        voting = [_electable(world.copies[NAMES.index(node)]) for node in nodes]
        if not all(voting):
            continue
        for records in voting:
            others = [
                min(one.complete for one in other) for other in voting if other is not records
            ]
            for record in records:
                most = record.complete >= max(others, default=NOWHERE)
                if most and record.complete.number >= 0 and due & ~record.live:
                    return False
    return True


def _electable(copy: Copy) -> list[Record]:
    """What it may vote with: as it is, and if it crashes first."""
    if copy.damage:
        return []
    return [one for one in (copy.memory, copy.disk) if one.complete != NOWHERE]


def _has_dead_end(world: World, rules: Rules) -> bool:
    """May the votes of all copies elect none, or are there too few?"""
    all_copies = [world.copies[NAMES.index(name)] for name in world.reign.copies]
    found = [copy for copy in all_copies if not copy.damage]
    after_crashes = [Holding(copy.disk.complete, copy.disk.heard) for copy in found]
    votes = [one for one in after_crashes if rules.may_vote_with(world.reign, one) is not None]
    if len(votes) < world.reign.majority():
        return True
    copies = [records for copy in found if (records := _electable(copy))]
    for one in copies:
        for record in one:
            others = [other for other in copies if other is not one]
            is_behind = all(min(r.complete for r in other) < record.complete for other in others)
            if record.complete.number < 0 and is_behind:
                return True
    return False


def _copies_are_exact(world: World) -> None:
    for copy in world.copies:
        complete, heard = copy.memory.complete, copy.memory.heard
        if complete != heard or complete.term < 1 or complete.term != copy.follows:
            continue
        live = world.elected[complete.term - 1].live
        if live is None:
            continue
        for operation in world.told[complete.term - 1][: complete.number]:
            bit = 1 << (operation if operation >= 0 else ~operation)
            live = live | bit if operation >= 0 else live & ~bit
        if copy.memory.live != live:
            raise Broken("Lemma 5: a copy that says it is complete is not what its master has")


QUIET = Scope(messages=0, elections=0)


def judge_progress(world: World, rules: Rules, proven: set[tuple[World, tuple[int, ...]]]) -> None:
    """The newest master and any others that make a majority confirm all that it published.

    No other copy does anything.  ``proven``: where that was seen before.
    """
    chosen = world.elected[-1].node
    if world.reign.master == "" or world.copies[chosen].reigns != len(world.elected):
        return
    copies = [NAMES.index(name) for name in world.reign.copies]
    others = [one for one in copies if one != chosen and not world.copies[one].damage]
    world = world._replace(
        crashes_left=0,
        ends_left=0,
        changes_left=0,
        losses_left=0,
        damages_left=0,
        vacancies_left=0,
    )
    for awake in combinations(others, world.reign.majority() - 1):
        _confirm_with(world, (chosen, *awake), rules, proven)


def _confirm_with(
    world: World,
    awake: tuple[int, ...],
    rules: Rules,
    proven: set[tuple[World, tuple[int, ...]]],
) -> None:
    wanted = sum(1 << m for m in world.told[-1] if m >= 0)
    way: dict[tuple[World, tuple[int, ...]], None] = {}
    while wanted & ~world.confirmed and (world, awake) not in proven:
        after = _forward(world, awake, rules)
        if after is None or (world, awake) in way:
            raise Broken("Lemma 7: the master and a majority do not confirm")
        way[world, awake] = None
        world = after
    proven.update(way)


def _forward(world: World, awake: tuple[int, ...], rules: Rules) -> World | None:
    for node in awake:
        for name, after in steps_of(world, node, world.copies[node], QUIET, rules):
            if "term" not in name or name.endswith(f" {len(world.elected)}"):
                return counted(after, rules)
    return None
