"""``penstock audit``: is a data directory whole, and what is in it?  Nothing is changed.

The directory must belong to no running broker: while this looks, it holds the broker's own lock
(shared, so that two looks may go on at once), and a broker that is started meanwhile is refused.
Nothing is written into the directory, not even by SQLite, which would leave files of its own
beside the definitions: they are copied to a temporary directory and read there.

    cli/data/audit     lock, definitions, what is printed
    storage/audit/audit      all files, crosswise
    storage/audit/files   one file

Definitions have no checksum in their main file, so of them only what SQLite's own check sees is
found (``PRAGMA integrity_check``); all other files have one over every byte that means anything.
"""

import fcntl
import json
import os
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

import click

from penstock.cli.failure import USAGE, Failure
from penstock.cli.options import OUTPUT, option
from penstock.cli.tables import table
from penstock.core.errors import Corrupt
from penstock.queues.context import STREAM, queue_type
from penstock.storage.audit.audit import DataAudit, QueueAudit, QueueFacts
from penstock.storage.audit.files import (
    RECORD_NAMES,
    Damage,
    FileWalk,
    JournalWalk,
    SegmentWalk,
    StoreWalk,
    walk_file,
)
from penstock.storage.common.files import RealFileSystem
from penstock.storage.common.seq_ranges import SeqRanges
from penstock.storage.common.sqlite_log import check_log
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.schema import FORMAT_VERSION, UPGRADES
from penstock.storage.engine.terms import TERMS_FILE, read_terms
from penstock.streams.audit import StreamAudit, StreamWalk
from penstock.streams.block_codec import segment_first

DEFINITIONS_FILE: Final = "definitions.db"
DAMAGED: Final = 1
LARGE_BYTES: Final = 64 * 1024 * 1024
"""From here on it takes long enough to say how far it is."""
PROGRESS_S: Final = 0.2
DAMAGES_SHOWN: Final = 100


class CannotCheck(Failure):
    """Neither sound nor damaged can be said."""

    exit_code = USAGE


@click.command(
    epilog="\b\nExit codes:\n  0  sound (torn tails, which the next start cuts off, are none)\n"
    "  1  damage found\n  2  cannot check: no data directory, in use, unreadable\n\n"
    "\b\nExamples:\n  penstock audit /var/lib/penstock\n"
    "  penstock audit --file /var/lib/penstock/journal/7.jif"
)
@click.argument("directory", metavar="[DIR]", required=False, default=None)
@option("--file file", "One file, block by block.", metavar="PATH")
@OUTPUT
@click.pass_context
def audit(ctx: click.Context, /, directory: str | None, file: str | None, output: str) -> None:
    """Check a data directory offline, change nothing, and say what is in it.

    Every block of every file is read and checked, and the files against each other: messages
    whose content is missing, contents without a reference, what a clean stop wrote down and what is
    there. Damage is named by file, offset and length.
    """
    if (directory is None) == (file is None):
        raise click.UsageError("give either a data directory or --file")
    try:
        if file is not None:
            report = audit_file(os.path.abspath(file))
        else:
            report = audit_directory(os.path.abspath(directory or ""))
    except Corrupt as error:
        raise CannotCheck(str(error), "use the release that wrote it") from error
    except OSError as error:
        raise CannotCheck(f"{error.filename or 'reading'}: {error.strerror or error}") from error
    if output == "json":
        click.echo(json.dumps(report, indent=2))
    else:
        click.echo(as_text(report))
    ctx.exit(DAMAGED if report["damages"] else 0)


# -- looking -------------------------------------------------------------------------------


def audit_directory(directory: str) -> dict[str, Any]:
    must_be_data_directory(directory)
    with locked(directory), Counted(directory) as progress:
        damages: list[Damage] = []
        queues, deleted = read_definitions(directory, damages)
        files = RealFileSystem()
        found = DataAudit(files, directory, queues, progress.note, deleted)
        found.run()
        damages += found.damages
        for queue in found.queues.values():
            if queue.facts.is_stream:
                damages += audit_stream(files, directory, found, queue, progress)
    return describe(directory, found, damages)


