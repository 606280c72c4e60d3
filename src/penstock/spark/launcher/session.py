"""A Spark session in this process: finds Java, starts no web page, registers our source.

Spark on its own listens on all interfaces (its web page on port 4040, and the address of the
host).  A pipeline started from a shell has no business doing so: an embedded Spark (``local[N]``)
listens on loopback, the driver of a cluster's job on the address its workers reach it by, which
is the one this machine reaches the master by.  Workers of a cluster get the data source as an
archive.  The broker's address goes in by environment variable, because options show up in query
plans; workers have it from the driver.

Spark also writes pages of stack traces for every failed attempt.  They go to a file: what a
user must know is said in one line by the command that runs the session (``failures``).
"""

import atexit
import logging
import os
import shlex
import socket
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from penstock.core.errors import PenstockError
from penstock.spark.launcher.failures import BrokerUnreachable, JavaDied
from penstock.spark.launcher.java import Java, JavaMissing, find_java
from penstock.spark.launcher.java_classes import sharing_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
SOMEWHERE = "192.0.2.1"
"""Reserved for examples; tells which way out of this machine is the usual one."""
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
}
LOG_NAME = "spark.log"
LOG_SETTINGS = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {rotated}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
appender.file.policies.type = SizeBasedTriggeringPolicy
appender.file.policies.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


@contextmanager
def session(
    name: str, master: str, url: str, home: Path, *, short: bool = False
) -> "Iterator[SparkSession]":
    """A Spark for one pipeline; ``home`` gets its log.  The JVM's death is JavaDied.

    On a terminal a line on standard error says that it starts.  Where a program shares one
    (``SharedSpark.given``), it is a session of that.
    """
    from pyspark_penstock.client import ConnectionLost

    shared = _GIVEN.get()
    if shared is not None:
        home = shared.home
        spark = shared.session(name)
    else:
        _say_that_spark_starts(master)
        spark = local_session(name, master, url, home, short=short)
    try:
        yield spark
    except ConnectionLost as error:  # our own line to the broker: an OSError, too
        raise BrokerUnreachable(str(error)) from error
    except BrokenPipeError:
        raise  # the reader of our output is gone
    except _java_died() as error:
        raise JavaDied(
            f"Spark's Java process died ({type(error).__name__}); nothing is lost",
            f"run the same command again; if it dies again, see {home / LOG_NAME}",
        ) from error
    finally:
        if shared is None:
            stop(spark)


class SharedSpark:
    """One Spark for several pipelines of this process, begun with the first that needs it."""

    def __init__(self, master: str, url: str, home: Path) -> None:
        self.home = home
        self._master = master
        self._url = url
        self._starting = threading.Lock()
        self._spark: SparkSession | None = None

    @contextmanager
    def given(self) -> "Iterator[None]":
        """To every ``session`` of this context."""
        token = _GIVEN.set(self)
        try:
            yield
        finally:
            _GIVEN.reset(token)

    def session(self, name: str) -> "SparkSession":
        """A new session, whose jobs take turns with those of the others."""
        with self._starting:
            if self._spark is None:
                _say_that_spark_starts(self._master)
                self._spark = local_session(
                    "penstock pipelines", self._master, self._url, self.home
                )
        spark = self._spark.newSession()
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", name)
        # Makes it the thread's active session, in which Spark looks for the format of a writer, and
        # whether the name of a source is taken.
        spark.createDataFrame([], "nothing int")
        _register(spark)
        return spark

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None:
            stop(self._spark)


def stop(spark: "SparkSession") -> None:
    """A thread waits for Python's server of accumulators, which takes a second to end."""
    server: Any = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None:
        server.shutdown = threading.Thread(target=server.shutdown, daemon=True).start
    with suppress(*_java_died()):
        spark.stop()


def interpret(spark: "SparkSession") -> None:
    """For a session with a handful of rows: Java runs its plans without compiling them first.

    Without short tracebacks the workers of a stream's source are children of the same process as
    all others, instead of one that has to start.  What a user has set stays.
    """
    given = spark.sparkContext.getConf()
    for key, value in INTERPRETED.items():
        if not given.contains(key):
            spark.conf.set(key, value)


_GIVEN: ContextVar[SharedSpark | None] = ContextVar("the Spark of this program", default=None)


def _say_that_spark_starts(master: str) -> None:
    sys.stderr.write(f"starting Spark on {master}, which takes some seconds\n")


def _java_died() -> tuple[type[Exception], ...]:
    """What calls into the JVM raise when there is no JVM."""
    from py4j.protocol import Py4JNetworkError

    return (Py4JNetworkError, ConnectionError)


def local_session(
    app_name: str,
    master: str,
    broker_url: str,
    scratch: Path,
    *,
    short: bool = False,
    java: str | None = None,
) -> "SparkSession":
    """A session in this process; ``scratch`` is a directory for Spark's log and leavings.

    ``short`` says there is little to do.  Then Java's optimising compiler costs more than it
    gains: without it a run over a thousand messages took a quarter less processor time.
    ``java`` is what Java is told about its classes instead of what ``java_classes`` has for it.
    """
    # Its pages about a wrong query go to standard error; we say it in one line.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    scratch.mkdir(parents=True, exist_ok=True)
    found = find_java(os.environ)
    host = _prepare_environment(found, broker_url, master)
    sharing = sharing_options(found, os.environ) if java is None else java
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": _java_options(scratch, sharing, short=short),
        # Of several pipelines in one Spark each has a pool.
        "spark.scheduler.mode": "FAIR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.hadoop.fs.defaultFS": "file:///",
        # Spark's own choice is INT96, which other readers take for nanoseconds without a zone.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    }
    if is_embedded(master):
        os.environ["PYSPARK_PYTHON"] = str(_workers_python(scratch))
        # By this one Spark looks through all packages for sources; without it, it does not, and
        # the source that is registered runs by the other.
        os.environ["PYSPARK_DRIVER_PYTHON"] = str(scratch / "no-python")
        settings["spark.local.dir"] = str(_emptied(scratch / "local"))
    return _started(app_name, master, host, settings, scratch)


