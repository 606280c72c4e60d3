"""Pipelines on Apache Spark: clients of the broker, like any other.

    jobs        move messages: archive, replay, redrive, validate
    reports     answer questions: dead letters, latency, flow control, SQL; as text and as pages
    dataframes  what is read: a queue, dead letters, the event log, ``queue('orders')`` in SQL
    tables      what is written: a table's format, and how a batch becomes part of it, once
    launcher    a Java, a Spark for one pipeline, and Spark's errors in one line
    state       where a pipeline keeps its place, and Spark's notes about it
    progress    tells the broker of every batch
    session     a Spark for a program of one's own
    template    a project for Declarative Pipelines

The data source itself is the package ``pyspark_penstock``, which stands alone so that a
cluster can have it without the rest.  Nothing here imports pyspark before it is used.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    name: str = "penstock",
    master: str = "local[*]",
    *,
    url: str | None = None,
    settings: "dict[str, str] | None" = None,
) -> "SparkSession":
    """A Spark session for a program of your own, which needs no environment variables.

    Its workers run this Python, on a Java that is found as for the pipelines, and an embedded
    Spark listens on loopback only.  ``url`` names the broker for all reads and writes (default:
    ``$PENSTOCK_URL``), ``settings`` are of Spark and win.  Raises JavaMissing.
    """
    from penstock.spark.launcher.session import program_session

    return program_session(name, master, url, settings or {})