def must_be_data_directory(directory: str) -> None:
    if not os.path.isdir(directory):
        raise CannotCheck(f"{directory} is not a directory", "give a broker's data directory")
    names = os.listdir(directory)
    if os.path.isdir(os.path.join(directory, "log")):
        raise CannotCheck(
            f"{directory} holds a message log of a release before the storage engine",
            "use that release",
        )
    if not {DEFINITIONS_FILE, "journal"} & set(names):
        raise CannotCheck(
            f"{directory} is not a data directory: it has neither {DEFINITIONS_FILE} nor journal",
            "the start screen of the broker says where its data is",
        )


@contextmanager
def locked(directory: str, mode: int = fcntl.LOCK_SH) -> Iterator[None]:
    """No broker uses the directory, nor will while this lasts."""
    path = os.path.join(directory, "lock")
    if not os.path.exists(path):
        yield
        return
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
        os.close(handle)
        raise CannotCheck(
            f"{directory} is in use by process {holder}",
            "stop the broker, or copy the directory and check the copy",
        ) from None
    try:
        yield
    finally:
        os.close(handle)


def read_definitions(directory: str, damages: list[Damage]) -> tuple[list[QueueFacts], SeqRanges]:
    """The durable queues, the numbers of deleted ones; what is wrong joins the damages."""
    path = os.path.join(directory, DEFINITIONS_FILE)
    if not os.path.exists(path):
        text = "the file is missing; a start would make an empty one and know no queue"
        damages.append(Damage(DEFINITIONS_FILE, 0, 0, text))
        return [], SeqRanges()
    with tempfile.TemporaryDirectory(prefix="penstock-audit-") as aside:
        copy = os.path.join(aside, DEFINITIONS_FILE)
        shutil.copyfile(path, copy)
        with suppress(FileNotFoundError):
            shutil.copyfile(f"{path}-wal", f"{copy}-wal")
        try:
            check_log(copy)
            _check_sqlite(path, copy)
            return _queues_of(copy)
        except (sqlite3.DatabaseError, Corrupt) as error:
            text = str(error).replace(copy, DEFINITIONS_FILE)
            damages.append(Damage(DEFINITIONS_FILE, 0, os.path.getsize(path), text))
            return [], SeqRanges()


def _check_sqlite(path: str, copy: str) -> None:
    database = sqlite3.connect(copy)
    try:
        version = int(database.execute("PRAGMA user_version").fetchone()[0])
        if version not in (0, FORMAT_VERSION, *UPGRADES):
            raise CannotCheck(
                f"{path}: definitions format version {version},"
                f" this release reads version {FORMAT_VERSION}",
                "use the release that wrote it",
            )
        said = database.execute("PRAGMA integrity_check").fetchone()[0]
    finally:
        database.close()
    if said != "ok":
        raise sqlite3.DatabaseError(str(said).splitlines()[0])


def _queues_of(copy: str) -> tuple[list[QueueFacts], SeqRanges]:
    definitions = Definitions(copy)
    try:
        topology = definitions.load()
        deleted = definitions.deleted_queues()
    finally:
        definitions.close()
    entries = {vhost.name: vhost.segment_entries for vhost in topology.vhosts}
    for queue in topology.queues:
        if queue.vhost not in entries:
            raise Corrupt(f"queue {queue.name!r} belongs to no virtual host")
    facts = [
        QueueFacts(
            queue_id,
            queue.vhost,
            queue.name,
            entries[queue.vhost],
            queue_type(queue.arguments) == STREAM,
        )
        for queue in topology.queues
        for queue_id in queue.queue_ids()
    ]
    return facts, deleted


def audit_file(path: str) -> dict[str, Any]:
    directory, name = os.path.split(path)
    if not os.path.isfile(path):
        raise CannotCheck(f"{path} is not a file")
    home = data_directory_of(directory)
    with locked(home):
        if name == TERMS_FILE:
            return describe_terms_file(directory, path)
        walk = walk_one(path)
    if walk is None:
        raise CannotCheck(
            f"{path} is no file of the engine",
            "names are N.jif (journal), N.idx (segments), N.stm (streams), N.rdq (store) and terms",
        )
    described = describe_walk(walk)
    described["content"] = [
        {"offset": b.offset, "bytes": b.size, "synced": b.synced, "content": b.content}
        for b in walk.blocks
    ]
    return {"file": path, "verdict": verdict(walk.damages, walk.torn_bytes), **described} | {
        "damages": [describe_damage(damage) for damage in walk.damages]
    }


