"""The protocol of the Spark data source: range reads, staged batches, reports of pipelines."""
