"""A small world of a queue whose confirms need a majority of its copies: every step it can take.

A ``World`` is a value: the coordinator's reign, what each master has told, and the copies, each
with a memory and a disk.  ``steps`` gives all worlds that one step leads to.  A copy is as slow, as
late to hear and as often asked as it likes, since any step may come at any time:

    publish, end   the master does it, and its parcel is told
    apply          a copy does the next parcel that it was told
    flush          what a copy has is on its disk, and it says so to the master it follows
    crash          a copy has what its disk has, under another life; also in the midst of a parcel
    vote           whether or not the master lives: a lease may end at any time
    step down      the master does
    begin          the copy that was elected is master
    follow         a copy goes on under a new master, or begins to fetch; also one left behind
    fetch          one place
    give up        a copy that must: it says so on its disk, then forgets all
    found          the master says that a majority of the disks has what the queue began with
    change         the master puts a node among the copies that vote, or takes one out
    lose           the disk of a copy is gone
    damage         a copy cannot read what it has: it ceases to lead, follow and vote
    go without     the master tells a damaged copy that it is not needed
    begin again    a damaged copy forgets all

The rules are those of ``Reign``, and of ``Rules`` in which a test plants a fault.  What must be
true is judged in judge_majority.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.cluster.agreement.reigns import (
    BEGINNING,
    FETCH,
    GIVE_UP,
    GO_ON,
    NOWHERE,
    Holding,
    Position,
    Reign,
    first_reign,
    gave_up_for,
)


@dataclass(frozen=True)
class Rules:
    """What copies and masters go by; each field is a place for a fault."""

    voted: Callable[[Reign, str, Holding], Reign] = Reign.voted
    vacated: Callable[[Reign], Reign] = Reign.vacated
    how_to_follow: Callable[[Reign, Holding], int] = Reign.how_to_follow
    may_vote_with: Callable[[Reign, Holding], Holding | None] = Reign.may_vote_with
    confirmed_number: Callable[[Reign, Mapping[str, int]], int] = Reign.confirmed_number
    may_change: Callable[[Reign, Mapping[str, int], int], bool] = Reign.may_change
    may_spare: Callable[[Reign, Mapping[str, int], int], bool] = Reign.may_spare
    without: Callable[[Reign, str, Collection[str]], Reign | None] = Reign.without
    seals: bool = True
    """A copy that voted follows no master of an earlier term."""
    says_durable: bool = True
    """It says of its disk, not of its memory, what it has."""
    counts_own_disk: bool = True
    """The master is one of those that need it on disk."""
    counts_one_term: bool = True
    """What was said of another term does not count."""
    tells_lost_disks: bool = True
    """A copy that lost its disk does not vote as one that gave up."""
    waits_for_masters_disk: bool = True
    """No copy gives up before it is on the master's disk what the term begins with."""
    begins_in_one_life: bool = True
    """The life that voted becomes master, no later one."""
    writes_heard_first: bool = True
    """Before a parcel does anything, its number is on disk."""
    withdraws_first: bool = True
    """Nothing is forgotten before the disk says that the copy is complete nowhere."""
    waits_for_all_places: bool = True
    """A copy that fetches is complete when it has everything."""
    keeps_until_told: bool = True
    """A damaged copy forgets nothing before its master says that the others have all."""
    forgets_damaged: bool = True
    """What a damaged copy said counts no more."""


RULES = Rules()


@dataclass(frozen=True)
class Scope:
    """How much of each may happen."""

    nodes: int = 3
    copies: int = 3
    messages: int = 2
    ends: int = 0
    elections: int = 1
    crashes: int = 1
    changes: int = 0
    losses: int = 0
    damages: int = 0  # one after the other
    vacancies: int = 0  # masters that step down
    founded: bool = True
    """Else no disk has anything of the queue yet."""


class Record(NamedTuple):
    """Messages as bits: those that live, and those that ended here and can never live again."""

    live: int
    gone: int
    complete: Position
    heard: Position


NEW = Record(0, 0, BEGINNING, BEGINNING)
LOST = Record(0, 0, NOWHERE, BEGINNING)


def _gave_up(term: int) -> Record:
    return LOST._replace(complete=gave_up_for(term))


UNREADABLE = -1
ALL = -1
"""Every place is known."""


