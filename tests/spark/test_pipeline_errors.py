"""What a user is told of Spark's pages: the innermost cause, and whether trying again helps."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs pyspark: pip install 'penstock[spark]'")

from penstock.spark.pipeline import BrokerUnreachable, PipelineFailed, failure_of, is_hopeless

PAGES = """[STREAM_FAILED] Query terminated: [FOREACH_BATCH_USER_FUNCTION_ERROR] Reason:
Traceback (most recent call last):
  File "/x/archive.py", line 1, in _land
py4j.protocol.Py4JJavaError: An error occurred while calling o57.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/x/table_files.py", line 2, in flush
{cause}
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    "cause, kind, text, hopeless",
    [
        (
            "OSError: [Errno 28] No space left on device",
            PipelineFailed,
            "OSError: [Errno 28] No space left on device",
            False,
        ),
        (
            "pyspark_penstock.source.DataLoss: queue 'q' has lost data",
            PipelineFailed,
            "queue 'q' has lost data",
            True,
        ),
        (
            "pyspark_penstock.client.ConnectionLost: cannot connect",
            BrokerUnreachable,
            "cannot connect",
            False,
        ),
        ("penstock.spark.publishing.NotShared: not there", PipelineFailed, "not there", True),
        ("nothing that names itself", PipelineFailed, PAGES.splitlines()[0], False),
    ],
)
def test_the_cause_is_found(cause: str, kind: type, text: str, hopeless: bool) -> None:
    error = RuntimeError(PAGES.format(cause=cause))
    found = failure_of(error)
    assert (type(found), str(found), is_hopeless(error)) == (kind, text, hopeless)
