"""The rows of a BLOCK of the range protocol, for tests: Spark's side reads its columns."""

from array import array

from penstock_ranges.ranges import Block


class Rows:
    """Parallel lists, one entry per message; raises MalformedFrame."""

    def __init__(self, payload: bytes) -> None:
        block = Block(payload)
        self.next_start: int = block.next_start
        self.seq_ids = array("q", block.seq_ids).tolist()
        self.enqueued_at_ms = array("q", block.enqueued_at_ms).tolist()
        self.flags = list(block.flags)
        self.addresses = _cut(payload, block.addresses_at, block.address_lengths)
        self.contents = _cut(payload, block.contents_at, block.content_lengths)


def _cut(payload: bytes, at: int, lengths: list[int]) -> list[bytes]:
    pieces = []
    for length in lengths:
        pieces.append(payload[at : at + length])
        at += length
    return pieces
