"""Files, disk jobs and SQLite's errors: used by all other packages of storage."""
