"""Failures of a pipeline: what Spark reports, as one error with the innermost cause.

A streaming query that failed may be started again: the broker may have been restarted, a worker
process killed.  That is no use when the source says the data is lost, or that another reader
owns the queue (``HOPELESS``).  A batch job has no checkpoint and is not started again:
``explained`` turns Spark's pages into an error of ours.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.core.errors import PenstockError

DATA_LOSS = "pyspark_penstock.source.DataLoss"
HOPELESS = (
    DATA_LOSS, "pyspark_penstock.client.Refused", "pyspark_penstock.client.Fenced",
    "pyspark_penstock.client.Locked", "pyspark_penstock.client.NotPenstock",
    "penstock.spark.tables.publishing.NotShared", "penstock.spark.tables.publishing.FileGone",
    "penstock.spark.tables.table.OtherTable", "penstock.spark.tables.per_queue.OneTableForTwo",
)  # fmt: skip
"""Names that stand in Spark's error text when starting again changes nothing."""
UNREACHABLE = "pyspark_penstock.client.ConnectionLost"
RAISED = re.compile(
    r"^(?:[a-z_]\w*\.)*((?!Py4J|Spark|Python|Streaming)\w+(?:Error|Exception|Failed): .*)$",
    re.MULTILINE,
)
"""A line that names an exception, but for those that only carry another."""

JAVA_SAYS = re.compile(r"SparkException: (?!Job aborted due to stage failure)(.+)$", re.MULTILINE)
"""Where nothing in Python did: a worker that was killed."""
IN_COMMANDS: Final = {
    **{name: f"--{name}" for name in ("url", "exchange", "group", "stream", "queue")},
    "takeOver": "--take-over",
}
"""How a command gives each of the options that a cure names."""


class PipelineFailed(PenstockError):
    """The query failed for good; the text is the innermost cause, ``fix`` what helps, if known."""

    fix = ""

    def __init__(self, cause: str, fix: str = "") -> None:
        super().__init__(cause)
        if fix:
            self.fix = fix


class JavaDied(PipelineFailed):
    """Spark's Java is gone, and with it all that runs in it."""


class BrokerUnreachable(PipelineFailed):
    """No broker answers at the address."""


class DataLost(PipelineFailed):
    """Messages that the checkpoint expects are gone; only an operator can decide to go on."""


class WrongQuery(PipelineFailed):
    """Spark cannot read or resolve the SQL; the text names the place."""

    fix = "correct the SQL, then run the command again"


@contextmanager
def explained() -> Iterator[None]:
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
    # Of a chain of exceptions the last one is what a program was to be told.
    for line in reversed(text.splitlines()):
        for name in (*HOPELESS, UNREACHABLE):
            if line.strip().startswith(f"{name}:"):
                return _failure_named(name, line.strip().removeprefix(f"{name}: "))
    # What our own code, or Python, raised in a worker or between two batches.
    raised = RAISED.search(text) or JAVA_SAYS.search(text)
    return PipelineFailed(raised[1] if raised else text.splitlines()[0])


def _failure_named(name: str, cause: str) -> PipelineFailed:
    if name == DATA_LOSS:  # its advice is about an option of the data source
        return DataLost(cause.partition("  Start with a new checkpoint")[0])
    if name == UNREACHABLE:
        return BrokerUnreachable(cause)
    from pyspark_penstock.planner import without_cure

    cause, cure = without_cure(cause)
    return PipelineFailed(cause, cure.format_map(IN_COMMANDS))