def walk_one(path: str) -> FileWalk | None:
    """One file by itself, told by its name; None = no file of a data directory."""
    directory, name = os.path.split(path)
    first = segment_first(name)
    if first >= 0:
        stream = os.path.basename(directory)
        number = int(stream) if stream.isdigit() else 0
        return StreamWalk(RealFileSystem(), path, path, number, first, newest=True)
    with open(path, "rb") as file:
        return walk_file(path, file.read())


def data_directory_of(directory: str) -> str:
    """Where the lock of a file in there would be; the directory itself when there is none."""
    for _ in range(3):
        if os.path.exists(os.path.join(directory, "lock")):
            break
        directory = os.path.dirname(directory)
    return directory


def describe_terms_file(directory: str, path: str) -> dict[str, Any]:
    terms = read_terms(RealFileSystem(), directory)
    damages: list[Damage] = []
    content = []
    if terms is None:
        damages.append(Damage(path, 0, os.path.getsize(path), "no true terms"))
    else:
        content = [
            {
                "queue": int(queue.queue_id),
                "next_seq_id": int(queue.next_seq_id),
                "segments": len(queue.segments),
                "messages": sum(int(segment.live_count) for segment in queue.segments),
            }
            for queue in terms.queues
        ]
    return {
        "file": path,
        "verdict": verdict(damages, 0),
        "bytes": os.path.getsize(path),
        "content": content,
        "damages": [describe_damage(damage) for damage in damages],
    }


class Counted:
    """Says on a terminal how far it is, when there is much to read."""

    def __init__(self, directory: str) -> None:
        self._total = 0
        self._done = 0
        self._said_at = 0.0
        self._directory = directory

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            for where, _, names in os.walk(self._directory):
                self._total += sum(os.stat(os.path.join(where, name)).st_size for name in names)
        return self

    def note(self, path: str, size: int) -> None:
        now = time.monotonic()
        if self._total >= LARGE_BYTES and now - self._said_at >= PROGRESS_S:
            self._said_at = now
            self._say(f"{100 * self._done // self._total:3} %  {path}")
        self._done += size

    def __exit__(self, *_: object) -> None:
        if self._said_at > 0:
            self._say("")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text}")
        sys.stderr.flush()


def audit_stream(
    files: RealFileSystem, directory: str, found: DataAudit, queue: QueueAudit, progress: "Counted"
) -> list[Damage]:
    """What is in the stream joins ``found``; returns its damages."""
    stream = queue.facts.queue_id
    audited = StreamAudit(files, directory, stream, found.known_offset(stream))
    progress.note(f"streams/{stream}", sum(walk.size for walk in audited.walks))
    queue.note_stream(audited.walks, audited.messages(), audited.content_bytes())
    found.note(audited.notes)
    return audited.damages


# -- telling -------------------------------------------------------------------------------


def verdict(damages: list[Damage], torn_bytes: int) -> str:
    if damages:
        return "damaged"
    return "sound, with torn tails" if torn_bytes else "sound"


def describe_damage(damage: Damage) -> dict[str, Any]:
    return {
        "file": damage.file,
        "offset": damage.offset,
        "length": damage.length,
        "what": damage.text,
    }


def describe_walk(walk: FileWalk) -> dict[str, Any]:
    row: dict[str, Any] = {"file": walk.path, "bytes": walk.size, "used": walk.end}
    row["blocks"] = len(walk.blocks)
    if isinstance(walk, JournalWalk):
        row["records"] = {RECORD_NAMES[kind]: count for kind, count in walk.kinds.items()}
    elif isinstance(walk, SegmentWalk):
        row["messages"] = walk.messages
        row["settled"] = walk.settled_count
        row["transient"] = walk.transient_count
        row["delayed"] = walk.delayed_count
    elif isinstance(walk, StreamWalk):
        row |= {"messages": walk.count, "settled": 0, "transient": 0, "delayed": 0}
    elif isinstance(walk, StoreWalk):
        row["contents"] = walk.count
    return row | {"attested": walk.attested, "torn": walk.torn_bytes}


