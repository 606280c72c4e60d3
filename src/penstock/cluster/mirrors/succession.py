"""``Succession``: a queue's masters one after the other, as a member of its ring hears of them.

In: births and deaths in the ring, the master before each term, and which members have begun a term
(B) or said that they are through (T); group.py says what these are.  Out: whether all former
masters were heard out, so that the next may begin; and whether this member heard all of the last
one's term.
"""

from typing import final

from mypy_extensions import i64

from penstock.cluster.mirrors.joinings import member_of


@final
class Succession:
    """``me``: this member."""

    def __init__(self, me: str) -> None:
        self.spoken_term: i64 = 0  # the newest that a master was heard of
        self._me: str = me
        self._masters: list[tuple[str, int]] = []  # with terms, that may have something to say
        self._present: set[str] = set()  # ring names: born, and not dead
        self._through: dict[str, int] = {}  # by member: the last of its terms, as it said
        self._speaker: str = ""  # ring name of the master of ``spoken_term``
        self._ended_term: i64 = 0  # all of it was heard

    def present(self) -> list[str]:
        """Members."""
        return [member_of(name) for name in self._present]

    def born(self, name: str) -> None:
        self._present.add(name)

    def died(self, name: str, term: i64) -> None:
        """Behind all that it said; ``term`` of the newest view."""
        self._present.discard(name)
        self._heard_out(member_of(name), term)
        if name == self._speaker:
            self._ended_term = self.spoken_term

    def replaced(self, term: i64, member: str) -> None:
        """It may have been master until that term; "" = there was none."""
        before = (member, int(term) - 1)
        if not member or member == self._me or self._through.get(member, 0) >= term - 1:
            return
        if before not in self._masters:
            self._masters.append(before)

    def speaks(self, name: str, term: i64) -> None:
        """As master."""
        self._speaker = name
        self.spoken_term = term

    def through(self, name: str, term: i64) -> None:
        """It has said all of that term, and of those before.  Its successor may be unknown yet."""
        self._heard_out(member_of(name), term)
        self._through[member_of(name)] = int(term)
        if name == self._speaker and term >= self.spoken_term:
            self._ended_term = self.spoken_term

    def stepped_down(self, term: i64) -> None:
        """This member was the master of that term."""
        self._ended_term = term

    def _heard_out(self, member: str, term: i64) -> None:
        self._masters = [one for one in self._masters if one[0] != member or one[1] > term]

    def are_through(self, term: i64) -> bool:
        """All masters before that term said so, or died, behind all they did."""
        here = self.present()
        return not [1 for one, its_term in self._masters if its_term < term and one in here]

    def heard_all(self) -> bool:
        """Of what the last master said."""
        return self._ended_term >= self.spoken_term > 0