class Copy(NamedTuple):
    life: int = 1
    memory: Record = NEW
    disk: Record = NEW
    follows: int = 0  # a term
    known: int = ALL
    sealed: int = 0  # the term of its last vote, or that it gave up for: it follows none before
    damage: int = 0  # UNREADABLE, or the term for which it may give up
    # What masters count by:
    said: Position = BEGINNING
    reigns: int = 0  # a term
    counts: tuple[str, ...] = ()  # the copies by which it confirms

    def holding(self) -> Holding:
        return Holding(self.memory.complete, self.memory.heard)


class Elected(NamedTuple):
    """A term of the past or present; ``live``: what its master had, None = it died meanwhile."""

    reign: Reign
    node: int
    life: int
    live: int | None


class World(NamedTuple):
    reign: Reign
    elected: tuple[Elected, ...]  # by term, from 1
    told: tuple[tuple[int, ...], ...]  # by term: m = published, ~m = ended
    copies: tuple[Copy, ...]
    published: int = 0
    confirmed: int = 0
    ended: int = 0
    ends_left: int = 0
    crashes_left: int = 0
    changes_left: int = 0
    losses_left: int = 0
    damages_left: int = 0
    vacancies_left: int = 0
    lost: bool = False  # a disk, or what the newest master had


NAMES = ("a", "b", "c", "d", "e")


def member(node: int, life: int) -> str:
    return f"{NAMES[node]}/{life}"


def first_world(scope: Scope) -> World:
    copies = NAMES[: scope.copies]
    reign = first_reign(copies, member(0, 1))._replace(is_founded=scope.founded)
    at_first = NEW._replace(complete=Position(1, 0), heard=Position(1, 0))
    disk = NEW if scope.founded else LOST
    master = Copy(memory=at_first, disk=disk, reigns=1, counts=copies)
    mirror = Copy(memory=at_first, disk=disk, follows=1)
    return World(
        reign,
        (Elected(reign, 0, 1, 0),),
        ((),),
        (
            master,
            *[mirror] * (scope.copies - 1),
            *[Copy(memory=LOST, disk=LOST)] * (scope.nodes - scope.copies),
        ),
        ends_left=scope.ends,
        crashes_left=scope.crashes,
        changes_left=scope.changes,
        losses_left=scope.losses,
        damages_left=scope.damages,
        vacancies_left=scope.vacancies,
    )


# -- steps ---------------------------------------------------------------------------------


def steps(world: World, scope: Scope, rules: Rules) -> Iterator[tuple[str, World]]:
    for node, copy in enumerate(world.copies):
        for name, after in steps_of(world, node, copy, scope, rules):
            one = after.copies[node]
            is_news = one.disk is not copy.disk or one[-3:] != copy[-3:]
            counts = is_news or not rules.counts_own_disk
            yield f"{NAMES[node]} {name}", counted(after, rules) if counts else after


def counted(world: World, rules: Rules) -> World:
    """What masters can confirm they do at once: later would ask less of the others."""
    for node, copy in enumerate(world.copies):
        if copy.reigns:
            world = _confirm(world, node, copy, rules)
    return world


def steps_of(
    world: World, node: int, copy: Copy, scope: Scope, rules: Rules
) -> Iterator[tuple[str, World]]:
    if copy.memory != copy.disk:
        yield "flush", put(world, node, _flushed(copy, rules))
    if world.crashes_left > 0:
        yield "crash", _crash(world, node, copy)
    if world.losses_left > 0:
        empty = LOST if rules.tells_lost_disks else _gave_up(world.reign.term)
        lost = Copy(copy.life + 1, empty, empty, sealed=world.reign.term, said=copy.said)
        yield "lose", put(world, node, lost)._replace(losses_left=world.losses_left - 1, lost=True)
    if world.damages_left > 0 and not any(_is_of_no_use(one) for one in world.copies):
        yield "damage", _damage(world, node, copy)
    if copy.damage:
        told_for = copy.damage if rules.keeps_until_told else copy.disk.complete.term
        if told_for > 0:
            empty = _gave_up(told_for)
            begun = Copy(copy.life, empty, empty, sealed=copy.sealed, said=copy.said)
            yield "begin again", put(world, node, begun)
        return
    if copy.reigns:
        yield from _as_master(world, node, copy, scope, rules)
    elif copy.follows:
        yield from _as_mirror(world, node, copy, rules)
    yield from _vote(world, node, copy, scope, rules)
    for term in range(1, len(world.elected) + 1):
        yield from _follow(world, node, copy, term, rules)
    if _may_forget(copy, rules):
        nothing = Record(0, 0, copy.disk.complete, BEGINNING)
        memory = nothing._replace(complete=copy.memory.complete)
        yield "forget", put(world, node, copy._replace(memory=memory, disk=nothing))


