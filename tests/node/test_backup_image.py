"""The links that a backup copies are to files of one history, whatever happens meanwhile."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from librt.strings import BytesWriter

from penstock.node.backup import Backup, DataImage
from penstock.storage.common.disk_jobs import JobBoard
from penstock.storage.common.files import RealFileSystem
from penstock.storage.journal.codec import (
    FILES,
    JournalGroup,
    journal_file_name,
    write_drop,
    write_table,
)


def test_files_of_a_stream_that_is_cut_meanwhile_are_linked_again(tmp_path: Path) -> None:
    """The cut puts another file in the place of the first, and the stream goes on behind that."""
    stream = tmp_path / "streams" / "7"
    stream.mkdir(parents=True)
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / journal_file_name(1)).write_bytes(b"j" * 50)
    first, new = stream / "0.stm", stream / "0.stm.new"
    first.write_bytes(b"given up" * 10)

    def end() -> tuple[int, int]:
        """Asked for while the journal is copied."""
        if not (stream / "9.gone").exists():
            new.write_bytes(b"kept")
            new.rename(first)
            (stream / "9.gone").touch()
            (stream / "5.stm").write_bytes(b"new")
        return 1, 50

    job = DataImage(str(tmp_path), end, {})
    job.run(RealFileSystem())
    assert job.failure == ""
    image = tmp_path / "image" / "streams" / "7"
    found = {path.name: path.read_bytes() for path in image.iterdir()}
    assert found == {"0.stm": b"kept", "5.stm": b"new", "9.gone": b""}
    assert job.lengths["streams/7/0.stm"] == 4


def test_a_file_removed_a_moment_before_its_end_is_told_is_on_no_list(tmp_path: Path) -> None:
    """The committer removes it, and only then the loop hears how far the journal is on disk."""
    (tmp_path / "journal").mkdir()
    writer = BytesWriter()
    write_table(writer, FILES, {1: 50})
    begun = JournalGroup(2, 0, 0, [writer.getvalue()], True, 0, [])
    writer = BytesWriter()
    write_drop(writer, 1)
    dropped = JournalGroup(2, begun.end_offset(), 0, [writer.getvalue()], True, 0, [1])
    blocks = b"".join(group.header() + group.data for group in (begun, dropped))
    (tmp_path / "journal" / journal_file_name(2)).write_bytes(blocks)
    ends = [int(begun.end_offset())] * 2 + [int(dropped.end_offset())] * 2
    job = DataImage(str(tmp_path), lambda: (2, ends.pop(0)), {})
    job.run(RealFileSystem())
    assert job.failure == ""
    assert (tmp_path / "image" / "journal" / journal_file_name(2)).read_bytes() == blocks


def test_a_segment_is_copied_with_the_attestation_that_it_had(tmp_path: Path) -> None:
    """While it is copied another sync is attested, in the same place."""
    data_dir, target = tmp_path / "data", tmp_path / "target"
    segment = data_dir / "queues" / "7" / "0.idx"
    segment.parent.mkdir(parents=True)
    segment.write_bytes(b"a" * 56 + b"block")
    (data_dir / "journal").mkdir()
    (data_dir / "journal" / journal_file_name(1)).write_bytes(b"j" * 50)
    target.mkdir()
    sqlite3.connect(data_dir / "definitions.db").close()
    backup = Backup(str(data_dir), JobBoard(), lambda: (1, 50), {})
    image = DataImage(str(data_dir), lambda: (1, 50), {})
    image.run(RealFileSystem())
    assert image.failure == ""
    with segment.open("r+b") as file:
        file.write(b"b" * 56 + b"block" + b"another")
    backup._copy(image, str(target))
    assert (target / "queues" / "7" / "0.idx").read_bytes() == b"a" * 56 + b"block"
