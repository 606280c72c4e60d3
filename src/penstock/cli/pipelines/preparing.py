"""``penstock pipeline init``, ``prepare`` and ``py-files``: what is made before pipelines run."""

import os
from pathlib import Path

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import LOCAL_PATH, say_summary

INIT_EPILOG = """\b
Example:
  penstock pipeline init DIRECTORY --queue orders
\b
Then:
  cd DIRECTORY
  spark-pipelines run --conf spark.sql.catalogImplementation=hive
"""
PREPARE_EPILOG = """\b
Exit codes:
  0   done
  1   failed: no Spark or Java, or a Java (such as 21) that takes no such files
  2   wrong usage

\b
Example:
  penstock pipeline prepare      once, for instance where an image is built
"""
PY_FILES_EPILOG = """\b
Examples:
  penstock pipeline py-files --out penstock_spark.zip
  spark-submit --py-files penstock_spark.zip my_job.py
"""


@click.command(epilog=INIT_EPILOG)
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


@click.command(epilog=PREPARE_EPILOG)
def prepare() -> None:
    """Make Spark start nearly twice as fast on this machine.

    A Spark runs once, and its Java writes the classes it has loaded to files of some 200 MB in
    $XDG_CACHE_HOME/penstock (~/.cache/penstock); pipelines find them there. Another Spark or Java
    wants files of its own: run it again after an update. They may be removed at any time.
    """
    from penstock.spark.launcher.java import JavaMissing
    from penstock.spark.launcher.java_classes import NotPrepared
    from penstock.spark.launcher.java_classes import prepare as run

    try:
        done = run(os.environ)
    except (JavaMissing, NotPrepared) as error:
        raise Failure(str(error), error.fix) from error
    except OSError as error:
        raise Failure(f"cannot write Java's classes: {error}") from error
    say_summary(done._asdict())


@click.command("py-files", epilog=PY_FILES_EPILOG)
@option("--out", "The file to write, a .zip.", LOCAL_PATH, required=True)
def py_files(out: Path) -> None:
    """Write the archive that clusters need, where the package is not installed.

    The pipelines of this command send it by themselves.  A job of your own registers the source:
    spark.dataSource.register(pyspark_penstock.DefaultSource)
    """
    if out.suffix != ".zip":
        raise click.UsageError("--out must end in .zip: Spark tells an archive by that")
    from penstock.spark.launcher.session import write_py_files

    try:
        names = write_py_files(out)
    except OSError as error:
        raise Failure(f"cannot write {out}: {error}") from error
    say_summary({"out": str(out), "files": len(names), "bytes": out.stat().st_size})
