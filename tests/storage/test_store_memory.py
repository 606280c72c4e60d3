"""What a message at rest costs in memory: docs/formats/message_store.md, clause 9."""

from __future__ import annotations

import gc
import tracemalloc

from penstock.storage.common.disk_jobs import JobBoard
from penstock.storage.store.message_store import MessageStore
from tests.helpers.sim_files import SimFileSystem

MESSAGES = 100_000
BYTES_PER_MESSAGE = 26
PROMISED_BYTES_PER_MESSAGE = 64


class Nowhere(SimFileSystem):
    """Keeps nothing, so that only the store's own memory is left to measure."""

    def pwrite_parts(self, handle: int, offset: int, parts: list[bytes]) -> None:
        self.calls.clear()


def fill(store: MessageStore, board: JobBoard, files: SimFileSystem) -> None:
    content = b"x" * 4096
    for number in range(MESSAGES):
        store.write(content, 3)
        if number % 500 == 499:
            store.flush_job()
            board.run_all(files)


def test_a_message_on_disk_costs_24_bytes_and_no_object() -> None:
    files = Nowhere()
    board = JobBoard()
    store = MessageStore(files, "store", board, durable=False)
    store.clear()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    objects = len(gc.get_objects())
    fill(store, board, files)
    files.calls.clear()
    gc.collect()
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    per_message = used / MESSAGES
    print(f"{per_message:.1f} bytes per message in {store.statistics()['files']} files")
    assert store.statistics()["messages"] == MESSAGES
    assert store.statistics()["references"] == 3 * MESSAGES
    assert 20 < per_message <= BYTES_PER_MESSAGE < PROMISED_BYTES_PER_MESSAGE
    # A few per file, none per message.
    assert len(gc.get_objects()) - objects < 20 * store.statistics()["files"]
