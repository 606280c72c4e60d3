"""Files, disk jobs and SQLite's errors: what all of storage stands on."""
