"""What pipelines read, as DataFrames.

browsing      a queue of which nothing is taken
dead_letters  the x-death header as columns
event_frames  the broker's event log
sql_tables    ``queue('orders')`` in a query: found, and replaced by a view
"""
