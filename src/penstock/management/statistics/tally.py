"""``CountersSnapshot``: the counts in a row, with the object they belong to.

A row made on the data loop carries one; when the row arrives on management's side,
``completing`` adds rates and samples.  To all other code it is a dict.
"""

from collections.abc import Iterable

Key = tuple[str, ...]


class CountersSnapshot(dict[str, object]):
    """Counts by name; ``kind`` and ``key`` say whose."""

    __slots__ = ("key", "kind")

    def __init__(
        self, kind: str, key: Key, names: Iterable[str] = (), counts: Iterable[int] = ()
    ) -> None:
        super().__init__(zip(names, counts, strict=False))
        self.kind = kind
        self.key = key
