"""``Reign``: which copy of a queue decides for it, where a majority of its copies confirms.

docs/design/majority.md has the whole of it; here are the rules, pure functions on a value that the
coordinator keeps for each such queue and that is changed by compare-and-set only:

    term      grows by one with each election
    copies    the nodes with a copy that votes; more than half of them decide
    master    the member that was elected; "" while the copies vote
    votes     of this term, until it has a master
    is_exact  the master had heard nothing beyond what it was elected with
    ends      up to which number each earlier term counts in the history that led here

A master numbers its parcels from 1 in each term.  A *position* is a term and a number.  Of a copy
two are known, on its disk too:

    complete  it has all that was confirmed up to there; NOWHERE: it may lack anything, as a copy
              made later than the queue; also one in the place of a lost disk
    heard     no operation that it did is from beyond: it is written before what a parcel does,
              and ``complete`` behind it, so a crash in between is seen

They differ while it fetches what it lacks.  ``complete`` stays what it was then: a master that was
elected has all that was confirmed, so what a copy gives up for it was not.

What the rules are for (tests/models/model_majority.py checks it in all states that a few messages,
elections and crashes can lead to, and sees that a fault in a rule breaks it):

    Lemma 1 (fence).  A copy votes after it has ceased to answer masters of earlier terms, and its
        vote is in the coordinator for ever.  So nothing is confirmed in a term with its answer
        after it voted in a later one, and a term has one master: the one life that was elected.
    Lemma 2 (majorities meet).  What was confirmed in a term was on the disks of a majority, each
        complete at or beyond it, and is there, but where a copy has become complete nowhere since.
        Such a copy does not vote, so one of the others is in any majority that does.
    Lemma 3 (order).  Of two copies the one with the higher complete position has all that was
        confirmed up to the lower: in one term by their numbers; of a later term by Lemma 4, for
        its master was elected with all that was confirmed before.
    Lemma 4 (elected).  The copy with the highest complete position among a majority of votes has
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

Invariants (``check``):
  E1  while copies vote, less than a majority of them has voted, and there is no master
  E2  each vote is of a copy that is complete somewhere, and each copy has one at most
  E3  ends ascend by their terms, which are below the present one
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.cluster.agreement.queue_views import node_of

ENDS_KEPT: Final = 16
"""A copy that comes back from an older term begins with nothing."""

GO_ON, FETCH, GIVE_UP = range(3)


class Position(NamedTuple):
    """A parcel of a term; 0 = the beginning of the term."""

    term: int
    number: int


NOWHERE: Final = Position(-1, 0)
BEGINNING: Final = Position(0, 0)
"""Of a copy that has heard nothing: of a queue that was just declared it is all there is."""


class Holding(NamedTuple):
    """What a copy has."""

    complete: Position
    heard: Position

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

    def may_change(self, durable: Mapping[str, int], confirmed: int) -> bool:
        """The copies, now; ``confirmed``: up to that parcel, 0 = none of this term yet."""
        return self.decided_number(durable) >= confirmed

    def with_copies(self, copies: tuple[str, ...]) -> "Reign":
        """One more or one less, by the master, which stays."""
        assert len(set(copies) ^ set(self.copies)) == 1
        assert node_of(self.master) in copies
        return self._replace(copies=copies)

    # -- elections ---------------------------------------------------------------------------

    def voted(self, member: str, holding: Holding) -> "Reign":
        """With the vote of that member's copy, which answers no master of an earlier term now.

        The first vote begins a term.  The last that is needed elects the copy that has most; of
        several with as much the one that has heard most, so that the others need not give up what
        they have; then the first by ``copies``.
        """
        node = node_of(member)
        assert node in self.copies
        assert holding.complete != NOWHERE
        others = [vote for vote in self.votes if node_of(vote.member) != node]
        votes = (*others, Vote(member, holding))
        term = self.term if self.master == "" else self.term + 1
        if len(votes) < self.majority():
            return self._replace(term=term, master="", votes=votes)
        member, holding = max(votes, key=self._rank)
        return Reign(
            term,
            self.copies,
            member,
            is_exact=holding.is_exact(),
            ends=self._history(term, holding.complete),
        )

    def _rank(self, vote: Vote) -> tuple[Holding, int]:
        return vote.holding, -self.copies.index(node_of(vote.member))

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
        assert len(self.votes) < self.majority(), "E1"
        nodes = [node_of(vote.member) for vote in self.votes]
        assert len(set(nodes)) == len(nodes), "E2"
        assert set(nodes) <= set(self.copies), "E2"
        assert all(vote.holding.complete != NOWHERE for vote in self.votes), "E2"
        terms = [end.term for end in self.ends]
        assert terms == sorted(set(terms)), "E3"
        assert terms[-1] < self.term, "E3"


def first_reign(copies: tuple[str, ...], master: str) -> Reign:
    """Of a queue that was just declared: all copies are empty, and complete."""
    return Reign(1, copies, master)
