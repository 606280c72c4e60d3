"""Runtime parameters: named values, of the whole node or of a component in a virtual host.

In: a name and any JSON value, set by a user who has the permission.  Out: the same after a restart.
They are written as everything in ``definitions`` is: in the turn's transaction.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.storage.definitions.values import put_statement

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
    text = json.dumps(record.value, separators=(",", ":"))
    cells = (record.vhost, record.component, record.name, text, record.user)
    change(put_statement("parameters", len(cells)), *cells)


def delete_parameter(change: Change, record: ParameterRecord) -> None:
    """The one of this virtual host, component and name."""
    which = "vhost = ? AND component = ? AND name = ?"
    names = (record.vhost, record.component, record.name)
    change(f"DELETE FROM parameters WHERE {which}", *names)  # noqa: S608
