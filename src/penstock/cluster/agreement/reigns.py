"""``Reign``: which copy of a queue decides for it, where a majority of its copies confirms.

docs/design/majority.md has the whole of it; here are the rules, pure functions on a value that the
coordinator keeps for each such queue and that is changed by compare-and-set only:

    term      grows by one with each election
    copies    the nodes with a copy that votes; more than half of them decide
    master    the member that was elected; "" while the copies vote
    votes     of this term, until it has a master
    is_exact  the master had heard nothing beyond what it was elected with
    ends      up to which number each earlier term counts in the history that led here
    favoured  the node that is to be elected of those whose copies have as much, and to which
              another one that is elected hands over; "" = any
    is_founded  the disks of a majority said once what the queue began with; nothing is confirmed
              before, so until then a copy that is complete nowhere lacks nothing

A master numbers its parcels from 1 in each term.  A *position* is a term and a number.  Of a copy
two are known, on its disk too:

    complete  it has all that was confirmed up to there; NOWHERE: it may lack anything, as a copy
              made later than the queue; also one in the place of a lost disk.  ``gave_up_for`` a
              term: it may, and what it may lack was confirmed before that term, or each majority
              has another copy with that
    heard     no operation that it did is from beyond: it is written before what a parcel does,
              and ``complete`` behind it, so a crash in between is seen

They differ while it fetches what it lacks.  ``complete`` stays what it was then: a master that was
elected has all that was confirmed, so what a copy gives up for it was not.

What the rules are for (tests/models/model_majority.py checks it in all states that a few messages,
elections and crashes can lead to, and sees that a fault in a rule breaks it):

    Lemma 1 (fence).  A copy votes, or steps down as master, after it has ceased to answer masters
        of earlier terms and to confirm, and its vote is in the coordinator for ever.  So nothing
        is confirmed in a term with its answer after it voted in a later one, and a term has one
        master: the one life that was elected.
    Lemma 2 (majorities meet).  What was confirmed in a term was on the disks of a majority, each
        complete at or beyond it, and is there, but where a copy has become complete nowhere since.
        Such a copy does not vote if it has lost its disk, unless the queue is not founded: then
        nothing was confirmed, and is not by masters of terms before that of its vote, since that
        and the founding are changes of one value.  If it gave up, that was for a later term, or
        each majority has it without that copy (Lemma 9); and it says for which term: its vote
        counts beside one of a copy that is complete in that term, or a later one.  So in any
        majority that elects, a copy has what was confirmed, or another is complete in a later
        term than that.
    Lemma 3 (order).  Of two copies the one with the higher complete position has all that was
        confirmed up to the lower: in one term by their numbers; of a later term by Lemma 4, for
        its master was elected with all that was confirmed before.
    Lemma 4 (elected).  The copy with the highest position among a majority of votes, if it is
        complete there, has
        all that was confirmed (Lemmas 1 to 3), if it is the life that voted, which may have more
        than its disk, and has given up nothing since: a copy that has seen a reign has no part in
        older ones.
    Lemma 5 (giving up).  A copy all of whose operations count in the master's history, or are
        this master's, has ended nothing that the master has.  It fetches what differs.  Any other
        begins with nothing, and says first, on its disk, that it is complete nowhere.
    Lemma 6 (copies).  A majority of n copies and one of n + 1 have a copy in common, so an election
        finds what was confirmed under the copies before the last change.  It need not find more:
        no change is made before a majority of the present copies has all that was confirmed.
    Lemma 7 (no wait).  The master and as many others as make a majority confirm what is
        published, whatever the rest of the copies do.
    Lemma 8 (no dead end).  If no disk is lost, and damage meets one copy of three at a time and
        none that is the last elected, the votes of all copies elect one: the master of the
        last term for which a copy gave up had on its disk before what that term begins with; and
        if the queue was founded a majority has a vote each, also of copies of which one was taken
        out; if it was not each copy has one.
    Lemma 9 (repair).  A copy that cannot be read votes no more, and what it said does not count.
        It gives up for a term when each majority has another copy with all that was confirmed on
        its disk, as that term's master says, if it has voted in no later one.  For what is
        confirmed then it counts when it has all.

Invariants (``check``):
  E1  while copies vote there is no master, and less than a majority of them has voted, or none of
      those is complete in the last term for which one gave up
  E2  each vote is of a copy that is complete or gave up, and each copy has one at most; the master
      is one of the copies, which are named once
  E3  there are ends, and they ascend by their terms, which are below the present one
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from penstock.cluster.agreement.coordinator import node_of

ENDS_KEPT: Final = 16
"""A copy that comes back from an older term begins with nothing."""

GO_ON, FETCH, GIVE_UP = range(3)


class Position(NamedTuple):
    """A parcel of a term; 0 = the beginning of the term."""

    term: int
    number: int


NOWHERE: Final = Position(0, -1)
BEGINNING: Final = Position(0, 0)
"""Of a copy that has heard nothing: of a queue that was just declared it is all there is."""


def gave_up_for(term: int) -> Position:
    """Before all that a copy that is complete in that term has, behind all of earlier terms."""
    return Position(term, -1)


class Holding(NamedTuple):
    """What a copy has."""

    complete: Position
    heard: Position

    def is_complete(self) -> bool:
        """Somewhere."""
        return self.complete.number >= 0

    def is_exact(self) -> bool:
        return self.complete == self.heard


class Vote(NamedTuple):
    member: str
    holding: Holding


class Reign(NamedTuple):
    term: int
    copies: tuple[str, ...]
    master: str
    votes: tuple[Vote, ...] = ()
    is_exact: bool = True
    ends: tuple[Position, ...] = (BEGINNING,)
    favoured: str = ""
    is_founded: bool = True

    # -- majorities --------------------------------------------------------------------------

    def majority(self) -> int:
        return len(self.copies) // 2 + 1

    def decided_number(self, durable: Mapping[str, int]) -> int:
        """Up to which parcel of this term a majority of the copies has all on disk.

        ``durable``: by node, as it last said of this term; the master's own disk is one of them.
        -1: not even what the master began with.
        """
        numbers = sorted([durable.get(node, -1) for node in self.copies], reverse=True)
        return numbers[self.majority() - 1]

    def confirmed_number(self, durable: Mapping[str, int]) -> int:
        """What was decided, of a queue that is founded."""
        return self.decided_number(durable) if self.is_founded else -1

    def may_change(self, durable: Mapping[str, int], confirmed: int) -> bool:
        """The copies, now; ``confirmed``: up to that parcel, 0 = none of this term yet."""
        return self.decided_number(durable) >= confirmed

    def may_spare(self, durable: Mapping[str, int], confirmed: int) -> bool:
        """A copy that is not in ``durable``: each majority has one with all that was confirmed."""
        found = [node for node in self.copies if durable.get(node, -1) >= confirmed]
        return self.is_founded and len(found) > len(self.copies) - self.majority()

    def founded(self) -> "Reign":
        """By the master, when it may change the copies."""
        return self._replace(is_founded=True)

    def with_copies(self, copies: tuple[str, ...]) -> "Reign":
        """One more or one less, by the master, which stays."""
        assert len(set(copies) ^ set(self.copies)) == 1
        assert node_of(self.master) in copies
        return self._replace(copies=copies)

    def without(self, node: str, complete: Collection[str]) -> "Reign | None":
        """By the master; ``complete``: nodes whose disks have what its term began with.

        None: of the rest they are no majority, so it would have none when its master falls.
        """
        rest = self.with_copies(tuple(one for one in self.copies if one != node))
        found = [one for one in rest.copies if one in complete or one == node_of(self.master)]
        return rest if len(found) >= rest.majority() else None

    # -- elections ---------------------------------------------------------------------------

    def may_vote_with(self, holding: Holding) -> Holding | None:
        """What the vote of a copy says that has this; None: it has no vote."""
        if holding.complete != NOWHERE:
            return holding
        return None if self.is_founded else holding._replace(complete=BEGINNING)

    def voted(self, member: str, holding: Holding) -> "Reign":
        """With the vote of that member's copy, which answers no master of an earlier term now.

        The first vote begins a term.  The last that is needed elects the copy that has most; of
        several with as much the one that has heard most, so that the others need not give up what
        they have; then the favoured one, then the first by ``copies``.  If the copy that has most
        gave up, more votes are needed.
        """
        node = node_of(member)
        assert node in self.copies
        assert holding.complete != NOWHERE
        others = [vote for vote in self.votes if node_of(vote.member) != node]
        votes = (*others, Vote(member, holding))
        term = self.term if self.master == "" else self.term + 1
        member, holding = max(votes, key=self._rank)
        if len(votes) < self.majority() or not holding.is_complete():
            return self._replace(term=term, master="", votes=votes)
        return Reign(
            term,
            self.copies,
            member,
            is_exact=holding.is_exact(),
            ends=self._history(term, holding.complete),
            favoured="" if node_of(member) == self.favoured else self.favoured,
            is_founded=self.is_founded,
        )

    def vacated(self) -> "Reign":
        """The master has ceased to confirm, and steps down; the copies vote."""
        return self._replace(term=self.term + 1, master="", votes=())

    def favouring(self, node: str) -> "Reign":
        """At the next election; the master steps down when it can be."""
        return self._replace(favoured=node)

    def _rank(self, vote: Vote) -> tuple[Holding, bool, int]:
        node = node_of(vote.member)
        return vote.holding, node == self.favoured, -self.copies.index(node)

    def _history(self, term: int, base: Position) -> tuple[Position, ...]:
        """The ends of terms that led to a master elected with ``base``."""
        terms = [end.term for end in self.ends]
        if base.term != term - 1 and base.term not in terms:
            return (base,)  # of a term that was passed over: what led to it is not known
        earlier = [end for end in self.ends if end.term < base.term]
        return (*earlier, base)[-ENDS_KEPT:]

    # -- following ---------------------------------------------------------------------------

    def how_to_follow(self, holding: Holding) -> int:
        """GO_ON: the copy is complete; FETCH what differs; or GIVE_UP all, then fetch."""
        if self.is_exact and holding.is_exact() and holding.complete == self.ends[-1]:
            return GO_ON
        heard = holding.heard
        if heard.term == self.term or heard == BEGINNING:
            return FETCH
        for end in self.ends:
            if end.term == heard.term and heard.number <= end.number:
                return FETCH
        return GIVE_UP

    def check(self) -> None:
        """Assert E1 to E3."""
        assert self.master == "" or not self.votes, "E1"
        if len(self.votes) >= self.majority():
            assert not max(self.votes, key=self._rank).holding.is_complete(), "E1"
        nodes = [node_of(vote.member) for vote in self.votes]
        assert len(set(nodes)) == len(nodes), "E2"
        assert set(nodes) <= set(self.copies), "E2"
        assert len(set(self.copies)) == len(self.copies), "E2"
        assert self.master == "" or node_of(self.master) in self.copies, "E2"
        assert all(vote.holding.complete > NOWHERE for vote in self.votes), "E2"
        terms = [end.term for end in self.ends]
        assert terms, "E3"
        assert terms == sorted(set(terms)), "E3"
        assert terms[-1] < self.term, "E3"


def first_reign(copies: tuple[str, ...], master: str) -> Reign:
    """Of a queue that was just declared: all copies are empty, and complete."""
    return Reign(1, copies, master, is_founded=False)