def describe(directory: str, found: DataAudit, damages: list[Damage]) -> dict[str, Any]:
    live, live_bytes = found.contents.live()
    torn = [walk for walk in found.walks() if walk.torn_bytes]
    return {
        "directory": directory,
        "verdict": verdict(damages, len(torn)),
        "terms": found.terms_state,
        "messages": sum(queue.messages for queue in found.queues.values()),
        "torn_files": len(torn),
        "torn_bytes": found.torn_bytes(),
        "queues": [
            {
                "vhost": queue.facts.vhost,
                "name": queue.facts.name,
                "id": queue.facts.queue_id,
                "messages": queue.messages,
                "bytes": queue.content_bytes,
                "in_segments": queue.in_segments,
                "in_journal": queue.in_journal,
                "journal_only": queue.journal_only,
                "stored": queue.stored,
                "transient": queue.transient,
                "unconfirmed": queue.unconfirmed,
                "segments": len(queue.segments),
            }
            for queue in found.queues.values()
        ],
        "journal": [describe_walk(walk) for walk in found.journal],
        "segments": [
            describe_walk(walk) for queue in found.queues.values() for walk in queue.segments
        ],
        "store": [describe_walk(walk) for walk in found.store],
        "contents": {
            "count": len(found.contents.ids),
            "referred_to": live,
            "live_bytes": live_bytes,
            "garbage_bytes": sum(found.contents.sizes) - live_bytes,
            "copies": found.contents.copies,
        },
        "notes": found.notes,
        "damages": [describe_damage(damage) for damage in damages],
    }


def as_text(report: dict[str, Any]) -> str:
    lines = [f"{report.get('directory') or report['file']}: {report['verdict']}"]
    if "directory" in report:
        lines += _directory_lines(report)
    else:
        lines += ["", rows_of(report["content"])] if report["content"] else []
        if report.get("torn"):
            lines += ["", f"torn tail: {report['torn']} bytes"]
    if report["damages"]:
        shown = report["damages"][:DAMAGES_SHOWN]
        lines += ["", "damage", rows_of(shown)]
        if len(shown) < len(report["damages"]):
            lines.append(f"and {len(report['damages']) - len(shown)} more; -o json has all")
    return "\n".join(lines)


def _directory_lines(report: dict[str, Any]) -> list[str]:
    terms = {
        "valid": "the broker was stopped cleanly; the next start reads only the terms",
        "damaged": "the terms of the last stop are damaged; the next start reads everything",
        "absent": "the broker was not stopped cleanly; the next start reads everything",
    }
    contents = report["contents"]
    lines = [
        terms[report["terms"]],
        f"{report['messages']} messages in {len(report['queues'])} durable queues",
    ]
    for title in ("queues", "journal", "segments", "store"):
        if report[title]:
            lines += ["", title, rows_of(report[title])]
    if contents["count"]:
        lines.append(
            f"{contents['count']} contents, {contents['referred_to']} of them referred to:"
            f" {contents['live_bytes']} bytes live, {contents['garbage_bytes']} garbage"
        )
    if report["torn_files"]:
        lines.append(
            f"\ntorn tails: {report['torn_bytes']} bytes at the end of {report['torn_files']} files"
            " (a crash leaves them, the next start cuts them off)"
        )
    return lines + (["", "notes", *report["notes"]] if report["notes"] else [])


def rows_of(items: list[dict[str, Any]]) -> str:
    rows = [[_cell(value) for value in item.values()] for item in items]
    return table([key.replace("_", " ") for key in items[0]], rows)


def _cell(value: Any) -> object:
    if isinstance(value, dict):
        return ", ".join(f"{count} {name}" for name, count in value.items())
    return value
