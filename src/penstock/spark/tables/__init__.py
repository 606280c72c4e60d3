"""Tables: directories of Parquet files or of a Delta table, and tables of an Iceberg catalog.

parts       the tables of an archive, by what each takes, and what lands a batch in each
table       what a table in a directory is, and whether it is the one that was meant
publishing  how a batch's files become part of a plain table, once
delta       the same for a Delta table
iceberg     the same for an Iceberg table
synced_io   pyiceberg's files, synced before a catalog names them
landing     an archive's place in a table: lock, drafts, Spark's notes
compaction  many small files become few
iceberg_upkeep  the same for an Iceberg table, whose old snapshots go
"""
