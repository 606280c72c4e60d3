"""Nodes tell each other which changes they have done, and fall silent."""

from __future__ import annotations

from penstock.node.cluster.known_revisions import KnownRevisions


class Pair:
    """Two nodes: ``done`` and ``changed`` of each; a barrier takes the store's next revision."""

    def __init__(self, revision: int) -> None:
        self.store = revision
        self.done = {"a": revision, "b": revision}
        self.changed = {"a": revision, "b": revision}
        self.ends = {"a": KnownRevisions(), "b": KnownRevisions()}
        self.barriers = 0
        for here, there in (("a", "b"), ("b", "a")):
            self.ends[there].begun(here)

    def barrier(self, name: str) -> None:
        self.barriers += 1
        self.store += 1
        self.done[name] = self.store

    def run(self) -> None:
        for _ in range(10):
            for here, there in (("a", "b"), ("b", "a")):
                news = self.ends[here].news(self.done[here], self.changed[here])
                if news:
                    self.ends[there].heard(here, news)
                if self.ends[there].wanted_by(here) > self.done[there]:
                    self.barrier(there)


def test_one_that_caught_up_is_not_run_after() -> None:
    pair = Pair(10)
    pair.barrier("a")
    pair.run()
    assert pair.barriers == 1


def test_who_misses_a_change_catches_up() -> None:
    pair = Pair(10)
    pair.store = pair.done["a"] = pair.changed["a"] = 14
    pair.run()
    assert pair.done["b"] >= 14
    assert pair.barriers == 1


def test_what_is_waited_for_is_asked_for_though_it_changed_nothing() -> None:
    pair = Pair(10)
    pair.store = 11
    assert not pair.ends["a"].is_known(11, lambda _name: True)
    assert pair.ends["a"].is_known(11, lambda _name: False)  # it cannot be heard
    assert pair.ends["a"].is_due()
    pair.run()
    assert not pair.ends["a"].is_due()
    assert pair.ends["a"].is_known(11, lambda _name: True)
    assert pair.barriers == 1
    assert pair.ends["a"].is_known(10, lambda _name: True)


def test_a_new_link_says_where_it_is() -> None:
    end, other = KnownRevisions(), KnownRevisions()
    assert end.news(7, 5)
    other.begun("a")
    other.heard("a", end.begun("b"))
    assert other.wanted_by("a") == 5
    assert other.is_known(7, lambda _name: True)
    assert end.news(7, 5) == b""
    assert end.neighbours() == ["b"]
    end.ended("b")
    assert end.neighbours() == []
