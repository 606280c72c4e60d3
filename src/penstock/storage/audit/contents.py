"""Contents of the message store, as an audit counts them."""

from array import array
from bisect import bisect_left

from penstock.storage.audit.files import StoreWalk


class Contents:
    """The contents of the store, and how many living messages were seen to name each."""

    def __init__(self) -> None:
        self.ids = array("q")
        self.sizes = array("q")
        self.references = array("q")
        self.copies = 0

    def add(self, walk: StoreWalk) -> None:
        """Files in ascending order; what an older file has as well is a copy."""
        last = self.ids[-1] if self.ids else 0
        for msg_id, size in zip(walk.msg_ids, walk.content_sizes, strict=True):
            if msg_id > last:
                self.ids.append(msg_id)
                self.sizes.append(size)
                self.references.append(0)
            else:
                self.copies += 1

    def index_of(self, msg_id: int) -> int:
        """Its place here; -1 = it is not here."""
        i = bisect_left(self.ids, msg_id)
        return i if i < len(self.ids) and self.ids[i] == msg_id else -1

    def refer(self, msg_id: int) -> bool:
        i = self.index_of(msg_id)
        if i >= 0:
            self.references[i] += 1
        return i >= 0

    def live(self) -> tuple[int, int]:
        """Contents referred to, and their bytes."""
        pairs = zip(self.references, self.sizes, strict=True)
        sizes = [size for references, size in pairs if references > 0]
        return len(sizes), sum(sizes)
