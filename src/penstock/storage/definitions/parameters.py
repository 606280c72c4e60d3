"""Runtime parameters: named values, of the whole node or of a component in a virtual host.

In: a name and any JSON value, set by a user who has the permission.  Out: the same after a restart.
They are written as everything in ``definitions`` is: in the turn's transaction.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.storage.definitions.values import name_in_cell, name_to_cell

PARAMETERS: Final = """
CREATE TABLE parameters (
    vhost TEXT, component TEXT, name TEXT, value TEXT NOT NULL, user TEXT NOT NULL,
    PRIMARY KEY (vhost, component, name)) WITHOUT ROWID;
"""
GLOBAL_PARAMETERS: Final = """
CREATE TABLE global_parameters (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
"""Of version 7 and 8."""
GLOBAL_ARE_PARAMETERS: Final = """
INSERT INTO parameters SELECT '', '', name, value, '' FROM global_parameters;
DROP TABLE global_parameters;
"""

Change = Callable[..., None]
"""(statement, values...): part of the turn's transaction."""


class ParameterRecord(NamedTuple):
    """``value`` is whatever JSON can say; a global parameter has no virtual host and component.

    ``user``: the user who set it, "" = the node itself; links act with the rights of that user.
    """

    name: str
    value: object
    vhost: str = ""
    component: str = ""
    user: str = ""


def put_parameter(change: Change, record: ParameterRecord) -> None:
    names = (record.vhost, record.component, record.name)
    text = json.dumps(record.value, separators=(",", ":"))
    change(
        "INSERT OR REPLACE INTO parameters VALUES (?, ?, ?, ?, ?)",
        *[name_to_cell(name) for name in names],
        text,
        name_to_cell(record.user),
    )


def delete_parameter(change: Change, record: ParameterRecord) -> None:
    """The one of this virtual host, component and name."""
    names = (record.vhost, record.component, record.name)
    change(
        "DELETE FROM parameters WHERE vhost = ? AND component = ? AND name = ?",
        *[name_to_cell(name) for name in names],
    )


def load_parameters(
    rows: Callable[[str], list[tuple[str | bytes | int, ...]]],
) -> list[ParameterRecord]:
    """``rows``: what a statement finds."""
    found: list[ParameterRecord] = []
    for row in rows("SELECT name, value, vhost, component, user FROM parameters"):
        name, vhost, component, user = [_name(row[place]) for place in (0, 2, 3, 4)]
        found.append(ParameterRecord(name, json.loads(str(row[1])), vhost, component, user))
    return found


def _name(cell: str | bytes | int) -> str:
    assert not isinstance(cell, int)
    return name_in_cell(cell)
