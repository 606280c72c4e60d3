"""Where readers of queues begin, until they have acknowledged something beyond.

Spark does not keep the position at which a new query starts: it asks for it again when the first
batch was not committed.  "The newest message" must then mean what it meant before.  Rows are about
one incarnation of a durable queue and go with it; those of a queue declared again are not found.
"""

from typing import final

from penstock.storage.definition_values import name_to_cell
from penstock.storage.definitions import Definitions


@final
class RangeStarts:
    """The table ``range_starts``; read when asked, which is once per batch."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def get(self, vhost: str, queue: str, incarnation: str) -> tuple[str, int] | None:
        """(what was asked for, the position that was)"""
        rows = self._definitions.rows(
            "SELECT request, seq_id FROM range_starts"
            " WHERE vhost = ? AND queue = ? AND incarnation = ?",
            name_to_cell(vhost),
            name_to_cell(queue),
            incarnation,
        )
        return (str(rows[0][0]), int(rows[0][1])) if rows else None

    def put(self, vhost: str, queue: str, incarnation: str, request: str, seq_id: int) -> None:
        self._definitions.change(
            "INSERT OR REPLACE INTO range_starts VALUES (?, ?, ?, ?, ?)",
            name_to_cell(vhost),
            name_to_cell(queue),
            incarnation,
            request,
            seq_id,
        )

    def delete(self, vhost: str, queue: str) -> None:
        self._definitions.change(
            "DELETE FROM range_starts WHERE vhost = ? AND queue = ?",
            name_to_cell(vhost),
            name_to_cell(queue),
        )
