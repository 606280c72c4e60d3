"""``Ring`` by the rules of RabbitMQ's guaranteed multicast (GM-1 … GM-12), and its own.

A row is a story (ring_stories.py) and what each member heard in it.
"""

from __future__ import annotations

import pytest

from penstock.cluster.ring.codec import ACTIVITY, CATCH_UP, RingEntry, RingMessage
from penstock.cluster.ring.ring import RETRY_MS, Ring, RingFault, RingStopped
from penstock.cluster.ring.views import NO_VIEW, View
from tests.cluster.ring_stories import Story

ROWS = {
    "GM-2 a message of a newer view waits for that view": (
        "ring abc | kick c | crash c | tell b | b says x | b>a",
        {"a": ""},
    ),
    "GM-2 and is read when that view is here": (
        "ring abc | kick c | crash c | tell b | b says x | b>a | tell a | a>b",
        {"a": "b:x -c"},
    ),
    "GM-3 numbered by the origin, in its order": (
        "ring abc | a says x | a says y | run | a says z | run",
        {"a": "", "b": "a:x a:y a:z", "c": "a:x a:y a:z"},
    ),
    "GM-4 to the right until it comes back, once": (
        "ring abc | a says x | a>b | b>c",
        {"b": "a:x", "c": ""},
    ),
    "GM-4 what comes from somebody not the left neighbour is ignored": (
        "ring ab | a says x | join c a | tell b | a>b | b>a",
        {"b": "+c"},
    ),
    "GM-4 because the left one's catch-up has it": (
        "ring ab | a says x | join c a | tell b | a>b | run",
        {"b": "+c a:x", "c": "+a +b a:x"},
    ),
    "GM-7 a joiner has what all had not, and what comes": (
        "ring abc | a says x | a>b | join d b | run | a says y | run",
        {"b": "a:x +d a:y", "c": "+d a:x a:y", "d": "+a +b +c a:x a:y"},
    ),
    "GM-7 what had gone round before is not for the joiner": (
        "ring ab | a says x | run | join c b | run | b says y | run",
        {"b": "a:x +c", "c": "+a +b b:y"},
    ),
    "GM-7 the member it joined at dies before it could help": (
        "ring abc | join d a | crash a | died a | b says x | run",
        {"b": "+d -a", "c": "+d b:x -a", "d": "+b +c +a b:x -a"},
    ),
    "GM-8 the left of the gap makes up for what the dead had not passed on": (
        "ring abcd | a says x | a>b | b>c | crash c | died c | run",
        {"b": "a:x -c", "d": "-c a:x"},
    ),
    "GM-8 what the dead had told nobody is lost for all": (
        "ring abc | a says x | crash a | died a | run",
        {"b": "-a", "c": "-a"},
    ),
    "GM-8 what it had told one all hear": (
        "ring abcd | a says x | a>b | crash a | died a | run",
        {"b": "a:x -a", "c": "a:x -a", "d": "a:x -a"},
    ),
    "GM-8 two neighbours at once": (
        "ring abcd | a says x | a>b | b>c | crash a | crash b | died a | died b | run",
        {"c": "a:x -b -a", "d": "a:x -b -a"},
    ),
    "GM-10 who knows early that it died still hears its last words first": (
        "ring abcd | a says x | a>b | crash a | kick a | tell d | tell c | run",
        {"b": "a:x -a", "c": "a:x -a", "d": "a:x -a"},
    ),
    "GM-10 who has not had its last words when all others die hears none": (
        "ring abc | a says x | a>b | crash a | crash b | died a | died b | run",
        {"c": "-b -a"},
    ),
    "GM-11 own ones are not delivered": (
        "ring ab | a says x | b says y | run",
        {"a": "b:y", "b": "a:x"},
    ),
}


@pytest.mark.parametrize("rule", ROWS)
def test_rule(rule: str) -> None:
    text, wanted = ROWS[rule]
    story = Story().tell_all(text)
    heard = {name: " ".join(story.heard[name]) for name in wanted}
    assert {name: words_of(text) for name, text in heard.items()} == {
        name: words_of(text) for name, text in wanted.items()
    }


def words_of(text: str) -> list[str]:
    """Births and deaths in a row are in no order among each other."""
    rows: list[list[str]] = [[]]
    for word in text.split():
        if rows[-1] and rows[-1][-1][0] in "+-" and word[0] in "+-":
            rows[-1].append(word)
        else:
            rows.append([word])
    return [word for row in rows for word in sorted(row)]


def test_gm_2_a_member_that_is_missing_stops_and_says_so() -> None:
    story = Story().tell_all("ring abc | kick b")
    b = story.rings["b"]
    story.tell_all("tell b")
    assert "without b" in b.take().stopped
    with pytest.raises(RingStopped, match="without b"):
        b.broadcast(b"x")


