"""``penstock flow``: who waits for whom, and where the bottleneck is, in one line.

An outside user of the management API, like the commands of inspect.py; it needs the tag
``monitoring``.  JSON is what the server said.
"""

from collections.abc import Mapping
from typing import Any, Final

from penstock.cli.management import Management, command
from penstock.cli.tables import say, table

PATH: Final = "/api/penstock/flow"
WAITS_SHOWN: Final = 10


@command("flow -o json")
def flow(management: Management, output: str) -> None:
    """Show flow control: the chain of credit over the last ten seconds, and the bottleneck."""
    absent = f"{management.url} does not say who waits for whom"
    found = management.must_find(PATH, absent, "credit is shown for Penstock only")
    say(found, output, "" if output == "json" else flow_text(found))


def flow_text(found: Mapping[str, Any]) -> str:
    """The page: the chain, the longest waits, the bottleneck."""
    window = f"share of {found['window_s']} s"
    chain = [
        (stage["kind"], stage["in_flow"], _percent(stage["share"])) for stage in found["stages"]
    ]
    parts = [table(("stage", "in flow now", window), chain)]
    waits = found["waits"][:WAITS_SHOWN]
    if waits:
        rows = [
            (wait["name"], wait["waits_for"], wait["because"], _percent(wait["share"]))
            for wait in waits
        ]
        parts.append(table(("who waits", "for", "because", window), rows))
        more = len(found["waits"]) - len(waits)
        if more > 0:
            parts[-1] += f"\nand {more} more: -o json has them"
    processor = found["processor"]
    if any(processor.values()):
        shares = ", ".join(f"{name} {_percent(share)}" for name, share in processor.items())
        parts.append(f"the processor's time for messages: {shares}")
    parts.append(f"{found['sentence']}\n{found['advice']}".rstrip())
    return "\n\n".join(parts)


def _percent(share: float | None) -> str:
    """None: of a publisher that an alarm holds no share is known."""
    return "-" if share is None else f"{round(100 * share)} %"
