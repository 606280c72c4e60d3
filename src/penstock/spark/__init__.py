"""Pipelines on Apache Spark: outside users of the broker, like any client.

    java      finds a Java that Spark can run on, down to the one pip installs
    session   an embedded local Spark that listens on loopback only
    landing   how a batch becomes a file of a table, once and for good
    pipeline  what all pipelines share: lives of a query, hopeless errors, stopping
    archive   a queue into a Parquet table; ``penstock pipeline archive`` runs it

The data source itself is the package ``pyspark_penstock``, which stands alone so that a
cluster can have it without the rest.  Nothing here imports pyspark before it is used.
"""
