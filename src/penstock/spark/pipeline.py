"""The base of every pipeline on Spark: a session, restarts of a query, and its end.

In: a function that starts a query, and whether the pipeline ends by itself.  Out: nothing, or
``PipelineFailed`` whose text is the innermost cause.

A failed query is started again on the same checkpoint, in the same session: the broker may
have been restarted, a worker process killed.  That is no use when the source says the data is
lost, or that another reader owns the queue (``HOPELESS``).

A batch job has no checkpoint and is not started again here: ``explained`` only turns Spark's
pages into our own error.
"""

import contextlib
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.core.errors import PenstockError
from penstock.spark.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DATA_LOSS = "pyspark_penstock.source.DataLoss"
HOPELESS = (
    DATA_LOSS,
    "pyspark_penstock.client.Refused",
    "pyspark_penstock.client.Fenced",
    "pyspark_penstock.client.Locked",
    "penstock.spark.publishing.NotShared",
    "penstock.spark.publishing.FileGone",
)
"""Names that stand in Spark's error text when starting again changes nothing."""
UNREACHABLE = "pyspark_penstock.client.ConnectionLost"
RAISED = re.compile(
    r"^(?:[a-z_]\w*\.)*((?!Py4J|Spark|Python|Streaming)\w+(?:Error|Exception|Failed): .*)$",
    re.MULTILINE,
)
"""A line that names an exception, but for those that only carry another."""
RESTARTS_MAX = 3
"""Without a finished batch in between, when the pipeline is to end some time."""
PAUSE_MIN_S = 1.0
PAUSE_MAX_S = 30.0
POLL_S = 1
STOP_PATIENCE_S = 30.0
"""How long a stop waits for the batch that is being worked on."""


class PipelineFailed(PenstockError):
    """The query failed for good; the text is the innermost cause."""


class BrokerUnreachable(PipelineFailed):
    """No broker answers at the address."""


@contextmanager
def session(
    name: str, master: str, url: str, home: Path, *, short: bool = False
) -> "Iterator[SparkSession]":
    """A Spark for one pipeline; ``home`` gets its log.  The JVM's death is a PipelineFailed.

    On a terminal a line on standard error says that it starts.
    """
    from pyspark_penstock.client import ConnectionLost

    if sys.stderr.isatty():
        sys.stderr.write(f"starting Spark on {master}, which takes some seconds\n")
    spark = local_session(name, master, url, home, short=short)
    try:
        yield spark
    except ConnectionLost as error:  # our own line to the broker: an OSError, too
        raise BrokerUnreachable(str(error)) from error
    except BrokenPipeError:
        raise  # the reader of our output is gone
    except _java_died() as error:
        raise PipelineFailed(
            f"Spark's Java process died ({type(error).__name__}); "
            "nothing is lost, start the pipeline again"
        ) from error
    finally:
        with contextlib.suppress(*_java_died()):
            spark.stop()


def _java_died() -> tuple[type[Exception], ...]:
    """What calls into the JVM raise when there is no JVM."""
    from py4j.protocol import Py4JNetworkError

    return (Py4JNetworkError, ConnectionError)


class DataLost(PipelineFailed):
    """Messages that the checkpoint expects are gone; only an operator can decide to go on."""


class WrongQuery(PipelineFailed):
    """Spark cannot read or resolve the SQL; the text names the place."""

    fix = "correct the SQL, then run the command again"


OnFailure = Callable[[PipelineFailed, float], None]
"""Hears why a query died that is started again, and in how many seconds."""


def unheard(failure: PipelineFailed, pause_s: float) -> None:
    """For who wants to know the end only."""


class QueryRun:
    """One session's attempts to get a streaming query through.

    Work between Spark's notes (``foreachBatch``) is done inside ``batch()``: it
    counts as progress, and a stop waits for its end.
    """

    def __init__(
        self,
        start: "Callable[[], StreamingQuery]",
        stopping: threading.Event,
        on_failure: OnFailure,
        *,
        endless: bool,
    ) -> None:
        self._start = start
        self._stopping = stopping
        self._on_failure = on_failure
        self._endless = endless
        self._between_batches = threading.Event()
        self._batches = 0
        self.restarts = 0

    @contextmanager
    def batch(self) -> Iterator[None]:
        self._between_batches.clear()
        try:
            yield
            self._batches += 1
        finally:
            self._between_batches.set()

    def until_done(self) -> None:
        failures = 0
        while True:
            batches = self._batches
            error = self._attempt()
            if error is None:
                return
            failures = 1 if self._batches > batches else failures + 1
            if is_hopeless(error) or (failures > RESTARTS_MAX and not self._endless):
                raise failure_of(error)
            self.restarts += 1
            # The exponent is bounded, too: an endless pipeline may fail for weeks.
            pause_s = min(PAUSE_MIN_S * 2 ** min(failures - 1, 10), PAUSE_MAX_S)
            self._on_failure(failure_of(error), pause_s)
            if self._stopping.wait(pause_s):
                return

    def _attempt(self) -> Exception | None:
        """One life of the query; returns why it died, None when it is done or was stopped."""
        from pyspark.errors import StreamingQueryException

        query = self._start()
        try:
            while not query.awaitTermination(POLL_S):
                if self._stopping.is_set():
                    self._stop_between_batches(query)
                    return None
        except StreamingQueryException as error:
            return error
        return None

    def _stop_between_batches(self, query: "StreamingQuery") -> None:
        """Interrupting a batch is safe, but its work would have to be done again."""
        if query.status["isTriggerActive"]:
            self._between_batches.wait(STOP_PATIENCE_S)
        query.stop()


@contextmanager
def explained() -> Iterator[None]:
    """Around a batch job: Spark's error becomes ours."""
    from pyspark.errors import AnalysisException, ParseException, PySparkException

    try:
        yield
    except (AnalysisException, ParseException) as error:
        raise WrongQuery(failure_of(error).args[0]) from error
    except PySparkException as error:
        raise failure_of(error) from error


def is_hopeless(error: Exception) -> bool:
    text = str(error)
    return any(name in text for name in HOPELESS)


def failure_of(error: Exception) -> PipelineFailed:
    """The line of our own error out of Spark's pages, when there is one."""
    text = str(error).strip()  # that of a syntax error begins with an empty line
    for line in text.splitlines():
        for name in (*HOPELESS, UNREACHABLE):
            if line.strip().startswith(name):
                cause = line.strip().removeprefix(name).lstrip(": ")
                if name == DATA_LOSS:  # its advice is about an option of the data source
                    return DataLost(cause.partition("  Start with a new checkpoint")[0])
                kind = BrokerUnreachable if name == UNREACHABLE else PipelineFailed
                return kind(cause)
    # What our own code, or Python, raised in a worker or between two batches.
    raised = RAISED.search(text)
    return PipelineFailed(raised[1] if raised else text.splitlines()[0])
