"""Connections without a log-in have a part of the descriptors, and one machine a part of that."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.clock_types import MonoMs
from penstock.runtime.descriptors import ADDRESS_PARTS, Descriptors, clients_end


class Crowd:
    """Strangers that come one after the other, and stay as long as they are let in."""

    def __init__(self) -> None:
        self.descriptors = Descriptors()
        self.guests: dict[int, Any] = {}

    def comes(self, address: str) -> bool:
        number = len(self.guests)
        guests = cast(Any, self.guests)
        # Counted anew each time.
        if not self.descriptors.has_room(number, address, guests, MonoMs(10_000 * number)):
            return False
        self.guests[number] = SimpleNamespace(peer=(address, 1), is_stranger=lambda: True)
        return True


@pytest.mark.parametrize("form", ["192.0.2.1", "2001:db8::{:x}", "::ffff:192.0.2.1"])
def test_one_machine_has_a_part_only(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 256))
    crowd = Crowd()
    most = clients_end(256) // ADDRESS_PARTS
    assert [crowd.comes(form.format(number)) for number in range(most)] == [True] * most
    assert not crowd.comes(form.format(most))
    assert crowd.comes("192.0.2.9")
    assert crowd.comes("2001:db8:0:1::1")
