"""The range protocol, by which Spark reads and writes queues: frames as bytes, no socket.

The broker's sessions and the data source ``pyspark_penstock`` share these modules.  Spark's
executors get them as Python source, so they import the standard library and nothing else::

    frames         frames, log-in, refusals
    ranges         reading a queue by ranges
    subscriptions  which queues are read, and from where
    staging        writing batches
    reports        reports of pipelines, and the event log
"""
