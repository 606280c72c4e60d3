"""Requests that a cluster has to agree on, as their sessions hold them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.broker.topology.changes import Ask
from penstock.core.pending import Pending


class Request:
    """Run by ``again`` until that returns something other than ``Pending``, or raises."""

    def __init__(self, ask: Ask, function: Callable[[], object]) -> None:
        self._step: Callable[[], object] = partial(ask.run, function)

    def again(self) -> object:
        outcome = self._step()
        if isinstance(outcome, Pending):
            self._step = outcome.resume
        return outcome

    def is_decided(self) -> bool:
        return not isinstance(self.again(), Pending)
