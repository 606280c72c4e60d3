"""Global parameters: named values of the whole node, such as its cluster's name.

In: a name and any JSON value, set by a user who has the permission.  Out: the same after a restart.
They are written as everything in ``definitions`` is: in the turn's transaction.
"""

import json
from collections.abc import Callable
from typing import Final

from penstock.storage.definitions.values import name_in_cell, name_to_cell

PARAMETERS: Final = """
CREATE TABLE global_parameters (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""

Change = Callable[..., None]
"""(statement, values...): part of the turn's transaction."""


class GlobalParameterRecord:
    """``value`` is whatever JSON can say."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: object) -> None:
        self.name = name
        self.value = value


def put_global_parameter(change: Change, name: str, value: object) -> None:
    text = json.dumps(value, separators=(",", ":"))
    change("INSERT OR REPLACE INTO global_parameters VALUES (?, ?)", name_to_cell(name), text)


def delete_global_parameter(change: Change, name: str) -> None:
    change("DELETE FROM global_parameters WHERE name = ?", name_to_cell(name))


def load_global_parameters(
    rows: Callable[[str], list[tuple[str | bytes | int, ...]]],
) -> list[GlobalParameterRecord]:
    """``rows``: what a statement finds."""
    found: list[GlobalParameterRecord] = []
    for name, value in rows("SELECT name, value FROM global_parameters"):
        assert not isinstance(name, int)
        found.append(GlobalParameterRecord(name_in_cell(name), json.loads(str(value))))
    return found
