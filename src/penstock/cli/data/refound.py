"""``penstock cluster refound``: a node may found its cluster anew, when etcd's data is gone.

Works on the data directory of a node that is not running.  What follows at its next start is in
cluster/agreement/joining.py.
"""

import os

import click

from penstock.cli.data.audit import DEFINITIONS_FILE, locked, must_be_data_directory
from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.core.errors import PenstockError
from penstock.storage.definitions.definitions import Definitions
from penstock.storage.definitions.followed import BRINGS, YIELDS, follow


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
