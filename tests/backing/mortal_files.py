"""A simulated disk whose process may die between any two of its calls."""

from __future__ import annotations

from tests.helpers.sim_files import SimFileSystem


class Died(BaseException):
    """The process, in the middle of something; no error that anybody handles."""


class MortalFileSystem(SimFileSystem):
    """``calls_left`` calls go well, then the process is no more; -1 = it lives."""

    calls_left = -1

    def _call(self, verb: str, what: str = "") -> None:
        if self.calls_left == 0:
            raise Died
        self.calls_left -= self.calls_left > 0
        super()._call(verb, what)
