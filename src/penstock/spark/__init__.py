"""Pipelines on Apache Spark: clients of the broker, like any other.

    java        finds a Java that Spark can run on, down to the one pip installs
    session     a Spark for one pipeline, embedded or on a cluster
    py_files    the data source as an archive for clusters
    pipeline    what all pipelines share: lives of a query, hopeless errors, stopping
    archive     a queue into a table
    landing     an archive's place in a table: lock, drafts, Spark's notes
    table       what a table is, and whether it is the one that was meant
    publishing  how a batch's files become part of a plain table, once
    delta       the same for a Delta table
    compaction  many small files become few
    replay      a table's messages go to a broker again
    progress    tells the broker of every batch
    event_frames  the broker's event log as a DataFrame
    latency     how long messages took
    flow        who blocked whom over time
    browsing    looking at a queue of which nothing is taken
    dead_letters  what x-death says, as columns
    dlq_report, dlq_page  what lies in a dead-letter queue: counted, and as a page
    html_report a report as one HTML file: charts, each with its table
    redrive     dead letters go back, each once
    sql_tables, sql_query  queue('orders') in SQL, and a query's rows as text
    checking    is a body what a schema says?
    validating  good messages here, bad ones there
    state       where a pipeline without a table keeps its place
    template    a project for Declarative Pipelines

The data source itself is the package ``pyspark_penstock``, which stands alone so that a
cluster can have it without the rest.  Nothing here imports pyspark before it is used.
"""
