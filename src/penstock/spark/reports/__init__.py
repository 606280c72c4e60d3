"""Pipelines that answer questions and move nothing.

dlq_report, dlq_page  what lies in a dead-letter queue: counted, and as a page
doctor      what is wrong with a table, a pipeline's place and its queue
latency     how long messages took
flow        which stage waited for which over time
sql_query   a query's rows as text
html_report a report as one HTML file: charts, each with its table
"""
