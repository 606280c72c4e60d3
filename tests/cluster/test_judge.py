"""The judge of loads finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.cluster.judge import Account

GOOD = ["1000 life p.1", "1000 life c.1", "1001 + p.1:1", "1002 + p.1:2", "5002 + p.1:3"]
GOT = ["1003 * c.1 p.1:1 0", "1003 * c.1 p.1:2 0", "5004 * c.1 p.1:3 0"]


def account(lines: list[str], **options: bool) -> Account:
    made = Account("q", **options)
    for line in lines:
        made.hear(line)
    return made


def refused(lines: list[str]) -> str:
    with pytest.raises(AssertionError) as found:
        account(lines).judge()
    return str(found.value)


def test_a_good_load_is_counted() -> None:
    good = account([*GOOD, *GOT, "5005 ? p.1:4", "5006 * c.2 p.1:2 1", "6000 life p.2"])
    good.judge()
    assert good.gap_ms() == 4000
    assert good.gap_ms(since_ms=3000) == 2002, "it begins with the blow"
    assert good.counts() == {
        "confirmed": 3,
        "received": 3,
        "lost": 0,
        "duplicates": 1,
        "refused": 0,
        "unanswered": 1,
        "reconnects": 1,
    }


def test_what_was_confirmed_must_be_received() -> None:
    assert "1 lost, though confirmed: p.1:2" in refused([*GOOD, GOT[0], GOT[2]])


def test_what_comes_twice_must_be_marked_or_is_found() -> None:
    twice = [*GOOD, *GOT, "5010 * c.2 p.1:2 0"]
    assert "1 received twice, unmarked: p.1:2 at c.2" in refused(twice)
    account(twice, marks=False).judge()


def test_order_holds_within_a_life_of_both() -> None:
    assert "out of order: p.1:1 at c.1, after 2" in refused([*GOOD, GOT[1], GOT[0], GOT[2]])
    account([*GOOD, GOT[1], "1004 * c.2 p.1:1 0", GOT[2]]).judge()
    account([*GOOD, GOT[1], "1004 * c.1 p.1:1 1", GOT[2]]).judge()
    account([*GOOD, GOT[1], GOT[0], GOT[2]], keeps_order=False).judge()


def test_nothing_is_made_up() -> None:
    assert "never sent: p.1:9" in refused([*GOOD, *GOT, "5005 * c.1 p.1:9 0"])
    for sign in ("-", "?"):
        account([*GOOD, *GOT, "5005 * c.1 p.1:9 0", f"5006 {sign} p.1:9"]).judge()


def test_a_load_that_did_nothing_proves_nothing() -> None:
    assert "nothing was confirmed" in refused(["1000 life p.1"])


def test_other_words_are_an_error_but_for_those_of_a_library() -> None:
    """The threads of the Java client tell their exceptions by themselves, and it goes on."""
    with pytest.raises(AssertionError, match="a client of q says: 1000 Exception"):
        account(["1000 Exception"])
    told = account(["Exception in thread", "\tat java.base/java.util", *GOOD, *GOT])
    told.judge()
    assert told.heard[0] == "Exception in thread"
