"""Pipelines that move messages, each once, whatever is killed and started again.

archive     a queue into a table
replay      a table's messages to a broker again
redrive     dead letters back to their queues
validating  good messages here, bad ones there (``checking`` judges a body)
query_run   a streaming query's restarts, and its end
"""
