"""Tables, which are directories of Parquet files or of a Delta table.

table       what a table is, and whether it is the one that was meant
publishing  how a batch's files become part of a plain table, once
delta       the same for a Delta table
landing     an archive's place in a table: lock, drafts, Spark's notes
compaction  many small files become few
"""