def test_gm_3_a_turn_is_one_message() -> None:
    story = Story().tell_all("ring ab | a says x | a says y | b says z | a>b | b>a")
    assert story.messages == 2


def test_gm_4_contents_go_once_to_each_and_not_back() -> None:
    story = Story().tell_all("ring abc | a says x | run")
    assert story.contents == [("a", "b", "x"), ("b", "c", "x")]
    assert all(ring.kept_bytes() == 0 for ring in story.rings.values())


def test_gm_5_alone_it_has_gone_round_at_once() -> None:
    story = Story().tell_all("ring a | a says x | run")
    assert story.round["a"] == 1
    assert story.messages == 0


def test_gm_6_it_has_gone_round_when_all_have_it() -> None:
    story = Story().tell_all("ring abc | a says x | a>b | b>c")
    assert story.round["a"] == 0
    assert story.rings["a"].waiting_bytes() == 1
    story.tell_all("c>a | run")
    assert story.round["a"] == 1
    assert story.rings["a"].waiting_bytes() == 0


def test_gm_6_or_when_all_others_are_dead() -> None:
    story = Story().tell_all("ring abc | a says x | crash b | crash c | run")
    assert story.round["a"] == 0
    story.tell_all("died b | died c | run")
    assert story.round["a"] == 1
    assert sorted(story.heard["a"]) == ["-b", "-c"]


def test_gm_9_a_dead_member_is_erased_when_all_is_forgotten() -> None:
    story = Story().tell_all("ring abc | a says x | a>b | crash a | kick a | tell b | tell c | b>c")
    assert story.shown() == "†abc"
    story.tell_all("run")
    assert story.shown() == "bc"
    assert set(story.rings["b"]._streams) == {"b", "c"}


def test_gm_12_it_leaves_when_its_broadcasts_have_gone_round() -> None:
    story = Story().tell_all("ring abc | a says x | leave a | a>b | b>c | c>a")
    assert story.shown() == "abc"
    with pytest.raises(RingStopped, match="leaving"):
        story.rings["a"].broadcast(b"y")
    story.tell_all("run")
    assert story.stopped == {"a": "left"}
    assert story.shown() == "bc"
    assert story.heard["b"] == ["a:x", "-a"]


def test_the_last_one_leaves_and_the_next_begins_anew() -> None:
    story = Story().tell_all("ring a | a says x | leave a | run")
    assert story.stopped == {"a": "left"}
    story.start("b").view_changed(story.view)
    story.tell_all("run")
    assert story.shown() == "b"


def test_a_member_whose_lease_ended_stops() -> None:
    ring = Story().tell_all("ring ab").rings["a"]
    ring.member_died("a")
    assert "lease of a" in ring.take().stopped


def test_where_all_are_blank_the_first_one_founds() -> None:
    """b and c joined at a, which died before it told them anything."""
    story = Story().tell_all("ring a | a says lost | join b a | join c b | crash a | died a | run")
    assert story.heard["b"][-1] == story.heard["c"][-1] == "-a"
    assert story.shown() == "bc"
    story.tell_all("b says x | run")
    assert story.heard["c"][-1] == "b:x"


BLANK_OWNER = "ring abc | a says x | a>b | join d a | crash a | kick a | tell b | tell c | tell d"


def assert_all_have_the_last_words_of_a(story: Story, names: str) -> None:
    for name in names:
        heard = [word for word in story.heard[name] if word.strip("+-:x") == "a"]
        assert heard[-2:] == ["a:x", "-a"], f"{name} heard {heard}"
    assert story.shown() == names


def test_a_blank_owner_gets_the_last_words_that_went_past_it() -> None:
    """a spoke to b before it knew of d; d is to speak for a, and c knew nothing either."""
    story = Story().tell_all(f"{BLANK_OWNER} | c>d | run")
    assert_all_have_the_last_words_of_a(story, "dbc")


def test_so_does_one_that_has_it_from_a_blank_owner() -> None:
    """e has from d the little that d had from c; then d dies, and e is to speak for a."""
    story = Story().tell_all(f"{BLANK_OWNER} | join e d | tell b | tell c | tell d | c>d | d>e")
    story.tell_all("crash d | kick d | tell b | tell c | tell e | c>e | run")
    assert_all_have_the_last_words_of_a(story, "ebc")


def test_a_blank_owner_keeps_the_last_words_until_all_have_them() -> None:
    """x comes to d the long way while e, on its right, is another that never heard it."""
    story = Story().tell_all(f"{BLANK_OWNER} | c>d | join e d | tell b | tell c | tell d | d>e")
    story.tell_all("b>c | c>d | crash d | kick d | tell b | tell c | tell e | c>e | run")
    assert_all_have_the_last_words_of_a(story, "ebc")


