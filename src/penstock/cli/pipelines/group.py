"""The list of pipelines: a table of names, each imported on first use.

Pipelines need packages that a broker does not: those of the extra ``spark``.  Where one is
missing, the first import of it ends the command with the way to install it.
"""

from typing import Final

import click

from penstock.cli.commands import LazyGroup, entries_of
from penstock.cli.failure import Failure

PIPELINES: Final = entries_of("""\
Pipelines
  archive: Land a queue in a table, each message once.
  run: Run the pipelines of a file in one Spark, as a service.
  doctor: Say what is wrong with a table or checkpoint, and what mends it.
  latency: How long messages took, per queue and window.
  flow: Show flow control over hours.
  list listing:listing: Pipelines that report to a broker.
  compact: Make few large files of a table's many.
  replay: Send a table's messages to a broker again.
  outbox: Send each new row of a table as a message, once.
  py-files preparing:py_files: Write the archive that clusters need.
  dlq: Look through dead letters, and send them back.
  sql: Ask queues a question in SQL; they stay as they are.
  validate: Sort messages by a schema: good ones here, bad there.
  prepare preparing: Make Spark start nearly twice as fast on this machine.
  init preparing: Write a project for Spark's Declarative Pipelines.
""")


SPARK_PACKAGES: Final = (
    *("pyspark", "py4j", "pyarrow", "deltalake", "pyiceberg", "sqlalchemy", "jsonschema"),
)
INSTALL_SPARK: Final = (
    "`make spark` in a checkout, or pip install 'penstock-broker[spark]',"
    " or 'penstock-broker[spark-jre]' to get Java too"
)


class Pipelines(LazyGroup):
    package = "penstock.cli.pipelines"
    entries = PIPELINES

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in SPARK_PACKAGES:
                raise
            raise Failure(f"Spark is not installed here: no {package}", INSTALL_SPARK) from error


@click.group(cls=Pipelines, epilog="\b\nExample:\n  penstock pipeline archive --help")
def pipeline() -> None:
    """Run pipelines on Spark: queues into tables, and what is built on that."""
