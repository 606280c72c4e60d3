"""The table of range readers: their start positions and fencing tokens.

**Starts.**  Spark does not keep the position at which a new query starts: it asks for it again when
the first batch was not committed.  "The newest message" must then mean what it meant before.

**Tokens.**  A pipeline whose broker comes back goes on where it was: its tasks show the token they
were started with, and consumers find the queue taken, as before.

**Groups** of a stream each have a row like a start: the name of the queue, a line feed and that of
the group.  Its request is empty as soon as the position is what the group has committed.

Rows are about one incarnation of a durable queue and go with it; those of a queue declared again
are not found.
"""

from typing import Final, NamedTuple, final

from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.values import name_in_cell, put_statement

GROUP_MARK: Final = "\n"


class GroupRow(NamedTuple):
    """Where a group is in a stream; ``request`` as in ``RangeGroup``."""

    vhost: str
    queue: str
    incarnation: str
    group: str
    request: str
    position: int


@final
class RangeReaders:
    """The tables ``range_starts`` and ``ranges.leases``; read when asked, about once per batch."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions

    def start(self, vhost: str, queue: str, incarnation: str) -> tuple[str, int] | None:
        """(what was asked for, the position that was)"""
        which = "vhost = ? AND queue = ? AND incarnation = ?"
        statement = f"SELECT request, seq_id FROM range_starts WHERE {which}"  # noqa: S608
        rows = self._definitions.rows(statement, vhost, queue, incarnation)
        return (str(rows[0][0]), int(rows[0][1])) if rows else None

    def put_start(
        self, vhost: str, queue: str, incarnation: str, request: str, seq_id: int
    ) -> None:
        self._put("range_starts", vhost, queue, incarnation, request, seq_id)

    def delete_start(self, vhost: str, queue: str) -> None:
        self._delete("range_starts", vhost, queue)

    def groups(self) -> list[GroupRow]:
        rows = self._definitions.rows(
            "SELECT vhost, queue, incarnation, request, seq_id FROM range_starts"
        )
        found = []
        for vhost, name, incarnation, request, position in rows:
            queue, mark, group = name_in_cell(name).partition(GROUP_MARK)
            if mark:
                found.append(
                    GroupRow(name_in_cell(vhost), queue, incarnation, group, request, position)
                )
        return found

    def tokens(self) -> list[tuple[str, str, str, int]]:
        """(vhost, queue, incarnation, token) of all leases there were."""
        rows = self._definitions.rows("SELECT vhost, queue, incarnation, token FROM range_leases")
        return [(name_in_cell(row[0]), name_in_cell(row[1]), row[2], row[3]) for row in rows]

    def put_token(self, vhost: str, queue: str, incarnation: str, token: int) -> None:
        self._put("range_leases", vhost, queue, incarnation, token)

    def delete_token(self, vhost: str, queue: str) -> None:
        self._delete("range_leases", vhost, queue)

    def _put(self, table: str, *cells: str | int) -> None:
        self._definitions.change(put_statement(table, len(cells)), *cells)

    def _delete(self, table: str, vhost: str, queue: str) -> None:
        statement = f"DELETE FROM {table} WHERE vhost = ? AND queue = ?"  # noqa: S608
        self._definitions.change(statement, vhost, queue)