def test_a_view_that_only_one_of_two_neighbours_saw() -> None:
    """a never knew of d, whose life was one view; b did, and expects to hear from it."""
    story = Story().tell_all("ring ab | join d a | tell b | crash d | kick d | tell b | tell a")
    story.tell_all("a says x | run")
    assert story.heard["a"] == ["+d", "-d"]
    assert story.heard["b"] == ["+d", "-d", "a:x"]


def test_a_view_in_which_a_neighbour_got_what_is_lost_with_it() -> None:
    story = Story().tell_all("ring ab | join d a | tell a | a says x | a>d | crash d | kick d")
    story.tell_all("tell a | tell b | a says y | run")
    assert story.heard["b"] == ["+d", "-d", "a:x", "a:y"]


def test_a_proposal_is_repeated_after_a_while_only() -> None:
    ring = Ring("a", 0)
    ring.view_changed(NO_VIEW)
    assert ring.take().proposal == View(1, ("a",))
    assert ring.take().proposal is None
    ring.tick(RETRY_MS)
    assert ring.take().proposal == View(1, ("a",))


def test_only_the_next_one_alive_reports_a_death() -> None:
    story = Story().tell_all("ring abcd | died b | died c")
    proposals = {name: ring.take().proposal for name, ring in story.rings.items()}
    assert [name for name, proposal in proposals.items() if proposal is not None] == ["d"]


def test_who_leaves_before_it_joined_just_goes() -> None:
    ring = Ring("b", 0)
    ring.view_changed(View(4, ("a",)))
    ring.leave()
    ready = ring.take()
    assert (ready.proposal, ready.stopped) == (None, "left")


def test_who_leaves_while_its_joining_is_decided_waits_for_that() -> None:
    ring = Ring("b", 0)
    ring.view_changed(View(4, ("a",)))
    joined = ring.take().proposal
    assert joined is not None
    ring.leave()
    assert not ring.take().stopped
    ring.view_changed(joined)
    proposal = ring.take().proposal
    assert proposal is not None
    assert not proposal.is_live("b")


def test_who_leaves_and_hears_nothing_of_its_joining_has_it_decided() -> None:
    """The answer was lost: one more view without it, and that proposal can never be accepted."""
    ring = Ring("b", 0)
    ring.view_changed(View(4, ("a",)))
    assert ring.take().proposal is not None
    ring.leave()
    ready = ring.take()
    assert (ready.proposal, ready.stopped) == (View(5, ("a",)), "")
    ring.view_changed(View(5, ("a",)))
    ready = ring.take()
    assert (ready.proposal, ready.stopped) == (None, "left")


@pytest.mark.parametrize("seen, stops", [((5,), False), ((6,), True), ((5, 6), False)])
def test_nobody_joins_twice(seen: tuple[int, ...], stops: bool) -> None:
    """b asked for view 5, and sees one behind it: it may have been in, and out again."""
    ring = Ring("b", 0)
    ring.view_changed(View(4, ("a",)))
    assert ring.take().proposal is not None
    for version in seen:
        ring.view_changed(View(version, ("a",)))
    assert bool(ring.take().stopped) is stops


BROKEN = {
    "a gap": RingEntry("a", 5, [b"x"], 0),
    "an acknowledgement of what never came": RingEntry("c", 4, [b"x"], 4),
    "numbers without contents": RingEntry("a", 5, [], 0),
    "own ones never sent": RingEntry("b", 1, [b"x"], 0),
    "something behind an end": RingEntry("c", 1, [b"x", None, b"y"], 0),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_what_cannot_be_stops_it_loudly(fault: str) -> None:
    story = Story().tell_all("ring abc")
    b = story.rings["b"]
    entries = [BROKEN[fault], RingEntry("c", 4, [b"z"], 0)]
    with pytest.raises(RingFault):
        b.step("a", RingMessage(ACTIVITY, story.view.version, [], entries))
    assert b.stopped


def test_a_new_neighbour_begins_with_a_catch_up() -> None:
    story = Story().tell_all("ring ab | kick a")
    story.view = story.view.with_joined("c", "b")
    story.tell_all("tell b")
    with pytest.raises(RingFault, match="without a catch-up"):
        story.rings["b"].step("c", RingMessage(ACTIVITY, story.view.version, [], []))


def test_a_catch_up_heard_twice_harms_nobody() -> None:
    story = Story().tell_all("ring abc | a says x | run")
    again = RingMessage(CATCH_UP, story.view.version, [], [RingEntry("a", 1, [b"x"], 0)])
    story.rings["b"].step("a", again)
    story.tell_all("run")
    assert story.heard["b"] == ["a:x"]