def program_session(
    app_name: str, master: str, url: str | None, settings: Mapping[str, str]
) -> "SparkSession":
    try:
        java = find_java(os.environ)
    except JavaMissing as error:
        raise type(error)(f"{error}; {error.fix}") from None
    broker_url = os.environ.get("PENSTOCK_URL", "") if url is None else url
    host = _prepare_environment(java, broker_url, master)
    scratch = mkdtemp(prefix="penstock-")  # workers of a cluster fetch from it as long as we run
    atexit.register(rmtree, scratch, ignore_errors=True)
    return _started(app_name, master, host, settings, Path(scratch))


def _started(
    app_name: str, master: str, host: str, settings: Mapping[str, str], scratch: Path
) -> "SparkSession":
    """``host``: where the driver listens."""
    from pyspark.sql import SparkSession

    own = {
        "spark.driver.host": host,
        "spark.driver.bindAddress": host,
        # Java and Python give up on each other after so long, which a busy machine needs.
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.python.filterPushdown.enabled": "true",
    }
    builder = SparkSession.builder.appName(app_name).master(master)
    for key, value in (own | dict(settings)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if not is_embedded(master):
        archive = scratch / "pyspark_penstock.zip"
        write_py_files(archive)
        spark.sparkContext.addPyFile(str(archive))
    _register(spark)
    return spark


def _emptied(directory: Path) -> Path:
    """Without what a killed Spark has left there; the caller alone uses it."""
    rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def is_embedded(master: str) -> bool:
    """Whether workers run on this machine, with this environment."""
    return master.startswith("local")


def driver_host(master: str) -> str:
    """The address of this machine that the workers of ``master`` reach."""
    if is_embedded(master):
        return LOOPBACK
    # Spark accepts several masters in one URL, urlsplit does not: the first one is probed.
    hosts = master.rpartition("://")[2] if "://" in master else ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            first = urlsplit("//" + hosts.partition(",")[0])
            # Sends nothing; the kernel chooses the way.
            probe.connect((first.hostname or SOMEWHERE, first.port or 1))
        except (OSError, ValueError) as error:
            raise PenstockError(f"cannot find the Spark master {master}: {error}") from error
        host: str = probe.getsockname()[0]
    return host


def _prepare_environment(java: Java, broker_url: str, master: str) -> str:
    """What the JVM, and through it every Python worker of this machine, inherits.

    Returns the address on which the driver listens.
    """
    import pyspark_penstock

    host = driver_host(master)
    package_dir = Path(pyspark_penstock.__file__).resolve().parents[1]
    workers_python = os.environ.get("PYSPARK_PYTHON") or sys.executable
    path = [str(package_dir), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ.update(
        {
            "JAVA_HOME": str(java.home),
            "PENSTOCK_URL": broker_url,
            "PYSPARK_PYTHON": workers_python,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(path),
            "SPARK_LOCAL_IP": host,
        }
    )
    return host


def _workers_python(scratch: Path) -> Path:
    """This Python for workers on this machine, which import the installed pyspark.

    Spark puts an archive of pyspark's sources in front of their path.  What comes from there is
    compiled by every process anew, which takes most of a second, and a query begins with eight.
    """
    script = scratch / "python"
    path, python = shlex.quote(os.environ["PYTHONPATH"]), shlex.quote(sys.executable)
    script.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {python} "$@"\n')
    script.chmod(0o700)
    return script


def _java_options(scratch: Path, sharing: str, *, short: bool) -> str:
    log = f'"-Dlog4j2.configurationFile={_log_settings(scratch)}"'
    return " ".join((log, sharing, "-XX:TieredStopAtLevel=1" if short else ""))


def _log_settings(scratch: Path) -> Path:
    """Written anew for each session, since the log's place is inside it."""
    settings = scratch / "log4j2.properties"
    log = str(scratch / LOG_NAME)
    settings.write_text(LOG_SETTINGS.format(log=log, rotated=log.replace("%", "%%")))
    return settings


def _register(spark: "SparkSession") -> None:
    """Unless Spark has found the source by itself, as it does when it is installed.

    It would warn that one of the same name is replaced, and Spark 4.0 refuses it.
    """
    from pyspark_penstock import DefaultSource

    session = spark._jsparkSession  # noqa: SLF001 - nothing public says what is registered
    if not session.sessionState().dataSourceManager().dataSourceExists(DefaultSource.name()):
        spark.dataSource.register(DefaultSource)


FIXED_TIME = (1980, 1, 1, 0, 0, 0)
"""The same sources make the same bytes."""


def write_py_files(target: Path) -> list[str]:
    """The data source as an archive, for machines of a cluster that do not have it.

    Workers need these two packages, and nothing else of Penstock.  A session on a cluster sends the
    archive by itself; the file is for ``spark-submit --py-files``.
    """
    import penstock_ranges
    import pyspark_penstock

    target.parent.mkdir(parents=True, exist_ok=True)
    names = []
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in (penstock_ranges, pyspark_penstock):
            folder = Path(str(package.__file__)).resolve().parent
            for source in sorted(folder.glob("*.py")):
                name = f"{folder.name}/{source.name}"
                archive.writestr(zipfile.ZipInfo(name, FIXED_TIME), source.read_bytes())
                names.append(name)
    return names
