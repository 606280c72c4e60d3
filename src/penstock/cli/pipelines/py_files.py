"""``penstock pipeline py-files``: what a cluster needs of us, as one archive."""

from pathlib import Path

import click

from penstock.cli.failure import Failure
from penstock.cli.options import option
from penstock.cli.pipelines.common import LOCAL_PATH, say_summary

EPILOG = """\b
Examples:
  penstock pipeline py-files --out penstock_spark.zip
  spark-submit --py-files penstock_spark.zip my_job.py
"""


@click.command("py-files", epilog=EPILOG)
@option("--out", "The file to write, a .zip.", LOCAL_PATH, required=True)
def py_files(out: Path) -> None:
    """Write the archive that clusters need, where the package is not installed.

    The pipelines of this command send it by themselves.  A job of your own registers the source:
    spark.dataSource.register(pyspark_penstock.DefaultSource)
    """
    if out.suffix != ".zip":
        raise click.UsageError("--out must end in .zip: Spark tells an archive by that")
    from penstock.spark.launcher.py_files import write_py_files

    try:
        names = write_py_files(out)
    except OSError as error:
        raise Failure(f"cannot write {out}: {error}") from error
    say_summary({"out": str(out), "files": len(names), "bytes": out.stat().st_size})
