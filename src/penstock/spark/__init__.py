"""Pipelines on Apache Spark: clients of the broker, like any other.

    jobs        move messages: archive, replay, redrive, validate
    reports     answer questions: dead letters, latency, flow control, SQL; as text and as pages
    dataframes  what is read: a queue, dead letters, the event log, ``queue('orders')`` in SQL
    tables      what is written: a table's format, and how a batch becomes part of it, once
    launcher    a Java, a Spark for one pipeline, and Spark's errors in one line
    state       where a pipeline keeps its place, and Spark's notes about it
    progress    tells the broker of every batch
    template    a project for Declarative Pipelines

The data source itself is the package ``pyspark_penstock``, which stands alone so that a
cluster can have it without the rest.  Nothing here imports pyspark before it is used.
"""
