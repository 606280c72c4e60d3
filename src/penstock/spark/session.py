"""An embedded local Spark: found Java, loopback only, no web page, our data source known.

Spark on its own listens on all interfaces (its web page on port 4040, and the address of the
host).  A pipeline started from a shell has no business doing so.  The broker's address goes
in by environment variable, because options show up in query plans.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"


class SparkMissing(PenstockError):
    """pyspark or pyarrow cannot be imported."""

    fix = "install them: pip install 'penstock[spark]', or 'penstock[spark-jre]' to get Java too"


def check_installed() -> None:
    """Raises SparkMissing or JavaMissing, before anything expensive is done."""
    missing = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
    if missing:
        raise SparkMissing(f"Spark is not installed here: no {' and no '.join(missing)}")
    find_java(os.environ)


def local_session(app_name: str, master: str, broker_url: str, scratch: Path) -> "SparkSession":
    """A session in this process; ``scratch`` is where Spark may leave things."""
    check_installed()
    from pyspark.sql import SparkSession

    _prepare_environment(broker_url)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.hadoop.fs.defaultFS": "file:///",
    }
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _register(spark)
    return spark


def _prepare_environment(broker_url: str) -> None:
    """What the JVM, and through it every Python worker, inherits."""
    import pyspark_penstock

    java = find_java(os.environ)
    package_dir = Path(pyspark_penstock.__file__).resolve().parents[1]
    path = [str(package_dir), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update(
        {
            "JAVA_HOME": str(java.home),
            "PENSTOCK_URL": broker_url,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path),
            "SPARK_LOCAL_IP": LOOPBACK,
        }
    )


def _register(spark: "SparkSession") -> None:
    """Spark finds the source by itself when it is installed; this also works when it is not."""
    from pyspark_penstock import DefaultSource

    spark.dataSource.register(DefaultSource)
