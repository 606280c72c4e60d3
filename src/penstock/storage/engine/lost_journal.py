"""A journal that is gone although other files say that there was one.

In: the data directory, its durable queues, and the journal file that the terms name.  Out: the
sentence with which a start refuses, or none.  Absence is not deletion: without its journal a
directory has lost confirmed messages and acknowledgements, and a new journal in its place would
hide that.

The first start makes ``queues`` only when the first journal file is on disk.  From then on there
is always a file that was begun: an old one goes only after a younger one was synced.
"""

from typing import Final

from penstock.storage.common.files import FileSystem
from penstock.storage.engine.terms import Terms
from penstock.storage.index.segment_codec import segment_no
from penstock.storage.journal.recovery import JournalRecovery
from penstock.storage.store.codec import GROUP_HEADER_BYTES, store_file_no

QUEUES: Final = "queues"
STORE: Final = "store/persistent"


def lost_journal(
    journal: JournalRecovery, terms: Terms | None, directory: str, durable_queues: int
) -> str:
    """Why a data directory without a journal is no new one; empty if it has one, or is new.

    ``journal`` was run if there are no terms; ``durable_queues``: how many the definitions name.
    """
    if journal.last_file_no > 0 or (terms is not None and journal.file_numbers()):
        return ""
    files = journal.files
    queues = f"{directory}/{QUEUES}"
    segments = 0
    for name in _names(files, queues):
        segments += sum(segment_no(file) >= 0 for file in _names(files, f"{queues}/{name}"))
    store = f"{directory}/{STORE}"
    stored = sum(
        store_file_no(file) > 0 and files.size(f"{store}/{file}") > GROUP_HEADER_BYTES
        for file in _names(files, store)
    )
    witnesses: list[str] = []
    if terms is not None:
        file_no = int(terms.journal_file_no)
        witnesses.append(f"the terms of a clean stop name journal file {file_no}")
    if segments > 0:
        witnesses.append(f"{QUEUES} has {segments} segment files")
    if stored > 0:
        witnesses.append(f"{STORE} has {stored} files with contents")
    if durable_queues > 0 and files.exists(queues):
        witnesses.append(f"definitions.db names {durable_queues} durable queues")
    if not witnesses:
        return ""
    return (
        f"{directory}/journal: no journal file that was begun is there, although"
        f" {', '.join(witnesses)}: messages and acknowledgements that only the journal had are"
        " lost; restore the whole data directory from a copy, or give them up with:"
        f" penstock repair {directory} --new-journal"
    )


def _names(files: FileSystem, path: str) -> list[str]:
    return files.listdir(path) if files.exists(path) else []
