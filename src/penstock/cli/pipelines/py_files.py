"""``penstock pipeline py-files``: what a cluster needs of us, as one archive."""

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import plain_path, say_summary

EPILOG = """\b
Examples:
  penstock pipeline py-files --out penstock_spark.zip
  spark-submit --py-files penstock_spark.zip my_job.py
"""


@click.command("py-files", epilog=EPILOG)
@option("--out", "The file to write, a .zip.", required=True)
def py_files(out: str) -> None:
    """Write the archive that clusters need, where the package is not installed.

    The pipelines of this command send it by themselves.  A job of your own registers the source:
    spark.dataSource.register(pyspark_penstock.DefaultSource)
    """
    target = plain_path(out)
    if target.suffix != ".zip":
        raise click.UsageError("--out must end in .zip: Spark tells an archive by that")
    from penstock.spark.launcher.py_files import write_py_files

    try:
        names = write_py_files(target)
    except OSError as error:
        raise Failure(f"cannot write {target}: {error}") from error
    say_summary({"out": str(target), "files": len(names), "bytes": target.stat().st_size})
