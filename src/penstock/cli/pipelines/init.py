"""``penstock pipeline init``: a project for Spark's Declarative Pipelines."""

from pathlib import Path

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import LOCAL_PATH, say_summary

EPILOG = """\b
Example:
  penstock pipeline init DIRECTORY --queue orders
\b
Then:
  cd DIRECTORY
  spark-pipelines run --conf spark.sql.catalogImplementation=hive
"""


@click.command(epilog=EPILOG)
@click.argument("directory", type=LOCAL_PATH)
@option("--queue", "The queue it reads.", default="orders")
@option("--answers", "The queue it writes to.", default="orders.answers")
def init(directory: Path, queue: str, answers: str) -> None:
    """Write a project for Spark's Declarative Pipelines into a new DIRECTORY.

    It reads a queue into a table and sends answers to another queue; its README says how to
    run and change it.  Nothing is asked of a broker, and Spark is not needed.
    """
    from penstock.spark.template import NotEmpty, write_project

    try:
        written = write_project(directory, queue, answers)
    except NotEmpty as error:
        raise click.UsageError(str(error)) from error
    except OSError as error:
        raise Failure(f"cannot write the project: {error}", "name another directory") from error
    for one in written:
        click.echo(f"wrote {one}")
    say_summary({"directory": directory, "queue": queue, "answers": answers})
