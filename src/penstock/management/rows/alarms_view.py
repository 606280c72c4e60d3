"""Memory and disk as one JSON-able dict: what is short, the limits, and when the disk will be."""

from penstock.backing.description import Facts
from penstock.broker.rules.admission import Admission
from penstock.broker.rules.alarms import UNKNOWN
from penstock.broker.rules.forecast import NEVER


def alarms_row(admission: Admission) -> Facts:
    """Called on the data loop; what is not known is None."""
    alarms = admission.alarms
    forecast = alarms.forecast
    free = int(alarms.disk_free_bytes)
    return {
        "memory": alarms.memory,
        "disk": alarms.disk,
        "reason": admission.cluster_reason() or None,
        "elsewhere": admission.elsewhere,
        "memory_used_bytes": int(alarms.used_bytes()),
        "memory_resident_bytes": int(alarms.resident_bytes),
        "memory_limit_bytes": int(alarms.memory_limit_bytes),
        "memory_total_bytes": int(alarms.total_bytes),
        "disk_free_bytes": None if free == UNKNOWN else free,
        "disk_limit_bytes": int(alarms.disk_limit_bytes),
        "disk_shrinks_by_bytes_per_s": round(forecast.shrinks_by),
        "seconds_to_disk_limit": _seconds(int(forecast.seconds_to(alarms.disk_limit_bytes))),
        "seconds_to_disk_full": _seconds(int(forecast.seconds_to(0))),
    }


def _seconds(seconds: int) -> int | None:
    return None if seconds == NEVER else seconds