def _may_forget(copy: Copy, rules: Rules) -> bool:
    memory = copy.memory
    if memory.complete.number >= 0 or memory.heard == BEGINNING or copy.follows:
        return False
    return copy.disk.complete == memory.complete or not rules.withdraws_first


def put(world: World, node: int, copy: Copy) -> World:
    copies = (*world.copies[:node], copy, *world.copies[node + 1 :])
    return world._replace(copies=copies)


def _flushed(copy: Copy, rules: Rules) -> Copy:
    return _say(copy._replace(disk=copy.memory), rules)


def _say(copy: Copy, rules: Rules) -> Copy:
    complete = (copy.disk if rules.says_durable else copy.memory).complete
    says = 0 < copy.follows == complete.term and complete.number >= 0
    return copy._replace(said=complete) if says else copy


def _restarted(world: World, copy: Copy) -> Copy:
    return Copy(
        copy.life + 1,
        copy.disk,
        copy.disk,
        sealed=world.reign.term,
        damage=copy.damage and UNREADABLE,  # it is found again before it votes
        said=copy.said,
    )


def _is_of_no_use(copy: Copy) -> bool:
    return copy.damage != 0 or min(copy.memory.complete, copy.disk.complete).number < 0


def _damage(world: World, node: int, copy: Copy) -> World:
    term = copy.sealed if copy.reigns == 0 else max(copy.sealed, copy.reigns + 1)
    after = put(world, node, sealed(copy, term)._replace(damage=UNREADABLE))
    lost = world.lost or world.elected[-1].node == node or len(world.reign.copies) < 3
    return after._replace(damages_left=world.damages_left - 1, lost=lost)


def _crash(world: World, node: int, copy: Copy) -> World:
    after = put(world, node, _restarted(world, copy))
    return after._replace(crashes_left=world.crashes_left - 1)


def _torn(world: World, node: int, copy: Copy, after: Record, rules: Rules) -> World:
    """A crash when what the next parcel did is on disk, and that it is complete is not."""
    heard = after.heard if rules.writes_heard_first else copy.memory.heard
    disk = after._replace(complete=copy.memory.complete, heard=heard)
    return _crash(world, node, copy._replace(disk=disk))


def _done(record: Record, operation: int, position: Position, *, is_complete: bool) -> Record:
    bit = 1 << (operation if operation >= 0 else ~operation)
    if operation >= 0 and not record.gone & bit:
        record = record._replace(live=record.live | bit)
    elif operation < 0:
        record = record._replace(live=record.live & ~bit, gone=record.gone | bit)
    return record._replace(heard=position, complete=position if is_complete else record.complete)


def _as_master(
    world: World, node: int, copy: Copy, scope: Scope, rules: Rules
) -> Iterator[tuple[str, World]]:
    term = copy.reigns
    told = world.told[term - 1]
    operations = [world.published] if world.published < scope.messages else []
    if world.ends_left:
        operations += [~m for m in range(world.published) if copy.memory.live >> m & 1]
    for operation in operations:
        memory = _done(copy.memory, operation, Position(term, len(told) + 1), is_complete=True)
        if operation >= 0:
            after = world._replace(published=world.published + 1)
        else:
            after = world._replace(
                ended=world.ended | 1 << ~operation, ends_left=world.ends_left - 1
            )
        all_told = (*world.told[: term - 1], (*told, operation), *world.told[term:])
        name = f"publish {operation}" if operation >= 0 else f"end {~operation}"
        yield name, put(after._replace(told=all_told), node, copy._replace(memory=memory))
        if world.crashes_left:
            yield f"{name}, torn", _torn(after, node, copy, memory, rules)
    yield from _go_without(world, node, copy, rules)
    if world.reign.master == member(node, copy.life) and world.reign.term == term:
        yield from _change(world, node, copy, rules)
        if world.vacancies_left and term <= scope.elections:
            after = accepted(world, node, rules.vacated(world.reign), rules)
            yield "step down", after._replace(vacancies_left=world.vacancies_left - 1)


