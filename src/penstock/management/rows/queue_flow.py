"""The flow picture of a queue, as one JSON-able dict and a sentence.

    published ─► q1 ─► q2 ─► delta ─► q3 ─► q4 ─► delivered ─► pending ─► acknowledged
                  └──────── q1 to q4 ─────────┘

In: a backing, on the data loop.  Out: messages, bytes and messages in memory of each state; how
many went from one to the next, and how many a second do; what may be in memory, and the words for
all that.  A queue with priorities is shown as the sum of them; positions are unknown then.
"""

from typing import Final, cast

from penstock.backing.description import Facts, describe_flow
from penstock.backing.interface import BackingQueue

STATES: Final = ("q1", "q2", "delta", "q3", "q4")
LOOKED_AT: Final = 20_000
"""Messages that may be looked at for one picture; a millisecond."""
TARGETS: Final = ("target_ram_bytes", "target_ram_count", "permitted_beta_count")
POSITIONS: Final = ("next_seq_id", "start", "end", "duration_s")
"""No sum of these means anything."""
DOWN: Final = ("q1_to_beta", "q4_to_beta")
TO_DELTA: Final = ("q2_to_delta", "q3_to_delta", "publish_to_delta")


def flow_facts(backing: BackingQueue) -> Facts:
    """Called on the data loop."""
    parts = backing.parts()
    described = [describe_flow(part, LOOKED_AT // len(parts)) for part in parts]
    whole = described[0] if len(described) == 1 else summed(described)
    row = _row(whole)
    row["priorities"] = None
    if len(described) > 1:
        row["priorities"] = [
            {"priority": number, "messages": facts["messages"]}
            for number, facts in zip(backing.priorities(), described, strict=True)
            if facts["messages"]
        ]
    return row


def _row(facts: Facts) -> Facts:
    pending = cast(dict[str, int], facts["pending"])
    moves = cast(dict[str, dict[str, float]], facts["moves"])
    row: Facts = {
        "mode": facts["mode"],
        "fault": facts["fault"] or None,
        "messages": facts["messages"],
        "bytes": facts["bytes"],
        "states": {name: facts[name] for name in STATES},
        "pending": {
            **pending,
            "disk_messages": pending["messages"] - pending["ram_messages"],
            "disk_bytes": pending["bytes"] - pending["ram_bytes"],
        },
        "delayed": facts["delayed"],
        "memory": {
            "bytes": facts["memory_bytes"],
            "messages": cast(int, facts["ram_messages"]) + pending["ram_messages"],
            "target_ram_bytes": facts["target_ram_bytes"],
            "target_ram_count": facts["target_ram_count"],
            "permitted_beta_count": facts["permitted_beta_count"],
            "bytes_per_second": facts["bytes_per_second"],
            "duration_s": facts["duration_s"],
        },
        "rates": facts["rates"],
        "moves": moves,
        "published_to": facts["published_to"],
        "served_from": facts["served_from"],
        "reading": facts["reading"],
        "next_seq_id": facts["next_seq_id"],
    }
    row["sentence"] = sentence(row, converting=bool(facts["converting"]))
    return row


def summed(rows: list[Facts]) -> Facts:
    """Numbers are sums, what is the same in all stays, the rest is not known."""
    whole: Facts = {}
    for key, first in rows[0].items():
        values = [row[key] for row in rows]
        if all(isinstance(value, dict) for value in values):
            whole[key] = summed(cast(list[Facts], values))
        elif key in TARGETS:  # only those have one that hold something
            known = [value for value in values if isinstance(value, int)]
            whole[key] = sum(known) if known else None
        elif isinstance(first, bool):
            whole[key] = any(values)
        elif key not in POSITIONS and all(isinstance(value, int | float) for value in values):
            whole[key] = sum(cast(list[float], values))
        elif all(value == first for value in values):
            whole[key] = first
        elif key == "fault":
            whole[key] = "; ".join(str(value) for value in values if value)
        else:
            whole[key] = None
    return whole


# -- in words ------------------------------------------------------------------------------


def sentence(row: Facts, *, converting: bool = False) -> str:
    memory = cast(dict[str, int | None], row["memory"])
    held, target = memory["bytes"] or 0, memory["target_ram_bytes"]
    if row["fault"]:
        return f"stopped: {row['fault']}"
    if converting:
        left = _messages(row, "q1", "q2", "q4")
        return f"turning lazy: {_number(left)} messages still go to disk"
    if target is not None:
        return _under_a_target(row, memory, paging=held > target)
    if row["mode"] == "lazy":
        return _lazy(row)
    return _without_target(row)


def _under_a_target(row: Facts, memory: dict[str, int | None], *, paging: bool) -> str:
    what = "paging" if paging else "held to its share of memory"
    parts = [
        f"{what}: RAM target {_number(memory['target_ram_count'])} messages",
        f"{_number(memory['messages'])} in memory",
    ]
    down, out = _rate(row, *DOWN), _rate(row, *TO_DELTA)
    if down:
        parts.append(f"{_number(down)} a second leave memory")
    if out:
        parts.append(f"{_number(out)} a second go to delta")
    back = _rate(row, "delta_to_q3")
    if back:
        parts.append(f"{_number(back)} a second are read back")
    return ", ".join(parts)


def _lazy(row: Facts) -> str:
    on_disk, ahead = _messages(row, "delta"), _messages(row, "q3")
    if on_disk + ahead == 0:
        return "lazy and empty: what is published goes to disk first"
    return f"lazy: {_number(on_disk)} messages rest on disk, {_number(ahead)} are read ahead"


def _without_target(row: Facts) -> str:
    on_disk = _messages(row, "delta")
    if on_disk:
        back = _rate(row, "delta_to_q3")
        how = "none are being read"
        if back:
            how = f"{_number(back)} a second are read ahead of consumers"
        elif row["reading"]:
            how = "the next are being read"
        return f"no RAM target; {_number(on_disk)} messages are on disk, {how}"
    if cast(int, row["messages"]) == 0:
        return "empty: what is published goes through q4 to the next consumer"
    count = cast(int, row["messages"])
    return f"all {_number(count)} messages are in memory, none is paged"


def _messages(row: Facts, *names: str) -> int:
    states = cast(dict[str, dict[str, int]], row["states"])
    return sum(states[name]["messages"] for name in names)


def _rate(row: Facts, *names: str) -> int:
    moves = cast(dict[str, dict[str, float]], row["moves"])
    return round(sum(moves[name]["rate"] for name in names))


def _number(count: int | None) -> str:
    return "no" if count is None else f"{count:,}"
