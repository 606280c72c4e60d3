"""How long a queue stays reserved for a reader of ranges that is gone, by default."""

from penstock.settings.settings import load_settings

LEASE_GRACE_MS = load_settings(None, {}, {}).range_lease_grace_ms
