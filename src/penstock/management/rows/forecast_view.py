"""Memory and disk: what is short, the limits, and a forecast of alarms, also in a sentence.

    memory  0 ──────── paging line ──────── limit ──────── all there is
    disk    0 ──────── used ──────────────── limit ─────── all there is

Memory is that of the whole process by count, as the alarm judges it; above the paging line queues
move messages to disk.  Called on the data loop; reads numbers only.
"""

from penstock.backing.description import Facts
from penstock.broker.rules.admission import Admission
from penstock.broker.rules.alarms import NO_PAGING, UNKNOWN, Alarms
from penstock.broker.rules.forecast import NEVER
from penstock.storage.engine.ram import RamAccount


def forecast_row(alarms: Alarms, ram: RamAccount) -> Facts:
    memory, disk = _memory_row(alarms, ram), _disk_row(alarms)
    return {"memory": memory, "disk": disk, "sentence": sentence(memory, disk)}


def _memory_row(alarms: Alarms, ram: RamAccount) -> Facts:
    paging_bytes = None
    if ram.paging_bytes < NO_PAGING:
        paging_bytes = int(alarms.base_bytes + ram.paging_bytes)
    to_paging = None
    if paging_bytes is not None:
        to_paging = _seconds(int(alarms.seconds_to_memory(paging_bytes)))
    return {
        "alarm": alarms.memory,
        "paging": ram.must_page(),
        "used_bytes": int(alarms.used_bytes()),
        "messages_bytes": int(ram.used_bytes()),
        "base_bytes": int(alarms.base_bytes),
        "resident_bytes": int(alarms.resident_bytes),
        "paging_bytes": paging_bytes,
        "limit_bytes": int(alarms.memory_limit_bytes),
        "total_bytes": int(alarms.total_bytes),
        "grows_by_bytes_per_s": round(alarms.memory_forecast.shrinks_by),
        "seconds_to_paging": to_paging,
        "seconds_to_alarm": _seconds(int(alarms.seconds_to_memory(alarms.memory_limit_bytes))),
    }


def _disk_row(alarms: Alarms) -> Facts:
    free = int(alarms.disk_free_bytes)
    forecast = alarms.forecast
    return {
        "alarm": alarms.disk,
        "free_bytes": None if free == UNKNOWN else free,
        "limit_bytes": int(alarms.disk_limit_bytes),
        "total_bytes": int(alarms.disk_bytes) or None,
        "shrinks_by_bytes_per_s": round(forecast.shrinks_by),
        "seconds_to_alarm": _seconds(int(forecast.seconds_to(alarms.disk_limit_bytes))),
        "seconds_to_full": _seconds(int(forecast.seconds_to(0))),
    }


def _seconds(seconds: int) -> int | None:
    return None if seconds == NEVER else seconds


# -- in words ------------------------------------------------------------------------------


def sentence(memory: Facts, disk: Facts) -> str:
    return f"{_memory_words(memory)} {_disk_words(disk)}"


def _memory_words(memory: Facts) -> str:
    if memory["alarm"]:
        return "The memory alarm is set: publishers wait until consumers have made room."
    to_alarm, to_paging = memory["seconds_to_alarm"], memory["seconds_to_paging"]
    if memory["paging"]:
        if isinstance(to_alarm, int):
            return f"Queues page; as it goes the memory alarm is set in {in_words(to_alarm)}."
        return "Queues page, and keep memory from growing."
    if isinstance(to_paging, int) and to_paging > 0:
        return f"At the current rate paging starts in {in_words(to_paging)}."
    if isinstance(to_alarm, int):
        return f"At the current rate the memory alarm is set in {in_words(to_alarm)}."
    return "Memory does not grow."


def _disk_words(disk: Facts) -> str:
    if disk["free_bytes"] is None:
        return "How much of the disk is free is not known."
    if disk["alarm"]:
        return "The disk alarm is set: publishers wait until there is space."
    to_alarm = disk["seconds_to_alarm"]
    if isinstance(to_alarm, int):
        return f"At the current rate the disk alarm is set in {in_words(to_alarm)}."
    return "The disk does not fill up."


def in_words(seconds: int) -> str:
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    if seconds < 86_400:
        return f"{seconds // 3600} h {seconds % 3600 // 60} min"
    return f"{seconds // 86_400} d {seconds % 86_400 // 3600} h"


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
