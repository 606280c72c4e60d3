"""``penstock pipeline``: Spark jobs one can run without knowing Spark.

    group     the names of the pipelines; none is imported before it is called
    common    what all of them are told, how they stop, and how they say what they did
    subscription  what a pipeline reads
    archive   a queue into a table
    run       several pipelines in one Spark    pipeline_file  the file that says which
    doctor    what is wrong with a table, a checkpoint, a queue
    lake      which table is meant
    compact   many small files of a table into few
    replay    a table to a broker again
    dlq       dead letters: a report, and back to where they came from
    sql       a question to queues
    validate  messages sorted by a schema
    preparing  a project for Declarative Pipelines, the archive that a cluster's workers need, and
              Java's classes, noted so that Spark starts sooner
    latency   how long messages took          flow      who blocked whom over time
    listing   what reports to a broker        event_source  what the two before share

A pipeline's file has its options and its words; the work is in ``penstock.spark``.  Whatever
takes time (pyspark, the JVM) is imported after the cheap questions have been asked: is the
queue there, is Spark installed, is there a Java.
"""
