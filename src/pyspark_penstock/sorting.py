"""A worker's part of an archive: messages of claims go into the files of one table or several.

In: claims (``claims``), columns to make of bodies, and parts: each a table's files and a condition.
A message goes to the first part that takes it; one that no part takes is counted (``left_out``).
Where each queue has a table of its own, a claim's messages are offered to that part only.
Out: rows of drafts (``table_files``), each with the name of its part, and one per claim that says
how many positions held no message.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark_penstock.behind import Behind
from pyspark_penstock.body_columns import BodyDecoding
from pyspark_penstock.claims import claims_in, holes_in, read_claim
from pyspark_penstock.table_files import Draft, DraftWriter, Layout

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from pyspark_penstock.options import Settings

READ_AHEAD_BYTES_MAX = 32 << 20
"""Read, while what came before is being written."""


class Part(NamedTuple):
    """A table's files; ``takes`` is a condition on all columns, None = it takes every message."""

    name: str
    takes: "pc.Expression | None"
    layout: Layout
    drafts_dir: str
    queue: str = ""  # whose messages it is offered; "" = of all


class Sorter:
    def __init__(self, decoding: BodyDecoding, parts: tuple[Part, ...], batch: int) -> None:
        self._decode = decoding.decoder()
        self._batch = batch
        self._parts: dict[str, list[Part]] = {}
        for part in parts:
            self._parts.setdefault(part.queue, []).append(part)
        self._writers: dict[str, DraftWriter] = {}  # by the name of the part
        self._left_out = 0

    def add(self, messages: "pa.RecordBatch", queue: str = "") -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = self._decode(messages)
        for part in self._parts.get(queue) or self._parts[""]:
            if part.takes is None:
                self._writer(part).add(rows)
                return
            taken = rows.filter(part.takes)
            if taken.num_rows:
                self._writer(part).add(taken)
            if taken.num_rows == rows.num_rows:
                return
            rows = rows.filter(~pc.coalesce(part.takes, pa.scalar(False)))
        self._left_out += rows.num_rows

    def close(self) -> list[Draft]:
        drafts = [draft for writer in self._writers.values() for draft in writer.close()]
        return [*drafts, Draft.figures(left_out=self._left_out)]

    def _writer(self, part: Part) -> DraftWriter:
        if part.name not in self._writers:
            writer = DraftWriter(part.layout, part.drafts_dir, self._batch, part.name)
            self._writers[part.name] = writer
        return self._writers[part.name]


def writing(
    settings: "Settings", decoding: BodyDecoding, parts: tuple[Part, ...], batch: int
) -> "Callable[[Iterable[tuple[Any, ...]]], Iterator[tuple[Any, ...]]]":
    """The function for ``mapPartitions``: rows of claims in, rows of drafts out.

    (Spark's ``mapInArrow`` would do as well, if it did not insist on pandas.)
    """

    def write(rows: "Iterable[tuple[Any, ...]]") -> "Iterator[tuple[Any, ...]]":
        sorter = Sorter(decoding, parts, batch)
        ends = []
        with Behind(READ_AHEAD_BYTES_MAX) as behind:
            for claim in claims_in(rows):
                count = 0
                for messages in read_claim(settings, claim):
                    behind.do(messages.nbytes, sorter.add, messages, claim.queue)
                    count += messages.num_rows
                ends.append(Draft.figures(holes=holes_in(claim.start, claim.end, count)))
            behind.settle()
        return iter([tuple(draft) for draft in (*sorter.close(), *ends)])

    return write
