"""``penstock repair`` and ``cluster refound``: decisions about a data directory that is not in use.

A start refuses a directory for two reasons.  Queues of which something lives and that
``definitions.db`` does not name (``engine/unknown_queues``) are given up: their deletion is
recorded in the definitions; the next start removes what is left of them, as after any deletion.  A
journal that is gone (``engine/lost_journal``) is given up: an empty one takes its place.

What follows at the next start of a node that founds its cluster anew is in
cluster/agreement/joining.py.
"""

import fcntl
import os

import click

from penstock.cli.data.audit import DEFINITIONS_FILE, CannotCheck, locked, must_be_data_directory
from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.core.errors import Corrupt, PenstockError
from penstock.storage.common.files import RealFileSystem
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.followed import BRINGS, YIELDS, follow
from penstock.storage.engine.lost_journal import lost_journal
from penstock.storage.engine.terms import read_terms
from penstock.storage.engine.unknown_queues import QueueDirectories, UnknownQueue
from penstock.storage.journal.journal import Journal
from penstock.storage.journal.recovery import JournalRecovery

FOUND = 1


@click.command(
    epilog="\b\nExit codes:\n  0  nothing to decide, or decided\n"
    "  1  there are such queues, or the journal is gone, and its option is not given\n"
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
@option(
    "--new-journal new",
    "Begin an empty journal in place of one that is gone; what only that had is lost.",
    is_flag=True,
)
@click.pass_context
def repair(ctx: click.Context, /, directory: str, *, delete: bool, new: bool) -> None:
    """List queues that have messages in a data directory and that definitions.db does not name.

    They are a sign that definitions.db is damaged or older than the other files: restore it from
    a copy where there is one. A start refuses the directory until then, or until they are given up.
    It also refuses a directory that had messages and whose journal is gone: restore all of it from
    a copy. With a new journal, messages and acknowledgements that were only in the old one are
    lost, and numbers of messages may be given a second time to readers of ranges. Most bodies of
    messages that rest are in it, too: where segments refer to them, a start refuses all the same.
    """
    directory = os.path.abspath(directory)
    must_be_data_directory(directory)
    try:
        with locked(directory, fcntl.LOCK_EX):
            lost, unknown = look(directory, delete=delete, new=new)
    except Corrupt as error:
        raise CannotCheck(str(error), "see penstock audit") from error
    except OSError as error:
        raise CannotCheck(f"{error.filename or 'reading'}: {error.strerror or error}") from error
    if lost:
        click.echo("a new journal was begun" if new else lost)
    for queue in unknown:
        click.echo(f"{'deleted' if delete else 'unknown'}: {queue.text()}")
    if not unknown and not lost:
        click.echo("every queue that has messages is in the definitions, or recorded as deleted")
    ctx.exit(FOUND if (unknown and not delete) or (lost and not new) else 0)


def look(directory: str, *, delete: bool, new: bool) -> tuple[str, list[UnknownQueue]]:
    """Why a start refuses it without a journal, or empty, and the unknown queues.

    The journal is begun when ``new`` is set, the queues are recorded as deleted when ``delete``
    is set; without its journal the queues of a directory are not known.  Raises Corrupt, OSError.
    """
    files = RealFileSystem()
    definitions = Definitions(os.path.join(directory, "definitions.db"))
    try:
        known = {number for queue in definitions.load().queues for number in queue.queue_ids()}
        deleted = definitions.deleted_queues()
        left = QueueDirectories(files, directory, known)
        terms = read_terms(files, directory)
        journal = JournalRecovery(files, f"{directory}/journal", known, deleted)
        if terms is None:
            journal.run()
        lost = lost_journal(journal, terms, directory, len(known))
        if lost and not new:
            return lost, []
        if lost:
            Journal(files, journal.directory).begin(terms.journal_file_no if terms else 1, {})
        if terms is not None:
            left.judge_terms(terms, deleted)
        else:
            left.judge_journal(journal.unknown, deleted)
        if delete and left.unknown:
            definitions.delete_unknown_queues([queue.queue_id for queue in left.unknown])
            definitions.commit()
    finally:
        definitions.close()
    return lost, left.unknown


@click.command(
    short_help="Let a node found its cluster anew.",
    epilog="\b\nExample:\n  penstock cluster refound /var/lib/penstock",
)
@click.argument("directory", type=click.Path(exists=True, file_okay=False))
@option(
    "--yield yields",
    "Give up queues that another node has brought, and copies of queues that none has.",
    is_flag=True,
)
def refound(directory: str, yields: bool) -> None:
    """Let a node found its cluster anew, after etcd (or coordination.db) has lost its data.

    To be run on the data directory of each node, before its next start.  The first node that
    starts founds the cluster; each node brings its users, policies, exchanges, queues and bindings,
    and nothing is deleted.  A queue that two nodes bring stops the second one: which of them has
    the newer messages is yours to say.
    """
    must_be_data_directory(directory)
    with locked(directory):
        try:
            definitions = Definitions(os.path.join(directory, DEFINITIONS_FILE))
            follow(definitions.change, "", YIELDS if yields else BRINGS)
            definitions.commit()
            definitions.close()
        except (PenstockError, OSError) as error:
            raise Failure(str(error)) from error
    click.echo(
        f"{directory}: at its next start this node founds its cluster, or brings what it has"
    )