def durable_numbers(world: World, node: int, copy: Copy, rules: Rules) -> dict[str, int]:
    durable = {}
    for other, one in enumerate(world.copies):
        said = one.said
        if other == node:
            said = (copy.disk if rules.counts_own_disk else copy.memory).complete
        if said.term == copy.reigns or not rules.counts_one_term:
            durable[NAMES[other]] = said.number
    return durable


def _known_reign(world: World, copy: Copy) -> Reign:
    """As the master knows it; it may have changed the copies since, and not heard of it."""
    return world.elected[copy.reigns - 1].reign._replace(copies=copy.counts)


def _confirm(world: World, node: int, copy: Copy, rules: Rules) -> World:
    reign = _known_reign(world, copy)
    upto = max(rules.confirmed_number(reign, durable_numbers(world, node, copy, rules)), 0)
    told = world.told[copy.reigns - 1][:upto]
    confirmed = world.confirmed | sum(1 << m for m in told if m >= 0)
    return world if confirmed == world.confirmed else world._replace(confirmed=confirmed)


def _change(world: World, node: int, copy: Copy, rules: Rules) -> Iterator[tuple[str, World]]:
    reign = world.reign
    if copy.counts != reign.copies:
        yield "hear of copies", put(world, node, copy._replace(counts=reign.copies))
        return
    durable = durable_numbers(world, node, copy, rules)
    if not reign.is_founded:
        if rules.may_change(reign, durable, 0):
            yield "found", counted(founded(world), rules)
        return
    told = world.told[copy.reigns - 1]
    confirmed = [n for n, m in enumerate(told, 1) if m >= 0 and world.confirmed >> m & 1]
    if not world.changes_left or not rules.may_change(reign, durable, max(confirmed, default=0)):
        return
    for other, name in enumerate(NAMES[: len(world.copies)]):
        if name in reign.copies and other != node:
            if any(one.damage for one in world.copies):
                continue  # a second one would be lost
            after = rules.without(reign, name, durable)
        elif name in durable and name not in reign.copies:
            after = reign.with_copies((*reign.copies, name))
        else:
            continue
        if after is not None:
            changes_left = world.changes_left - 1
            yield (
                f"change to {''.join(after.copies)}",
                world._replace(reign=after, changes_left=changes_left),
            )


def _go_without(world: World, node: int, copy: Copy, rules: Rules) -> Iterator[tuple[str, World]]:
    """By any master of what it knows; the copy hears those of its term and of later ones."""
    for other, one in enumerate(world.copies):
        if one.damage != UNREADABLE or one.sealed > copy.reigns:
            continue
        reign = _known_reign(world, copy)
        told = world.told[copy.reigns - 1]
        confirmed = [n for n, m in enumerate(told, 1) if m >= 0 and world.confirmed >> m & 1]
        heard = one._replace(damage=copy.reigns)
        if rules.forgets_damaged:
            heard = heard._replace(said=BEGINNING)
        after = put(world, other, heard)
        durable = durable_numbers(after, node, copy, rules)
        if rules.may_spare(reign, durable, max(confirmed, default=0)):
            yield f"go without {NAMES[other]}", after


def founded(world: World) -> World:
    """As its master knows at once; it may hear of it later, and confirm so much less."""
    reign = world.reign.founded()
    newest = world.elected[-1]._replace(reign=world.elected[-1].reign.founded())
    return world._replace(reign=reign, elected=(*world.elected[:-1], newest))


def _as_mirror(world: World, node: int, copy: Copy, rules: Rules) -> Iterator[tuple[str, World]]:
    term, memory = copy.follows, copy.memory
    told = world.told[term - 1]
    number = memory.heard.number
    if number < len(told):
        operation = told[number]
        is_complete = memory.complete.term == term and copy.known == ALL
        after = _done(memory, operation, Position(term, number + 1), is_complete=is_complete)
        known = copy.known | 1 << (operation if operation >= 0 else ~operation)
        applied = copy._replace(memory=after, known=known)
        if known != ALL:  # what is to be told yet need not be fetched
            later = sum(1 << m for m in told[number + 1 :] if m >= 0)
            applied = _known(applied, known, (1 << world.published) - 1 & ~later)
        if not rules.says_durable:
            applied = _say(applied, rules)
        yield "apply", put(world, node, applied)
        if world.crashes_left:
            yield "apply, torn", _torn(world, node, copy, after, rules)
        return  # a chunk waits until all before it is applied
    chosen = world.elected[term - 1]
    master = world.copies[chosen.node]
    if copy.known == ALL or master.reigns != term:
        return
    everything = (1 << world.published) - 1
    for m in range(world.published):
        bit = 1 << m
        if not copy.known & bit:
            lives = master.memory.live & bit
            live = memory.live & ~bit
            if lives and not memory.gone & bit:
                live |= bit
            gone = memory.gone if lives else memory.gone | memory.live & bit
            yield (
                f"fetch {m}",
                put(
                    world,
                    node,
                    _known(
                        copy._replace(memory=memory._replace(live=live, gone=gone)),
                        copy.known | bit,
                        everything,
                    ),
                ),
            )


