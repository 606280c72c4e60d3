"""``penstock nsqd``, ``penstock nsqlookupd`` and ``penstock migrate nsqd``."""
