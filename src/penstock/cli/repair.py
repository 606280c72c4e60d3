"""``penstock repair``: an operator's decision about a data directory that a start refuses.

One thing is decided here: queues of which something lives and that ``definitions.db`` does not
name (``engine/unknown_queues``) are given up.  Their deletion is recorded in the definitions;
the next start removes what is left of them, as after any deletion.
"""

import fcntl
import os

import click

from penstock.cli.audit import CannotCheck, locked, must_be_data_directory
from penstock.cli.options import option
from penstock.core.errors import Corrupt
from penstock.storage.common.files import RealFileSystem
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.engine.terms import read_terms
from penstock.storage.engine.unknown_queues import QueueDirectories, UnknownQueue
from penstock.storage.journal.recovery import JournalRecovery

FOUND = 1


@click.command(
    epilog="\b\nExit codes:\n  0  no such queues, or given up\n"
    "  1  there are such queues, and --delete-unknown-queues is not given\n"
    "  2  cannot tell: no data directory, in use, unreadable\n\n"
    "\b\nExamples:\n  penstock repair /var/lib/penstock\n"
    "  penstock repair /var/lib/penstock --delete-unknown-queues"
)
@click.argument("directory", metavar="DIR")
@option(
    "--delete-unknown-queues delete",
    "Record them as deleted; the next start removes their messages for good.",
    is_flag=True,
)
@click.pass_context
def repair(ctx: click.Context, /, directory: str, *, delete: bool) -> None:
    """List queues that have messages in a data directory and that definitions.db does not name.

    They are a sign that definitions.db is damaged or older than the other files: restore it from
    a copy where there is one. A start refuses the directory until then, or until they are given up.
    """
    directory = os.path.abspath(directory)
    must_be_data_directory(directory)
    try:
        with locked(directory, fcntl.LOCK_EX):
            unknown = look(directory, delete=delete)
    except Corrupt as error:
        raise CannotCheck(str(error), "see penstock audit") from error
    except OSError as error:
        raise CannotCheck(f"{error.filename or 'reading'}: {error.strerror or error}") from error
    for queue in unknown:
        click.echo(f"{'deleted' if delete else 'unknown'}: {queue.text()}")
    if not unknown:
        click.echo("every queue that has messages is in the definitions, or recorded as deleted")
    ctx.exit(FOUND if unknown and not delete else 0)


def look(directory: str, *, delete: bool) -> list[UnknownQueue]:
    """What was found; recorded as deleted when ``delete`` is set.  Raises Corrupt, OSError."""
    files = RealFileSystem()
    definitions = Definitions(os.path.join(directory, "definitions.db"))
    try:
        known = {number for queue in definitions.load().queues for number in queue.queue_ids()}
        deleted = definitions.deleted_queues()
        left = QueueDirectories(files, directory, known)
        terms = read_terms(files, directory)
        if terms is not None:
            left.judge_terms(terms, deleted)
        else:
            journal = JournalRecovery(files, f"{directory}/journal", known, deleted)
            journal.run()
            left.judge_journal(journal.unknown, deleted)
        if delete and left.unknown:
            definitions.delete_unknown_queues([queue.queue_id for queue in left.unknown])
            definitions.commit()
    finally:
        definitions.close()
    return left.unknown