def _known(copy: Copy, known: int, everything: int) -> Copy:
    if known & everything != everything:
        return copy._replace(known=known)
    return copy._replace(known=ALL, memory=copy.memory._replace(complete=copy.memory.heard))


def _vote(
    world: World, node: int, copy: Copy, scope: Scope, rules: Rules
) -> Iterator[tuple[str, World]]:
    reign = world.reign
    here = member(node, copy.life)
    holding = rules.may_vote_with(reign, copy.holding())
    if holding is None or NAMES[node] not in reign.copies:
        return
    if here in [vote.member for vote in reign.votes]:
        return
    if reign.master != "" and reign.term > scope.elections:
        return
    after = rules.voted(reign, here, holding)
    after.check()
    yield "vote", accepted(world, node, after, rules)


def sealed(copy: Copy, term: int) -> Copy:
    """It has no part in earlier terms any more."""
    return copy._replace(sealed=term, follows=0, reigns=0, counts=(), known=ALL)


def accepted(world: World, node: int, after: Reign, rules: Rules) -> World:
    """The vote of that copy, which was sealed before it proposed it; or it steps down."""
    if rules.seals:
        world = put(world, node, sealed(world.copies[node], after.term))
    world = world._replace(reign=after)
    if after.master == "":
        return world
    name, _, life = after.master.partition("/")
    chosen = NAMES.index(name)
    is_here = world.copies[chosen].life == int(life)
    live = world.copies[chosen].memory.live if is_here else None
    elected = (*world.elected, Elected(after, chosen, int(life), live))
    return world._replace(elected=elected, told=(*world.told, ()))


def _follow(
    world: World, node: int, copy: Copy, term: int, rules: Rules
) -> Iterator[tuple[str, World]]:
    """A term that was decided; the copy may hear of it late."""
    reign, chosen, life, _ = world.elected[term - 1]
    if term < copy.sealed or term < max(copy.follows, copy.reigns):
        return
    memory = copy.memory
    if chosen == node:
        is_same = life == copy.life or not rules.begins_in_one_life
        if is_same and not copy.reigns and not copy.follows and not world.told[term - 1]:
            begun = memory._replace(complete=Position(term, 0), heard=Position(term, 0))
            master = copy._replace(memory=begun, reigns=term, counts=reign.copies)
            if memory.complete.number < 0:  # it may have forgotten all since it was elected
                began = world.elected[term - 1]._replace(live=memory.live)
                elected = (*world.elected[: term - 1], began, *world.elected[term:])
                world = world._replace(elected=elected)
            yield f"begin term {term}", put(world, node, master)
        return
    how = rules.how_to_follow(reign, copy.holding())
    if how == GIVE_UP:
        if rules.waits_for_masters_disk and world.copies[chosen].disk.complete.term < term:
            return
        if memory.complete != gave_up_for(term) or copy.follows:
            away = copy._replace(
                memory=memory._replace(complete=gave_up_for(term)),
                follows=0,
                sealed=term,
                reigns=0,
                counts=(),
            )
            yield f"give up for term {term}", put(world, node, away)
    elif how == GO_ON:
        if copy.follows < term:
            same = memory._replace(complete=Position(term, 0), heard=Position(term, 0))
            yield (
                f"go on in term {term}",
                put(
                    world,
                    node,
                    copy._replace(memory=same, follows=term, reigns=0, counts=(), known=ALL),
                ),
            )
    elif how == FETCH and world.copies[chosen].reigns == term:
        heard = Position(term, len(world.told[term - 1]))
        if copy.follows < term or memory.heard != heard:
            after = copy._replace(
                memory=memory._replace(heard=heard), follows=term, reigns=0, counts=(), known=0
            )
            everything = (1 << world.published) - 1
            if not rules.waits_for_all_places or everything == 0:
                after = _known(after, everything, everything)
            yield f"fetch in term {term}", put(world, node, after)
